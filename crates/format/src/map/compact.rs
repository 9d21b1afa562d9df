//! Compact indexes: bit-packed lclusters, 2 or 16 to a pack. Source: FORMAT.md 6.5.
//!
//! Reading, in this file: [`CompactIndex::place`] returns the position of an lcluster's pack,
//! [`CompactIndex::pack`] reads the pack, and [`Pack::get`] decodes a record from the pack alone.
//! Writing: the module `writer` takes lclusters in order.
//!
//! A pack stores one address, its base. The address of a HEAD is the base plus the blocks of the
//! pclusters before it in the pack. Without big pclusters the kth HEAD (from 1) is at base + k.
//! With big pclusters the block counts are added; if the pack's first record is a block count, it
//! is added, too, although its HEAD is in the previous pack.

mod writer;

use crate::error::{Fault, FormatError, Result, Structure};
pub(super) use crate::map::compact::writer::encode;
use crate::map::header::{IndexFormat, IndexHeader};
use crate::map::lcluster::{BLOCK_COUNT_BIT, Delta0, Head, HeadKind, Lcluster};
use crate::units::{BlockAddr, BlockSize, BytePos, ClusterSize, Lcn};
use crate::view::View;

/// Records of the largest pack.
const MAX_SLOTS: usize = 16;
/// 2-byte packs start at multiples of their size in bytes.
const COMPACTED_2B_ALIGN: u64 = 32;
/// The least bits of a value, as it must hold [`BLOCK_COUNT_BIT`].
const MIN_VALUE_BITS: u8 = 12;

/// The kinds of packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackKind {
    /// A record of a full index: not for the functions of this file.
    Full,
    /// 2 records in 8 bytes.
    Compacted4b,
    /// 16 records in 32 bytes.
    Compacted2b,
}

impl PackKind {
    const fn slots(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::Compacted4b => 2,
            Self::Compacted2b => 16,
        }
    }

    const fn bytes(self) -> u8 {
        match self {
            Self::Full | Self::Compacted4b => 8,
            Self::Compacted2b => 32,
        }
    }

    /// Bits of a record.
    const fn bits(self) -> u8 {
        match self {
            Self::Full | Self::Compacted4b => 16,
            Self::Compacted2b => 14,
        }
    }

    /// log2 of the largest lcluster size: `clusterofs` must fit into a value.
    const fn max_cluster_bits(self) -> u8 {
        match self {
            Self::Full | Self::Compacted4b => 14,
            Self::Compacted2b => 12,
        }
    }
}

/// The position and the parameters of a file's compact index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactIndex {
    pub(super) start: BytePos,
    pub(super) lclusters: u64,
    /// Records in 4-byte packs before the 2-byte ones.
    compacted_4b_initial: u64,
    /// Records in 2-byte packs.
    compacted_2b: u64,
    cluster: ClusterSize,
    big_pclusters: bool,
}

/// The position and size of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlace {
    pub(super) pos: BytePos,
    pub(super) first: Lcn,
    pub(super) kind: PackKind,
}

impl PackPlace {
    /// Bytes of the largest pack.
    pub const MAX: usize = 32;

    /// The pack's position.
    #[must_use]
    pub const fn pos(&self) -> BytePos {
        self.pos
    }

    /// The pack's size: 8 or 32 bytes.
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.kind.bytes().into()
    }

    /// The pack's first lcluster.
    #[must_use]
    pub const fn first(&self) -> Lcn {
        self.first
    }

    /// Lclusters in the pack, the unused ones at the file's end included: 1, 2 or 16.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.kind.slots().into()
    }
}

impl CompactIndex {
    /// The index of a file of `size` bytes whose map header ends at `header_end`.
    ///
    /// # Errors
    /// Lclusters that are too large for compact indexes, an index whose end exceeds 64 bits, or a
    /// header of full indexes.
    pub fn new(
        header_end: BytePos,
        size: u64,
        block: BlockSize,
        header: &IndexHeader,
    ) -> Result<Self> {
        let IndexFormat::Compact { compacted_2b } = header.format else {
            return Err(fault(Fault::Map("the index is not compact")));
        };
        let cluster = header.cluster;
        // The positions of packs depend on the number of blocks, even if lclusters are larger.
        let total = block.blocks_for(size);
        let compacted_4b_initial =
            (header_end.get().wrapping_neg() & (COMPACTED_2B_ALIGN - 1)) >> 2;
        let compacted_2b = match total.checked_sub(compacted_4b_initial) {
            Some(rest) if compacted_2b => rest & !0xf,
            _ => 0,
        };
        let kind = if compacted_2b > 0 { PackKind::Compacted2b } else { PackKind::Compacted4b };
        if cluster.bits() > kind.max_cluster_bits() {
            return Err(fault(Fault::Field {
                field: "h_clusterbits",
                value: cluster.bits().into(),
            }));
        }
        let lclusters = cluster.lclusters_for(size);
        let index = Self {
            start: header_end,
            lclusters,
            compacted_4b_initial,
            compacted_2b,
            cluster,
            big_pclusters: header.has_big_pclusters(),
        };
        if lclusters > 0 && index.last().is_none() {
            return Err(fault(Fault::Overflow("i_size")));
        }
        Ok(index)
    }

    /// The end of the last pack: where an inline tail starts.
    #[must_use]
    pub fn end(&self) -> BytePos {
        self.last().map_or(self.start, |(_, end)| end)
    }

    /// The position of the pack that contains `lcn`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the last lcluster.
    pub fn place(&self, lcn: Lcn) -> Result<PackPlace> {
        self.locate(lcn.get()).filter(|_| lcn.get() < self.lclusters).ok_or_else(|| {
            fault(Fault::OutOfRange { field: "lcn", value: lcn.get(), limit: self.lclusters })
        })
    }

    /// Reads the pack at `place` from `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn pack<'a>(&self, place: PackPlace, bytes: &'a [u8]) -> Result<Pack<'a>> {
        let mut view = View::new(bytes, Structure::CompactIndex);
        let bytes = view.take(place.size())?;
        Ok(Pack { bytes, place, cluster: self.cluster, big_pclusters: self.big_pclusters })
    }

    /// The address that the base of a pack with these bytes stands for: that of its first HEAD, or
    /// of the HEAD that its first block count belongs to.
    pub(super) fn first_addr(&self, pack: &[u8]) -> Option<BlockAddr> {
        let base = pack.last_chunk().copied().map(u32::from_le_bytes)?;
        Some(BlockAddr::new(base.wrapping_add(self.first_block()).into()))
    }

    /// Lets the base of a pack stand for `first`, unless that has more than 32 bits.
    pub(super) fn set_first_addr(&self, pack: &mut [u8], first: BlockAddr) {
        if let (Ok(first), Some(base)) = (u32::try_from(first.get()), pack.last_chunk_mut()) {
            *base = first.wrapping_sub(self.first_block()).to_le_bytes();
        }
    }

    /// Blocks from the base of a pack to its first HEAD.
    const fn first_block(&self) -> u32 {
        if self.big_pclusters { 0 } else { 1 }
    }

    /// The last pack, and where it ends.
    fn last(&self) -> Option<(PackPlace, BytePos)> {
        let place = self.locate(self.lclusters.checked_sub(1)?)?;
        Some((place, place.pos.checked_add(place.kind.bytes().into())?))
    }

    fn locate(&self, lcn: u64) -> Option<PackPlace> {
        let compacted_2b_end = self.compacted_4b_initial.checked_add(self.compacted_2b)?;
        // Bytes before the region that holds the record, the region's first lcluster, and its
        // packs.
        let (before, region, kind) = if lcn < self.compacted_4b_initial {
            (0, 0, PackKind::Compacted4b)
        } else if lcn < compacted_2b_end {
            (
                self.compacted_4b_initial.checked_mul(4)?,
                self.compacted_4b_initial,
                PackKind::Compacted2b,
            )
        } else {
            (
                self.compacted_4b_initial
                    .checked_mul(4)?
                    .checked_add(self.compacted_2b.checked_mul(2)?)?,
                compacted_2b_end,
                PackKind::Compacted4b,
            )
        };
        let slots = u64::from(kind.slots());
        let pack = lcn.checked_sub(region)?.checked_div(slots)?;
        let pos =
            self.start.checked_add(before)?.checked_add(pack.checked_mul(kind.bytes().into())?)?;
        let first = Lcn::new(region.checked_add(pack.checked_mul(slots)?)?);
        Some(PackPlace { pos, first, kind })
    }

    fn value_bits(&self) -> u8 {
        self.cluster.bits().max(MIN_VALUE_BITS)
    }
}

/// The bytes of one pack.
#[derive(Clone, Copy, Debug)]
pub struct Pack<'a> {
    bytes: &'a [u8],
    place: PackPlace,
    cluster: ClusterSize,
    big_pclusters: bool,
}

/// A record as stored: `None` for NONHEAD, and the value.
type Record = (Option<HeadKind>, u16);

impl Pack<'_> {
    /// The pack's position.
    #[must_use]
    pub const fn place(&self) -> PackPlace {
        self.place
    }

    /// Decodes lcluster `lcn`. At a pack's end, `delta1` of a NONHEAD may lead to a NONHEAD before
    /// the next HEAD.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for an lcluster of another pack; an offset outside the lcluster; a
    /// distance that leads before the file's start; a block count without big pclusters.
    pub fn get(&self, lcn: Lcn) -> Result<Lcluster> {
        let slot = lcn.checked_sub(self.place.first).and_then(|slot| u8::try_from(slot).ok());
        let Some(slot) = slot.filter(|slot| *slot < self.place.kind.slots()) else {
            let limit = self.place.first.get().saturating_add(self.place.slots());
            return Err(fault(Fault::OutOfRange { field: "lcn", value: lcn.get(), limit }));
        };
        let at = |fault| FormatError::new(Structure::CompactIndex, fault).at(slot.into());
        let (kind, value) = self.record(slot);
        let Some(kind) = kind else {
            let delta0 =
                Delta0::decode(self.delta0(slot, value), lcn, self.big_pclusters).map_err(at)?;
            return Ok(Lcluster::NonHead { delta0, delta1: self.delta1(slot) });
        };
        if u64::from(value) >= self.cluster.bytes64() {
            return Err(at(Fault::Field { field: "clusterofs", value: value.into() }));
        }
        let blocks = if self.big_pclusters {
            self.blocks_before_big(slot)
        } else {
            self.blocks_before(slot)
        };
        let addr = self.base().wrapping_add(blocks.map_err(at)?);
        let addr = BlockAddr::new(addr.into());
        Ok(Lcluster::Head(Head { kind, clusterofs: value, addr, partial_ref: false, hole: false }))
    }

    fn record(&self, slot: u8) -> Record {
        let bit = u32::from(slot).saturating_mul(self.place.kind.bits().into());
        // Every record starts at least four bytes before the pack's end, where the base is.
        let start = usize::try_from(bit >> 3).unwrap_or(usize::MAX);
        let word =
            self.bytes.get(start..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let word = u32::from_le_bytes(word).wrapping_shr(bit & 7);
        let bits = u32::from(self.cluster.bits().max(MIN_VALUE_BITS));
        let [type_bits, ..] = word.wrapping_shr(bits).to_le_bytes();
        let [a, b, ..] = word.to_le_bytes();
        let mask = u16::MAX.wrapping_shr(u16::BITS.saturating_sub(bits));
        (HeadKind::from_bits(type_bits), u16::from_le_bytes([a, b]) & mask)
    }

    fn base(&self) -> u32 {
        self.bytes.last_chunk().copied().map_or(0, u32::from_le_bytes)
    }

    /// `delta[0]` of a NONHEAD; the pack's last record stores `delta[1]`, unless it is a block
    /// count.
    fn delta0(&self, slot: u8, value: u16) -> u16 {
        let last = slot.saturating_add(1) == self.place.kind.slots();
        if !last || value & BLOCK_COUNT_BIT != 0 {
            return value;
        }
        match self.record(slot.saturating_sub(1)) {
            (Some(_), _) => 1,
            (None, value) if value & BLOCK_COUNT_BIT != 0 => 2,
            // At the limit the same distance leads one lcluster further than from the previous
            // record, still in the extent.
            (None, value) => {
                value.checked_add(1).filter(|n| n & BLOCK_COUNT_BIT == 0).unwrap_or(value)
            }
        }
    }

    fn delta1(&self, slot: u8) -> u16 {
        let mut distance: u16 = 0;
        let mut last = 0;
        for slot in slot..self.place.kind.slots() {
            let (kind, value) = self.record(slot);
            if kind.is_some() {
                return distance.max(1);
            }
            distance = distance.saturating_add(1);
            last = value;
        }
        if last & BLOCK_COUNT_BIT == 0 {
            // The last record stores the distance to the next HEAD. Early versions of mkfs stored
            // 0.
            distance = distance.saturating_add(last.saturating_sub(1));
        }
        distance.max(1)
    }

    /// The number of one-block pclusters that start in the pack before or in `slot`.
    fn blocks_before(&self, slot: u8) -> Result<u32, Fault> {
        let mut blocks: u32 = 1;
        let mut next = slot;
        while let Some(slot) = next.checked_sub(1) {
            next = slot;
            if let (None, distance) = self.record(slot) {
                if distance == 0 {
                    return Err(Fault::Field { field: "delta[0]", value: 0 });
                }
                // The base includes the HEADs of earlier packs.
                let Some(head) = u8::try_from(distance).ok().and_then(|n| slot.checked_sub(n))
                else {
                    break;
                };
                next = head;
            }
            blocks = blocks.saturating_add(1);
        }
        Ok(blocks)
    }

    /// The number of blocks from the base to the pcluster of the HEAD in `slot`.
    fn blocks_before_big(&self, slot: u8) -> Result<u32, Fault> {
        let mut blocks: u32 = 0;
        let mut next = slot;
        while let Some(slot) = next.checked_sub(1) {
            next = slot;
            match self.record(slot) {
                (Some(_), _) => blocks = blocks.saturating_add(1),
                (None, value) if value & BLOCK_COUNT_BIT != 0 => {
                    blocks = blocks.saturating_add((value & !BLOCK_COUNT_BIT).into());
                    next = slot.saturating_sub(1);
                }
                // The record after a HEAD is its block count, so `delta[0]` of later records is at
                // least 2.
                (None, distance) => {
                    let Some(more) = distance.checked_sub(2) else {
                        return Err(Fault::Field { field: "delta[0]", value: distance.into() });
                    };
                    let count = u8::try_from(more).ok().and_then(|n| slot.checked_sub(n));
                    let Some(count) = count else { break };
                    next = count;
                }
            }
        }
        Ok(blocks)
    }
}

const fn fault(fault: Fault) -> FormatError {
    FormatError::new(Structure::CompactIndex, fault)
}
