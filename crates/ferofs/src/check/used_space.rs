//! Collects the bytes that inodes, attributes and data use, to find overlaps and blocks that
//! nothing uses.
//!
//! Marks are only added, so that the result does not depend on the order or on threads. Extents may
//! share exactly the same pcluster (deduplication), and stored data in any way (chunks). Pclusters
//! must not overlap in part, encoded data must not overlap with stored data, and no data with
//! metadata.

#[cfg(test)]
mod tests;

use std::ops::Range;

use ferofs_format::{BytePos, DeviceId, Incompat, Nid};

use crate::range_marks::{MarkedRange, RangeMarks};
use ferofs_read::device_range::DeviceRange;
use ferofs_read::{Image, MetadataPlace};

/// Metadata is counted in slots of 32 bytes: each inode starts at one.
const SLOT: u64 = ferofs_format::units::SLOT_SIZE;
/// The address space of the metabox's slots, next to 0 for those of the primary device.
const METABOX: u16 = 1;

/// Marks of slots, for their uses.
const INODE: u16 = 1;
const SHARED_XATTR: u16 = 4;
const SYSTEM: u16 = 8;

/// Marks of blocks, for their uses. For encoded data, whether a block is the first or last one of
/// its pcluster.
const METADATA: u16 = 1;
const STORED: u16 = 2;
const FIRST: u16 = 4;
const NOT_FIRST: u16 = 8;
const LAST: u16 = 16;
const NOT_LAST: u16 = 32;
/// Data that does not fill whole blocks, see [`UsedSpace::parts`].
const STORED_PART: u16 = 64;
const ENCODED_PART: u16 = 128;

/// Overlaps that are reported at most.
const MAX_OVERLAPS: usize = 4096;

/// All bytes in use so far.
#[derive(Debug)]
pub(super) struct UsedSpace {
    block_size: u64,
    /// Whether extents can start at any byte.
    byte_positions: bool,
    slots: RangeMarks,
    blocks: RangeMarks,
    /// Extents that do not fill whole blocks: device, start, length, whether encoded.
    parts: Vec<(DeviceId, u64, u64, bool)>,
    /// The number of `parts` after the last deduplication.
    deduplicated: usize,
}

/// A device or the metabox, each with its own positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum AddressSpace {
    Device(u16),
    Metabox,
}

/// Bytes that are used more than once against the rules.
pub(super) type Overlap = (AddressSpace, Range<u64>);

impl UsedSpace {
    pub(super) fn new(image: &Image) -> Self {
        Self {
            block_size: image.superblock().block_size.bytes64(),
            byte_positions: image.superblock().incompat.contains(Incompat::BIT48),
            slots: RangeMarks::default(),
            blocks: RangeMarks::default(),
            parts: Vec::new(),
            deduplicated: 0,
        }
    }

    /// Adds a structure of the superblock.
    pub(super) fn add_system(&mut self, start: u64, len: u64) {
        self.slots.add(0, slots(start, len), SYSTEM);
    }

    /// Adds an inode with its attributes and its map, which ends at `end`.
    pub(super) fn add_inode(&mut self, start: MetadataPlace, end: BytePos) {
        let len = end.get().saturating_sub(start.pos.get());
        self.slots.add(space(start), slots(start.pos.get(), len), INODE);
    }

    /// Adds a shared attribute.
    pub(super) fn add_shared_xattr(&mut self, start: MetadataPlace, len: u64) {
        self.slots.add(space(start), slots(start.pos.get(), len), SHARED_XATTR);
    }

    /// Adds the data of an extent.
    pub(super) fn add_data(&mut self, range: &DeviceRange) {
        self.add_extent(range.device, range.start.get(), range.len, range.algorithm.is_some());
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks are not empty, and `first` is below `last` where 1 is added"
    )]
    fn add_extent(&mut self, device: DeviceId, start: u64, len: u64, encoded: bool) {
        let end = start.saturating_add(len);
        let first = start / self.block_size;
        let last = end.div_ceil(self.block_size).saturating_sub(1);
        let aligned = start.is_multiple_of(self.block_size);
        // A stored extent at a block's start owns the whole block, unless other extents can start
        // within it.
        let has_rest = !encoded && !self.byte_positions;
        let whole = aligned && (len.is_multiple_of(self.block_size) || has_rest);
        if !whole {
            self.add_part(device, start, len, encoded);
        }
        let mut add = |blocks, marks| self.blocks.add(device.get(), blocks, marks);
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

    fn add_part(&mut self, device: DeviceId, start: u64, len: u64, encoded: bool) {
        self.parts.push((device, start, len, encoded));
        // Shared extents are added many times: memory depends only on the number of different ones.
        if self.parts.len() > self.deduplicated.saturating_mul(2).saturating_add(4096) {
            self.parts.sort_unstable();
            self.parts.dedup();
            self.deduplicated = self.parts.len();
        }
    }

    /// All overlaps that are against the rules, sorted.
    #[expect(clippy::arithmetic_side_effects, reason = "blocks are not empty")]
    pub(super) fn overlaps(&mut self) -> Vec<Overlap> {
        let mut found = Vec::new();
        let mut add_overlap = |space, run: &MarkedRange, unit: u64| {
            // Each slot or block alone, as their owners differ.
            for number in run.start..run.end {
                if found.len() == MAX_OVERLAPS {
                    break;
                }
                let start = number.saturating_mul(unit);
                found.push((space, start..start.saturating_add(unit)));
            }
        };
        for run in self.slots.merge() {
            let mixed = run.once & INODE != 0 && run.once & (SHARED_XATTR | SYSTEM) != 0;
            if run.twice & INODE != 0 || mixed {
                add_overlap(
                    if run.space == METABOX {
                        AddressSpace::Metabox
                    } else {
                        AddressSpace::Device(0)
                    },
                    run,
                    SLOT,
                );
            }
            if run.space != METABOX {
                let end = run.end.saturating_mul(SLOT).div_ceil(self.block_size);
                self.blocks.add(0, run.start.saturating_mul(SLOT) / self.block_size..end, METADATA);
            }
        }
        for run in self.blocks.merge().iter().filter(|run| is_overlap(run.once)) {
            add_overlap(AddressSpace::Device(run.space), run, self.block_size);
        }
        self.parts.sort_unstable();
        self.parts.dedup();
        let mut ends = PartEnds::default();
        for &(device, start, len, encoded) in &self.parts {
            if ends.device != device {
                ends = PartEnds { device, ..PartEnds::default() };
            }
            let end = start.saturating_add(len);
            // Stored data may share bytes with other stored data.
            let before = if encoded { ends.all } else { ends.encoded };
            if before > start && found.len() < MAX_OVERLAPS {
                found.push((AddressSpace::Device(device.get()), start..end.min(before)));
            }
            ends.all = ends.all.max(end);
            if encoded {
                ends.encoded = ends.encoded.max(end);
            }
        }
        found.sort_unstable_by_key(|(space, range)| (*space, range.start, range.end));
        found.dedup();
        found
    }

    /// The number of unused blocks among the first `blocks` of the primary device.
    pub(super) fn unreferenced(&mut self, blocks: u64) -> u64 {
        let primary = self.blocks.merge().iter().filter(|run| run.space == 0);
        let taken = primary
            .map(|run| run.end.min(blocks).saturating_sub(run.start))
            .fold(0, u64::saturating_add);
        blocks.saturating_sub(taken)
    }
}

/// The ends of the parts of a device so far.
#[derive(Default)]
struct PartEnds {
    device: DeviceId,
    /// The largest end of all parts.
    all: u64,
    /// The largest end of encoded parts.
    encoded: u64,
}

/// Whether the uses of a block with these marks exclude each other.
const fn is_overlap(marks: u16) -> bool {
    const fn has(marks: u16, mark: u16) -> bool {
        marks & mark != 0
    }
    let encoded = marks & (FIRST | NOT_FIRST) != 0;
    let (stored, part) = (has(marks, STORED), has(marks, STORED_PART) || has(marks, ENCODED_PART));
    // Parts are compared with each other byte by byte later, and stored data may share blocks with
    // other stored data.
    has(marks, METADATA) && (stored || part || encoded)
        || encoded && (stored || part)
        || stored && has(marks, ENCODED_PART)
        || has(marks, FIRST) && has(marks, NOT_FIRST)
        || has(marks, LAST) && has(marks, NOT_LAST)
}

/// The slots that a structure touches.
const fn slots(start: u64, len: u64) -> Range<u64> {
    start / SLOT..start.saturating_add(len).div_ceil(SLOT)
}

const fn space(place: MetadataPlace) -> u16 {
    if place.in_metabox { METABOX } else { 0 }
}

/// The address space of inode `nid`.
pub(super) const fn space_of(nid: Nid) -> AddressSpace {
    if nid.in_metabox() { AddressSpace::Metabox } else { AddressSpace::Device(0) }
}
