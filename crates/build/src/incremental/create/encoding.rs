//! Finds out how an image was encoded, so that appended content is encoded in the same way. Also the configurations of compression
//! algorithms that follow the superblock: those of the old image and of new content (FORMAT.md 1).

use std::collections::HashMap;

use ferofs_codec::{Method, Params};
use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE, Lz4Config};
use ferofs_format::inode::FileType;
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::{Algorithm, BlockSize, FileOffset, Incompat};
use ferofs_patch::PatchFault;
use ferofs_read::{ExtentData, Image};

use crate::error::{Error, Result};
use crate::incremental::create::context::{CreateContext, Survey};
use crate::options::compression::{Compression, Fragments, IndexKind, PCLUSTER_MAX};

/// Files whose extents are counted: enough to see the most frequent algorithm and the largest pcluster.
const FILES: usize = 2000;
/// Extents that are counted of each file.
const EXTENTS: usize = 64;

/// Pclusters of at least this many bytes were chosen for a small image, so new content is compressed with [`SMALL_ZSTD`], as by the
/// preset `backup`. With smaller ones, new content has the default level: an image does not show its level.
const SMALL: u32 = 256 << 10;
const SMALL_ZSTD: u8 = 15;

/// The parameters of `algorithm` for new content of `image`, in pclusters of at most `pcluster` bytes. New content must be decodable
/// with the memory that readers reserve for the old image.
pub(crate) fn params(image: &Image, algorithm: Algorithm, pcluster: u32) -> Result<Params> {
    let level = (algorithm == Algorithm::Zstd && pcluster >= SMALL).then_some(SMALL_ZSTD);
    let mut params = Params::new(algorithm, level).map_err(crate::error::Error::Params)?;
    let configs = image.configs();
    match &mut params.method {
        Method::Lz4(lz4) => {
            lz4.max_distance = configs.lz4.map_or(lz4.max_distance, |config| config.max_distance);
        }
        Method::Lzma(lzma) => {
            lzma.dict_size = configs.lzma.map_or(lzma.dict_size, |config| config.dict_size);
        }
        Method::Zstd(zstd) => {
            zstd.window_log = configs.zstd.map_or(zstd.window_log, |config| config.window_log);
        }
        Method::Deflate(_) => {}
    }
    Ok(params)
}

/// The compression settings of `image`, whose inodes are in `survey`; `None`: its content is stored. `packed` is the algorithm of a
/// packed inode that grows: new fragments become part of it.
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
    // A kernel that knows fragments knows the older ZTAILPACKING. New tails become fragments only if the packed inode grows: an image has
    // only one.
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

/// Adds the algorithms of new content to `superblock`. Returns the configurations that follow it, if they change.
///
/// # Errors
/// [`PatchFault::NoConfigSpace`].
pub(crate) fn update_configs(
    context: &CreateContext<'_>,
    superblock: &mut Superblock,
) -> Result<Option<Vec<u8>>> {
    let Some(compression) = &context.compression else { return Ok(None) };
    let old = context.inputs.old.configs();
    let all = union(old, &configs(compression, superblock.block_size)?);
    let is_configured = superblock.incompat.contains(Incompat::COMPR_CFGS);
    let one_block = all.lz4.is_none_or(|lz4| lz4.max_pcluster_blocks <= 1);
    let only_lz4 = all == CompressionConfigs { lz4: all.lz4, ..CompressionConfigs::default() };
    if !is_configured && only_lz4 && one_block {
        if let Some(lz4) = all.lz4 {
            let max_distance =
                if lz4.max_distance == LZ4_MAX_DISTANCE { 0 } else { lz4.max_distance };
            superblock.compression = superblock::Compression::Lz4Only { max_distance };
        }
        return Ok(None);
    }
    if is_configured && all == *old {
        return Ok(None);
    }
    let bytes = all.to_bytes();
    let old_len = if is_configured { old.to_bytes().len() } else { 0 };
    if !context.area.has_config_space(old_len, bytes.len()) {
        return Err(Error::Patch(PatchFault::NoConfigSpace));
    }
    superblock.incompat |= Incompat::COMPR_CFGS;
    superblock.compression = superblock::Compression::Configured { available: all.available() };
    Ok(Some(bytes))
}

/// The configurations of an image with this compression.
pub(crate) fn configs(compression: &Compression, block: BlockSize) -> Result<CompressionConfigs> {
    let mut alone = Superblock::new(block);
    let bytes = compression.configure(&mut alone);
    Ok(match alone.compression {
        superblock::Compression::Configured { available } => {
            CompressionConfigs::parse(available, &bytes).map_err(crate::error::Error::Layout)?
        }
        superblock::Compression::Lz4Only { max_distance } => {
            let max_distance = if max_distance == 0 { LZ4_MAX_DISTANCE } else { max_distance };
            let lz4 = Some(Lz4Config { max_distance, max_pcluster_blocks: 1 });
            CompressionConfigs { lz4, ..CompressionConfigs::default() }
        }
    })
}

/// Configurations with which a reader can decode the extents of both images.
pub(crate) fn union(a: &CompressionConfigs, b: &CompressionConfigs) -> CompressionConfigs {
    let lz4 = match (a.lz4, b.lz4) {
        (Some(a), Some(b)) => Some(Lz4Config {
            max_distance: a.max_distance.max(b.max_distance),
            max_pcluster_blocks: a.max_pcluster_blocks.max(b.max_pcluster_blocks),
        }),
        (a, b) => a.or(b),
    };
    CompressionConfigs {
        lz4,
        lzma: [a.lzma, b.lzma].into_iter().flatten().max_by_key(|config| config.dict_size),
        deflate: [a.deflate, b.deflate]
            .into_iter()
            .flatten()
            .max_by_key(|config| config.window_bits),
        zstd: [a.zstd, b.zstd].into_iter().flatten().max_by_key(|config| config.window_log),
    }
}
