use super::*;
use ferofs_format::{BytePos, DeviceId};
use ferofs_read::Location;

fn extent(range: Range<u64>, encoded: bool) -> Extent {
    let at = Location::Device(DeviceId::new(0), BytePos::new(0));
    let data = if encoded {
        ExtentData::Encoded { algorithm: Algorithm::Lz4, at, encoded_len: 4096, partial: false }
    } else {
        ExtentData::Stored { at }
    };
    Extent { start: FileOffset::new(range.start), len: range.end - range.start, data }
}

const MIB: u64 = 1 << 20;

/// Start, window and number of reads of the unit.
fn unit(
    extent: &Extent,
    wanted: &Range<u64>,
    size: u64,
    max_window: u64,
    page: u64,
) -> (u64, Range<u64>, u16) {
    let unit = Unit::of(Nid::new(1), extent, wanted, size, max_window, page);
    (unit.start, unit.window, unit.enough)
}

#[test]
fn small_clusters_are_counted_by_aligned_windows() {
    let cluster = extent(200_000..212_000, true);
    let wanted = 204_800..208_896;
    assert_eq!(unit(&cluster, &wanted, 10 * MIB, MIB, 4096), (0, 0..MIB, 22));
    assert_eq!(unit(&cluster, &wanted, 10 * MIB, MIN_WINDOW, 4096), (131_072, 131_072..262_144, 2));
    assert_eq!(
        unit(&cluster, &wanted, 212_000, MIB, 4096),
        (0, 0..212_000, 22),
        "up to the file's end"
    );
    assert_eq!(
        unit(&cluster, &(196_608..212_992), 10 * MIB, MIB, 4096).2,
        33,
        "a read of four pages"
    );
    // Data that is not compressed has no clusters.
    let stored = extent(0..10 * MIB, false);
    assert_eq!(unit(&stored, &wanted, 10 * MIB, MIB, 4096), (0, 0..MIB, 22));
}

#[test]
fn the_window_around_a_large_cluster_is_counted_too() {
    let around = |start: u64| {
        let cluster = extent(start..start + 200_000, true);
        Unit::of(Nid::new(1), &cluster, &(start..start + 4096), 10 * MIB, MIB, 4096).around
    };
    assert_eq!((around(4096), around(3 * MIB)), (Some((1, 18)), Some((3 * MIB + 1, 18))));
    let small = extent(0..10_000, true);
    assert_eq!(Unit::of(Nid::new(1), &small, &(4096..8192), 10 * MIB, MIB, 4096).around, None);
}

#[test]
fn large_clusters_are_units() {
    let cluster = extent(100_000..300_000, true);
    let wanted = 204_800..208_896;
    assert_eq!(unit(&cluster, &wanted, 10 * MIB, MIB, 4096), (100_000, 102_400..299_008, 3));
    assert_eq!(
        unit(&cluster, &wanted, 300_000, MIB, 4096).1,
        102_400..300_000,
        "the file's last page"
    );
    assert_eq!(unit(&cluster, &(98_304..102_400), 10 * MIB, MIB, 4096).1, 98_304..299_008);
    let wanted = MIB + 4096..MIB + 8192;
    let whole = (100_000, 102_400..8 * MIB, 5);
    assert_eq!(unit(&extent(100_000..8 * MIB, true), &wanted, 10 * MIB, MIB, 4096), whole);
    let window = (MIB, MIB..2 * MIB, 3);
    assert_eq!(
        unit(&extent(0..8 * MIB + 1, true), &wanted, 10 * MIB, MIB, 4096),
        window,
        "too large"
    );
}
