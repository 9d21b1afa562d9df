//! The source that is a file, with what every operating system has: on Linux there is
//! [`super::file_source`].

use std::fs::File;
use std::io;
use std::path::Path;

use super::source::Source;
use crate::error::{IoError, Result};

/// A file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    start: u64,
    size: u64,
}

impl FileSource {
    /// Opens the image at `path`, which starts `start` bytes into the file.
    ///
    /// # Errors
    /// The errors of opening the file and of finding its size.
    pub fn open(path: impl AsRef<Path>, start: u64) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| IoError::new("open", path, e))?;
        Ok(Self::new(file, start).map_err(|e| IoError::new("open", path, e))?)
    }

    /// Takes an open file.
    ///
    /// # Errors
    /// `IsADirectory`, `InvalidInput` for others than regular files, and the errors of finding the
    /// size.
    pub fn new(file: File, start: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Self { file, start, size: metadata.len().saturating_sub(start) })
    }
}

impl Source for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let pos = pos.checked_add(self.start).ok_or(io::ErrorKind::UnexpectedEof)?;
        read_exact_at(&self.file, pos, buf)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, pos: u64, buf: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, pos)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut pos: u64, mut buf: &mut [u8]) -> io::Result<()> {
    use ferofs_format::units::to_u64;
    while !buf.is_empty() {
        let len = std::os::windows::fs::FileExt::seek_read(file, buf, pos)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        pos = pos.saturating_add(to_u64(len));
        buf = buf.get_mut(len..).unwrap_or_default();
    }
    Ok(())
}
