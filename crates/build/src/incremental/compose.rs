//! Makes one patch of a chain of patches: applies them in memory, and makes a patch to the tree of the last result.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::create;
use super::create::options::{CreateOptions, PatchSummary};
use crate::error::{Error, Result};
use crate::options::source::SourceFormat;
use ferofs_patch::{Error as ApplyError, PatchReader, PieceCache};
use ferofs_read::{FileSource, Image, Source};

/// Makes a patch that leads from the image `base` to the tree that `patches` show, one applied to the result of the other, and
/// writes it to `out`. Of a file with several patches those are taken that fit. The new patch holds nothing that only the states between had. Its time is that of the last patch, unless
/// `options` has one. The source in `options` is not used.
///
/// # Errors
/// [`Error::InPatch`] for a patch that does not fit the image before it, and all errors of [`create`].
pub fn compose(
    base: &Path,
    patches: &[PathBuf],
    options: &CreateOptions,
    out: &Path,
) -> Result<PatchSummary> {
    let mut options = options.clone();
    let mut image: Arc<dyn Source> = Arc::new(FileSource::open(base, 0)?);
    let (cache, mut last) = (PieceCache::default(), None);
    for path in patches {
        let in_patch =
            |error: ApplyError| Error::InPatch { path: path.clone(), cause: Box::new(error.into()) };
        let cancel = &options.build.run.cancel;
        let next = PatchReader::open(path).and_then(|mut patches| patches.overlay(image, &cache, cancel));
        let (next, applied) = next.map_err(in_patch)?;
        image = next;
        last = applied.time.map(|time| (path, time));
    }
    if let Some((path, time)) = last {
        path.clone_into(&mut options.build.source.path);
        options.build.image.build_time.get_or_insert(time);
    }
    options.build.source.format = SourceFormat::Image;
    options.new_image = Some(Image::open(image)?);
    create(base, &options, out)
}
