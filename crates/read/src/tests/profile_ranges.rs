//! The bytes that a profile's ranges need: a read of them needs no others.

use super::{Image, images};
use crate::{FileOffset, HotRange, Profile};

fn profile(ranges: &[(u64, u64)], path: &str) -> Profile {
    let hot = |&(start, len): &(u64, u64)| HotRange { reads: 1, start, len, path: path.into() };
    Profile { ranges: ranges.iter().map(hot).collect() }
}

#[test]
fn a_read_needs_no_other_bytes() {
    for bytes in images() {
        let image = Image::open(bytes.clone()).unwrap();
        let of = |start, len| {
            image.profile_ranges(&profile(&[(start, len)], "/file"), usize::MAX, || true)
        };
        let all = of(0, u64::MAX);
        assert_eq!(all.missing, 0);
        for (start, len) in [(0, 1), (65_536, 65_536), (300_001, 200_000)] {
            let wanted = of(start, len);
            assert!(!wanted.ranges.is_empty());
            let mut damaged = bytes.clone();
            for range in &all.ranges {
                for at in
                    range.clone().filter(|at| !wanted.ranges.iter().any(|range| range.contains(at)))
                {
                    damaged[usize::try_from(at).unwrap()] ^= 0x55;
                }
            }
            let read = |bytes: Vec<u8>| {
                let image = Image::open(bytes).unwrap();
                let inode = image.resolve("/file".as_ref(), true).unwrap();
                let mut buf = vec![0; usize::try_from(len).unwrap()];
                image.read_at(&inode, FileOffset::new(start), &mut buf).unwrap();
                buf
            };
            assert!(read(damaged) == read(bytes.clone()), "{start} {len}");
        }
    }
}

#[test]
fn the_work_is_bounded() {
    let image = Image::open(images()[0].clone()).unwrap();
    let all = profile(&[(0, u64::MAX), (5, u64::MAX), (u64::MAX, u64::MAX), (7, 0)], "/file");
    assert_eq!(image.profile_ranges(&all, 1, || true).ranges.len(), 1);
    assert!(image.profile_ranges(&all, usize::MAX, || false).ranges.is_empty());
    for other in ["/", "/none", "/file/none", "relative/../..", ""] {
        let found = image.profile_ranges(&profile(&[(0, 1)], other), usize::MAX, || true);
        assert_eq!((found.ranges.len(), found.missing), (0, 1), "{other:?}");
    }
}
