//! The metabox and the packed inode of the old image, if the new image makes them longer: new
//! metadata and new fragments are then encoded together, after the old content. Their old extents
//! stay, and only their inodes with the indexes are written again. The old superblock names the old
//! inodes, so that going back works as for all other metadata. Source: FORMAT.md 6.6, 6.7, 7.

use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::data::stored::EarlierContent;
use crate::options::compression::{Compression, IndexKind, PCLUSTER_MAX};
use crate::tree::{Kind, NodeId};
use ferofs_codec::codec;
use ferofs_format::{Algorithm, DeviceId, FileOffset, Incompat, Nid};
use ferofs_read::{ExtentData, Image, Location};

use super::{ReuseDecision, ReuseDecisions};
use crate::error::Result;
use crate::incremental::create::context::Inputs;
use crate::incremental::create::encoding;

/// Bytes of an extent in an index of records of 16 bytes, which are all that a longer file needs.
const RECORD: u64 = 16;
/// The index of the packed inode is written again with each change. It may take at most one byte
/// for this many bytes of new content; else new content is encoded apart.
const CONTENT_PER_INDEX: u64 = 4;

/// What grows.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    pub(crate) metabox: Option<GrowingMetabox>,
    pub(crate) packed: Option<GrowingPacked>,
}

/// The metabox, and how its new content is encoded.
#[derive(Debug)]
pub(crate) struct GrowingMetabox {
    pub(crate) nid: Nid,
    pub(crate) earlier: EarlierContent,
    pub(crate) compression: Compression,
}

/// The packed inode.
#[derive(Clone, Debug)]
pub(crate) struct GrowingPacked {
    pub(crate) nid: Nid,
    pub(crate) algorithm: Algorithm,
    pub(crate) earlier: EarlierContent,
}

impl Growth {
    /// Decides what grows. Only images with `48BIT` have indexes in which an extent can start
    /// anywhere.
    pub(crate) fn new(inputs: Inputs<'_>, decisions: &ReuseDecisions) -> Result<Self> {
        let superblock = inputs.old.superblock();
        if !superblock.incompat.contains(Incompat::BIT48) {
            return Ok(Self::default());
        }
        let is_new = |id: &NodeId| {
            let decision = decisions.by_node[id.index()];
            let is_file = matches!(inputs.tree.node(*id).kind, Kind::Regular { .. });
            is_file && matches!(decision, ReuseDecision::ChangedContent(_) | ReuseDecision::New)
        };
        let content: u64 =
            inputs.tree.ids().filter(is_new).map(|id| inputs.tree.node(id).size).sum();
        let mut growth = Self::default();
        // Whether this saves space is found out later, when all metadata is known.
        if let Some(nid) = superblock.metabox
            && let Some(old) = OldContent::of(inputs.old, nid, false)?
        {
            let OldContent { earlier, algorithm, largest } = old;
            let mut compression =
                Compression::new(encoding::params(inputs.old, algorithm, largest)?);
            compression.index = IndexKind::Extents;
            compression.pcluster = Some(largest);
            growth.metabox = Some(GrowingMetabox { nid, earlier, compression });
        }
        if let Some(nid) = superblock.packed
            && content > 0
            && inputs.old.extents(&inputs.old.inode(nid)?, FileOffset::new(0))?.are_records()
            && let Some(old) = OldContent::of(inputs.old, nid, false)?
            && old.earlier.log.count() * RECORD * CONTENT_PER_INDEX <= content
        {
            growth.packed =
                Some(GrowingPacked { nid, algorithm: old.algorithm, earlier: old.earlier });
        }
        Ok(growth)
    }
}

/// Content that can grow.
pub(crate) struct OldContent {
    pub(crate) earlier: EarlierContent,
    pub(crate) algorithm: Algorithm,
    /// The largest pcluster.
    largest: u32,
}

impl OldContent {
    /// The content of the inode `nid`, for an index whose extents have whole blocks (`in_blocks`),
    /// or start at any byte. `None` if it cannot grow: because it is not compressed by one
    /// algorithm, in pclusters of the image's own device; or by DEFLATE, whose clusters Linux does
    /// not decode at each place; or because an index by blocks has holes, which refer to a pcluster
    /// that is not read.
    pub(crate) fn of(image: &Image, nid: Nid, in_blocks: bool) -> Result<Option<Self>> {
        let inode = image.inode(nid)?;
        let mut log = ExtentLog::new(image.superblock().block_size.bytes64());
        let (mut used, mut largest) = (None, 0);
        for extent in image.extents(&inode, FileOffset::new(0))? {
            let extent = extent?;
            let (at, size, encoded, partial) = match extent.data {
                ExtentData::Encoded { algorithm, at, encoded_len, partial } => {
                    if *used.get_or_insert(algorithm) != algorithm {
                        return Ok(None);
                    }
                    (at, encoded_len, true, partial)
                }
                ExtentData::Stored { at } if in_blocks => (
                    at,
                    extent.len.next_multiple_of(image.superblock().block_size.bytes64()),
                    false,
                    false,
                ),
                ExtentData::Stored { at } => (at, extent.len, false, false),
                ExtentData::Hole if !in_blocks => {
                    log.push_without_dedupe(Extent::hole(extent.len));
                    continue;
                }
                ExtentData::Hole | ExtentData::Interlaced { .. } | ExtentData::Fragment { .. } => {
                    return Ok(None);
                }
            };
            let Location::Device(device, at) = at else { return Ok(None) };
            let size_32 = u32::try_from(size).unwrap_or(u32::MAX);
            let is_long = in_blocks && !encoded && size > image.superblock().block_size.bytes64();
            if device != DeviceId::new(0) || size_32 > PCLUSTER_MAX || is_long {
                return Ok(None);
            }
            largest = largest.max(size_32);
            let place = ExtentPlace::Shared { at, partial };
            log.push_without_dedupe(Extent { len: extent.len, encoded, size, place });
        }
        let can_grow = |used: &Algorithm| !codec(*used).needs_place || in_blocks;
        let algorithm = used.filter(can_grow).filter(|_| log.decoded_len() == inode.size());
        let block = image.superblock().block_size;
        let largest = largest.next_power_of_two().max(block.bytes() as u32);
        let earlier = EarlierContent { size: inode.size(), log, is_changed: false };
        Ok(algorithm.map(|algorithm| Self { earlier, algorithm, largest }))
    }
}
