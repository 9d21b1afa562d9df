//! Inodes of both forms. What parses and can be written is written back the same.
#![no_main]

use ferofs_format::inode::Inode;
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockSize, Incompat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [features, data @ ..] = data else { return };
    let mut sb = Superblock::new(BlockSize::from_bytes(4096).expect("a power of two"));
    sb.incompat = Incompat::from_bits_truncate(u32::from(*features) << 1);
    let Ok(inode) = Inode::parse(data, &sb) else { return };
    let mut bytes = Vec::new();
    if inode.write(&sb, &mut bytes).is_ok() {
        assert_eq!(Inode::parse(&bytes, &sb).expect("what was written parses"), inode);
    }
});
