//! The checksum of the superblock and the rest of its block. Source: FORMAT.md 1.

use crc::{Algorithm, Crc, Table};

/// CRC-32C without the final inversion, as Linux computes it.
const CRC32C: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&Algorithm {
    width: 32,
    poly: 0x1edc_6f41,
    init: 0xffff_ffff,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x1cf9_6d7c,
    residue: 0,
});

/// The checksum of `covered`, the bytes from the superblock's start on; the checksum field counts
/// as zero.
pub(super) fn superblock_checksum(covered: &[u8]) -> u32 {
    let mut digest = CRC32C.digest();
    let (magic, rest) = covered.split_at(covered.len().min(4));
    let (_, after) = rest.split_at(rest.len().min(4));
    digest.update(magic);
    digest.update(&[0; 4]);
    digest.update(after);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_crc32c_without_inversion() {
        // The published check value of CRC-32C for "123456789", inverted.
        assert_eq!(CRC32C.checksum(b"123456789"), !0xe306_9283);
    }
}
