//! Builds an image again from its current tree, without the bytes of earlier states.

use std::path::Path;

use super::create::encoding;
use super::create::survey::Survey;
use crate::error::Result;
use ferofs_build::{Fragments, Options, SourceFormat, Summary, build};
use ferofs_read::{FileSource, Image};

/// The options to build the current tree of `image` again: with its block size, UUID, label and time, and encoded like the old
/// image as far as that shows.
///
/// # Errors
/// [`crate::Error::Io`], [`crate::Error::Read`].
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
    options.xattrs.prefixes =
        old.xattr_prefixes().iter().filter(|prefix| prefix.base != 0).cloned().collect();
    options.image.checksum = superblock.compat.contains(ferofs_format::Compat::SB_CHKSUM);
    options.data.compression = encoding::of_image(&old, &Survey::new(&old, &options)?, None)?;
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
    Ok(build(&squash_options(image)?, out)?)
}
