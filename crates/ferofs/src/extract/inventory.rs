//! What an extraction would make, name by name, for whoever keeps a record of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::walk::{Step, Walk};
use super::{Complain, Options};
use crate::error::{Error, Result};
use ferofs_read::{Image, Inode, Xattr};

/// A name, and all that stands for it but content.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The path below the start, which itself has an empty one.
    pub path: &'a Path,
    /// The inode.
    pub inode: &'a Inode,
    /// All of its attributes.
    pub xattrs: Vec<Xattr>,
    /// The name that came first, if this is a further one of the same file.
    pub first: Option<PathBuf>,
}

/// Tells `visit` of each name that the options select from `from` on: directories before what is in them. A file that
/// is no directory is the only name.
///
/// # Errors
/// What `visit` returns, [`Error::Interrupted`]. Names that cannot be read are told to `complain`.
pub fn inventory(
    image: &Image,
    from: &Inode,
    options: &Options,
    complain: Complain<'_>,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    let report = |path: &Path, error: &Error| {
        options.progress.failures.fetch_add(1, Ordering::Relaxed);
        complain(path, error);
    };
    let mut tell =
        |path: &Path, inode: &Inode, first: Option<PathBuf>| match image.xattrs(inode).map_err(Error::from) {
            Ok(xattrs) => visit(Entry { path, inode, xattrs, first }),
            Err(error) if error.ends_all() => Err(error),
            Err(error) => {
                report(path, &error);
                Ok(())
            }
        };
    if !from.is_dir() {
        return tell(Path::new(""), from, None);
    }
    let mut walk = Walk::new(image, from, &options.select);
    while let Some(step) = walk.next() {
        if options.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match step {
            Step::Dir(dir) => tell(&walk.path(dir), walk.inode(dir), None)?,
            Step::Files(dir, files) => {
                let dir = walk.path(dir);
                for file in files {
                    let first = file.first.as_ref().map(|first| walk.path_of(first));
                    tell(&dir.join(&file.name), &file.inode, first)?;
                }
            }
            Step::Failed(_, error) if error.ends_all() => return Err(error),
            Step::Failed(path, error) => report(&path, &error),
        }
    }
    Ok(())
}
