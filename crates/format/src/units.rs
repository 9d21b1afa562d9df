//! Addresses, positions, offsets and sizes as distinct types, so that the compiler finds
//! confusions.
//!
//! Conversions between them are named functions that check for overflow.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            #[doc = concat!("Wraps a raw number as a ", $label, ".")]
            #[must_use]
            pub const fn new(raw: $inner) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The sum, or `None` when it does not fit.
            #[must_use]
            pub const fn checked_add(self, n: $inner) -> Option<Self> {
                match self.0.checked_add(n) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The distance from `earlier` to here, or `None` when `earlier` is later.
            #[must_use]
            pub const fn checked_sub(self, earlier: Self) -> Option<$inner> {
                self.0.checked_sub(earlier.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

unit!(
    /// An address in blocks, in the unified address space of an image.
    BlockAddr(u64),
    "block"
);
unit!(
    /// A position in bytes, in the unified address space of an image.
    BytePos(u64),
    "byte"
);
unit!(
    /// An offset in bytes within a file's decoded content.
    FileOffset(u64),
    "offset"
);
unit!(
    /// An inode's number: the number of its 32-byte slot after `meta_blkaddr`, or in the metabox if
    /// bit 63 is set.
    Nid(u64),
    "nid"
);
unit!(
    /// A logical cluster's number within its file.
    Lcn(u64),
    "lcluster"
);
unit!(
    /// A device: 0 is the primary device, N the device of the Nth slot of the device table.
    DeviceId(u16),
    "device"
);

/// Bytes of an inode slot: nids are numbers of slots. Source: FORMAT.md 2.
pub const SLOT_SIZE: u64 = 32;

impl Nid {
    const METABOX_BIT: u64 = 1 << 63;

    /// The inode in this slot of the metabox.
    #[must_use]
    pub const fn metabox_slot(slot: u64) -> Self {
        Self(slot | Self::METABOX_BIT)
    }

    /// Whether the inode is in the metabox. Source: FORMAT.md 7.
    #[must_use]
    pub const fn in_metabox(self) -> bool {
        self.0 & Self::METABOX_BIT != 0
    }

    /// The slot number, without the metabox bit.
    #[must_use]
    pub const fn slot(self) -> u64 {
        self.0 & !Self::METABOX_BIT
    }

    /// Where this inode starts when inode slots start at `base`; `None` if it exceeds 64 bits.
    #[must_use]
    pub const fn to_pos(self, base: BytePos) -> Option<BytePos> {
        match self.slot().checked_mul(SLOT_SIZE) {
            Some(bytes) => base.checked_add(bytes),
            None => None,
        }
    }
}

impl BlockAddr {
    /// The position of this block's first byte; `None` if it exceeds 64 bits.
    #[must_use]
    pub const fn to_pos(self, size: BlockSize) -> Option<BytePos> {
        match self.0.checked_mul(size.bytes64()) {
            Some(pos) => Some(BytePos(pos)),
            None => None,
        }
    }
}

impl BytePos {
    /// The block that holds this byte.
    #[must_use]
    pub const fn block(self, size: BlockSize) -> BlockAddr {
        BlockAddr(self.0 >> size.bits())
    }

    /// The byte's offset within its block.
    #[must_use]
    pub const fn in_block(self, size: BlockSize) -> u64 {
        self.0 & size.mask()
    }

    /// The next multiple of `align`, a power of two; `None` if it exceeds 64 bits.
    #[must_use]
    pub const fn align_up(self, align: u64) -> Option<Self> {
        match self.0.checked_next_multiple_of(align) {
            Some(pos) => Some(Self(pos)),
            None => None,
        }
    }
}

/// An image's block size: a power of two from 512 bytes to 64 KiB. Source: FORMAT.md 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u8);

impl BlockSize {
    /// 4096 bytes, the default of mkfs tools and the page size of most machines.
    pub const DEFAULT: Self = Self(12);
    /// 512 bytes.
    pub const MIN: Self = Self(Self::MIN_BITS);
    const MIN_BITS: u8 = 9;
    const MAX_BITS: u8 = 16;

    /// The block size of `1 << bits` bytes, if it is valid.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits >= Self::MIN_BITS && bits <= Self::MAX_BITS { Some(Self(bits)) } else { None }
    }

    /// The block size of `bytes` bytes, if it is valid.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        if !bytes.is_power_of_two() {
            return None;
        }
        Self::from_bits(u8::try_from(bytes.trailing_zeros()).ok()?)
    }

    /// log2 of the size in bytes.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << self.0
    }

    /// The size in bytes, for arithmetic with positions.
    #[must_use]
    pub const fn bytes64(self) -> u64 {
        1 << self.0
    }

    /// All bits below the size.
    #[must_use]
    pub const fn mask(self) -> u64 {
        // The size is at least 512, so this cannot wrap.
        self.bytes64().wrapping_sub(1)
    }

    /// The number of blocks that hold `bytes` bytes.
    #[must_use]
    pub const fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes64())
    }
}

impl fmt::Debug for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockSize({})", self.bytes())
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// A file's logical cluster size: the block size times 1 to 32768. Source: FORMAT.md 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterSize(u8);

impl ClusterSize {
    /// The lcluster size of `block << extra_bits` bytes; `extra_bits` has four bits in
    /// `h_clusterbits`.
    #[must_use]
    pub const fn new(block: BlockSize, extra_bits: u8) -> Option<Self> {
        if extra_bits > 15 {
            return None;
        }
        match block.bits().checked_add(extra_bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// log2 of the size in bytes: 9 to 31.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes64(self) -> u64 {
        1 << self.0
    }

    /// All bits below the size.
    #[must_use]
    pub const fn mask(self) -> u64 {
        // The size is at least 512, so this cannot wrap.
        self.bytes64().wrapping_sub(1)
    }

    /// The lcluster that holds `offset`.
    #[must_use]
    pub const fn lcn(self, offset: FileOffset) -> Lcn {
        Lcn(offset.0 >> self.0)
    }

    /// Where lcluster `lcn` starts; `None` if it exceeds 64 bits.
    #[must_use]
    pub const fn start(self, lcn: Lcn) -> Option<FileOffset> {
        match lcn.0.checked_mul(self.bytes64()) {
            Some(offset) => Some(FileOffset(offset)),
            None => None,
        }
    }

    /// The number of lclusters that cover `bytes` bytes.
    #[must_use]
    pub const fn lclusters_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes64())
    }
}

/// A length in memory as a length in a file. This loses nothing, as no platform has lengths of more
/// than 64 bits.
#[inline]
#[must_use]
pub fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A length in a file as a length in memory, or the largest one if memory has less.
#[inline]
#[must_use]
pub fn to_usize(len: impl Into<u64>) -> usize {
    usize::try_from(len.into()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_those_of_the_format() {
        assert_eq!(BlockSize::from_bits(8), None);
        assert_eq!(BlockSize::from_bits(17), None);
        assert_eq!(BlockSize::from_bytes(4096), Some(BlockSize::DEFAULT));
        assert_eq!(BlockSize::from_bytes(4095), None);
        assert_eq!(BlockSize::from_bytes(0), None);
        assert_eq!(BlockSize::DEFAULT.blocks_for(4097), 2);
    }

    #[test]
    fn conversions_never_wrap() {
        assert_eq!(BlockAddr::new(u64::MAX).to_pos(BlockSize::DEFAULT), None);
        assert_eq!(Nid::new(u64::MAX).to_pos(BytePos::new(0)), None);
        assert_eq!(Nid::new(3).to_pos(BytePos::new(4096)), Some(BytePos::new(4192)));
        assert!(Nid::new(1 << 63).in_metabox());
        assert_eq!(Nid::new((1 << 63) | 5).slot(), 5);
        assert_eq!(BytePos::new(u64::MAX).align_up(8), None);
    }
}
