//! Paths: from the root to an inode, through symbolic links.

use std::path::Path;

use ferofs_format::inode::FileType;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::names::bytes_of;

/// Symbolic links that one look-up follows, as in Linux. A path with more is an error, as the links
/// may form a loop.
const MAX_LINKS: u32 = 40;

impl Image {
    /// Follows `path` from the root, through symbolic links. If its last component is a symbolic
    /// link, that one is followed only if `follow` is true.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::TooManyLinks`], [`Error::Corrupt`].
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<Inode> {
        let mut pending = names_reversed(&bytes_of(path.as_os_str()));
        let mut parents: Vec<Inode> = Vec::new();
        let mut here = self.root()?;
        let mut links = 0u32;
        while let Some(name) = pending.pop() {
            if name == b".." {
                here = parents.pop().unwrap_or(here);
                continue;
            }
            if !here.is_dir() {
                return Err(Error::NotADirectory(path.to_owned()));
            }
            let Some(entry) = self.lookup(&here, &name)? else {
                return Err(Error::NotFound(path.to_owned()));
            };
            let inode = self.inode(entry.nid)?;
            if inode.file_type() != FileType::Symlink || (pending.is_empty() && !follow) {
                parents.push(std::mem::replace(&mut here, inode));
                continue;
            }
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(Error::TooManyLinks(path.to_owned()));
            }
            let target = self.read_link(&inode)?;
            if target.starts_with(b"/") {
                parents.clear();
                here = self.root()?;
            }
            pending.extend(names_reversed(&target));
        }
        Ok(here)
    }
}

/// The names of a path, the first one last. `.` is none.
fn names_reversed(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}
