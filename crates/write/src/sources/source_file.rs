//! Open files that hold the content of many files: archives, EROFS images, and the spool.
//!
//! The spool is a temporary file for content that cannot be read a second time: from pipes and
//! compressed archives. The archive's reader appends the decompressed content, and the data stage
//! reads it from there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::tree::{Identity, SourcePosition};
use ferofs_host::stat::{self, stat_fd};

/// An open file that content is read from.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    id: u16,
    file: Arc<File>,
    name: PathBuf,
    /// Identity and size when the file was opened. `None` for a temporary file, which no other
    /// process can change.
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
pub(super) fn is_unchanged(
    file: BorrowedFd<'_>,
    expected: Identity,
    size: u64,
) -> Result<bool, Errno> {
    let stat = stat_fd(file)?;
    Ok(expected.is_of(&stat) && stat::size(&stat) == size)
}

/// Bytes that are collected before they are written, to reduce system calls.
const BUFFER: usize = 1 << 20;
/// Pieces of at least this many bytes are written without the buffer: the copy would cost more than
/// the system call.
const DIRECT: usize = 64 << 10;

/// The temporary file, and what is not written to it yet.
#[derive(Debug)]
pub(super) struct Spool {
    file: SourceFile,
    written: u64,
    buffer: Vec<u8>,
}

impl Spool {
    pub(super) const fn new(file: SourceFile) -> Self {
        Self { file, written: 0, buffer: Vec::new() }
    }

    /// Where the next byte will be.
    pub(super) fn end(&self) -> SourcePosition {
        SourcePosition { file: self.file.id(), at: self.written + self.buffer.len() as u64 }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= DIRECT {
            self.flush()?;
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Writes what is left, and releases the buffer.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let io = |e| Error::io("write a temporary file in", self.file.name(), e);
        self.file.file().write_all_at(bytes, self.written).map_err(io)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
