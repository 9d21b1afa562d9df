use ferofs_format::BlockSize;
use ferofs_format::superblock::Superblock;

use super::*;
use crate::image::history::Origin;

#[test]
fn a_journal_is_read_for_its_own_image_only() {
    let ranges = WrittenRanges { appended: 4096..20480, root: Some(2048..2112), medium_size: 4096 };
    let mut medium = vec![0; 4096];
    medium.extend(ranges.to_journal(&[7; SECTOR]));
    assert_eq!(WrittenRanges::read_journal(&medium, 4096, &[7; SECTOR]).unwrap(), Some(ranges));
    assert_eq!(WrittenRanges::read_journal(&medium, 4096, &[8; SECTOR]).unwrap(), None);
    assert_eq!(first_nonzero(&medium, 0..1 << 40).unwrap(), Some(4096));
    assert_eq!(first_nonzero(&medium, 0..4096).unwrap(), None);
    medium[4300] ^= 1;
    assert_eq!(WrittenRanges::read_journal(&medium, 4096, &[7; SECTOR]).unwrap(), None);
}

#[test]
fn a_complete_record_without_a_journal_shows_an_interrupted_change() {
    let mut superblock = Superblock::new(BlockSize::DEFAULT);
    superblock.blocks = 1;
    let mut image = vec![0; 4096];
    image[1024..1024 + superblock.size()].copy_from_slice(&superblock.to_bytes().unwrap());
    let area = SuperblockArea::read(&image).unwrap();
    let (before, after) = (area.sector(), [0; SECTOR]);
    let record = |end| {
        let (origin, number, time, start, previous, root) =
            (Origin::Patch, 1, 0, 4096, 0, (2048, 64));
        Record { origin, number, time, start, end, previous, before, after, root }
    };
    let find = |record: &Record, content: u8, after: usize| {
        let mut medium = image.clone();
        medium.resize(to_usize(record.end) - RECORD_LEN, content);
        medium.extend(record.to_bytes());
        medium.resize(medium.len() + after, 0);
        WrittenRanges::find_interrupted(&medium, &area).unwrap()
    };
    let buffer = to_u64(BUFFER);
    for end in [8192, 4096 + buffer, 8192 + buffer, 4096 + 2 * buffer, 8192 + 2 * buffer] {
        let found = |medium_size| {
            Some(WrittenRanges { appended: 4096..end, root: Some(2048..2112), medium_size })
        };
        assert_eq!(
            find(&record(end), 1, 0),
            found(4096),
            "{end}: a file that the change made longer"
        );
        assert_eq!(find(&record(end), 1, 512), found(end + 512), "{end}: a device");
    }
    // A record of another change, of another base, and where no image can end.
    assert_eq!(find(&Record { start: 4608, ..record(8192) }, 1, 0), None);
    assert_eq!(find(&Record { before: after, ..record(8192) }, 1, 0), None);
    assert_eq!(find(&record(8192 + 512), 1, 0), None);
    // No change begins with this many zeroes.
    assert!(find(&record(4096 + buffer), 0, 0).is_some());
    assert_eq!(find(&record(8192 + buffer), 0, 0), None);
    assert_eq!(WrittenRanges::find_interrupted(&image, &area).unwrap(), None);
}

#[test]
fn a_root_is_within_the_image_and_after_the_superblock() {
    let root = |pos, len| root_range(pos, len, 8192);
    assert_eq!(root(1536, 64), Some(1536..1600));
    assert_eq!(root(4096, 4096), Some(4096..8192));
    for (pos, len) in [(1536, 0), (1535, 64), (2048, 4097), (8129, 64), (u64::MAX, 1)] {
        assert_eq!(root(pos, len), None, "{pos} {len}");
    }
}

#[test]
fn slots_of_an_interrupted_change_read_as_zeroes() {
    let masked = MaskedSource { source: vec![1; 100], zeroes: vec![10..20, 90..100] };
    for start in 0..100usize {
        let mut buf = vec![0; 100 - start];
        masked.read_exact_at(start as u64, &mut buf).unwrap();
        let expected = |at: usize| u8::from(!(10..20).contains(&at) && at < 90);
        assert!(buf.iter().enumerate().all(|(n, byte)| *byte == expected(start + n)), "{start}");
    }
}
