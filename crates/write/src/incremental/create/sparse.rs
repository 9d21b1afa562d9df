//! The parts of files that can hold other bytes than zeroes: holes are neither read nor compared,
//! so that a file of terabytes with little data takes little time.

use crate::tree::{Kind, NodeId};
use ferofs_format::FileOffset;
use ferofs_host::stat::Ranges;
use ferofs_read::{ExtentData, Image, Inode};

use super::context::Inputs;
use crate::error::Result;

/// Bytes that a worker compares or hashes at once: large files are divided among the workers.
pub(super) const PART: u64 = 4 << 20;

/// The ranges of a new file that its source does not report as holes.
pub(super) fn ranges_of_node(inputs: Inputs<'_>, id: NodeId) -> Ranges {
    let node = inputs.tree.node(id);
    let known = match node.kind {
        Kind::Regular { sparse: true } => inputs.contents.data_ranges(inputs.tree, id),
        _ => None,
    };
    known.unwrap_or_else(|| vec![(0, node.size)])
}

/// The ranges of an old file that are not holes.
pub(super) fn ranges_of_inode(old: &Image, inode: &Inode) -> Result<Ranges> {
    let mut ranges = Ranges::new();
    for extent in old.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        if extent.data != ExtentData::Hole {
            join(&mut ranges, (extent.start.get(), extent.end()));
        }
    }
    Ok(ranges)
}

/// The bytes that are in `a` or in `b`, both ascending.
pub(super) fn union(a: &[(u64, u64)], b: &[(u64, u64)]) -> Ranges {
    let mut all: Ranges = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    let mut joined = Ranges::new();
    all.into_iter().for_each(|range| join(&mut joined, range));
    joined
}

/// Appends a range that does not start before the last one.
fn join(ranges: &mut Ranges, range: (u64, u64)) {
    match ranges.last_mut() {
        Some(last) if range.0 <= last.1 => last.1 = last.1.max(range.1),
        _ if range.0 < range.1 => ranges.push(range),
        _ => {}
    }
}

/// Divides a file of `size` bytes into parts of `unit` bytes. Returns offset and length of those
/// that share bytes with `ranges`.
pub(super) fn parts(
    ranges: &[(u64, u64)],
    unit: u64,
    size: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let mut done = 0;
    ranges.iter().flat_map(move |(start, end)| {
        let first = (start / unit).max(done);
        let after = end.min(&size).div_ceil(unit);
        done = done.max(after);
        (first..after).map(move |part| (part * unit, unit.min(size - part * unit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        assert_eq!(
            union(&[(0, 5), (9, 12)], &[(5, 7), (10, 11), (20, 21)]),
            [(0, 7), (9, 12), (20, 21)]
        );
        assert_eq!(union(&[], &[]), []);
    }

    #[test]
    fn each_part_with_data_comes_once() {
        let all: Vec<_> = parts(&[(0, 1), (3, 5), (7, 8), (30, 99)], 4, 33).collect();
        assert_eq!(all, [(0, 4), (4, 4), (28, 4), (32, 1)]);
        assert_eq!(parts(&[], 4, 33).count(), 0);
    }
}
