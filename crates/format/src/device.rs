//! Slots of the device table: one for each extra device of an image. Source: FORMAT.md 5.
//!
//! The superblock says where the table starts and how many slots it has.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::feature::Incompat;
use crate::units::BlockAddr;
use crate::view::View;

/// Bytes of a device slot.
pub const DEVICE_SLOT_SIZE: usize = 128;
/// Bytes of a device's tag.
pub const DEVICE_TAG_SIZE: usize = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDeviceSlot {
    tag: [u8; DEVICE_TAG_SIZE],
    blocks_lo: U32,
    uniaddr_lo: U32,
    blocks_hi: U16,
    uniaddr_hi: U16,
    reserved: [u8; 52],
}

const _: () = assert!(core::mem::size_of::<RawDeviceSlot>() == DEVICE_SLOT_SIZE);

/// An extra device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSlot {
    /// Identifies the device, for example by a digest or a path; padded with NULs.
    pub tag: [u8; DEVICE_TAG_SIZE],
    /// Size of the device in blocks.
    pub blocks: u64,
    /// Where the device starts in the unified address space; `None` if it is not part of that.
    pub start: Option<BlockAddr>,
}

impl DeviceSlot {
    /// Reads a slot at the start of `bytes`; more bytes may follow. `incompat` are the image's
    /// features.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when there are fewer than [`DEVICE_SLOT_SIZE`] bytes.
    pub fn parse(bytes: &[u8], incompat: Incompat) -> Result<Self> {
        let raw = View::new(bytes, Structure::DeviceTable).read::<RawDeviceSlot>()?;
        let wide = incompat.contains(Incompat::BIT48);
        let join = |low: U32, high: U16| {
            u64::from(low.get()) | if wide { u64::from(high.get()) << 32 } else { 0 }
        };
        let start = join(raw.uniaddr_lo, raw.uniaddr_hi);
        Ok(Self {
            tag: raw.tag,
            blocks: join(raw.blocks_lo, raw.blocks_hi),
            start: (start != 0).then(|| BlockAddr::new(start)),
        })
    }

    /// The slot's bytes.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for a number beyond 32 bits, or beyond 48 with [`Incompat::BIT48`].
    pub fn to_bytes(&self, incompat: Incompat) -> Result<[u8; DEVICE_SLOT_SIZE]> {
        let limit = if incompat.contains(Incompat::BIT48) { 1 << 48 } else { 1 << 32 };
        let split = |field, value: u64| {
            if value >= limit {
                let fault = Fault::OutOfRange { field, value, limit };
                return Err(FormatError::new(Structure::DeviceTable, fault));
            }
            let [a, b, c, d, e, f, _, _] = value.to_le_bytes();
            Ok((U32::from_bytes([a, b, c, d]), U16::from_bytes([e, f])))
        };
        let (blocks_lo, blocks_hi) = split("blocks", self.blocks)?;
        let (uniaddr_lo, uniaddr_hi) = split("uniaddr", self.start.map_or(0, BlockAddr::get))?;
        let raw = RawDeviceSlot {
            tag: self.tag,
            blocks_lo,
            uniaddr_lo,
            blocks_hi,
            uniaddr_hi,
            reserved: [0; 52],
        };
        Ok(zerocopy::transmute!(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(byte: u8, blocks in 0u64..1 << 49, start in 0u64..1 << 49, wide: bool) {
            let incompat = if wide { Incompat::BIT48 } else { Incompat::empty() };
            let start_addr = (start != 0).then(|| BlockAddr::new(start));
            let slot = DeviceSlot { tag: [byte; DEVICE_TAG_SIZE], blocks, start: start_addr };
            let fits = blocks.max(start) < if wide { 1 << 48 } else { 1 << 32 };
            match slot.to_bytes(incompat) {
                Ok(bytes) => {
                    prop_assert!(fits);
                    prop_assert_eq!(DeviceSlot::parse(&bytes, incompat), Ok(slot));
                }
                Err(_) => prop_assert!(!fits),
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, bits: u32) {
            let _ = DeviceSlot::parse(&bytes, Incompat::from_bits_truncate(bits));
        }
    }

    #[test]
    fn high_halves_count_with_48_bits_only() {
        let slot = DeviceSlot { tag: [7; DEVICE_TAG_SIZE], blocks: (3 << 32) | 5, start: None };
        let bytes = slot.to_bytes(Incompat::BIT48).unwrap();
        assert_eq!(DeviceSlot::parse(&bytes, Incompat::empty()).unwrap().blocks, 5);
        assert!(DeviceSlot::parse(&bytes[1..], Incompat::BIT48).is_err());
    }
}
