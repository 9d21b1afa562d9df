//! An image that a delta is made of: its bytes are read when they are needed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_read::{Cancel, FileSource, Image, OpenOptions, Source};
use ferofs_update::format::delta_file::{CHUNK, digest};
use sha2::{Digest as _, Sha256};

use super::content::{FileExtent, ImageContent};
use super::copies::{self, Equal};
use crate::error::{Error, Result};
use crate::incremental::create::metadata_cache;
use crate::options::RunOptions;

/// An image, and what it has.
pub(super) struct DeltaImage {
    path: PathBuf,
    /// What the file was when it was opened.
    opened: Metadata,
    pub(super) source: Arc<FileSource>,
    pub(super) image: Image,
    pub(super) content: ImageContent,
}

impl DeltaImage {
    /// Reads the metadata of the image `path`. Errors name it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let source = Arc::new(FileSource::open(path, 0)?);
        let opened = source.metadata().map_err(|error| Error::io("stat", path, error))?;
        let mut opening = OpenOptions::default();
        // Most metadata is read in order.
        opening.metadata_cache = metadata_cache() / 4;
        let image = Image::open_with(Box::new(Arc::clone(&source)), Vec::new(), &opening);
        let image = image.map_err(Error::from);
        let read = image.and_then(|image| ImageContent::of(&image).map(|content| (image, content)));
        match read {
            Ok((image, content)) => {
                Ok(Self { path: path.to_owned(), opened, source, image, content })
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

    /// Names the file in an error of reading what is in the image.
    pub(super) fn in_image(&self, error: impl Into<Error>) -> Error {
        Error::InSource { path: self.path.clone(), source: Box::new(error.into()) }
    }

    fn unreadable(&self, error: io::Error) -> Error {
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
    pub(super) fn equal_bytes(&self, old: &Self, cancel: &Cancel) -> Result<Vec<Equal>> {
        let found = copies::find([&*old.source, &*self.source], cancel);
        cancel.check()?;
        found.map_err(|error| Error::io_unnamed("compare the images", error))
    }

    /// SHA-256 of all bytes, and the digests of each [`CHUNK`].
    pub(super) fn digests(&self, run: &RunOptions) -> Result<([u8; 32], Vec<[u8; 16]>)> {
        let (mut whole, mut chunks) = (Sha256::new(), Vec::new());
        for start in (0..self.len()).step_by(CHUNK) {
            run.cancel.check()?;
            let bytes = self.read(start..self.len().min(start + CHUNK))?;
            whole.update(&bytes);
            chunks.push(digest(&bytes));
        }
        Ok((whole.finalize().into(), chunks))
    }

    /// Fails if somebody has written the file since it was opened. One that was renamed or removed
    /// is the same.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let is_same = |now: Metadata| {
            let times = |file: &Metadata| {
                [(file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())]
            };
            let ([written, changed], [now_written, now_changed]) =
                (times(&self.opened), times(&now));
            // Tools can set the first time; a new name or one less changes the second one.
            let is_linked = now.nlink() != self.opened.nlink();
            now.len() == self.opened.len()
                && now_written == written
                && (is_linked || now_changed == changed)
        };
        let changed = || self.unreadable(io::Error::other("it has changed meanwhile: try again"));
        self.source.metadata().is_ok_and(is_same).then_some(()).ok_or_else(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;
    use crate::{Options, build};

    #[test]
    fn a_file_that_is_written_is_refused_and_one_that_is_replaced_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [source, path, other] = ["source", "image", "other"].map(|name| dir.path().join(name));
        std::fs::create_dir(&source).unwrap();
        build(&Options::new(source), &path).unwrap();
        let image = DeltaImage::open(&path).unwrap();
        std::fs::copy(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        image.check_unchanged().unwrap();
        for restored in [false, true] {
            let image = DeltaImage::open(&path).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            file.set_modified(if restored { time } else { SystemTime::UNIX_EPOCH }).unwrap();
            let error = image.check_unchanged().unwrap_err().to_string();
            assert!(error.ends_with("image: read: it has changed meanwhile: try again"), "{error}");
        }
    }
}
