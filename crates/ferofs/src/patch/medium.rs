//! What an image is changed on: a file, or a block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use super::PatchFault;
use crate::{Error, Result};
use ferofs_read::{FileSource, Source};

/// What an image is changed on. A [`Source`] that is written, too.
///
/// Bytes past the end of the image, as its superblock tells that, may be anything.
pub trait Medium: Source {
    /// Makes sure that the first `end` bytes can be written, growing the medium if need be.
    ///
    /// # Errors
    /// `StorageFull` when there is no room, and whatever the medium reports.
    fn reserve(&self, end: u64) -> io::Result<()>;

    /// Cuts the medium off after `size` bytes, if its size can change.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn release(&self, size: u64) -> io::Result<()>;

    /// Writes `bytes` at `pos`.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn sync(&self) -> io::Result<()>;
}

/// An image in a file, or on a block device.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    is_device: bool,
}

impl FileMedium {
    /// Opens `path` for changing, and keeps others of our kind from doing so.
    ///
    /// # Errors
    /// [`Error::Io`]; [`PatchFault::Busy`].
    pub fn open(path: &Path) -> Result<Self> {
        let open = |e| Error::io("open", path, e);
        let file = File::options().read(true).write(true).open(path).map_err(open)?;
        let is_device = file.metadata().map_err(open)?.file_type().is_block_device();
        use rustix::fs::FlockOperation;
        // File systems without locks have no other writers to fear than before.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
        {
            return Err(Error::Patch(PatchFault::Busy));
        }
        Ok(Self { file, is_device })
    }

    /// For reading alone.
    fn reader(&self) -> io::Result<FileSource> {
        FileSource::new(self.file.try_clone()?, 0)
    }
}

impl Source for FileMedium {
    fn size(&self) -> u64 {
        self.reader().map_or(0, |reader| reader.size())
    }

    fn stored(&self) -> u64 {
        self.reader().map_or(0, |reader| reader.stored())
    }

    fn next_stored(&self, pos: u64) -> u64 {
        self.reader().map_or(pos, |reader| reader.next_stored(pos))
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
        if self.is_device {
            return Err(io::ErrorKind::StorageFull.into());
        }
        use rustix::fs::FallocateFlags;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), size, end - size) {
            // File systems that cannot reserve may run full later, which is as safe.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => Ok(result?),
        }
    }

    fn release(&self, size: u64) -> io::Result<()> {
        if self.is_device { Ok(()) } else { self.file.set_len(size) }
    }

    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, pos)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
