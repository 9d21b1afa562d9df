//! Compares the content of two files byte by byte, and skips holes that both have.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ferofs_format::FileOffset;

use crate::error::{Error, Result};
use ferofs_read::{ExtentData, Image, Inode};

/// Bytes that are read and compared at once.
const BUFFER_SIZE: usize = 1 << 20;

/// An open file of one tree.
pub(super) enum Content<'a> {
    Inode(&'a Image, Box<Inode>),
    File(File, PathBuf),
}

impl Content<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self {
            Self::Inode(image, inode) => {
                image.read_at(inode, FileOffset::new(offset), buf).map(drop).map_err(Into::into)
            }
            Self::File(file, path) => {
                file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => Error::SourceChanged(path.clone()),
                    _ => Error::io("read", path, error),
                })
            }
        }
    }

    /// The end of the hole that contains `offset`, if there is one.
    fn hole_end(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        match self {
            Self::Inode(image, inode) => {
                let Some(extent) = image.extents(inode, FileOffset::new(offset))?.next() else {
                    return Ok(None);
                };
                let extent = extent?;
                Ok(matches!(extent.data, ExtentData::Hole).then_some(extent.end()))
            }
            Self::File(file, _) => match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset))
            {
                Ok(data) => Ok((data > offset).then_some(data)),
                Err(rustix::io::Errno::NXIO) => Ok(Some(size)),
                // The file system does not report holes.
                Err(_) => Ok(None),
            },
        }
    }
}

/// Whether two files of `size` bytes differ.
pub(super) fn differs(first: &Content<'_>, second: &Content<'_>, size: u64) -> Result<bool> {
    let mut offset = 0;
    let mut buffers = [vec![0; BUFFER_SIZE], vec![0; BUFFER_SIZE]];
    while offset < size {
        let holes = match first.hole_end(offset, size)? {
            Some(end) => second.hole_end(offset, size)?.map(|other| other.min(end)),
            None => None,
        };
        if let Some(end) = holes {
            offset = end.max(offset + 1);
            continue;
        }
        let len = usize::try_from(size - offset).unwrap_or(usize::MAX).min(BUFFER_SIZE);
        let [one, other] = &mut buffers;
        first.read(offset, &mut one[..len])?;
        second.read(offset, &mut other[..len])?;
        if one[..len] != other[..len] {
            return Ok(true);
        }
        offset += u64::try_from(len).unwrap_or(u64::MAX);
    }
    Ok(false)
}
