//! A temporary file for content that cannot be read a second time: from pipes and compressed archives.
//!
//! The archive's reader appends the decompressed content, and the data stage reads it from there.

use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};
use crate::sources::source_file::SourceFile;
use crate::tree::origin::SourcePosition;

/// Bytes that are collected before they are written, to reduce system calls.
const BUFFER: usize = 1 << 20;
/// Pieces of at least this many bytes are written without the buffer: the copy would cost more than the system call.
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
