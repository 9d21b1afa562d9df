use super::*;
use crate::units::BlockSize;
use alloc::collections::BTreeSet;
use proptest::prelude::*;

fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    proptest::collection::btree_set(proptest::collection::vec(1u8.., 1..NAME_MAX), 1..200)
}

/// Writes `names` as a whole directory, padded between blocks; nids count up from 1. Its size is
/// counted, too.
fn directory(names: &BTreeSet<Vec<u8>>, block_size: BlockSize) -> Vec<u8> {
    let entries = names.iter().zip(1..).map(|(name, nid)| Dirent {
        nid: Nid::new(nid),
        file_type: Some(FileType::Symlink),
        name,
    });
    let mut out = Vec::new();
    let write = |block: &[Dirent<'_>]| {
        out.resize(out.len().next_multiple_of(block_size.bytes()), 0);
        write_block(block, &mut out)
    };
    for_each_block(entries, block_size, write).unwrap();
    assert_eq!(directory_size(names.iter().map(Vec::len), block_size), to_u64(out.len()));
    out
}

proptest! {
    #[test]
    fn round_trips_and_finds(names in names(), bits in 9u8..=16) {
        let block_size = BlockSize::from_bits(bits).unwrap();
        let bytes = directory(&names, block_size);
        let mut read = Vec::new();
        for block in bytes.chunks(block_size.bytes()) {
            let block = DirBlock::parse(block).unwrap();
            for (index, entry) in block.entries().enumerate() {
                let entry = entry.unwrap();
                prop_assert_eq!(block.find(entry.name).unwrap(), (index > 0).then_some(entry));
                read.push(entry.name.to_vec());
            }
            prop_assert_eq!(block.find(b"\0"), Ok(None));
            prop_assert_eq!(block.find(&[255; 256]), Ok(None));
        }
        prop_assert_eq!(read, names.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn garbage_never_panics(mut bytes: Vec<u8>, first in 0u16..40) {
        for forced in [false, true] {
            if let (true, Some(field)) = (forced, bytes.get_mut(8..10)) {
                field.copy_from_slice(&(first.wrapping_mul(12)).to_le_bytes());
            }
            if let Ok(block) = DirBlock::parse(&bytes) {
                let _ = block.entries().count();
                let _ = block.find(b"name");
            }
        }
    }
}

#[test]
fn names_that_exist_twice_are_found_as_by_linux() {
    let found = |names: &[&'static [u8]], name: &[u8]| {
        let entries = names.iter().zip(0..);
        let entries =
            entries.map(|(&name, nid)| Dirent { nid: Nid::new(nid), file_type: None, name });
        let mut bytes = Vec::new();
        write_block(&entries.collect::<Vec<_>>(), &mut bytes).unwrap();
        DirBlock::parse(&bytes).unwrap().find(name).unwrap().map(|entry| entry.nid.get())
    };
    assert_eq!(found(&[b".", b"..", b"a", b"a", b"b"], b"a"), Some(2));
    assert_eq!(found(&[b".", b"..", b"a", b"a", b"a", b"b"], b"a"), Some(3));
    // Bytes that are equal in the names around are not compared again.
    assert_eq!(found(&[b".", b"a", b"a", b"a", b"ab1", b"xx3", b"ab5", b"z"], b"ab3"), Some(5));
}

#[test]
fn refuses_names_that_run_out_of_the_block() {
    let mut bytes = Vec::new();
    let entry = |name| Dirent { nid: Nid::new(1), file_type: None, name };
    write_block(&[entry(&b"a"[..]), entry(b"b")], &mut bytes).unwrap();
    bytes[20] = 99;
    let block = DirBlock::parse(&bytes).unwrap();
    assert!(block.get(0).unwrap().is_err());
    assert!(block.get(1).unwrap().is_err());
    assert!(block.get(2).is_none());
    bytes[8] = 0;
    assert!(DirBlock::parse(&bytes).is_err());
    assert!(write_block(&[entry(b"")], &mut bytes).is_err());
}

#[test]
fn inode_numbers_are_replaced_in_place() {
    let entry = |nid, name| Dirent { nid: Nid::new(nid), file_type: Some(FileType::Fifo), name };
    let block = |nids: [u64; 3]| {
        let mut block = Vec::new();
        let names: [&[u8]; 3] = [b"a", b"bc", b"def"];
        let entries: Vec<_> =
            nids.into_iter().zip(names).map(|(nid, name)| entry(nid, name)).collect();
        write_block(&entries, &mut block).unwrap();
        block
    };
    let mut changed = block([7, 1 << 40, 9]);
    change_nids(&mut changed, |nid| Nid::new(nid.get() + 5));
    assert_eq!(changed, block([12, (1 << 40) + 5, 14]));
    let mut garbage = alloc::vec![1; 20];
    change_nids(&mut garbage, |_| Nid::new(0));
    assert_eq!(garbage, [1; 20]);
}
