//! Bytes that mkfs.erofs wrote, read and written again: a number that the format's definition gives
//! a meaning must not only round-trip here. `mkfs_erofs/types.sh` made the image: all file types,
//! shared attributes, and a directory whose first block is exactly full.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "the numbers are those of one small image"
)]

use ferofs_format::dirent::{DirBlock, Dirent, directory_size, for_each_block, write_block};
use ferofs_format::inode::{FileType, Inode, InodeVersion, Place, Rdev};
use ferofs_format::superblock::{OFFSET, Superblock, write_checksum};
use ferofs_format::xattr::{Entry, NameIndex, NamePrefix, Region, region_size, shared_pos};
use ferofs_format::{BlockAddr, BytePos, Compat, Nid};

const IMAGE: &[u8] = include_bytes!("mkfs_erofs/types.erofs");

fn superblock() -> Superblock {
    Superblock::parse(&IMAGE[OFFSET..]).unwrap()
}

/// The bytes from this position on.
fn at(pos: BytePos) -> &'static [u8] {
    &IMAGE[usize::try_from(pos.get()).unwrap()..]
}

fn inode_pos(nid: Nid) -> BytePos {
    superblock().inode_base().unwrap().checked_add(nid.get() * 32).unwrap()
}

fn inode(nid: Nid) -> Inode {
    Inode::parse(at(inode_pos(nid)), &superblock()).unwrap()
}

fn xattr_bytes(nid: Nid) -> &'static [u8] {
    let inode = inode(nid);
    let start = inode_pos(nid).checked_add(inode.version.size() as u64).unwrap();
    &at(start)[..region_size(inode.xattr_icount)]
}

/// The blocks of a directory: whole blocks, and a tail after the inode.
fn directory(nid: Nid) -> Vec<&'static [u8]> {
    let (inode, block_size) = (inode(nid), superblock().block_size);
    let size = usize::try_from(inode.size).unwrap();
    let (full, tail) = (size / block_size.bytes(), size % block_size.bytes());
    let Place::Blocks(first) = inode.place else { panic!("{:?}", inode.place) };
    let block = |n| {
        &at(BlockAddr::new(first.get() + n as u64).to_pos(block_size).unwrap())
            [..block_size.bytes()]
    };
    let inline = inode_pos(nid).get() + (inode.version.size() + xattr_bytes(nid).len()) as u64;
    (0..full).map(block).chain((tail != 0).then(|| &at(BytePos::new(inline))[..tail])).collect()
}

fn entries(nid: Nid) -> Vec<Dirent<'static>> {
    let blocks = directory(nid).into_iter().map(|block| DirBlock::parse(block).unwrap());
    blocks.flat_map(|block| block.entries()).map(Result::unwrap).collect()
}

fn find(name: &str) -> Nid {
    entries(superblock().root).into_iter().find(|entry| entry.name == name.as_bytes()).unwrap().nid
}

#[test]
fn the_superblock() {
    let superblock = superblock();
    assert_eq!((superblock.block_size.bytes(), superblock.blocks, superblock.inodes), (512, 5, 11));
    assert_eq!((superblock.epoch, superblock.fixed_nsec), (1_000_000_000, 0));
    assert_eq!((superblock.meta, superblock.xattr), (BlockAddr::new(0), BlockAddr::new(2)));
    // dump.erofs names these features: sb_chksum, mtime, xattr_filter.
    assert_eq!((superblock.compat.bits(), superblock.incompat.bits()), (7, 0));
    assert_eq!(superblock.compat, Compat::SB_CHKSUM | Compat::MTIME | Compat::XATTR_FILTER);
    superblock.verify_checksum(&IMAGE[OFFSET..]).unwrap();
    let mut bytes = IMAGE[OFFSET..][..superblock.checksum_len()].to_vec();
    bytes[..superblock.size()].copy_from_slice(&superblock.to_bytes().unwrap());
    write_checksum(&mut bytes);
    assert_eq!(bytes, IMAGE[OFFSET..][..bytes.len()]);
}

#[test]
fn every_file_type() {
    let device = |major, minor| Place::Device(Rdev { major, minor });
    let expected = [
        ("block", FileType::BlockDevice, 4, 0o060_644, Some(device(8, 1_048_575))),
        ("char", FileType::CharDevice, 3, 0o020_644, Some(device(4095, 77))),
        ("fifo", FileType::Fifo, 5, 0o010_640, Some(Place::Nothing)),
        ("full", FileType::Directory, 2, 0o040_755, None),
        ("regular", FileType::Regular, 1, 0o100_640, None),
        ("socket", FileType::Socket, 6, 0o144_755, Some(Place::Nothing)),
        ("symlink", FileType::Symlink, 7, 0o120_777, None),
    ];
    let found = entries(superblock().root);
    let names: Vec<_> =
        found.iter().map(|entry| std::str::from_utf8(entry.name).unwrap()).collect();
    assert_eq!(names, [".", "..", "block", "char", "fifo", "full", "regular", "socket", "symlink"]);
    for (entry, (name, file_type, number, mode, place)) in found.iter().skip(2).zip(expected) {
        assert_eq!((entry.file_type, file_type.number()), (Some(file_type), number), "{name}");
        let inode = inode(entry.nid);
        assert_eq!((inode.file_type, inode.mode()), (file_type, mode), "{name}");
        assert!(place.is_none_or(|place| place == inode.place), "{name}: {:?}", inode.place);
        let is_char = name == "char";
        let version = if is_char { InodeVersion::Extended } else { InodeVersion::Compact };
        let owner = if is_char { (70_000, 80_000) } else { (1000, 100) };
        assert_eq!((inode.version, (inode.uid, inode.gid)), (version, owner), "{name}");
        assert_eq!(
            (inode.nlink, inode.mtime.secs),
            (if name == "full" { 2 } else { 1 }, 1_000_000_000),
            "{name}"
        );
        // Where all content is inline, mkfs.erofs writes the address 2^32 - 1, and our compact
        // inodes do not.
        if inode.place != Place::Blocks(BlockAddr::new(u32::MAX.into())) {
            let mut bytes = Vec::new();
            inode.write(&superblock(), &mut bytes).unwrap();
            assert_eq!(bytes, at(inode_pos(entry.nid))[..bytes.len()], "{name}");
        }
    }
}

#[test]
fn a_full_block_of_a_directory() {
    let nid = find("full");
    let blocks = directory(nid);
    assert_eq!(blocks.iter().map(|block| block.len()).collect::<Vec<_>>(), [512, 13]);
    let mut counts = Vec::new();
    let count = |block: &[Dirent<'_>]| {
        counts.push(block.len());
        Ok::<_, ()>(())
    };
    for_each_block(entries(nid), superblock().block_size, count).unwrap();
    let lens = entries(nid).into_iter().map(|entry| entry.name.len());
    assert_eq!((counts, directory_size(lens, superblock().block_size)), (vec![4, 1], 525));
    for block in blocks {
        let entries: Vec<_> =
            DirBlock::parse(block).unwrap().entries().map(Result::unwrap).collect();
        let mut bytes = Vec::new();
        write_block(&entries, &mut bytes).unwrap();
        assert_eq!(bytes, block);
    }
}

#[test]
fn shared_attributes() {
    let (prefix, area) = (NameIndex::from(NamePrefix::Trusted), superblock().xattr);
    let area = area.to_pos(superblock().block_size).unwrap();
    let three = Entry { index: prefix, name: b"three", value: b"the same in three inodes" };
    let two = Entry { index: prefix, name: b"two", value: b"in two" };
    let own = Entry { index: NamePrefix::User.into(), name: b"own", value: b"own" };
    for (name, shared, inline) in [
        ("regular", &[three, two][..], &[own][..]),
        ("fifo", &[three, two], &[]),
        ("full", &[three], &[]),
    ] {
        let bytes = xattr_bytes(find(name));
        let region = Region::parse(bytes).unwrap();
        let mut found: Vec<_> = region
            .shared()
            .map(|id| Entry::parse(at(shared_pos(area, id).unwrap())).unwrap())
            .collect();
        found.sort_by_key(|entry| entry.name);
        assert_eq!(found, shared, "{name}");
        assert_eq!(region.entries().map(Result::unwrap).collect::<Vec<_>>(), inline, "{name}");
        let ids: Vec<u32> = region.shared().collect();
        let mut written = Vec::new();
        Region::write(region.filter, &ids, inline, &mut written).unwrap();
        assert_eq!(written, bytes, "{name}");
    }
}
