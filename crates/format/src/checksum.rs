//! The superblock's checksum. Source: FORMAT.md 1.

use crc::{Algorithm, Crc, Table};

use crate::units::BlockSize;

/// CRC-32C without the final inversion.
const CASTAGNOLI: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&Algorithm {
    width: 32,
    poly: 0x1edc_6f41,
    init: 0xffff_ffff,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x1cf9_6d7c,
    residue: 0,
});

/// Bytes, from the superblock's start on, that the checksum covers.
#[must_use]
pub const fn covered_len(block_size: BlockSize) -> usize {
    match block_size.bytes().checked_sub(crate::superblock::OFFSET) {
        Some(len) if len > 0 => len,
        _ => block_size.bytes(),
    }
}

/// The checksum over `covered`, [`covered_len`] bytes from the superblock's start on, reading the
/// checksum field itself as zero.
#[must_use]
pub fn superblock_checksum(covered: &[u8]) -> u32 {
    let mut digest = CASTAGNOLI.digest();
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
        // The well-known check value of CRC-32C over "123456789", inverted.
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), !0xe306_9283);
    }

    #[test]
    fn covers_the_rest_of_the_first_block() {
        assert_eq!(covered_len(BlockSize::DEFAULT), 3072);
        assert_eq!(BlockSize::from_bits(10).map(covered_len), Some(1024));
        assert_eq!(BlockSize::from_bits(9).map(covered_len), Some(512));
    }
}
