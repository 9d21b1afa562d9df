//! The file or block device that an image is changed on.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use crate::error::{Error, PatchFault, Result};
use ferofs_read::{FileSource, Source};

/// A [`Source`] that can also be written: an image is changed on it. It may be longer than the
/// image.
pub trait Medium: Source {
    /// Reserves space, so that the first `end` bytes can be written; grows the medium if needed.
    ///
    /// # Errors
    /// `StorageFull` when there is no space, and all errors of the medium.
    fn reserve(&self, end: u64) -> io::Result<()>;

    /// Truncates the medium to `size` bytes, if its size can change.
    ///
    /// # Errors
    /// All errors of the medium.
    fn release(&self, size: u64) -> io::Result<()>;

    /// Writes `bytes` at `pos`.
    ///
    /// # Errors
    /// All errors of the medium.
    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all written bytes durable.
    ///
    /// # Errors
    /// All errors of the medium.
    fn sync(&self) -> io::Result<()>;

    /// Drops copies of the bytes in `range` that are held in memory, if they were written, so that
    /// they are read from the disk again: a system can hold bytes that it failed to write.
    fn drop_cached(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Another handle to the same bytes, which only reads: files of the old tree are read through
    /// it while the medium is written.
    ///
    /// # Errors
    /// All errors of the medium.
    fn reader(&self) -> io::Result<Box<dyn Source>>;
}

/// An image in a file, or on a block device.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    /// `None` for a file, whose size changes.
    device_size: Option<u64>,
}

impl FileMedium {
    /// Opens `path` for reading and writing, and locks it against other processes that do the same.
    ///
    /// # Errors
    /// [`Error::Io`]; [`PatchFault::Busy`] when another process has the lock, or replaces
    /// the file at this moment.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let open = |e| Error::io("open", path, e);
        let file = File::options().read(true).write(true).open(path).map_err(open)?;
        let device_size = match file.metadata().map_err(open)?.file_type().is_block_device() {
            true => Some((&file).seek(SeekFrom::End(0)).map_err(open)?),
            false => None,
        };
        ferofs_host::lock_to_change(&file, path).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => Error::Patch(PatchFault::Busy),
            _ => open(error),
        })?;
        Ok(Self { file, device_size })
    }

    fn source(&self) -> io::Result<FileSource> {
        FileSource::new(self.file.try_clone()?, 0)
    }
}

impl Source for FileMedium {
    fn size(&self) -> u64 {
        // Without another descriptor, of which there may be too few.
        self.device_size.unwrap_or_else(|| self.file.metadata().map_or(0, |file| file.len()))
    }

    fn stored(&self) -> u64 {
        self.source().map_or_else(|_| self.size(), |reader| reader.stored())
    }

    fn next_stored(&self, pos: u64) -> u64 {
        self.source().map_or(pos, |reader| reader.next_stored(pos))
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, pos)
    }
}

impl Medium for FileMedium {
    fn reserve(&self, end: u64) -> io::Result<()> {
        let size = self.size();
        if end <= size {
            return Ok(());
        }
        if self.device_size.is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        use rustix::fs::FallocateFlags;
        match rustix::fs::fallocate(
            &self.file,
            FallocateFlags::empty(),
            size,
            end.saturating_sub(size),
        ) {
            // Without reservation the file system may become full later: the change is undone then.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => Ok(result?),
        }
    }

    fn release(&self, size: u64) -> io::Result<()> {
        if self.device_size.is_some() { Ok(()) } else { self.file.set_len(size) }
    }

    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, pos)
    }

    fn sync(&self) -> io::Result<()> {
        // The size and the places of the bytes, too. Not the times, which would cost a write of
        // their own for each sync.
        self.file.sync_data()
    }

    fn drop_cached(&self, range: Range<u64>) {
        let len = NonZeroU64::new(range.end.saturating_sub(range.start));
        // File systems without a cache do not know the call.
        let _ = rustix::fs::fadvise(&self.file, range.start, len, rustix::fs::Advice::DontNeed);
    }

    fn reader(&self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.source()?))
    }
}
