//! An image written anew: the tree that it shows now, without what earlier states left behind.

use std::path::Path;

use super::settings;
use super::survey::Survey;
use crate::Result;
use ferofs_build::{Fragments, Options, SourceFormat, Summary, build};
use ferofs_read::{FileSource, Image};

/// How to build what `image` shows, encoded as it is as far as that shows: with its block size, identity, label and
/// time. For [`ferofs_build::build`], or to be changed before that.
///
/// # Errors
/// [`crate::Error::Io`], [`crate::Error::Corrupt`].
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
    options.data.compression = settings::like(&old, &Survey::new(&old, &options)?)?;
    if let Some(compression) = &mut options.data.compression
        && superblock.packed.is_some()
    {
        // One flag stands for both.
        (compression.fragments, compression.dedupe) = (Fragments::Tails, false);
    }
    Ok(options)
}

/// Builds a fresh image of what `image` shows at `out`.
///
/// # Errors
/// As [`squash_options`] and [`build`].
pub fn squash(image: &Path, out: &Path) -> Result<Summary> {
    Ok(build(&squash_options(image)?, out)?)
}
