//! Paths: from the root to an inode, through symbolic links; and names, which are bytes in an image, and strings of the operating system in paths.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use ferofs_format::inode::FileType;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::inode::Inode;

/// Symbolic links that one look-up follows, as in Linux. A path with more is an error, as the links may form a loop.
const MAX_LINKS: u32 = 40;

impl Image {
    /// Follows `path` from the root, through symbolic links. If its last component is a symbolic link, that one is followed only if
    /// `follow` is true.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::TooManyLinks`], [`Error::Corrupt`].
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<Inode> {
        let mut pending: Vec<PathBuf> = components_reversed(path);
        let mut parents: Vec<Inode> = Vec::new();
        let mut here = self.root()?;
        let mut links = 0u32;
        while let Some(name) = pending.pop() {
            if name.as_os_str() == ".." {
                here = parents.pop().unwrap_or(here);
                continue;
            }
            if !here.is_dir() {
                return Err(Error::NotADirectory(path.to_owned()));
            }
            let Some(entry) = self.lookup(&here, bytes_of(name.as_os_str()))? else {
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
            let target = PathBuf::from(from_bytes(self.read_link(&inode)?));
            if target.is_absolute() {
                parents.clear();
                here = self.root()?;
            }
            pending.extend(components_reversed(&target));
        }
        Ok(here)
    }
}

/// The components to walk, the first one last.
fn components_reversed(path: &Path) -> Vec<PathBuf> {
    let walk = |component: Component<'_>| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from(OsStr::new(".."))),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    let mut names: Vec<PathBuf> = path.components().filter_map(walk).collect();
    names.reverse();
    names
}

/// The bytes of a name. On Unix these are its bytes; elsewhere its text as UTF-8.
pub(crate) fn bytes_of(name: &OsStr) -> &[u8] {
    name.as_encoded_bytes()
}

/// A name of these bytes.
#[cfg(unix)]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// A name of these bytes. What is not UTF-8 is replaced, because other systems have no names of any bytes.
#[cfg(not(unix))]
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
