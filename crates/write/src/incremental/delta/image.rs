//! An image that a delta is made of: its bytes are read when they are needed.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_patch::format::delta_file::{CHUNK, digest};

use ferofs_read::{FileSource, Image, OpenOptions, Source};
use sha2::{Digest as _, Sha256};

use super::content::{FileExtent, ImageContent};
use super::copies::{self, Equal};
use crate::error::{Error, Result};
use crate::incremental::create::metadata_cache;
use crate::options::RunOptions;

/// An image, and what it has.
pub(super) struct DeltaImage {
    path: PathBuf,
    state: FileState,
    pub(super) source: Arc<FileSource>,
    pub(super) image: Image,
    pub(super) content: ImageContent,
}

impl DeltaImage {
    /// Reads the metadata of the image `path`. Errors name it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::io("open", path, error);
        let state = state(path).map_err(io)?;
        let source = Arc::new(FileSource::open(path, 0)?);
        let mut opening = OpenOptions::default();
        opening.metadata_cache = metadata_cache();
        let image = Image::open_with(Box::new(Arc::clone(&source)), Vec::new(), &opening);
        let image = image.map_err(Error::from);
        let read = image.and_then(|image| ImageContent::of(&image).map(|content| (image, content)));
        match read {
            Ok((image, content)) => {
                Ok(Self { path: path.to_owned(), state, source, image, content })
            }
            Err(error) => Err(Error::InSource { path: path.to_owned(), source: Box::new(error) }),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.source.size() as usize
    }

    /// The bytes in `range`.
    pub(super) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        let read = self.source.read_exact_at(range.start as u64, &mut bytes);
        read.map_err(|error| self.unreadable(error)).map(|()| bytes)
    }

    pub(super) fn unreadable(&self, error: io::Error) -> Error {
        Error::io("read", &self.path, error)
    }

    /// The inline extents that are the same bytes in the `old` image, in the same file, in their
    /// order.
    pub(super) fn unchanged_inline(&self, old: &Self) -> Result<Vec<Equal>> {
        let inline = |image: &Self| -> Vec<FileExtent> {
            image.content.extents.iter().filter(|extent| extent.is_inline).copied().collect()
        };
        let known: HashMap<usize, FileExtent> =
            inline(old).iter().map(|extent| (extent.file, *extent)).collect();
        let mut found = Vec::new();
        for extent in inline(self) {
            let like = old.content.like(&self.content.files[extent.file]);
            if let Some(like) = like.and_then(|file| known.get(&file))
                && like.size == extent.size
                && old.read(like.at..like.at + like.size)?
                    == self.read(extent.at..extent.at + extent.size)?
            {
                found.push(Equal { new: extent.at, old: like.at, len: extent.size });
            }
        }
        Ok(found)
    }

    /// Bytes that it has as the `old` image has them.
    pub(super) fn equal_bytes(&self, old: &Self) -> Result<Vec<Equal>> {
        let found = copies::find([&*old.source, &*self.source]);
        found.map_err(|error| Error::io_unnamed("compare the images", error))
    }

    /// SHA-256 of all bytes, and the digests of each [`CHUNK`].
    pub(super) fn digests(&self, run: &RunOptions) -> Result<([u8; 32], Vec<[u8; 16]>)> {
        let (mut whole, mut chunks) = (Sha256::new(), Vec::new());
        for start in (0..self.len()).step_by(CHUNK) {
            run.check_cancelled()?;
            let bytes = self.read(start..self.len().min(start + CHUNK))?;
            whole.update(&bytes);
            chunks.push(digest(&bytes));
        }
        Ok((whole.finalize().into(), chunks))
    }

    /// Fails if the file has changed since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let is_same = state(&self.path).is_ok_and(|state| state == self.state);
        let changed = || self.unreadable(io::Error::other("it has changed meanwhile: try again"));
        is_same.then_some(()).ok_or_else(changed)
    }
}

/// The inode, the size and the time of a file.
type FileState = (u64, u64, i64, i64);

fn state(path: &Path) -> io::Result<FileState> {
    let found = std::fs::metadata(path)?;
    Ok((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}
