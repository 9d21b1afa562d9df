//! An open file of an image, as [`std::fs::File`] is one of a file system.

use std::io::{self, Read, Seek, SeekFrom};

use ferofs_format::FileOffset;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::extent::ExtentData;
use crate::metadata::inode::Inode;
use ferofs_format::units::to_u64;

/// An open regular file. It has its own position, and keeps the image open.
///
/// [`Read`] continues where the last read ended, [`Self::read_at`] reads from anywhere, in many
/// threads at once.
#[derive(Debug)]
pub struct File {
    image: Image,
    inode: Inode,
    position: u64,
}

impl File {
    /// Opens a regular file of `image`.
    pub(crate) fn open(image: Image, inode: Inode) -> Self {
        Self { image, inode, position: 0 }
    }

    /// Its inode: size, owner, permissions, times.
    #[must_use]
    pub const fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The image that it belongs to.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// Reads from `offset` on into `buf`; returns how many bytes that gave, which are fewer than
    /// asked only at the file's end.
    ///
    /// # Errors
    /// As [`Image::read_at`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.image.read_at(&self.inode, FileOffset::new(offset), buf)
    }

    /// The first byte at or after `offset` that is not in a hole, as `SEEK_DATA` finds it; `None`
    /// if only a hole follows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the file's map is damaged.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.find_extent(offset, false)
    }

    /// The first byte at or after `offset` that is in a hole, as `SEEK_HOLE` finds it. The file's
    /// end counts as a hole. `None` after the end.
    ///
    /// # Errors
    /// As [`Self::next_data`].
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.find_extent(offset, true)?;
        Ok(found.or_else(|| (offset < self.inode.size()).then_some(self.inode.size())))
    }

    fn find_extent(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        for extent in self.image.extents(&self.inode, FileOffset::new(offset))? {
            let extent = extent?;
            if matches!(extent.data, ExtentData::Hole) == hole {
                return Ok(Some(extent.start.get().max(offset)));
            }
        }
        Ok(None)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.read_at(self.position, buf)?;
        self.position = self.position.saturating_add(to_u64(len));
        Ok(len)
    }
}

impl Seek for File {
    /// A position after the file's end is allowed; reads there return no bytes.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.inode.size().checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        use io::ErrorKind;

        let kind = match &error {
            Error::Io(error) => error.source.kind(),
            Error::Corrupt(_) => ErrorKind::InvalidData,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::NotFound(_) => ErrorKind::NotFound,
            Error::NotADirectory(_) => ErrorKind::NotADirectory,
            Error::NotAFile(_) | Error::Option { .. } => ErrorKind::InvalidInput,
            // Not `ErrorKind::Interrupted`, after which callers try again.
            Error::TooManyLinks(_) | Error::Limit { .. } | Error::Interrupted => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{content, images};

    #[test]
    fn a_file_reads_and_seeks_like_one_of_a_file_system() {
        let content = content();
        for bytes in images() {
            let image = Image::open(bytes.as_slice()).unwrap();
            let mut file = image.open_file("/file").unwrap();
            drop(image);
            let mut read = Vec::new();
            for len in (1..).step_by(997) {
                let mut piece = vec![0; len];
                match file.read(&mut piece).unwrap() {
                    0 => break,
                    len => read.extend_from_slice(&piece[..len]),
                }
            }
            assert!(read == content);
            assert_eq!(file.seek(SeekFrom::End(-10)).unwrap(), content.len() as u64 - 10);
            let mut end = Vec::new();
            assert_eq!(file.read_to_end(&mut end).unwrap(), 10);
            assert_eq!(end, content[content.len() - 10..]);
            assert_eq!(file.seek(SeekFrom::Current(100)).unwrap(), content.len() as u64 + 100);
            assert_eq!(file.read(&mut end).unwrap(), 0);
            assert!(file.seek(SeekFrom::Current(i64::MIN)).is_err());
            assert_eq!(file.stream_position().unwrap(), content.len() as u64 + 100);
        }
    }

    #[test]
    fn holes_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (source, path) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        let sparse = std::fs::File::create(source.join("sparse")).unwrap();
        sparse.set_len(3 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 4096], 1 << 20).unwrap();
        let mut options = ferofs_write::Options::new(source);
        options.data.chunks = Some(ferofs_write::ChunkOptions::new(1 << 20));
        ferofs_write::build(&options, &path).unwrap();
        let image = Image::open(std::fs::read(&path).unwrap()).unwrap();
        let file = image.open_file("sparse").unwrap();
        assert_eq!(
            (file.next_data(5).unwrap(), file.next_data(2 << 20).unwrap()),
            (Some(1 << 20), None)
        );
        assert_eq!((file.next_hole(5).unwrap(), file.next_hole(3 << 20).unwrap()), (Some(5), None));
        assert_eq!(file.next_hole((1 << 20) + 5).unwrap(), Some(2 << 20));
    }
}
