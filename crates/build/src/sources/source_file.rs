//! Open files that hold the content of many files: archives, EROFS images, and the spool.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::host::open::{self, stat_fd};
use crate::tree::origin::Identity;

/// An open file that content is read from.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    id: u16,
    file: Arc<File>,
    name: PathBuf,
    /// Identity and size when the file was opened. `None` for a temporary file, which no other process can change.
    found: Option<(Identity, u64)>,
}

impl SourceFile {
    pub(super) fn new(id: u16, file: File, name: &Path, found: Option<(Identity, u64)>) -> Self {
        Self { id, file: Arc::new(file), name: name.to_owned(), found }
    }

    /// The index of this file in its [`super::content::Contents`].
    pub(crate) const fn id(&self) -> u16 {
        self.id
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Fills `buf` with the bytes from `at` on.
    pub(crate) fn read(&self, buf: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::SourceChanged(self.name.clone()),
            _ => Error::io("read", &self.name, e),
        })
    }

    /// Fails if another process changed the file since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let Some((expected, size)) = self.found else { return Ok(()) };
        let unchanged = is_unchanged(self.file.as_fd(), expected, size);
        match unchanged.map_err(|e| Error::io("stat", &self.name, e))? {
            true => Ok(()),
            false => Err(Error::SourceChanged(self.name.clone())),
        }
    }
}

/// Whether an open file still has this identity and size.
pub(super) fn is_unchanged(file: BorrowedFd<'_>, expected: Identity, size: u64) -> Result<bool, Errno> {
    let stat = stat_fd(file)?;
    Ok(Identity::of_file(&stat) == expected && open::size(&stat) == size)
}
