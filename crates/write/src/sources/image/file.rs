//! An EROFS image as a source of content: reads files, and finds the addresses of their pieces.

use std::path::{Path, PathBuf};

use ferofs_format::{BytePos, DeviceId, FileOffset, Nid};
use ferofs_read::{Cancel, DataLayout, ExtentData, FileSource, Image, Inode, Location};

use crate::error::{Error, Result};
use crate::sources::source_file::SourceFile;

/// An image that content is read from.
#[derive(Debug)]
pub(crate) struct SourceImage {
    image: Image,
    /// The index of its file; `None` for an image that a program opened.
    file: Option<u16>,
    /// Its name, for messages.
    name: PathBuf,
}

/// A piece of a file, as an image stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredPiece {
    pub offset: u64,
    pub len: u64,
    /// Where its bytes are in the image; `None` if they are compressed, or on another device.
    pub at: Option<u64>,
}

impl SourceImage {
    /// Opens the image in `file`. Its reads end soon after `cancel` cancels them.
    pub(crate) fn open(file: &SourceFile, cancel: &Cancel) -> Result<Self> {
        let source = file.file().try_clone().and_then(|file| FileSource::new(file, 0));
        let source = source.map_err(|e| Error::io("open", file.name(), e))?;
        let image = Image::open(source).map_err(|e| in_source(file.name().to_owned(), e))?;
        let image = image.cancelled_by(cancel);
        Ok(Self { image, file: Some(file.id()), name: file.name().to_owned() })
    }

    /// An image that a program opened.
    pub(crate) fn opened(image: Image, name: PathBuf) -> Self {
        Self { image, file: None, name }
    }

    pub(crate) const fn image(&self) -> &Image {
        &self.image
    }

    /// The index of the image's file among all source files; `None` for an image that a program
    /// opened.
    pub(crate) const fn file(&self) -> Option<u16> {
        self.file
    }

    /// The name of the image, for messages.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Whether reading regular file `nid` gives holes that the new image keeps.
    pub(crate) fn has_holes(&self, inode: &Inode) -> Result<bool> {
        let may_have = inode.layout() == DataLayout::ChunkBased || inode.layout().is_compressed();
        if inode.size() == 0 || !may_have {
            return Ok(false);
        }
        for extent in self.image.extents(inode, FileOffset::new(0))? {
            if extent?.data == ExtentData::Hole {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fills `buf` with the content of inode `nid` from `offset` on. The file must not end before.
    pub(crate) fn read(&self, nid: Nid, offset: u64, buf: &mut [u8]) -> Result<()> {
        let inode = self.image.inode(nid)?;
        let read = self.image.read_at(&inode, FileOffset::new(offset), buf)?;
        if read == buf.len() { Ok(()) } else { Err(Error::SourceChanged(self.name.clone())) }
    }

    /// The pieces of inode `nid` that hold data, in order. Adjacent pieces are merged.
    pub(crate) fn pieces(&self, nid: Nid) -> Result<Vec<StoredPiece>> {
        let inode = self.image.inode(nid)?;
        let mut pieces: Vec<StoredPiece> = Vec::new();
        for extent in self.image.extents(&inode, FileOffset::new(0))? {
            let extent = extent?;
            let at = match extent.data {
                ExtentData::Hole => continue,
                ExtentData::Stored { at: Location::Device(device, pos) } => {
                    self.on_primary(device, pos)
                }
                _ => None,
            };
            let (offset, len) = (extent.start.get(), extent.len);
            match pieces.last_mut() {
                Some(last)
                    if last.offset + last.len == offset
                        && last.at.map(|at| at + last.len) == at =>
                {
                    last.len += len;
                }
                _ => pieces.push(StoredPiece { offset, len, at }),
            }
        }
        Ok(pieces)
    }

    fn on_primary(&self, device: DeviceId, pos: BytePos) -> Option<u64> {
        let (device, pos) = self.image.physical(device, pos)?;
        (device.get() == 0).then_some(pos.get())
    }
}

/// Adds the name of the source's file to `error`.
pub(crate) fn in_source(path: PathBuf, error: impl Into<Error>) -> Error {
    Error::InSource { path, source: Box::new(error.into()) }
}
