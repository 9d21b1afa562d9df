//! Collects the bytes that inodes, attributes and data use, to find overlaps and blocks that nothing uses.
//!
//! Marks are only added, so that the result does not depend on the order or on threads. Extents may share exactly the same
//! pcluster (deduplication), and stored data in any way (chunks). Pclusters must not overlap in part, encoded data must not
//! overlap with stored data, and no data with metadata.

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

/// Marks of blocks, for their uses. For encoded data, whether a block is the first or last one of its pcluster.
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
        // A stored extent at a block's start owns the whole block, unless other extents can start within it.
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
    // Parts are compared with each other byte by byte later, and stored data may share blocks with other stored data.
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

#[cfg(test)]
mod tests {
    use super::*;

    const STORED_DATA: bool = false;
    const ENCODED_DATA: bool = true;

    fn used(byte_positions: bool) -> UsedSpace {
        UsedSpace {
            block_size: 4096,
            byte_positions,
            slots: RangeMarks::default(),
            blocks: RangeMarks::default(),
            parts: Vec::new(),
            deduplicated: 0,
        }
    }

    fn ranges(mut used: UsedSpace) -> Vec<(u64, u64)> {
        used.overlaps().into_iter().map(|(_, range)| (range.start, range.end)).collect()
    }

    /// The starts and ends of the overlaps of these extents, each with its start, its length, and whether it is encoded. They start and end within blocks.
    fn overlaps(extents: &[(u64, u64, bool)]) -> Vec<(u64, u64)> {
        let mut used = used(true);
        for &(start, len, encoded) in extents {
            used.add_part(DeviceId::new(0), start, len, encoded);
        }
        ranges(used)
    }

    /// As [`overlaps`], in blocks, of two extents of whole blocks.
    fn overlaps_of_blocks(one: (u64, u64, bool), other: (u64, u64, bool)) -> Vec<u64> {
        let mut used = used(false);
        for (start, len, encoded) in [one, other] {
            used.add_extent(DeviceId::new(0), start * 4096, len * 4096, encoded);
        }
        let found = ranges(used);
        assert!(
            found.iter().all(|(start, end)| end - start == 4096 && start % 4096 == 0),
            "{found:?}"
        );
        found.iter().map(|(start, _)| start / 4096).collect()
    }

    #[test]
    fn whole_blocks_that_exclude_each_other() {
        let encoded = (4, 3, ENCODED_DATA);
        for (other, found) in [
            ((4, 3, ENCODED_DATA), &[][..]),
            ((7, 3, ENCODED_DATA), &[]),
            ((5, 3, ENCODED_DATA), &[5, 6]),
            ((4, 2, ENCODED_DATA), &[5]),
            ((4, 1, ENCODED_DATA), &[4]),
            ((6, 1, ENCODED_DATA), &[6]),
            ((1, 3, STORED_DATA), &[]),
            ((6, 3, STORED_DATA), &[6]),
        ] {
            assert_eq!(overlaps_of_blocks(encoded, other), found, "{other:?}");
            assert_eq!(overlaps_of_blocks(other, encoded), found, "{other:?}");
        }
        assert!(overlaps_of_blocks((4, 3, STORED_DATA), (5, 3, STORED_DATA)).is_empty());
    }

    #[test]
    fn parts_of_blocks_that_exclude_each_other() {
        let found = |byte_positions, one: (u64, u64, bool), other: (u64, u64, bool)| {
            let mut used = used(byte_positions);
            for (start, len, encoded) in [one, other] {
                used.add_extent(DeviceId::new(0), start, len, encoded);
            }
            ranges(used)
        };
        // Stored data at a block's start owns the block, unless extents start at any byte.
        let (stored, behind) = ((4096, 100, STORED_DATA), (4300, 50, ENCODED_DATA));
        assert_eq!(found(true, stored, behind), []);
        assert_eq!(found(false, stored, behind), [(4096, 8192)]);
        assert_eq!(found(false, stored, (4300, 50, STORED_DATA)), []);
        let whole = (4096, 4096, ENCODED_DATA);
        assert_eq!(found(true, stored, whole), [(4096, 8192)]);
        assert_eq!(found(true, behind, whole), [(4096, 8192)]);
        assert_eq!(found(true, behind, (4096, 4096, STORED_DATA)), [(4096, 8192)]);
        assert_eq!(found(true, (4090, 10, ENCODED_DATA), (4099, 10, ENCODED_DATA)), [(4099, 4100)]);
    }

    #[test]
    fn metadata_is_not_in_data_or_other_metadata() {
        let place = |pos, in_metabox| MetadataPlace { in_metabox, pos: BytePos::new(pos) };
        let found = |add: fn(&mut UsedSpace, MetadataPlace), in_metabox| {
            let mut used = used(false);
            used.add_inode(place(8192, false), BytePos::new(8192 + 80));
            add(&mut used, place(8192 + 64, in_metabox));
            ranges(used)
        };
        let slot = [(8256, 8288)];
        assert_eq!(found(|used, place| used.add_inode(place, BytePos::new(8257)), false), slot);
        assert_eq!(found(|used, place| used.add_shared_xattr(place, 1), false), slot);
        assert_eq!(found(|used, place| used.add_system(place.pos.get(), 1), false), slot);
        assert_eq!(found(|used, place| used.add_inode(place, BytePos::new(8257)), true), []);
        assert_eq!(found(|used, place| used.add_shared_xattr(place, 1), true), []);
        let data = |used: &mut UsedSpace, block: u64, encoded| {
            used.add_extent(DeviceId::new(0), block * 4096, 4096, encoded);
        };
        let mut used = used(false);
        used.add_shared_xattr(place(4096, false), 8);
        used.add_shared_xattr(place(4096, false), 8);
        used.add_system(4100, 8);
        used.add_inode(place(3 * 4096, true), BytePos::new(3 * 4096 + 9));
        for (block, encoded) in [(0, ENCODED_DATA), (2, STORED_DATA), (3, ENCODED_DATA)] {
            data(&mut used, block, encoded);
        }
        used.add_extent(DeviceId::new(1), 4096, 4096, ENCODED_DATA);
        assert_eq!(used.overlaps(), []);
        assert_eq!([10, 3, 0].map(|blocks| used.unreferenced(blocks)), [6, 0, 0]);
        data(&mut used, 1, STORED_DATA);
        assert_eq!(used.overlaps(), [(AddressSpace::Device(0), 4096..8192)]);
    }

    #[test]
    fn stored_data_shares_bytes_with_stored_data_only() {
        assert_eq!(overlaps(&[(1, 50, false), (10, 90, false)]), []);
        assert_eq!(overlaps(&[(1, 50, true), (1, 50, true), (60, 40, true)]), []);
        assert_eq!(overlaps(&[(1, 50, true), (10, 90, true)]), [(10, 51)]);
        assert_eq!(overlaps(&[(1, 99, false), (10, 20, true)]), [(10, 30)]);
    }

    #[test]
    fn extents_behind_an_overlap_are_judged_by_themselves() {
        assert_eq!(overlaps(&[(1, 9, true), (5, 95, false), (50, 10, false)]), [(5, 10)]);
        assert_eq!(overlaps(&[(1, 99, true), (5, 5, false), (50, 10, false)]), [(5, 10), (50, 60)]);
        assert_eq!(overlaps(&[(1, 9, true), (5, 95, false), (50, 10, true)]), [(5, 10), (50, 60)]);
    }
}
