//! The superblock and what hangs on it: device slots, compression configurations. What parses is
//! written back the same.
#![no_main]

use ferofs_format::superblock::Superblock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(sb) = Superblock::parse(data) else { return };
    let _ = (sb.verify_checksum(data), sb.inode_base(), sb.checksum_len());
    let _ = ferofs_format::device::DeviceSlot::parse(data.get(128..).unwrap_or_default(), sb.incompat);
    let _ = ferofs_format::algorithm::CompressionConfigs::parse(0xF, data.get(128..).unwrap_or_default());
    if let Ok(bytes) = sb.to_bytes() {
        assert_eq!(Superblock::parse(&bytes).expect("what was written parses"), sb);
    }
});
