use super::*;
use proptest::prelude::*;

fn superblock(wide: bool) -> Superblock {
    let mut sb = Superblock::new(BlockSize::DEFAULT);
    sb.epoch = 1_700_000_000;
    sb.fixed_nsec = 5;
    if wide {
        sb.incompat = Incompat::BIT48;
    }
    sb
}

fn content() -> impl Strategy<Value = (FileType, DataLayout, Place)> {
    let address = (0u64..0xffff_ffff_fff0).prop_map(BlockAddr::new);
    prop_oneof![
        Just((FileType::Regular, DataLayout::FlatPlain, Place::Hole)),
        Just((FileType::Socket, DataLayout::FlatPlain, Place::Nothing)),
        address.clone().prop_map(|a| (
            FileType::Directory,
            DataLayout::FlatInline,
            Place::Blocks(a)
        )),
        address.prop_map(|a| (FileType::Symlink, DataLayout::FlatPlain, Place::Blocks(a))),
        (0u64..1 << 48).prop_map(|blocks| (
            FileType::Regular,
            DataLayout::CompressedCompact,
            Place::Compressed { blocks }
        )),
        // The defined bits of a chunk format.
        (0u16..0x80).prop_map(|format| (
            FileType::Regular,
            DataLayout::ChunkBased,
            Place::Chunked { format }
        )),
        (0u32..1 << 12, 0u32..1 << 20).prop_map(|(major, minor)| (
            FileType::CharDevice,
            DataLayout::FlatPlain,
            Place::Device(Rdev { major, minor })
        )),
    ]
}

fn inode() -> impl Strategy<Value = Inode> {
    let owner = (any::<u32>(), any::<u32>(), 0u16..0o10000, any::<u32>());
    let time = prop_oneof![
        Just((1_700_000_000, 5)),
        (1_700_000_000i64..1_800_000_000, Just(5u32)),
        (any::<i64>(), 0u32..1_000_000_000)
    ];
    let small = any::<bool>();
    (content(), owner, time, 0..=MAX_SIZE, any::<u32>(), any::<u16>(), small).prop_map(
        |((file_type, layout, place), o, t, size, ino, xattr_icount, small)| {
            let cut = |n: u32| if small { n & 0xffff } else { n };
            Inode {
                version: InodeVersion::Extended,
                layout,
                file_type,
                permissions: o.2,
                uid: cut(o.0),
                gid: cut(o.1),
                size: if small { size & 0xffff_ffff } else { size },
                nlink: if small { o.3 & 3 } else { o.3 },
                mtime: Timestamp { secs: t.0, nanos: t.1 },
                ino,
                xattr_icount,
                place,
                dot_omitted: file_type == FileType::Directory && small,
            }
        },
    )
}

proptest! {
    #[test]
    fn round_trips_in_every_form_that_fits(mut inode in inode(), wide: bool) {
        let sb = superblock(wide);
        let mut out = Vec::new();
        inode.write(&sb, &mut out).unwrap();
        prop_assert_eq!(out.len(), EXTENDED_SIZE);
        prop_assert_eq!(Inode::parse(&out, &sb), Ok(inode.clone()));

        let fits = inode.fits_compact(&sb);
        inode.version = InodeVersion::Compact;
        out.clear();
        prop_assert_eq!(inode.write(&sb, &mut out).is_ok(), fits);
        if fits {
            prop_assert_eq!(out.len(), COMPACT_SIZE);
            prop_assert_eq!(Inode::parse(&out, &sb), Ok(inode));
        }
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        let _ = Inode::parse(&bytes, &superblock(true));
    }
}

#[test]
fn only_a_tail_beside_its_inode_is_inline() {
    let tails =
        [(32, 0, 0), (32, 4096, 0), (32, 4096 * 3 + 4064, 4064), (32, 4065, 0), (4096, 5, 0)];
    for (inode_len, size, tail) in tails {
        assert_eq!(inline_tail(inode_len, size, BlockSize::DEFAULT), tail, "{inode_len} {size}");
    }
}

/// The largest values of a compact inode, and the first that need an extended one.
#[test]
fn limits_of_compact_inodes() {
    let largest = Inode {
        file_type: FileType::Directory,
        uid: 0xffff,
        gid: 0xffff,
        size: 0xffff_ffff,
        nlink: 0xffff,
        mtime: Timestamp { secs: 1_700_000_000, nanos: 5 },
        place: Place::Blocks(BlockAddr::new(0xffff_fffe)),
        ..Inode::unresolved()
    };
    let fits = |wide, change: fn(&mut Inode)| {
        let mut inode = largest.clone();
        change(&mut inode);
        inode.fits_compact(&superblock(wide))
    };
    assert!(fits(false, |_| ()));
    let too_large: [fn(&mut Inode); 8] = [
        |inode| inode.uid += 1,
        |inode| inode.gid += 1,
        |inode| inode.size += 1,
        |inode| inode.nlink += 1,
        |inode| inode.mtime.nanos += 1,
        |inode| inode.mtime.secs -= 1,
        |inode| inode.mtime.secs += 1 << 32,
        |inode| inode.place = Place::Blocks(BlockAddr::new(0xffff_ffff)),
    ];
    assert!(too_large.iter().all(|change| !fits(false, *change) && !fits(true, *change)));
    let later = |inode: &mut Inode| inode.mtime.secs += 0xffff_ffff;
    assert_eq!([false, true].map(|wide| fits(wide, later)), [false, true]);
    let one_link = |inode: &mut Inode| {
        (inode.file_type, inode.nlink) = (FileType::Regular, 1);
        inode.place = Place::Blocks(BlockAddr::new(1 << 32));
    };
    assert_eq!([false, true].map(|wide| fits(wide, one_link)), [false, true]);
    assert!(!fits(true, |inode| inode.place = Place::Compressed { blocks: 1 << 32 }));
}

#[test]
fn refuses_what_the_format_lacks() {
    let sb = superblock(false);
    let parse = |format: u16, mode: u16| {
        let mut bytes = [0u8; 64];
        bytes[..2].copy_from_slice(&format.to_le_bytes());
        bytes[4..6].copy_from_slice(&mode.to_le_bytes());
        Inode::parse(&bytes, &sb).map_err(|e| e.fault)
    };
    assert!(parse(0, 0o100_644).is_ok());
    assert_eq!(parse(0x20, 0o100_644), Err(Fault::Field { field: "i_format", value: 0x20 }));
    assert_eq!(parse(5 << 1, 0o100_644), Err(Fault::Field { field: "data layout", value: 5 }));
    assert_eq!(parse(0, 0o030_644), Err(Fault::Field { field: "i_mode", value: 0o030_644 }));
}
