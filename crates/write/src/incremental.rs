//! Makes patches, which bring an image up to date: an incremental build that appends what is new to
//! an existing image. docs/PATCH_FORMAT.md describes the format and the reasons; the crate
//! `ferofs-update` applies patches.
//!
//! `create` makes a patch: it compares, encodes and lays out. This file has what makes one patch of
//! several ([`compose`]), creates and applies at once ([`add`]), and builds the current tree again
//! ([`squash`]). `like` builds a whole image that shares most of its bytes with another one.

mod create;
mod delta;
mod like;
mod relocations;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_format::xattr::LongPrefix;
use ferofs_read::{FileSource, Image, Source};
use ferofs_update::image::SuperblockArea;
use ferofs_update::{
    Error as ApplyError, FileMedium, Patch, PatchFault, PatchReader, PieceCache, TrailingData,
    apply, check_trailing, recover,
};

use crate::build::build;
use crate::error::{Error, Result};
use crate::incremental::create::context::Survey;
pub use crate::incremental::create::options::{
    CreateOptions, Encoding, GrowthParts, IgnoredAttributes, PatchSummary,
};
pub use crate::incremental::create::{PatchFile, create};
use crate::incremental::create::{append_patch, check_unsealed, encoding};
pub use crate::incremental::delta::{DeltaOptions, DeltaSummary, create_delta};
pub use crate::incremental::like::{LikeOptions, build_like};
use crate::options::Options;
use crate::options::compression::Fragments;
use crate::options::source::SourceFormat;
use crate::output::{Output, OwnFile};
use crate::progress::Summary;

/// Makes a patch that leads from the image `base` to the tree that `patches` show, one applied to
/// the result of the other, and writes it to `out`. Of a file with several patches those are taken
/// that fit. The new patch holds nothing that only the states between had. Its time is that of the
/// last patch, unless `options` has one. The source in `options` is not used.
///
/// # Errors
/// [`Error::InPatch`] for a patch that does not fit the image before it, and all errors of
/// `create`.
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
        let in_patch = |error: ApplyError| Error::InPatch {
            path: path.clone(),
            cause: Box::new(error.into()),
        };
        let cancel = &options.build.run.cancel;
        let next =
            PatchReader::open(path).and_then(|mut patches| patches.overlay(image, &cache, cancel));
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

/// Adds the sources of `options` to the tree of `image`: files replace files of the same path,
/// directories are merged. Returns `None` if that changes nothing. The image shows the old tree or
/// the new one at any moment, and [`rollback`](ferofs_update::rollback) goes back. `trailing` says
/// whether bytes after the image may be overwritten.
///
/// # Errors
/// As [`create`](create()) and [`apply`].
pub fn add(
    image: &Path,
    options: &CreateOptions,
    trailing: TrailingData,
) -> Result<Option<PatchSummary>> {
    let mut options = options.clone();
    options.build.source.lower_image = Some(image.to_owned());
    // The patch is applied at once and never sent, so its size does not count.
    (options.portable, options.level, options.grow) = (true, Some(1), true);
    // This locks the image against other changes until the end.
    let medium = FileMedium::open(image)?;
    if trailing == TrailingData::Keep {
        check_unsealed(image)?;
    }
    let own_files: Vec<OwnFile> = OwnFile::with_name(image).into_iter().collect();
    let temporary = image.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let mut output = Output::region(temporary, 0)?;
    let created = match append_patch(image, &options, &own_files, temporary, &mut output) {
        Err(Error::Patch(PatchFault::Unchanged)) => return Ok(None),
        created => created?,
    };
    let patch = Patch::new(Box::new(output.appended(0)?))?;
    apply(&medium, &patch, trailing, &options.build.run.cancel)?;
    Ok(Some(created))
}

/// The options to build the current tree of `image` again: with its block size, UUID, label and
/// time, and encoded like the old image as far as that shows.
///
/// # Errors
/// [`crate::error::Error::Io`], [`crate::error::Error::Read`].
pub fn squash_options(image: &Path) -> Result<Options> {
    let mut options = Options::new(image);
    let old = Image::open(FileSource::open(image, 0)?)?;
    let superblock = old.superblock();
    options.source.format = SourceFormat::Image;
    options.image.block_size = superblock.block_size;
    options.image.uuid = Some(superblock.uuid);
    let label = superblock.volume_name.split(|byte| *byte == 0).next().unwrap_or_default();
    options.image.label = label.to_vec();
    options.image.build_time = superblock.epoch.checked_add(superblock.build_time.into());
    let digest = crate::sources::digest::name_in(&old).map(|(_, name)| name);
    let is_for_names = |prefix: &&LongPrefix| prefix.base != 0 && Some(*prefix) != digest;
    options.xattrs.prefixes = old.xattr_prefixes().iter().filter(is_for_names).cloned().collect();
    options.image.checksum = superblock.compat.contains(ferofs_format::Compat::SB_CHKSUM);
    options.data.compression = encoding::of_image(&old, &Survey::new(&old, &options)?, None)?;
    options.image.wide_addresses =
        options.data.compression.is_none() && superblock.blocks >= 1 << 32;
    if let Some(compression) = &mut options.data.compression
        && superblock.packed.is_some()
    {
        // Fragments and deduplication share one feature flag; an image with a packed inode has
        // fragments.
        (compression.fragments, compression.dedupe) = (Fragments::Tails, false);
    }
    Ok(options)
}

/// Builds a new image with the current tree of `image` at `out`.
///
/// # Errors
/// As [`squash_options`] and [`build`].
pub fn squash(image: &Path, out: &Path) -> Result<Summary> {
    build(&squash_options(image)?, out)
}

/// Puts a new image with the current tree of `image` in the place of `image`, a regular file.
/// `options` are those of [`squash_options`], perhaps changed. The new image is built beside the
/// old one, compared with it, and synced, and then gets its name: after an error or a power failure
/// the old image is there. Programs that have the old image open keep it, and so do other hard
/// links.
///
/// # Errors
/// [`PatchFault::NotAFile`]; [`PatchFault::DataBehind`] and [`PatchFault::Sealed`] if other data
/// follows the image; [`PatchFault::Busy`]; as [`build`].
pub fn squash_in_place(image: &Path, options: &Options) -> Result<Summary> {
    // The target of a symbolic link is replaced, not the link.
    let path = image.canonicalize().map_err(|e| Error::io("open", image, e))?;
    if !path.metadata().map_err(|e| Error::io("stat", image, e))?.is_file() {
        return Err(Error::Patch(PatchFault::NotAFile));
    }
    // This locks the image against other changes until the end.
    let medium = FileMedium::open(&path)?;
    let area = SuperblockArea::read(&medium)?;
    recover(&medium, &area)?;
    // The new file ends with the image.
    match check_trailing(&medium, area.size()..medium.size(), TrailingData::Keep) {
        Err(ApplyError::Patch(PatchFault::TrailingData { pos, .. })) => {
            return Err(Error::Patch(PatchFault::DataBehind(pos)));
        }
        checked => checked?,
    }
    let mut options = options.clone();
    options.source.path.clone_from(&path);
    options.output.verify = true;
    build(&options, &path)
}
