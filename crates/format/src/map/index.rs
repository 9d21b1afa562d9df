//! The index of a compressed file in any of its forms. Source: FORMAT.md 6.4, 6.5.

use alloc::vec::Vec;

use super::compact::{self, CompactIndex, PackPlace};
use super::full::{self, FullIndex};
use super::header::{IndexFormat, IndexHeader};
use super::lcluster::{Head, Lcluster};
use crate::error::{Result, Structure};
use crate::units::{BlockAddr, BlockSize, BytePos, Lcn};

/// Finds, decodes and writes the lclusters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// A record for each lcluster.
    Full(FullIndex),
    /// Packs of records.
    Compact(CompactIndex),
}

impl Index {
    /// The index of a file of `size` bytes whose map header ends at `header_end`.
    ///
    /// # Errors
    /// As [`FullIndex::new`] and [`CompactIndex::new`].
    pub fn open(
        header_end: BytePos,
        size: u64,
        block: BlockSize,
        header: &IndexHeader,
    ) -> Result<Self> {
        Ok(match header.format {
            IndexFormat::Full => Self::Full(FullIndex::new(header_end, size, header)?),
            IndexFormat::Compact { .. } => {
                Self::Compact(CompactIndex::new(header_end, size, block, header)?)
            }
        })
    }

    /// The structure that errors name.
    #[must_use]
    #[inline]
    pub const fn structure(&self) -> Structure {
        match self {
            Self::Full(_) => Structure::FullIndex,
            Self::Compact(_) => Structure::CompactIndex,
        }
    }

    /// Number of lclusters.
    #[must_use]
    #[inline]
    pub const fn lclusters(&self) -> u64 {
        let (Self::Full(FullIndex { lclusters, .. })
        | Self::Compact(CompactIndex { lclusters, .. })) = self;
        *lclusters
    }

    /// The first pack's position.
    #[must_use]
    #[inline]
    pub const fn start(&self) -> BytePos {
        let (Self::Full(FullIndex { start, .. }) | Self::Compact(CompactIndex { start, .. })) =
            self;
        *start
    }

    /// The end of the last pack: where an inline tail starts.
    #[must_use]
    pub fn end(&self) -> BytePos {
        match self {
            Self::Full(index) => index.end,
            Self::Compact(index) => index.end(),
        }
    }

    /// The place of the pack that contains `lcn`; a record of a full index is a pack of one.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`](crate::Fault::OutOfRange) past the last lcluster.
    #[inline]
    pub fn place(&self, lcn: Lcn) -> Result<PackPlace> {
        match self {
            Self::Full(index) => index.place(lcn),
            Self::Compact(index) => index.place(lcn),
        }
    }

    /// Decodes `lcn` from the bytes of the pack at `place`; more bytes may follow.
    ///
    /// # Errors
    /// As [`FullIndex::decode`] and [`Pack::get`](super::Pack::get).
    #[inline]
    pub fn decode(&self, lcn: Lcn, place: PackPlace, bytes: &[u8]) -> Result<Lcluster> {
        match self {
            Self::Full(index) => index.decode(lcn, bytes),
            Self::Compact(index) => index.pack(place, bytes)?.get(lcn),
        }
    }

    /// The offset in the packed inode of a tail whose HEAD is `head`. `low` is
    /// [`Tail::Fragment`](super::Tail::Fragment)'s.
    #[must_use]
    pub fn fragment_offset(&self, head: &Head, low: u32) -> u64 {
        let high = match self {
            Self::Full(_) => head.addr.get() << 32,
            Self::Compact(_) => 0,
        };
        high | u64::from(low)
    }

    /// The first address that the pack at `place` stores.
    pub(super) fn addr(&self, place: PackPlace, pack: &[u8]) -> Option<BlockAddr> {
        match self {
            Self::Full(index) => match index.decode(place.first(), pack) {
                Ok(Lcluster::Head(head)) => Some(head.addr),
                _ => None,
            },
            Self::Compact(index) => index.first_addr(pack),
        }
    }

    /// Replaces [`Self::addr`], unless `addr` has more than 32 bits.
    pub(super) fn set_addr(&self, place: PackPlace, pack: &mut [u8], addr: BlockAddr) {
        match self {
            Self::Full(index) => {
                if let Ok(Lcluster::Head(head)) = index.decode(place.first(), pack)
                    && let Ok(record) = full::encode(&Lcluster::Head(Head { addr, ..head }))
                {
                    pack.copy_from_slice(&record);
                }
            }
            Self::Compact(index) => index.set_first_addr(pack, addr),
        }
    }

    /// Appends what follows the map header to `out`.
    ///
    /// # Errors
    /// What this form cannot store; or the iterator's own.
    pub fn write(
        self,
        lclusters: impl IntoIterator<Item = Result<Lcluster>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self {
            Self::Full(_) => {
                out.extend_from_slice(&[0; full::GAP]);
                for lcluster in lclusters {
                    out.extend_from_slice(&full::encode(&lcluster?)?);
                }
                Ok(())
            }
            Self::Compact(index) => compact::encode(index, lclusters, out),
        }
    }
}
