//! Lists the names that an extraction creates, for callers that keep a record of them.

use std::path::{Path, PathBuf};

use super::options::{OnError, Options};
use super::walk::{Step, Walk};
use crate::error::{Error, Result};
use ferofs_read::{Image, Inode, Xattr};

/// A name with its inode and attributes.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The path below the start; empty for the start itself.
    pub path: &'a Path,
    /// The inode.
    pub inode: &'a Inode,
    /// All of its attributes.
    pub xattrs: Vec<Xattr>,
    /// The first name of the same file, if this is another one.
    pub first: Option<PathBuf>,
}

/// Calls `visit` for `from` and each selected name below it: a directory comes before its entries.
///
/// # Errors
/// Errors of `visit`, [`Error::Interrupted`]. Names that cannot be read are passed to `on_error`.
pub fn inventory(
    image: &Image,
    from: &Inode,
    options: &Options,
    on_error: OnError<'_>,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    let report = |path: &Path, error: &Error| {
        options.progress.failures.add(1);
        on_error(path, error);
    };
    let mut visit_inode = |path: &Path, inode: &Inode, first: Option<PathBuf>| match image
        .xattrs(inode)
        .map_err(Error::from)
    {
        Ok(xattrs) => visit(Entry { path, inode, xattrs, first }),
        Err(error) if error.ends_all() => Err(error),
        Err(error) => {
            report(path, &error);
            Ok(())
        }
    };
    if !from.is_dir() {
        return visit_inode(Path::new(""), from, None);
    }
    let mut walk = Walk::new(image, from, &options.select);
    while let Some(step) = walk.next() {
        options.cancel.check()?;
        match step {
            Step::Dir(dir) => visit_inode(&walk.path(dir), walk.inode(dir), None)?,
            Step::Files(dir, files) => {
                let dir = walk.path(dir);
                for file in files {
                    let first = file.first.as_ref().map(|first| walk.path_of(first));
                    visit_inode(&dir.join(&file.name), &file.inode, first)?;
                }
            }
            Step::Failed(_, error) if error.ends_all() => return Err(error),
            Step::Failed(path, error) => report(&path, &error),
        }
    }
    Ok(())
}
