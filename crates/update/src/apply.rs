//! Applies a patch: in place, or in memory.
//!
//! | module | job |
//! |---|---|
//! | [`base`] | checks that an image is the one that a patch is for |
//! | [`medium`] | the file or block device that an image is changed on |
//! | [`commit`](mod@commit) | writes a change in a safe order, and undoes it if it fails |
//! | [`lazy_region`] | decodes pieces when they are read, for an image in memory |
//! | [`rollback`] | makes an earlier state of the history current |
//! | [`repair`] | restores a damaged superblock from the history; finds what an interrupted change has written |

pub(crate) mod base;
pub(crate) mod commit;
pub(crate) mod lazy_region;
pub(crate) mod medium;
pub(crate) mod repair;
pub(crate) mod rollback;

use std::sync::Arc;

use self::base::{Usable, check_base, check_state};
use self::commit::{ImageChange, ImageWriter, TrailingData, check_trailing, commit, recover};
use self::lazy_region::{LazyRegion, PieceCache};
use self::medium::Medium;
use self::rollback::{Rollback, rollback};
use crate::apply::repair::{ApplyProgress, pieces_there};
use crate::error::{Error, PatchFault, Result};
use crate::format::header::Header;
use crate::format::reader::Patch;
use crate::image::digest::PartDigests;
use crate::image::journal::{MaskedSource, WrittenRanges};
use crate::image::overlay::Overlay;
use crate::image::{SECTOR_END, SECTOR_POS, SuperblockArea};
use ferofs_read::{Cancel, Image, OpenOptions, READER_MEMORY, Source};
use ferofs_threads::fitting_workers;

/// Bytes of the base's metadata that are cached while its files are read: applying needs little
/// memory, and files are read mostly in the order of their inodes.
const METADATA_CACHE: usize = 4 << 20;

/// Threads that read the base and encode at the same time, at most. Each has tables of a
/// compressor, and memory is bounded.
pub(crate) const THREADS_MAX: usize = 4;

/// The work that reading the base may take, in multiples of what a sound image of its size needs
/// for one reading of everything: pieces refer to the same content several times. Beyond it a patch
/// is refused: its base has directories or files without an end.
const WORK_LIMIT: u32 = 8;

/// Applies `patch` to the image on `medium`, so that it shows the new tree. If the patch was
/// applied before and rolled back, its state becomes current again. At any moment, also after a
/// crash, the medium holds an image that shows the old tree or the new one. `trailing` says whether
/// bytes after the image may be overwritten.
///
/// # Errors
/// [`Error::Patch`] when the patch is not for this image: nothing was written.
/// [`Error::Unfinished`] when writing failed: it says in what state the image is. After an
/// interruption the same call continues.
pub fn apply<M: Medium>(
    medium: &M,
    patch: &Patch,
    trailing: TrailingData,
    cancel: &Cancel,
) -> Result<()> {
    apply_with(medium, patch, trailing, &ApplyProgress::default(), cancel)
}

/// As [`apply`], and tells how far it is.
///
/// # Errors
/// As [`apply`].
pub fn apply_with<M: Medium>(
    medium: &M,
    patch: &Patch,
    trailing: TrailingData,
    progress: &ApplyProgress,
    cancel: &Cancel,
) -> Result<()> {
    let header = patch.header();
    let area = match check_state(medium, header, patch.appended())? {
        Usable::Base(area) => area,
        Usable::RolledBack(state) => {
            return rollback(medium, Some(state), trailing, header.time).map(drop);
        }
    };
    let digests = check_base(medium, &area, patch, cancel)?;
    patch.check_encoders()?;
    let root = header.root_range();
    let root_bytes = header.root.as_ref().map_or(&[][..], |(_, bytes)| bytes);
    let appended = header.base_size..header.result_size;
    let interrupted = WrittenRanges::find_interrupted(medium, &area)?
        .filter(|ranges| ranges.appended == appended && ranges.root == root);
    let (ranges, there) = match interrupted {
        Some(ranges) => (ranges, pieces_there(medium, patch, cancel)?),
        None => {
            recover(medium, &area)?;
            check_trailing(medium, appended.clone(), trailing)?;
            (WrittenRanges { appended, root, medium_size: medium.size() }, Vec::new())
        }
    };
    progress.begin(patch, &there);
    let change = ImageChange { ranges, root: root_bytes, sector: &header.sector };
    // Without what an interrupted change has written.
    let base = MaskedSource::new(medium, &area)?;
    let reader = medium.reader().map_err(|e| Error::io_unnamed("read the image", e))?;
    let image = open_base(Box::new(MaskedSource::new(reader, &area)?))?;
    let region = |sink: &mut ImageWriter<'_, M>| {
        write_pieces(patch, base, &image, &there, sink, progress, cancel)
    };
    commit(medium, &area, &change, region, |result| check_result(result, header, &digests, cancel))
}

/// Makes the pieces of `patch` that are not `there`, and passes them to `sink`.
fn write_pieces<M: Medium>(
    patch: &Patch,
    base: MaskedSource<&M>,
    image: &Image,
    there: &[bool],
    sink: &mut ImageWriter<'_, M>,
    progress: &ApplyProgress,
    cancel: &Cancel,
) -> Result<()> {
    let check = || Ok(cancel.check()?);
    let threads = fitting_workers(None, READER_MEMORY).min(THREADS_MAX);
    let mut decoder = patch.pieces(base, image, threads)?;
    let mut region = Vec::new();
    for (number, (range, _)) in patch.appended().enumerate() {
        check()?;
        if there.get(number) == Some(&true) {
            sink.keep(range.end.saturating_sub(range.start));
            continue;
        }
        decoder.decode(number, &mut region, check)?;
        sink.append(&region)?;
        progress.add_written(&range);
    }
    Ok(())
}

/// Opens the base image to read its files.
fn open_base(source: Box<dyn Source>) -> Result<Image> {
    let mut options = OpenOptions::default();
    options.metadata_cache = METADATA_CACHE;
    options.work_limit = Some(WORK_LIMIT);
    Ok(Image::open_with(source, Vec::new(), &options)?)
}

/// Checks that `result` is what the patch makes of the image whose digests are `base`.
fn check_result(
    result: &dyn Source,
    header: &Header,
    base: &PartDigests,
    cancel: &Cancel,
) -> Result<()> {
    let mut changed = vec![SECTOR_POS..SECTOR_END, header.base_size..header.result_size];
    changed.extend(header.root_range());
    let result = base.changed(result, header.result_size, &changed, cancel)?;
    if result.digest() == header.result_digest {
        Ok(())
    } else {
        Err(Error::Patch(PatchFault::ResultDiffers))
    }
}

/// The image that `patch` makes of `base`, in memory. Pieces of the patch are decoded when they are
/// read, and at most 64 MiB of them stay in memory. All are decoded once here, to compare the
/// digest of the result.
///
/// # Errors
/// As [`apply`]; nothing is written.
pub fn overlay(base: Arc<dyn Source>, patch: &Patch, cancel: &Cancel) -> Result<Arc<dyn Source>> {
    overlay_with(base, patch, &PieceCache::default(), cancel)
}

/// As [`overlay`]; decoded pieces stay in `cache`. Patches that are laid over each other share one,
/// so that their number does not count.
///
/// # Errors
/// As [`overlay`].
pub fn overlay_with(
    base: Arc<dyn Source>,
    patch: &Patch,
    cache: &PieceCache,
    cancel: &Cancel,
) -> Result<Arc<dyn Source>> {
    let header = patch.header();
    let area = match check_state(&*base, header, patch.appended())? {
        Usable::Base(area) => area,
        Usable::RolledBack(state) => {
            let area = SuperblockArea::read(&*base)?;
            let rollback = Rollback::plan(&*base, &area, Some(state), header.time)?;
            let base = Arc::new(MaskedSource::new(base, &area)?);
            let overlay = Overlay::new(base, rollback.appended.start, Box::new(rollback.bytes));
            return Ok(Arc::new(overlay.with(SECTOR_POS, &rollback.sector)));
        }
    };
    let digests = check_base(&*base, &area, patch, cancel)?;
    let base: Arc<dyn Source> = Arc::new(MaskedSource::new(base, &area)?);
    patch.check_encoders()?;
    let image = open_base(Box::new(Arc::clone(&base)))?;
    let region =
        Arc::new(LazyRegion::new(patch, patch.pieces(Arc::clone(&base), &image, 1)?, cache));
    let mut overlay =
        Overlay::new(Arc::clone(&base), header.base_size, Box::new(Arc::clone(&region)))
            .with(SECTOR_POS, &header.sector);
    if let Some((pos, bytes)) = &header.root {
        overlay = overlay.with(*pos, bytes);
    }
    // This decodes each piece, within the limit on work. From here on a piece takes the same work
    // each time.
    check_result(&overlay, header, &digests, cancel)?;
    let mut options = OpenOptions::default();
    options.metadata_cache = METADATA_CACHE;
    region.set_image(&Image::open_with(Box::new(base), Vec::new(), &options)?);
    Ok(Arc::new(overlay))
}
