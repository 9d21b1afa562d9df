//! Chunk-based files: chunks of equal size, each with its own address. Source: FORMAT.md 5.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::{BlockAddr, BlockSize, BytePos, DeviceId, FileOffset, to_u64};
use crate::view::View;

const FORMAT_BITS: u16 = 0x1f;
const FORMAT_INDEXES: u16 = 0x20;
const FORMAT_48BIT: u16 = 0x40;
const FORMAT_ALL: u16 = FORMAT_BITS | FORMAT_INDEXES | FORMAT_48BIT;
const NULL_LOW: u32 = u32::MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChunkIndex {
    startblk_hi: U16,
    device_id: U16,
    startblk_lo: U32,
}

const _: () = assert!(core::mem::size_of::<RawChunkIndex>() == 8);

/// How a chunk-based file's table is stored: the union `i_u` of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFormat {
    extra_bits: u8,
    entries: EntryFormat,
}

/// The format of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFormat {
    /// 4-byte block addresses on the primary device.
    Addresses,
    /// 8-byte indexes: a device and an address of 32 bits.
    Indexes,
    /// 8-byte indexes: a device and an address of 48 bits.
    Indexes48,
}

/// The device and address of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// 0: in the unified address space; N: on the Nth extra device. Linux uses only as many low
    /// bits as the number of devices needs.
    pub device: DeviceId,
    /// The chunk's first block there.
    pub addr: BlockAddr,
}

impl ChunkFormat {
    /// Chunks of one block, with an address each.
    pub const BLOCKS: Self = Self { extra_bits: 0, entries: EntryFormat::Addresses };

    /// Chunks of `block << extra_bits` bytes; `None` beyond 31 bits.
    #[must_use]
    pub const fn new(extra_bits: u8, entries: EntryFormat) -> Option<Self> {
        if extra_bits > 31 { None } else { Some(Self { extra_bits, entries }) }
    }

    /// Parses the inode's 16 bits.
    ///
    /// # Errors
    /// [`Fault::Field`] for an undefined bit.
    pub fn parse(raw: u16) -> Result<Self> {
        if raw & !FORMAT_ALL != 0 {
            return Err(fault(Fault::Field { field: "chunk format", value: raw.into() }));
        }
        let [extra_bits, _] = (raw & FORMAT_BITS).to_le_bytes();
        let entries = match (raw & FORMAT_INDEXES != 0, raw & FORMAT_48BIT != 0) {
            // Addresses always have 32 bits: the other bit has no effect.
            (false, _) => EntryFormat::Addresses,
            (true, false) => EntryFormat::Indexes,
            (true, true) => EntryFormat::Indexes48,
        };
        Ok(Self { extra_bits, entries })
    }

    /// The inode's 16 bits.
    #[must_use]
    pub fn raw(self) -> u16 {
        u16::from(self.extra_bits)
            | match self.entries {
                EntryFormat::Addresses => 0,
                EntryFormat::Indexes => FORMAT_INDEXES,
                EntryFormat::Indexes48 => FORMAT_INDEXES | FORMAT_48BIT,
            }
    }

    /// The format of the entries.
    #[must_use]
    pub const fn entries(self) -> EntryFormat {
        self.entries
    }

    /// Bytes of an entry: 4 or 8, and the table is aligned to that.
    #[must_use]
    pub const fn entry_size(self) -> usize {
        match self.entries {
            EntryFormat::Addresses => 4,
            EntryFormat::Indexes | EntryFormat::Indexes48 => 8,
        }
    }

    /// log2 of the chunk size in bytes: 9 to 47.
    #[must_use]
    pub const fn chunk_bits(self, block: BlockSize) -> u8 {
        block.bits().saturating_add(self.extra_bits)
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk_size(self, block: BlockSize) -> u64 {
        1 << self.chunk_bits(block)
    }

    /// Reads an entry at the start of `bytes`; more bytes may follow. `None` is a hole.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn decode(self, bytes: &[u8]) -> Result<Option<ChunkPlace>> {
        let mut view = View::new(bytes, Structure::ChunkIndex);
        let raw = match self.entries {
            EntryFormat::Addresses => {
                let startblk_lo = *view.read::<U32>()?;
                RawChunkIndex { startblk_hi: 0.into(), device_id: 0.into(), startblk_lo }
            }
            EntryFormat::Indexes | EntryFormat::Indexes48 => *view.read::<RawChunkIndex>()?,
        };
        let (low, high) = match self.entries {
            EntryFormat::Addresses | EntryFormat::Indexes => (raw.startblk_lo.get(), None),
            EntryFormat::Indexes48 => (raw.startblk_lo.get(), Some(raw.startblk_hi.get())),
        };
        if low == NULL_LOW && high.is_none_or(|high| high == u16::MAX) {
            return Ok(None);
        }
        let addr = u64::from(low) | (u64::from(high.unwrap_or(0)) << 32);
        Ok(Some(ChunkPlace {
            device: DeviceId::new(raw.device_id.get()),
            addr: BlockAddr::new(addr),
        }))
    }

    /// Appends an entry to `out`; `None` is a hole.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for an address that does not fit into the entry, or that means a hole;
    /// [`Fault::Field`] for a device number if entries have none.
    pub fn encode(self, place: Option<ChunkPlace>, out: &mut alloc::vec::Vec<u8>) -> Result<()> {
        let null = match self.entries {
            EntryFormat::Addresses | EntryFormat::Indexes => NULL_LOW.into(),
            EntryFormat::Indexes48 => (1u64 << 48).wrapping_sub(1),
        };
        let (device, addr) = match place {
            Some(ChunkPlace { device, addr }) if addr.get() < null => (device.get(), addr.get()),
            Some(ChunkPlace { addr, .. }) => {
                let fault = Fault::OutOfRange { field: "startblk", value: addr.get(), limit: null };
                return Err(FormatError::new(Structure::ChunkIndex, fault));
            }
            None => (0, null),
        };
        let [a, b, c, d, e, f, _, _] = addr.to_le_bytes();
        let (startblk_lo, startblk_hi) = (U32::from_bytes([a, b, c, d]), U16::from_bytes([e, f]));
        match self.entries {
            EntryFormat::Addresses if device != 0 => {
                return Err(fault(Fault::Field { field: "device_id", value: device.into() }));
            }
            EntryFormat::Addresses => out.extend_from_slice(startblk_lo.as_bytes()),
            EntryFormat::Indexes | EntryFormat::Indexes48 => {
                let raw = RawChunkIndex { startblk_hi, device_id: device.into(), startblk_lo };
                out.extend_from_slice(raw.as_bytes());
            }
        }
        Ok(())
    }
}

/// The position and format of a chunk-based file's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkIndex {
    start: BytePos,
    count: u64,
    format: ChunkFormat,
    chunk_bits: u8,
}

impl ChunkIndex {
    /// The table of a file of `size` bytes, when the inode and its xattrs end at `inode_end`.
    ///
    /// # Errors
    /// [`Fault::Overflow`] if its end exceeds 64 bits.
    pub fn new(
        inode_end: BytePos,
        size: u64,
        format: ChunkFormat,
        block: BlockSize,
    ) -> Result<Self> {
        let entry = to_u64(format.entry_size());
        let count = size.div_ceil(format.chunk_size(block));
        let start = inode_end.align_up(entry);
        let end =
            start.zip(count.checked_mul(entry)).and_then(|(start, len)| start.checked_add(len));
        let start =
            start.filter(|_| end.is_some()).ok_or_else(|| fault(Fault::Overflow("i_size")))?;
        Ok(Self { start, count, format, chunk_bits: format.chunk_bits(block) })
    }

    /// The first entry's position.
    #[must_use]
    pub const fn start(&self) -> BytePos {
        self.start
    }

    /// Number of chunks.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The chunk format.
    #[must_use]
    pub const fn format(&self) -> ChunkFormat {
        self.format
    }

    /// The chunk that holds `offset`; past the file's end it is not a valid chunk.
    #[must_use]
    pub fn chunk(&self, offset: FileOffset) -> u64 {
        offset.get().wrapping_shr(self.chunk_bits.into())
    }

    /// The position of the entry of chunk `number`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the last one.
    pub fn pos(&self, number: u64) -> Result<BytePos> {
        let offset = number.checked_mul(to_u64(self.format.entry_size()));
        let pos = offset.and_then(|offset| self.start.checked_add(offset));
        pos.filter(|_| number < self.count).ok_or_else(|| {
            fault(Fault::OutOfRange { field: "chunk", value: number, limit: self.count })
        })
    }
}

const fn fault(fault: Fault) -> FormatError {
    FormatError::new(Structure::ChunkIndex, fault)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn formats() -> impl Strategy<Value = ChunkFormat> {
        let entries = prop_oneof![
            Just(EntryFormat::Addresses),
            Just(EntryFormat::Indexes),
            Just(EntryFormat::Indexes48)
        ];
        (0u8..=31, entries).prop_map(|(extra, entries)| ChunkFormat::new(extra, entries).unwrap())
    }

    fn places() -> impl Strategy<Value = Option<ChunkPlace>> {
        let addr =
            prop_oneof![0u64..1 << 32, 0u64..1 << 49, Just(0xffff_ffff), Just((1 << 48) - 1)];
        let device = prop_oneof![Just(0u16), any::<u16>()];
        proptest::option::of((device, addr).prop_map(|(device, addr)| ChunkPlace {
            device: DeviceId::new(device),
            addr: BlockAddr::new(addr),
        }))
    }

    proptest! {
        #[test]
        fn formats_round_trip(format in formats()) {
            prop_assert_eq!(ChunkFormat::parse(format.raw()), Ok(format));
        }

        #[test]
        fn entries_round_trip(format in formats(), place in places()) {
            let fits = place.is_none_or(|place| match format.entries() {
                EntryFormat::Addresses => place.device.get() == 0 && place.addr.get() < 0xffff_ffff,
                EntryFormat::Indexes => place.addr.get() < 0xffff_ffff,
                EntryFormat::Indexes48 => place.addr.get() < (1 << 48) - 1,
            });
            let mut bytes = Vec::new();
            prop_assert_eq!(format.encode(place, &mut bytes).is_ok(), fits);
            if fits {
                prop_assert_eq!(bytes.len(), format.entry_size());
                prop_assert_eq!(format.decode(&bytes), Ok(place));
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, raw: u16, end: u64, size: u64, bits in 9u8..=16, number: u64) {
            let Ok(format) = ChunkFormat::parse(raw & 0x7f) else { return Ok(()) };
            let _ = format.decode(&bytes);
            prop_assert_eq!(ChunkFormat::parse(raw).is_ok(), raw < 0x80);
            let block = BlockSize::from_bits(bits).unwrap();
            if let Ok(index) = ChunkIndex::new(BytePos::new(end), size, format, block) {
                prop_assert_eq!(index.pos(number).is_ok(), number < index.count());
                if let Some(last) = size.checked_sub(1) {
                    prop_assert_eq!(index.chunk(FileOffset::new(last)).checked_add(1), Some(index.count()));
                }
            }
        }
    }
}
