//! Values at the limits of their fields: the last one that is read, and the first one that is
//! refused.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use ferofs_format::inode::{DataLayout, FileType, Inode, InodeVersion, Place, Timestamp};
use ferofs_format::map::{CompactIndex, IndexFormat, IndexHeader, Lcluster, Tail};
use ferofs_format::superblock::Superblock;
use ferofs_format::xattr::{LONG_PREFIXES_MAX, NameIndex};
use ferofs_format::{Algorithm, BlockAddr, BlockSize, BytePos, ClusterSize, Incompat, Lcn};

/// The header of an index with lclusters of 2^`extra` blocks.
fn header(block: BlockSize, extra: u8, compacted_2b: bool) -> IndexHeader {
    IndexHeader {
        format: IndexFormat::Compact { compacted_2b },
        cluster: ClusterSize::new(block, extra).unwrap(),
        algorithms: [Algorithm::Lz4; 2],
        big_pclusters: [false; 2],
        interlaced: false,
        tail: Tail::Blocks,
    }
}

/// Records of lclusters of 512 bytes have 12 bits for an offset in them.
#[test]
fn offsets_in_small_lclusters() {
    let block = BlockSize::from_bits(9).unwrap();
    let index = CompactIndex::new(BytePos::new(8), 1024, block, &header(block, 0, false)).unwrap();
    let read = |offset: u16| {
        // A pack of two records and their base; the first record is a HEAD.
        let [low, high] = (offset | 1 << 12).to_le_bytes();
        let bytes = [low, high, 0, 0, 7, 0, 0, 0];
        index.pack(index.place(Lcn::new(0)).unwrap(), &bytes).unwrap().get(Lcn::new(0))
    };
    assert!(matches!(read(511), Ok(Lcluster::Head(head)) if head.clusterofs == 511));
    assert!(read(512).is_err());
}

/// The short records, which only a file of many lclusters has, have fewer bits for an offset.
#[test]
fn lclusters_of_compact_records() {
    let is_taken = |bits: u8, compacted_2b, lclusters: u64| {
        let block = BlockSize::from_bits(12).unwrap();
        CompactIndex::new(
            BytePos::new(8),
            lclusters << bits,
            block,
            &header(block, bits - 12, compacted_2b),
        )
        .is_ok()
    };
    assert!(is_taken(14, false, 100) && !is_taken(15, false, 100));
    assert!(is_taken(12, true, 100) && !is_taken(13, true, 100));
    assert!(is_taken(14, true, 2), "no short record");
}

#[test]
fn numbers_of_long_prefixes() {
    assert_eq!(NameIndex::long(127).map(NameIndex::raw), Some(255));
    assert_eq!((NameIndex::long(128), LONG_PREFIXES_MAX), (None, 128));
}

/// A hole has ones in all 48 bits of its address.
#[test]
fn addresses_that_are_almost_those_of_holes() {
    let superblock = Superblock::new(BlockSize::from_bits(12).unwrap());
    let place = |place| {
        let inode = Inode {
            version: InodeVersion::Extended,
            layout: DataLayout::FlatPlain,
            file_type: FileType::Regular,
            permissions: 0o644,
            uid: 0,
            gid: 0,
            size: 4096,
            nlink: 1,
            mtime: Timestamp::default(),
            ino: 1,
            xattr_icount: 0,
            place,
            dot_omitted: false,
        };
        let mut bytes = Vec::new();
        inode.write(&superblock, &mut bytes).unwrap();
        Inode::parse(&bytes, &superblock).unwrap().place
    };
    for other in
        [0xffff_ffff, 0xffff_0000_0005].map(|address| Place::Blocks(BlockAddr::new(address)))
    {
        assert_eq!(place(other), other);
    }
    assert_eq!(place(Place::Hole), Place::Hole);
}

/// erofs-utils gives inline content without blocks the block of a hole.
#[test]
fn inline_content_needs_no_wide_address() {
    let superblock = Superblock::new(BlockSize::from_bits(12).unwrap());
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&(2u16 << 1).to_le_bytes());
    bytes[4..6].copy_from_slice(&0o100_644u16.to_le_bytes());
    bytes[6..8].copy_from_slice(&3u16.to_le_bytes());
    bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let inode = Inode::parse(&bytes, &superblock).unwrap();
    assert_eq!(inode.place, Place::Blocks(BlockAddr::new(0xffff_ffff)));
    let mut written = Vec::new();
    inode.write(&superblock, &mut written).unwrap();
    assert_eq!(written, bytes);
}

/// In a compact inode, bit 4 of the format says that a file has one link and a wide address, or
/// that a directory has no `.` entry.
#[test]
fn bit_4_of_a_compact_inode() {
    let superblock = Superblock::new(BlockSize::from_bits(12).unwrap());
    let parse = |mode: u16| {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&0x10u16.to_le_bytes());
        bytes[4..6].copy_from_slice(&mode.to_le_bytes());
        bytes[6..8].copy_from_slice(&7u16.to_le_bytes());
        bytes[16..20].copy_from_slice(&5u32.to_le_bytes());
        let inode = Inode::parse(&bytes, &superblock).unwrap();
        (inode.nlink, inode.place, inode.dot_omitted)
    };
    assert_eq!(parse(0o100_644), (1, Place::Blocks(BlockAddr::new(7 << 32 | 5)), false));
    assert_eq!(parse(0o040_755), (7, Place::Blocks(BlockAddr::new(5)), true));
}

/// The numbers of the features that a reader must support, in their order in Linux. Two features
/// share some of them.
#[test]
fn numbers_of_features() {
    let features = [
        &[Incompat::LZ4_0PADDING][..],
        &[Incompat::COMPR_CFGS, Incompat::BIG_PCLUSTER],
        &[Incompat::CHUNKED_FILE],
        &[Incompat::DEVICE_TABLE, Incompat::COMPR_HEAD2],
        &[Incompat::ZTAILPACKING],
        &[Incompat::FRAGMENTS, Incompat::DEDUPE],
        &[Incompat::XATTR_PREFIXES],
        &[Incompat::BIT48],
        &[Incompat::METABOX],
    ];
    for (number, same) in features.iter().enumerate() {
        assert!(same.iter().all(|feature| feature.bits() == 1 << number), "{same:?}");
    }
}
