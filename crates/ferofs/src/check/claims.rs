//! Who takes which bytes: finds structures and data that overlap, and blocks that nobody takes.
//!
//! Ranges have marks that are only ever added, so that neither order nor threads matter. Sharing is legal where
//! two extents take the very same pcluster (deduplication), and for stored data anyhow (chunks). It is not where
//! pclusters overlap in part, where encoded and stored data meet, and where either meets metadata.

use std::ops::Range;

use ferofs_format::{BytePos, DeviceId, Incompat, Nid};

use crate::sparse::{Marks, Run};
use ferofs_read::claim::Claim;
use ferofs_read::{Image, MetadataPlace};

/// Metadata is claimed by slots of this many bytes, as each inode starts a slot.
const SLOT: u64 = ferofs_format::units::SLOT_SIZE;
/// The slots of the metabox, beside those of the primary device.
const METABOX: u16 = 1;

/// Marks of slots.
const INODE: u16 = 1;
const SHARED_XATTR: u16 = 4;
const SYSTEM: u16 = 8;

/// Marks of blocks.
const METADATA: u16 = 1;
const STORED: u16 = 2;
const FIRST: u16 = 4;
const NOT_FIRST: u16 = 8;
const LAST: u16 = 16;
const NOT_LAST: u16 = 32;
/// Of data that is not whole blocks, see [`Claims::parts`].
const STORED_PART: u16 = 64;
const ENCODED_PART: u16 = 128;

/// More overlaps than these are not looked into.
const MAX_CONFLICTS: usize = 4096;

/// All claims so far.
#[derive(Debug)]
pub(super) struct Claims {
    block_size: u64,
    /// Extents can be placed to the byte.
    to_the_byte: bool,
    slots: Marks,
    blocks: Marks,
    /// Encoded extents that are not aligned to blocks: device, start, length, whether encoded.
    parts: Vec<(DeviceId, u64, u64, bool)>,
    /// How many of `parts` are sorted and different.
    settled: usize,
}

/// What an inode's metadata, or an extent, shares against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Space {
    Device(u16),
    Metabox,
}

/// Bytes that are taken more than once, and must not be.
pub(super) type Conflict = (Space, Range<u64>);

impl Claims {
    pub(super) fn new(image: &Image) -> Self {
        Self {
            block_size: image.superblock().block_size.bytes64(),
            to_the_byte: image.superblock().incompat.contains(Incompat::BIT48),
            slots: Marks::default(),
            blocks: Marks::default(),
            parts: Vec::new(),
            settled: 0,
        }
    }

    /// A structure of the superblock's.
    pub(super) fn system(&mut self, start: u64, len: u64) {
        self.slots.add(0, slots(start, len), SYSTEM);
    }

    /// An inode, with its xattrs and its map, that ends at `end`.
    pub(super) fn inode(&mut self, start: MetadataPlace, end: BytePos) {
        let len = end.get().saturating_sub(start.pos.get());
        self.slots.add(space(start), slots(start.pos.get(), len), INODE);
    }

    /// An attribute that inodes share.
    pub(super) fn shared_xattr(&mut self, start: MetadataPlace, len: u64) {
        self.slots.add(space(start), slots(start.pos.get(), len), SHARED_XATTR);
    }

    /// Data.
    pub(super) fn data(&mut self, claim: &Claim) {
        let (start, end) = (claim.start.get(), claim.end());
        let first = start / self.block_size;
        let last = end.div_ceil(self.block_size).saturating_sub(1);
        let aligned = start.is_multiple_of(self.block_size);
        let encoded = claim.algorithm.is_some();
        // A stored extent that starts a block has all of it, however short it is, unless others can follow in there.
        let has_rest = !encoded && !self.to_the_byte;
        let whole = aligned && (claim.len.is_multiple_of(self.block_size) || has_rest);
        if !whole {
            self.part(claim.device, start, claim.len, encoded);
        }
        let mut add = |blocks, marks| self.blocks.add(claim.device.get(), blocks, marks);
        let end = last.saturating_add(1);
        match (whole, encoded) {
            (false, false) => add(first..end, STORED_PART),
            (false, true) => add(first..end, ENCODED_PART),
            (true, false) => add(first..end, STORED),
            (true, true) if first >= last => add(first..end, FIRST | LAST),
            (true, true) => {
                add(first..first + 1, FIRST | NOT_LAST);
                add(first + 1..last, NOT_FIRST | NOT_LAST);
                add(last..end, NOT_FIRST | LAST);
            }
        }
    }

    fn part(&mut self, device: DeviceId, start: u64, len: u64, encoded: bool) {
        self.parts.push((device, start, len, encoded));
        // Deduplicated extents come again and again: memory shall follow how many differ.
        if self.parts.len() > self.settled * 2 + 4096 {
            self.parts.sort_unstable();
            self.parts.dedup();
            self.settled = self.parts.len();
        }
    }

    /// Ends the claims: says what overlaps.
    pub(super) fn conflicts(&mut self) -> Vec<Conflict> {
        let mut found = Vec::new();
        let mut conflict = |space, run: &Run, unit: u64| {
            // One by one, as what they overlap with differs.
            for thing in run.start..run.end {
                if found.len() == MAX_CONFLICTS {
                    break;
                }
                let start = thing.saturating_mul(unit);
                found.push((space, start..start.saturating_add(unit)));
            }
        };
        for run in self.slots.settle() {
            let alone = run.once & INODE != 0 && run.once & (SHARED_XATTR | SYSTEM) != 0;
            if run.twice & INODE != 0 || alone {
                conflict(if run.space == METABOX { Space::Metabox } else { Space::Device(0) }, run, SLOT);
            }
            if run.space != METABOX {
                let end = run.end.saturating_mul(SLOT).div_ceil(self.block_size);
                self.blocks.add(0, run.start.saturating_mul(SLOT) / self.block_size..end, METADATA);
            }
        }
        for run in self.blocks.settle().iter().filter(|run| is_contradiction(run.once)) {
            conflict(Space::Device(run.space), run, self.block_size);
        }
        self.parts.sort_unstable();
        self.parts.dedup();
        let mut before: Option<(DeviceId, u64, bool)> = None;
        for &(device, start, len, encoded) in &self.parts {
            let end = start.saturating_add(len);
            if let Some((_, before_end, before_encoded)) =
                before.filter(|(d, end, _)| *d == device && *end > start)
            {
                if (encoded || before_encoded) && found.len() < MAX_CONFLICTS {
                    found.push((Space::Device(device.get()), start..end.min(before_end)));
                }
                before = Some((device, end.max(before_end), encoded || before_encoded));
                continue;
            }
            before = Some((device, end, encoded));
        }
        found.sort_unstable_by_key(|(space, range)| (*space, range.start, range.end));
        found.dedup();
        found
    }

    /// Of the first `blocks` blocks of the primary device, how many nobody takes.
    pub(super) fn unreferenced(&mut self, blocks: u64) -> u64 {
        let primary = self.blocks.settle().iter().filter(|run| run.space == 0);
        let taken =
            primary.map(|run| run.end.min(blocks).saturating_sub(run.start)).fold(0, u64::saturating_add);
        blocks.saturating_sub(taken)
    }
}

/// Whether the claims that left these marks on a block exclude each other.
const fn is_contradiction(marks: u16) -> bool {
    const fn has(marks: u16, mark: u16) -> bool {
        marks & mark != 0
    }
    let encoded = marks & (FIRST | NOT_FIRST) != 0;
    let (stored, part) = (has(marks, STORED), has(marks, STORED_PART) || has(marks, ENCODED_PART));
    // Parts are compared with each other to the byte, and stored data may be shared by all that is stored.
    has(marks, METADATA) && (stored || part || encoded)
        || encoded && (stored || part)
        || stored && has(marks, ENCODED_PART)
        || has(marks, FIRST) && has(marks, NOT_FIRST)
        || has(marks, LAST) && has(marks, NOT_LAST)
}

/// Which slots a structure touches.
const fn slots(start: u64, len: u64) -> Range<u64> {
    start / SLOT..start.saturating_add(len).div_ceil(SLOT)
}

const fn space(place: MetadataPlace) -> u16 {
    if place.in_metabox { METABOX } else { 0 }
}

/// Where inode `nid`'s claims are counted.
pub(super) const fn space_of(nid: Nid) -> Space {
    if nid.in_metabox() { Space::Metabox } else { Space::Device(0) }
}
