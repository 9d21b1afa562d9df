//! Builds an image again from its current tree, without the bytes of earlier states.

use std::path::Path;

use super::create::encoding;
use super::create::survey::Survey;
use crate::build::build;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::compression::Fragments;
use crate::options::source::SourceFormat;
use crate::progress::Summary;
use ferofs_format::xattr::LongPrefix;
use ferofs_patch::PatchFault;
use ferofs_patch::image::sector::SuperblockArea;
use ferofs_patch::{Error as ApplyError, FileMedium, TrailingData, check_trailing, recover};
use ferofs_read::{FileSource, Image, Source};

/// The options to build the current tree of `image` again: with its block size, UUID, label and time, and encoded like the old
/// image as far as that shows.
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
    options.image.wide_addresses = options.data.compression.is_none() && superblock.blocks >= 1 << 32;
    if let Some(compression) = &mut options.data.compression
        && superblock.packed.is_some()
    {
        // Fragments and deduplication share one feature flag; an image with a packed inode has fragments.
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

/// Puts a new image with the current tree of `image` in the place of `image`, a regular file. `options` are those of
/// [`squash_options`], perhaps changed. The new image is built beside the old one, compared with it, and synced, and then gets its name: after an error or a power failure the old image is there. Programs that have the old image open keep it, and so do
/// other hard links.
///
/// # Errors
/// [`PatchFault::NotAFile`]; [`PatchFault::DataBehind`] and [`PatchFault::Sealed`] if other data follows the image; [`PatchFault::Busy`]; as
/// [`build`].
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
