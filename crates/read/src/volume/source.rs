//! Sources of an image's bytes: memory, a reader, or anything else that reads at a position. Files:
//! [`super::file_source`].

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use parking_lot::Mutex;

/// A range of a [`Source`], and where its bytes go.
#[derive(Debug)]
pub struct ReadRange<'a> {
    /// The position of the first byte.
    pub pos: u64,
    /// Gets the bytes.
    pub buf: &'a mut [u8],
}

/// Whether a source should read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As for [`Source::read_exact_at`].
    Sequential,
    /// As for [`Source::read_sparse_at`].
    Sparse,
}

/// Random read access to one device of an image.
pub trait Source: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Bytes of it that are stored: less than its size where it has holes.
    fn stored(&self) -> u64 {
        self.size()
    }

    /// The position of the next stored byte, at or after `pos`, if the source knows its holes; the
    /// size if only a hole follows.
    fn next_stored(&self, pos: u64) -> u64 {
        pos
    }

    /// Fills `buf` from the bytes that start at `pos`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, and whatever the medium reports.
    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()>;

    /// As [`Self::read_exact_at`], for random reads: the source should not read ahead.
    ///
    /// # Errors
    /// As [`Self::read_exact_at`].
    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(pos, buf)
    }

    /// Fills the buffers of several ranges, in any order. A source for which each read waits, for
    /// example for a server, should fetch them together. By default, reads them one after the
    /// other.
    ///
    /// # Errors
    /// As [`Self::read_exact_at`]. After an error, the buffers have any content.
    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| match access {
            Access::Sequential => self.read_exact_at(range.pos, range.buf),
            Access::Sparse => self.read_sparse_at(range.pos, range.buf),
        })
    }

    /// Whether one call of [`Self::read_ranges`] is much faster than a read of each range. If so,
    /// the reader of an image reads all ranges that it needs for a request with one call. They are
    /// then copied once more in memory, which costs more than it saves for a local file. Such a
    /// source also reads ahead for sequential readers. Default: false. Must not change.
    fn prefers_batches(&self) -> bool {
        false
    }

    /// Fills `buf` if the bytes are in memory already. Returns false, with any bytes in `buf`, if
    /// the read would wait for the medium, or the source does not know.
    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        let _ = (pos, buf);
        false
    }

    /// Announces that `len` bytes from `pos` on will be read soon, so that the source can prefetch
    /// them. Does not wait.
    fn will_need(&self, pos: u64, len: u64) {
        let _ = (pos, len);
    }

    /// The identity of the file: its device, its inode, and the offset where the source starts.
    /// `None` if unknown.
    fn identity(&self) -> Option<(u64, u64, u64)> {
        None
    }
}

/// A part of another source.
#[derive(Clone)]
pub(crate) struct Window {
    pub(crate) whole: Arc<dyn Source>,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Window {
    /// The start in the whole source of the `len` bytes at `pos`.
    fn start_of(&self, pos: u64, len: usize) -> io::Result<u64> {
        let end = u64::try_from(len).ok().and_then(|len| pos.checked_add(len));
        let start = self.start.checked_add(pos).filter(|_| end.is_some_and(|end| end <= self.len));
        start.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Source for Window {
    fn size(&self) -> u64 {
        self.len
    }

    fn stored(&self) -> u64 {
        // The whole source is counted already.
        0
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.whole.read_exact_at(self.start_of(pos, buf.len())?, buf)
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.whole.read_sparse_at(self.start_of(pos, buf.len())?, buf)
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        let moved = ranges.iter_mut().map(|range| {
            let pos = self.start_of(range.pos, range.buf.len())?;
            Ok(ReadRange { pos, buf: &mut *range.buf })
        });
        self.whole.read_ranges(&mut moved.collect::<io::Result<Vec<_>>>()?, access)
    }

    fn prefers_batches(&self) -> bool {
        self.whole.prefers_batches()
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        self.start_of(pos, buf.len()).is_ok_and(|start| self.whole.read_if_cached(start, buf))
    }

    fn will_need(&self, pos: u64, len: u64) {
        if let Some(pos) = self.start.checked_add(pos) {
            self.whole.will_need(pos, len);
        }
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        let (device, inode, start) = self.whole.identity()?;
        Some((device, inode, start.checked_add(self.start)?))
    }
}

/// Implements [`Source`] for pointers to a source.
macro_rules! source_of_pointer {
    ($($pointer:ty),*) => {$(
        impl<T: Source + ?Sized> Source for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }

            fn stored(&self) -> u64 {
                (**self).stored()
            }

            fn next_stored(&self, pos: u64) -> u64 {
                (**self).next_stored(pos)
            }

            fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_exact_at(pos, buf)
            }

            fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_sparse_at(pos, buf)
            }

            fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
                (**self).read_ranges(ranges, access)
            }

            fn prefers_batches(&self) -> bool {
                (**self).prefers_batches()
            }

            fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
                (**self).read_if_cached(pos, buf)
            }

            fn will_need(&self, pos: u64, len: u64) {
                (**self).will_need(pos, len);
            }

            fn identity(&self) -> Option<(u64, u64, u64)> {
                (**self).identity()
            }
        }
    )*};
}

source_of_pointer!(&T, Arc<T>, Box<T>);

/// An image in memory. With the pointers above, an image can be opened from `&'static [u8]`,
/// `Arc<[u8]>` and `Box<[u8]>`.
impl Source for [u8] {
    fn size(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(pos)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .and_then(|range| self.get(range))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// An image in memory.
impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(pos, buf)
    }
}

/// An image in memory of another type, for example a memory map.
///
/// A memory map of a file must not change while the image is open: Rust allows no change of
/// borrowed bytes, and if the file becomes shorter, the system ends the process. For files that may
/// change, `FileSource` is safe.
#[derive(Clone, Debug)]
pub struct BytesSource<T>(pub T);

impl<T: AsRef<[u8]> + Send + Sync> Source for BytesSource<T> {
    fn size(&self) -> u64 {
        self.0.as_ref().size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.as_ref().read_exact_at(pos, buf)
    }
}

/// An image in anything that reads and seeks. Reads of several threads take turns.
#[derive(Debug)]
pub struct SeekSource<R> {
    reader: Mutex<R>,
    size: u64,
}

impl<R: Read + Seek> SeekSource<R> {
    /// Takes a reader. The image starts at its first byte.
    ///
    /// # Errors
    /// The errors of finding its size.
    pub fn new(mut reader: R) -> io::Result<Self> {
        let size = reader.seek(SeekFrom::End(0))?;
        Ok(Self { reader: Mutex::new(reader), size })
    }
}

impl<R: Read + Seek + Send> Source for SeekSource<R> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        // A panic of the reader leaves it at an unknown position, and each read seeks.
        let mut reader = self.reader.lock();
        reader.seek(SeekFrom::Start(pos))?;
        reader.read_exact(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_within_bounds_only() {
        static IMAGE: &[u8] = b"image";
        let sources: [Box<dyn Source>; 6] = [
            Box::new(IMAGE),
            Box::new(IMAGE.to_vec()),
            Box::new(Arc::<[u8]>::from(IMAGE)),
            Box::new(IMAGE.to_vec().into_boxed_slice()),
            Box::new(BytesSource("image")),
            Box::new(SeekSource::new(io::Cursor::new("image")).unwrap()),
        ];
        for source in sources {
            let mut buf = [0; 3];
            assert_eq!(source.size(), 5);
            source.read_exact_at(2, &mut buf).unwrap();
            assert_eq!(&buf, b"age");
            assert!(source.read_exact_at(3, &mut buf).is_err());
            assert!(source.read_exact_at(u64::MAX, &mut buf).is_err());
        }
    }
}
