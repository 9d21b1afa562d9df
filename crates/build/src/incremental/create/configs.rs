//! The configurations of compression algorithms that follow the superblock: those of the old image and of new content.
//! Source: FORMAT.md 1.

use ferofs_format::Incompat;
use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE, Lz4Config};
use ferofs_format::superblock::{self, Superblock};

use super::context::CreateContext;
use crate::error::{Error, Result};
use ferofs_patch::PatchFault;

/// Adds the algorithms of new content to `superblock`. Returns the configurations that follow it, if they change.
///
/// # Errors
/// [`PatchFault::NoConfigSpace`].
pub(crate) fn update(context: &CreateContext<'_>, superblock: &mut Superblock) -> Result<Option<Vec<u8>>> {
    let Some(compression) = &context.compression else { return Ok(None) };
    let old = context.inputs.old.configs();
    let mut alone = Superblock::new(superblock.block_size);
    let bytes = compression.configure(&mut alone);
    let new = match alone.compression {
        superblock::Compression::Configured { available } => {
            CompressionConfigs::parse(available, &bytes).map_err(crate::error::Error::Layout)?
        }
        superblock::Compression::Lz4Only { max_distance } => {
            let max_distance = if max_distance == 0 { LZ4_MAX_DISTANCE } else { max_distance };
            let lz4 = Some(Lz4Config { max_distance, max_pcluster_blocks: 1 });
            CompressionConfigs { lz4, ..CompressionConfigs::default() }
        }
    };
    let all = union(old, &new);
    let is_configured = superblock.incompat.contains(Incompat::COMPR_CFGS);
    let one_block = all.lz4.is_none_or(|lz4| lz4.max_pcluster_blocks <= 1);
    let only_lz4 = all == CompressionConfigs { lz4: all.lz4, ..CompressionConfigs::default() };
    if !is_configured && only_lz4 && one_block {
        if let Some(lz4) = all.lz4 {
            let max_distance = if lz4.max_distance == LZ4_MAX_DISTANCE { 0 } else { lz4.max_distance };
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

/// Configurations with which a reader can decode the extents of both images.
fn union(a: &CompressionConfigs, b: &CompressionConfigs) -> CompressionConfigs {
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
        deflate: [a.deflate, b.deflate].into_iter().flatten().max_by_key(|config| config.window_bits),
        zstd: [a.zstd, b.zstd].into_iter().flatten().max_by_key(|config| config.window_log),
    }
}
