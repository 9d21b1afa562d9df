//! The source that is a file or a block device.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::{ReadWriteFlags, preadv2};

use super::source::Source;
use crate::error::{Error, Result};

/// Data segments of a sparse file that are counted one by one, to bound the time. Of a file with more, the allocated blocks
/// count instead.
const MAX_SEGMENTS: u32 = 4096;

/// A file or a block device.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    /// The same file, opened again for random reads: after two adjacent ones, Linux would read megabytes ahead. `None` if
    /// it cannot be opened again.
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
        let metadata = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
        check_type(&metadata).map_err(|e| Error::io("open", path, e))?;
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        Self::new(file, start).map_err(|e| Error::io("measure", path, e))
    }

    /// Takes an open file or block device.
    ///
    /// # Errors
    /// `IsADirectory`, `InvalidInput` for other files without a size, and the errors of finding the size.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MIB: u64 = 1 << 20;
    /// Bytes of a read: a page on the processors with the largest ones. Systems read twice this ahead, or more.
    const LEN: u64 = 64 << 10;

    /// 4 MiB that are only on a disk.
    fn on_disk() -> FileSource {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        io::Write::write_all(&mut file, &[7; 4 << 20]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        FileSource::new(file, 0).unwrap()
    }

    /// Bytes for which this thread has asked disks so far; `None` if the system does not tell.
    fn asked() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
    }

    /// Bytes for which `work` asks the disk. `None` if the system does not tell, or the file is in memory.
    fn asked_by(work: impl FnOnce()) -> Option<u64> {
        let before = asked()?;
        work();
        Some(asked()? - before).filter(|bytes| *bytes > 0)
    }

    #[test]
    fn adjacent_sparse_reads_read_nothing_ahead() {
        let source = on_disk();
        let reads =
            |start: u64| [0, LEN, 2 * LEN].map(|offset| (start + offset, [0; LEN as usize]));
        let ahead = asked_by(|| {
            reads(0).iter_mut().for_each(|(pos, buf)| source.read_exact_at(*pos, buf).unwrap());
        });
        // Otherwise this system reads nothing ahead.
        if ahead.is_some_and(|ahead| ahead > 3 * LEN) {
            let sparse = asked_by(|| {
                reads(2 * MIB)
                    .iter_mut()
                    .for_each(|(pos, buf)| source.read_sparse_at(*pos, buf).unwrap());
            });
            assert!(sparse <= Some(3 * LEN), "{sparse:?}, {ahead:?} ahead");
        }
    }

    #[test]
    fn announced_bytes_are_read_ahead() {
        let source = on_disk();
        let announced = asked_by(|| source.will_need(2 * MIB, 2 * LEN));
        if asked_by(|| source.read_exact_at(0, &mut [0]).unwrap()).is_some() {
            assert!(announced.is_some());
        }
    }

    #[test]
    fn the_source_starts_where_the_image_starts() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"..image").unwrap();
        let source = FileSource::new(file, 2).unwrap();
        let mut buf = [0; 3];
        assert_eq!(source.size(), 5);
        source.read_exact_at(2, &mut buf).unwrap();
        assert_eq!(&buf, b"age");
        assert!(source.read_exact_at(3, &mut buf).is_err());
        assert!(source.read_exact_at(u64::MAX, &mut buf).is_err());
    }

    #[test]
    fn only_files_with_a_size_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for path in [&fifo, Path::new("/dev/null")] {
            let error = FileSource::open(path, 0).unwrap_err().to_string();
            assert!(error.ends_with("open: not a regular file or block device"), "{error}");
        }
        assert!(FileSource::open(dir.path(), 0).is_err());
    }

    #[test]
    fn holes_are_known_through_references() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let source = Arc::new(FileSource::new(file, 0).unwrap());
        assert_eq!((source.stored(), source.next_stored(0)), (0, 1 << 30));
        let reference: &dyn Source = &&*source;
        assert_eq!((reference.stored(), reference.next_stored(0)), (0, 1 << 30));
    }
}
