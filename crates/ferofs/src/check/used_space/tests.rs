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

/// The starts and ends of the overlaps of these extents, each with its start, its length, and
/// whether it is encoded. They start and end within blocks.
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
    assert!(found.iter().all(|(start, end)| end - start == 4096 && start % 4096 == 0), "{found:?}");
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
fn extents_after_an_overlap_are_judged_by_themselves() {
    assert_eq!(overlaps(&[(1, 9, true), (5, 95, false), (50, 10, false)]), [(5, 10)]);
    assert_eq!(overlaps(&[(1, 99, true), (5, 5, false), (50, 10, false)]), [(5, 10), (50, 60)]);
    assert_eq!(overlaps(&[(1, 9, true), (5, 95, false), (50, 10, true)]), [(5, 10), (50, 60)]);
}
