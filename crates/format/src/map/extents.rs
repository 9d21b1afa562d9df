//! Encoded extents: one record for each extent, with positions in bytes. Source: FORMAT.md 6.7.

use alloc::vec::Vec;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header::{ExtentsHeader, RecordSize, Records};
use crate::algorithm::Algorithm;
use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::{BytePos, FileOffset, to_u64};
use crate::view::View;

/// The most encoded bytes of an extent: the length has 21 bits.
pub const MAX_ENCODED: u32 = PLEN_MASK;
const PLEN_MASK: u32 = (1 << 21) - 1;
const PLEN_PARTIAL: u32 = 1 << 27;
const PLEN_FORMAT_SHIFT: u32 = 28;
/// Bytes of the start address before records of 4 bytes.
const LEADING_SIZE: u64 = 8;

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    plen: U32,
    pstart_lo: U32,
    pstart_hi: U32,
    lstart_lo: U32,
    lstart_hi: U32,
    reserved: [u8; 12],
}

const _: () = assert!(core::mem::size_of::<RawExtent>() == 32);

/// How an extent's bytes are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Zeroes that are not stored.
    Hole,
    /// Stored bytes.
    Data {
        /// The number of stored bytes: 1 to [`MAX_ENCODED`].
        len: u32,
        /// The algorithm, or `None` if the data is not compressed.
        algorithm: Option<Algorithm>,
        /// The extent is only a part of what the bytes decode to.
        partial_ref: bool,
    },
}

/// A record. Fields that its size does not store follow from the record's number, or are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentRecord {
    /// Length and encoding, not yet checked: see [`Self::encoding`].
    pub plen: u32,
    /// The position of the encoded bytes.
    pub pstart: BytePos,
    /// The extent's offset in the file.
    pub lstart: FileOffset,
}

impl ExtentRecord {
    /// A record of `encoding`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for more than [`MAX_ENCODED`] bytes, [`Fault::Field`] for none.
    pub fn new(encoding: Encoding, pstart: BytePos, lstart: FileOffset) -> Result<Self> {
        let plen = match encoding {
            Encoding::Hole => 0,
            Encoding::Data { len: 0, .. } => {
                return Err(fault(Fault::Field { field: "plen", value: 0 }));
            }
            Encoding::Data { len, algorithm, partial_ref } if len <= PLEN_MASK => {
                let format = algorithm.map_or(0, |a| u32::from(a.id()).saturating_add(1));
                len | if partial_ref { PLEN_PARTIAL } else { 0 } | (format << PLEN_FORMAT_SHIFT)
            }
            Encoding::Data { len, .. } => {
                let limit = u64::from(PLEN_MASK).saturating_add(1);
                return Err(fault(Fault::OutOfRange { field: "plen", value: len.into(), limit }));
            }
        };
        Ok(Self { plen, pstart, lstart })
    }

    /// The record of a file's last extent if that is at `offset` in the packed inode; records of 4
    /// bytes hold only 32 bits of it.
    #[must_use]
    pub fn fragment(offset: u64, lstart: FileOffset) -> Self {
        let [a, b, c, d, high @ ..] = offset.to_le_bytes();
        let pstart = BytePos::new(u32::from_le_bytes(high).into());
        Self { plen: u32::from_le_bytes([a, b, c, d]), pstart, lstart }
    }

    /// Length and encoding.
    ///
    /// # Errors
    /// [`Fault::Field`] for an unknown algorithm.
    pub fn encoding(&self) -> Result<Encoding> {
        let len = self.plen & PLEN_MASK;
        if len == 0 {
            return Ok(Encoding::Hole);
        }
        let [format, ..] = (self.plen >> PLEN_FORMAT_SHIFT).to_le_bytes();
        let algorithm = match format.checked_sub(1) {
            None => None,
            Some(id) => Some(Algorithm::from_id(id).ok_or_else(|| {
                fault(Fault::Field { field: "plen format", value: format.into() })
            })?),
        };
        Ok(Encoding::Data { len, algorithm, partial_ref: self.plen & PLEN_PARTIAL != 0 })
    }

    /// Where in the packed inode the extent is, if this is the last record of a file with a
    /// fragment tail.
    #[must_use]
    pub fn fragment_offset(&self, size: RecordSize) -> u64 {
        let high = if size == RecordSize::Bytes4 { 0 } else { self.pstart.get() << 32 };
        u64::from(self.plen) | high
    }

    /// Reads a record at the start of `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn parse(bytes: &[u8], size: RecordSize) -> Result<Self> {
        let stored = View::new(bytes, Structure::EncodedExtent).take(size.bytes())?;
        let mut raw = RawExtent::default();
        raw.as_mut_bytes().iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
        let join = |low: U32, high: U32| u64::from(low.get()) | (u64::from(high.get()) << 32);
        Ok(Self {
            plen: raw.plen.get(),
            pstart: BytePos::new(join(raw.pstart_lo, raw.pstart_hi)),
            lstart: FileOffset::new(join(raw.lstart_lo, raw.lstart_hi)),
        })
    }

    /// Appends the record to `out`. Fields that `size` does not store are ignored: 4 bytes store
    /// neither start, 8 bytes do not store `lstart`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for a start that does not fit into `size`.
    pub fn write(&self, size: RecordSize, out: &mut Vec<u8>) -> Result<()> {
        let (pstart, lstart) = (self.pstart.get(), self.lstart.get());
        let check = |cut, field, value| match cut && value >= 1 << 32 {
            true => Err(fault(Fault::OutOfRange { field, value, limit: 1 << 32 })),
            false => Ok(()),
        };
        check(size == RecordSize::Bytes8, "pstart", pstart)?;
        check(size == RecordSize::Bytes16, "lstart", lstart)?;
        let split = |value: u64| {
            let [a, b, c, d, high @ ..] = value.to_le_bytes();
            (U32::from_bytes([a, b, c, d]), U32::from_bytes(high))
        };
        let ((pstart_lo, pstart_hi), (lstart_lo, lstart_hi)) = (split(pstart), split(lstart));
        let plen = self.plen.into();
        let raw = RawExtent { plen, pstart_lo, pstart_hi, lstart_lo, lstart_hi, reserved: [0; 12] };
        out.extend(raw.as_bytes().iter().take(size.bytes()));
        Ok(())
    }
}

/// The position and form of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentIndex {
    start: BytePos,
    records: Records,
    count: u64,
}

impl ExtentIndex {
    /// The records of a file of `size` bytes whose map header ends at `header_end`.
    ///
    /// # Errors
    /// [`Fault::Overflow`] if the end of the records exceeds 64 bits.
    pub fn new(header_end: BytePos, size: u64, header: &ExtentsHeader) -> Result<Self> {
        let overflow = || fault(Fault::Overflow("h_extents"));
        let record = to_u64(header.records.size().bytes());
        let start = header_end.align_up(record).ok_or_else(overflow)?;
        let count = match header.records {
            Records::Regular { unit, .. } => unit.lclusters_for(size),
            Records::Sorted { count, .. } => count,
        };
        let index = Self { start, records: header.records, count };
        count
            .checked_mul(record)
            .and_then(|len| index.first()?.checked_add(len))
            .ok_or_else(overflow)?;
        Ok(index)
    }

    /// The position of the table. Before records of 4 bytes, it starts with the data's position as
    /// a `u64`.
    #[must_use]
    pub const fn start(&self) -> BytePos {
        self.start
    }

    /// Number of records.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The form of the records.
    #[must_use]
    pub const fn records(&self) -> Records {
        self.records
    }

    /// Bytes from [`Self::start`] to the last record's end.
    #[must_use]
    pub fn size(&self) -> u64 {
        let leading = self.first().and_then(|first| first.checked_sub(self.start)).unwrap_or(0);
        self.count.saturating_mul(to_u64(self.records.size().bytes())).saturating_add(leading)
    }

    /// The position of record `number`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the last one.
    pub fn pos(&self, number: u64) -> Result<BytePos> {
        let offset = number.checked_mul(to_u64(self.records.size().bytes()));
        let pos = self.first().zip(offset).and_then(|(first, offset)| first.checked_add(offset));
        pos.filter(|_| number < self.count).ok_or_else(|| {
            fault(Fault::OutOfRange { field: "extent", value: number, limit: self.count })
        })
    }

    fn first(&self) -> Option<BytePos> {
        match self.records {
            Records::Regular { with_start: false, .. } => self.start.checked_add(LEADING_SIZE),
            Records::Regular { .. } | Records::Sorted { .. } => Some(self.start),
        }
    }
}

/// The last of `count` sorted records that does not start after `offset`; `lstart` returns the
/// start of a record.
///
/// # Errors
/// Errors of `lstart`.
pub fn search<E>(
    count: u64,
    offset: FileOffset,
    mut lstart: impl FnMut(u64) -> Result<FileOffset, E>,
) -> Result<Option<u64>, E> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if lstart(middle)? <= offset {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    Ok(low.checked_sub(1))
}

const fn fault(fault: Fault) -> FormatError {
    FormatError::new(Structure::EncodedExtent, fault)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
mod tests {
    use super::*;
    use crate::units::{BlockSize, ClusterSize};
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    const SIZES: [RecordSize; 4] =
        [RecordSize::Bytes4, RecordSize::Bytes8, RecordSize::Bytes16, RecordSize::Bytes32];

    fn encodings() -> impl Strategy<Value = Encoding> {
        let data =
            (1..=MAX_ENCODED, 0u8..5, any::<bool>()).prop_map(|(len, format, partial_ref)| {
                Encoding::Data {
                    len,
                    algorithm: format.checked_sub(1).and_then(Algorithm::from_id),
                    partial_ref,
                }
            });
        prop_oneof![Just(Encoding::Hole), data]
    }

    proptest! {
        #[test]
        fn records_round_trip(encoding in encodings(), p: u64, l: u64, size in 0usize..4, short: bool) {
            let size = SIZES[size];
            let (p, l) = if short { (p >> 32, l >> 32) } else { (p, l) };
            let record = ExtentRecord::new(encoding, BytePos::new(p), FileOffset::new(l)).unwrap();
            let mut bytes = Vec::new();
            if record.write(size, &mut bytes).is_err() {
                prop_assert!(p >> 32 != 0 && size == RecordSize::Bytes8 || l >> 32 != 0 && size == RecordSize::Bytes16);
                return Ok(());
            }
            prop_assert_eq!(bytes.len(), size.bytes());
            let read = ExtentRecord::parse(&bytes, size).unwrap();
            prop_assert_eq!(read.encoding(), Ok(encoding));
            prop_assert_eq!(read.pstart.get(), if size > RecordSize::Bytes4 { p } else { 0 });
            prop_assert_eq!(read.lstart.get(), if size > RecordSize::Bytes8 { l } else { 0 });
        }

        #[test]
        fn fragments_round_trip(offset: u64, size in 0usize..4) {
            let size = SIZES[size];
            let mut bytes = Vec::new();
            ExtentRecord::fragment(offset, FileOffset::new(7)).write(size, &mut bytes).unwrap();
            let read = ExtentRecord::parse(&bytes, size).unwrap().fragment_offset(size);
            prop_assert_eq!(read, if size == RecordSize::Bytes4 { offset & 0xffff_ffff } else { offset });
        }

        #[test]
        fn search_agrees_with_a_scan(starts in btree_set(0u64..500, 0..60), offset in 0u64..600) {
            let sorted: Vec<_> = starts.iter().copied().map(FileOffset::new).collect();
            let lstart = |number| Ok::<_, ()>(sorted[usize::try_from(number).unwrap()]);
            let found = search(to_u64(sorted.len()), FileOffset::new(offset), lstart).unwrap();
            let scanned = starts.iter().filter(|start| **start <= offset).count().checked_sub(1);
            prop_assert_eq!(found, scanned.map(to_u64));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, size in 0usize..4, offset: u64, number: u64, end: u64) {
            let size = SIZES[size];
            if let Ok(record) = ExtentRecord::parse(&bytes, size) {
                let _ = (record.encoding(), record.fragment_offset(size));
            }
            let unit = ClusterSize::new(BlockSize::DEFAULT, 0).unwrap();
            for records in [
                Records::Regular { with_start: size == RecordSize::Bytes8, unit },
                Records::Sorted { wide: size == RecordSize::Bytes32, count: number },
            ] {
                let header = ExtentsHeader { records, interlaced: false, fragment_tail: false };
                if let Ok(index) = ExtentIndex::new(BytePos::new(end), offset, &header) {
                    prop_assert_eq!(index.pos(number).is_ok(), number < index.count());
                    prop_assert!(index.start().checked_add(index.size()).is_some());
                }
            }
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let new = |len| {
            let data = Encoding::Data { len, algorithm: None, partial_ref: false };
            ExtentRecord::new(data, BytePos::new(0), FileOffset::new(0))
        };
        assert!(new(0).is_err() && new(MAX_ENCODED).is_ok() && new(1 << 21).is_err());
        let unknown =
            ExtentRecord { plen: (5 << PLEN_FORMAT_SHIFT) | 1, ..ExtentRecord::default() };
        assert!(unknown.encoding().is_err());
    }
}
