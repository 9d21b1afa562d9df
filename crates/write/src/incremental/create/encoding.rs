//! Finds out how an image was encoded, so that appended content is encoded in the same way. Also
//! the configurations of compression algorithms that follow the superblock: those of the old image
//! and of new content (FORMAT.md 1).

use std::collections::HashMap;

use ferofs_codec::Params;
use ferofs_format::inode::FileType;
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::{Algorithm, FileOffset, Incompat};
use ferofs_read::{ExtentData, Image};
use ferofs_update::PatchFault;
use ferofs_update::image::SuperblockArea;

use crate::error::{Error, Result};
use crate::incremental::create::context::Survey;
use crate::options::compression::{Compression, Fragments, IndexKind, PCLUSTER_MAX};

/// Files whose extents are counted: enough to see the most frequent algorithm and the largest
/// pcluster.
const FILES: usize = 2000;
/// Extents that are counted of each file.
const EXTENTS: usize = 64;

/// Pclusters of at least this many bytes were chosen for a small image, so new content is
/// compressed with [`SMALL_ZSTD`], as by the preset `backup`. With smaller ones, new content has
/// the default level: an image does not show its level.
const SMALL: u32 = 256 << 10;
const SMALL_ZSTD: u8 = 15;

/// The parameters of `algorithm` for new content of `image`, in pclusters of at most `pcluster`
/// bytes. New content must be decodable with the memory that readers reserve for the old image.
pub(crate) fn params(image: &Image, algorithm: Algorithm, pcluster: u32) -> Result<Params> {
    let level = (algorithm == Algorithm::Zstd && pcluster >= SMALL).then_some(SMALL_ZSTD);
    let params = Params::new(algorithm, level).map_err(crate::error::Error::Params)?;
    Ok(params.with_window(image.configs().window(algorithm)))
}

/// The compression settings of `image`, whose inodes are in `survey`; `None`: its content is
/// stored. `packed` is the algorithm of a packed inode that grows: new fragments become part of it.
pub(crate) fn of_image(
    image: &Image,
    survey: &Survey,
    packed: Option<Algorithm>,
) -> Result<Option<Compression>> {
    let block = image.superblock().block_size;
    let mut algorithms: HashMap<u8, u64> = HashMap::new();
    let (mut largest, mut by_extents, mut largest_fragment) = (0, false, 0);
    let mut holes = false;
    let regular =
        survey.files.iter().filter(|file| file.file_type == FileType::Regular && file.size > 0);
    for nid in regular.take(FILES).map(|file| file.nid).chain(image.superblock().packed) {
        let inode = image.inode(nid)?;
        if !inode.layout().is_compressed() {
            continue;
        }
        let extents = image.extents(&inode, FileOffset::new(0))?;
        by_extents |= extents.are_records();
        for extent in extents.take(EXTENTS) {
            let extent = extent?;
            match extent.data {
                ExtentData::Encoded { algorithm, encoded_len, .. } => {
                    *algorithms.entry(algorithm.id()).or_default() += 1;
                    largest = largest.max(encoded_len);
                }
                ExtentData::Hole => holes = true,
                ExtentData::Fragment { .. } if extent.len == inode.size() => {
                    largest_fragment = largest_fragment.max(extent.len);
                }
                _ => {}
            }
        }
    }
    let most = algorithms.into_iter().max_by_key(|(id, count)| (*count, std::cmp::Reverse(*id)));
    let most = most.and_then(|(id, _)| Algorithm::from_id(id));
    let Some(algorithm) = packed.or(most) else { return Ok(None) };
    let has = |feature| image.superblock().incompat.contains(feature);
    let largest = match by_extents {
        true => largest.next_power_of_two(),
        false => largest.next_multiple_of(block.bytes64()),
    };
    let largest = largest.clamp(block.bytes64(), PCLUSTER_MAX.into());
    let pcluster = u32::try_from(largest).unwrap_or(PCLUSTER_MAX);
    let mut compression = Compression::new(params(image, algorithm, pcluster)?);
    compression.pcluster = Some(pcluster);
    if by_extents {
        compression.index = IndexKind::Extents;
    }
    // A kernel that knows fragments knows the older ZTAILPACKING. New tails become fragments only
    // if the packed inode grows: an image has only one.
    compression.inline_tails = !by_extents
        && (has(Incompat::ZTAILPACKING)
            || has(Incompat::FRAGMENTS) && image.superblock().packed.is_some());
    compression.fragments = match packed {
        Some(_) if largest_fragment >= largest => Fragments::All,
        Some(_) => Fragments::Tails,
        None => Fragments::None,
    };
    compression.dedupe = has(Incompat::DEDUPE);
    compression.holes = holes;
    Ok(Some(compression))
}

/// `compression`, if the superblock's sector has space for its configuration, or else its algorithm
/// in pclusters of one block at block boundaries, which LZ4 needs no configuration for. `None` if
/// that has no space either: content is then stored.
pub(crate) fn with_space(
    old: &Image,
    area: &SuperblockArea,
    compression: Compression,
) -> Option<Compression> {
    let has_space = |compression: &Compression| {
        update_configs(old, area, Some(compression), None, &mut area.superblock().clone()).is_ok()
    };
    if has_space(&compression) {
        return Some(compression);
    }
    let index = IndexKind::Compact;
    let simple = Compression { pcluster: None, index, fragments: Fragments::None, ..compression };
    Some(simple).filter(has_space)
}

/// Adds the algorithms of new `content` and of a `metabox` that grows to `superblock`. Returns the
/// configurations that follow it, if they change.
///
/// # Errors
/// [`PatchFault::NoConfigSpace`].
pub(crate) fn update_configs(
    old: &Image,
    area: &SuperblockArea,
    content: Option<&Compression>,
    metabox: Option<&Compression>,
    superblock: &mut Superblock,
) -> Result<Option<Vec<u8>>> {
    let old = old.configs();
    let mut all = *old;
    for compression in content.into_iter().chain(metabox) {
        all = all.union(&compression.configs(superblock.block_size));
    }
    if all == *old {
        return Ok(None);
    }
    let is_configured = superblock.incompat.contains(Incompat::COMPR_CFGS);
    if let (false, Some(max_distance)) = (is_configured, all.lz4_only()) {
        superblock.compression = superblock::Compression::Lz4Only { max_distance };
        return Ok(None);
    }
    let bytes = all.to_bytes();
    let old_len = if is_configured { old.to_bytes().len() } else { 0 };
    if !area.has_config_space(old_len, bytes.len()) {
        return Err(Error::Patch(PatchFault::NoConfigSpace));
    }
    superblock.incompat |= Incompat::COMPR_CFGS;
    superblock.compression = superblock::Compression::Configured { available: all.available() };
    Ok(Some(bytes))
}
