//! Finds out how an image was encoded, so that appended content is encoded in the same way.

use std::collections::HashMap;

use ferofs_codec::Method;
use ferofs_format::inode::FileType;
use ferofs_format::{Algorithm, FileOffset, Incompat};

use super::survey::Survey;
use crate::error::Result;
use ferofs_build::{Compression, Fragments, IndexKind, PCLUSTER_MAX, Params};
use ferofs_read::{ExtentData, Image};

/// Files whose extents are counted: enough to see the most frequent algorithm and the largest pcluster.
const FILES: usize = 2000;
/// Extents that are counted of each file.
const EXTENTS: usize = 64;

/// The compression settings of `image`, whose inodes are in `survey`; `None`: its content is stored.
pub(crate) fn of_image(image: &Image, survey: &Survey) -> Result<Option<Compression>> {
    let block = image.superblock().block_size;
    let mut algorithms: HashMap<u8, u64> = HashMap::new();
    let (mut largest, mut by_extents) = (0, false);
    let regular = survey.files.iter().filter(|file| file.file_type == FileType::Regular && file.size > 0);
    let packed = image.superblock().packed;
    for nid in regular.take(FILES).map(|file| file.nid).chain(packed) {
        let inode = image.inode(nid)?;
        if !inode.layout().is_compressed() {
            continue;
        }
        let extents = image.extents(&inode, FileOffset::new(0))?;
        by_extents |= extents.are_records();
        for extent in extents.take(EXTENTS) {
            if let ExtentData::Encoded { algorithm, encoded_len, .. } = extent?.data {
                *algorithms.entry(algorithm.id()).or_default() += 1;
                largest = largest.max(encoded_len);
            }
        }
    }
    let most = algorithms.into_iter().max_by_key(|(id, count)| (*count, std::cmp::Reverse(*id)));
    let Some(algorithm) = most.and_then(|(id, _)| Algorithm::from_id(id)) else { return Ok(None) };
    let mut params = Params::new(algorithm, None).map_err(ferofs_build::Error::Params)?;
    let configs = image.configs();
    // New content must be decodable with the memory that readers reserve for the old image.
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
    let has = |feature| image.superblock().incompat.contains(feature);
    let mut compression = Compression::new(params);
    let largest = match by_extents {
        true => largest.next_power_of_two(),
        false => largest.next_multiple_of(block.bytes64()),
    };
    let largest = largest.clamp(block.bytes64(), PCLUSTER_MAX.into());
    compression.pcluster = u32::try_from(largest).ok();
    if by_extents {
        compression.index = IndexKind::Extents;
    }
    // A kernel that knows fragments knows the older ZTAILPACKING. New tails do not become fragments: an image has one packed
    // inode, and the patch does not change it.
    compression.inline_tails = !by_extents
        && (has(Incompat::ZTAILPACKING) || has(Incompat::FRAGMENTS) && image.superblock().packed.is_some());
    compression.fragments = Fragments::None;
    compression.dedupe = has(Incompat::DEDUPE);
    Ok(Some(compression))
}
