//! The source that is a file or a block device.

#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::{ReadWriteFlags, preadv2};

use super::source::Source;
use crate::error::{IoError, Result};

/// Data segments of a sparse file that are counted one by one, to bound the time. Of a file with
/// more, the allocated blocks count instead.
const MAX_SEGMENTS: u32 = 4096;

/// A file or a block device.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    /// The same file, opened again for random reads: after two adjacent ones, Linux would read
    /// megabytes ahead. `None` if it cannot be opened again.
    sparse: Option<File>,
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
        // Before it is opened: opening a FIFO would wait for a writer.
        let metadata = std::fs::metadata(path).map_err(|e| IoError::new("open", path, e))?;
        check_type(&metadata).map_err(|e| IoError::new("open", path, e))?;
        let file = File::open(path).map_err(|e| IoError::new("open", path, e))?;
        Ok(Self::new(file, start).map_err(|e| IoError::new("measure", path, e))?)
    }

    /// Takes an open file or block device.
    ///
    /// # Errors
    /// `IsADirectory`, `InvalidInput` for other files without a size, and the errors of finding the
    /// size.
    pub fn new(file: File, start: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        check_type(&metadata)?;
        // Block devices have a length only by seeking to their end.
        let end = if metadata.is_file() {
            metadata.len()
        } else {
            io::Seek::seek(&mut &file, io::SeekFrom::End(0))?
        };
        let sparse = reopen_sparse(&file);
        Ok(Self { file, sparse, start, size: end.saturating_sub(start) })
    }

    /// What the file is now.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

/// Fails for what cannot be read at any position.
fn check_type(metadata: &Metadata) -> io::Result<()> {
    let file_type = metadata.file_type();
    if file_type.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !file_type.is_file() && !file_type.is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file or block device",
        ));
    }
    Ok(())
}

/// Opens `file` again, with advice for random reads, which applies to one file description.
fn reopen_sparse(file: &File) -> Option<File> {
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    rustix::fs::fadvise(&again, 0, None, rustix::fs::Advice::Random).ok()?;
    Some(again)
}

impl Source for FileSource {
    fn identity(&self) -> Option<(u64, u64, u64)> {
        let metadata = self.file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino(), self.start))
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn stored(&self) -> u64 {
        let end = self.start.saturating_add(self.size);
        let (mut sum, mut at) = (0u64, self.start);
        // Not the blocks of stat(2): some file systems allocate them later, or compress them.
        for _ in 0..MAX_SEGMENTS {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) if data < end => data,
                // After the last segment, or the file system does not know.
                Ok(_) | Err(rustix::io::Errno::NXIO) => return sum,
                Err(_) => return sum.saturating_add(end.saturating_sub(at)),
            };
            let hole =
                rustix::fs::seek(&self.file, SeekFrom::Hole(data)).unwrap_or(end).clamp(data, end);
            sum = sum.saturating_add(hole.saturating_sub(data));
            at = hole;
        }
        let blocks =
            self.file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        sum.max(blocks.min(self.size))
    }

    fn next_stored(&self, pos: u64) -> u64 {
        let Some(at) = pos.checked_add(self.start) else { return pos };
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => data.saturating_sub(self.start).clamp(pos, self.size.max(pos)),
            Err(rustix::io::Errno::NXIO) => self.size.max(pos),
            Err(_) => pos,
        }
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let pos = pos.checked_add(self.start).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact_at(buf, pos)
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let pos = pos.checked_add(self.start).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.sparse.as_ref().unwrap_or(&self.file).read_exact_at(buf, pos)
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        let Some(pos) = pos.checked_add(self.start) else { return false };
        let (file, wanted) = (self.sparse.as_ref().unwrap_or(&self.file), buf.len());
        let read = preadv2(file, &mut [io::IoSliceMut::new(buf)], pos, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|len| len == wanted)
    }

    fn will_need(&self, pos: u64, len: u64) {
        let Some(pos) = pos.checked_add(self.start) else { return };
        // Only advice: without it, the bytes are read later.
        let _ = rustix::fs::fadvise(
            &self.file,
            pos,
            std::num::NonZeroU64::new(len),
            rustix::fs::Advice::WillNeed,
        );
    }
}
