//! Inodes that are written wrong are refused.

use ferofs_format::inode::{FileType, InodeVersion, Timestamp};
use ferofs_format::{Algorithm, BlockAddr, BlockSize, Nid};

use super::*;
use crate::data::extents::index::{FileExtents, FileTail, IndexEncoder};
use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::options::compression::IndexKind;

const BLOCK: BlockSize = BlockSize::DEFAULT;

fn superblock() -> Superblock {
    Superblock::new(BLOCK)
}

fn inode(layout: DataLayout, place: Place, size: u64) -> Inode {
    Inode {
        version: InodeVersion::Extended,
        layout,
        file_type: FileType::Regular,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        size,
        nlink: 1,
        mtime: Timestamp::default(),
        ino: 1,
        xattr_icount: 0,
        place,
        dot_omitted: false,
    }
}

/// A file of 300 blocks, whose first extent is one of another file, with 3,000 inline bytes.
fn shared_with_inline_end() -> (Inode, Vec<u8>) {
    let encoder = IndexEncoder { index: IndexKind::Compact, block: BLOCK, big_pclusters: false };
    let mut log = ExtentLog::new(4096);
    for number in 0..299 {
        let at = BytePos::new(4096 * (1 + number));
        let place = match number {
            0 => ExtentPlace::Shared { at, partial: false },
            _ => ExtentPlace::Next,
        };
        log.push(Extent { len: 4096, encoded: false, size: 4096, place });
    }
    let tail = FileTail::Inline { bytes: vec![7; 3000], encoded: false };
    let (size, first) = (log.decoded_len() + 3000, BytePos::new(4096));
    let file = FileExtents {
        log: &log,
        tail: &tail,
        size,
        first,
        algorithm: Algorithm::Lz4,
        zeroes: None,
    };
    let (layout, after) = encoder.encode(file, 64).unwrap();
    assert_eq!(layout, DataLayout::CompressedFull);
    let inode = inode(layout, Place::Compressed { blocks: 299 }, size);
    let mut bytes = Vec::new();
    inode.write(&superblock(), &mut bytes).unwrap();
    bytes.extend(after);
    (inode, bytes)
}

fn check(inode: &Inode, bytes: &[u8], pos: u64) -> Result<(), FormatError> {
    InodePlace { pos, data_end: 1 << 30 }.check(inode, bytes, &superblock())
}

#[test]
fn inline_content_across_a_blocks_end_is_refused() {
    let (inode, bytes) = shared_with_inline_end();
    let end = bytes.len() as u64;
    // The inline bytes are the last ones of a block, and then the first of them are in the block
    // before.
    check(&inode, &bytes, (4 << 20) - end).unwrap();
    for pos in [(4 << 20) - end + 32, (4 << 20) - end + 2976] {
        let fault = check(&inode, &bytes, pos).unwrap_err();
        assert_eq!(fault.structure, Structure::InlineData, "{pos}");
    }
}

#[test]
fn each_damaged_byte_of_an_inode_and_its_index_is_noticed() {
    let (inode, bytes) = shared_with_inline_end();
    let pos = (4 << 20) - bytes.len() as u64;
    // Not the inode's reserved bytes, the header's, and its flags.
    let matters = |at: usize| !matches!(at, 48..=65 | 68 | 69);
    for at in (0..72).filter(|at| matters(*at)) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x90;
        assert!(check(&inode, &bytes, pos).is_err(), "byte {at}");
    }
    for record in 1..299 {
        let mut bytes = bytes.clone();
        // An address beyond the image.
        bytes[80 + record * 8 + 7] = 0x70;
        assert!(check(&inode, &bytes, pos).is_err(), "record {record}");
    }
    assert!(check(&inode, &bytes[..bytes.len() - 1], pos).is_err());
    assert!(check(&inode, &[&bytes[..], &[0]].concat(), pos).is_err());
}

#[test]
fn a_tail_that_crosses_a_blocks_end_is_refused() {
    let inode = inode(DataLayout::FlatInline, Place::Blocks(BlockAddr::new(0)), 100);
    let mut bytes = Vec::new();
    inode.write(&superblock(), &mut bytes).unwrap();
    bytes.extend([1; 100]);
    check(&inode, &bytes, 4096 + 3904).unwrap();
    assert_eq!(check(&inode, &bytes, 4096 + 3968).unwrap_err().structure, Structure::InlineData);
}

#[test]
fn directories_are_compared_with_the_expected_entries() {
    let entry = |name, nid| Dirent { nid: Nid::new(nid), file_type: Some(FileType::Regular), name };
    let row: [Dirent<'_>; 3] = [entry(b"a".as_slice(), 3), entry(b"b", 4), entry(b"c", 5)];
    let mut bytes = Vec::new();
    ferofs_format::dirent::write_block(&row, &mut bytes).unwrap();
    check_dir_block(&bytes, &row).unwrap();
    check_dir_block(&bytes, &row[..2]).unwrap_err();
    for at in 0..bytes.len() {
        // The last byte of a record is reserved.
        if at < 36 && at % 12 == 11 {
            continue;
        }
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(check_dir_block(&bytes, &row).is_err(), "byte {at}");
    }
}
