//! The header before a compressed file's map. Source: FORMAT.md 6.2.

#[cfg(test)]
mod tests;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::algorithm::Algorithm;
use crate::error::{Fault, FormatError, Result, Structure};
use crate::feature::Incompat;
use crate::inode::DataLayout;
use crate::units::{BlockSize, BytePos, ClusterSize};
use crate::view::View;

/// Bytes of the header.
pub const HEADER_SIZE: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMapHeader {
    /// `h_fragmentoff`, or two reserved bytes and `h_idata_size`, or `h_extents_lo`.
    h_u1: [u8; 4],
    h_advise: U16,
    /// With [`Self::h_clusterbits`], `h_extents_hi`.
    h_algorithmtype: u8,
    h_clusterbits: u8,
}

const _: () = assert!(core::mem::size_of::<RawMapHeader>() == HEADER_SIZE);

/// `COMPACTED_2B` in the compact layout, `EXTENTS` in the full layout.
const ADVISE_FORM: u16 = 0x1;
const ADVISE_BIG_PCLUSTER_1: u16 = 0x2;
const ADVISE_BIG_PCLUSTER_2: u16 = 0x4;
const ADVISE_RECORD_SIZE: u16 = 0x6;
const ADVISE_INLINE: u16 = 0x8;
const ADVISE_INTERLACED: u16 = 0x10;
const ADVISE_FRAGMENT: u16 = 0x20;
const CLUSTERBITS_EXTRA: u8 = 0xf;
const CLUSTERBITS_WHOLE_FRAGMENT: u8 = 0x80;
const WHOLE_FRAGMENT: u64 = 1 << 63;
/// The limit of the number of extents: bit 47 of the field is the flag for a whole file in the
/// packed inode.
const EXTENTS_LIMIT: u64 = 1 << 47;

/// The kinds of maps of compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapHeader {
    /// No map: the whole file is in the packed inode.
    WholeFragment {
        /// The file's offset in the packed inode, in bytes; less than 2^63.
        offset: u64,
    },
    /// One record for each lcluster.
    Index(IndexHeader),
    /// Encoded extents.
    Extents(ExtentsHeader),
}

/// The parameters of a full or compact index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// The form of the records.
    pub format: IndexFormat,
    /// Size of the lclusters.
    pub cluster: ClusterSize,
    /// Algorithms of [`HeadKind::Head1`](super::HeadKind::Head1) and of
    /// [`HeadKind::Head2`](super::HeadKind::Head2).
    pub algorithms: [Algorithm; 2],
    /// Whether pclusters with the first, and with the second algorithm can have more than one
    /// block.
    pub big_pclusters: [bool; 2],
    /// Stored extents are rotated in their block.
    pub interlaced: bool,
    /// The position of the last extent.
    pub tail: Tail,
}

/// The form of an index's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFormat {
    /// Eight bytes each: [`super::full`].
    Full,
    /// In packs: [`super::compact`].
    Compact {
        /// Packs of two bytes a record are used (`COMPACTED_2B`).
        compacted_2b: bool,
    },
}

impl IndexFormat {
    /// The most bytes for each lcluster.
    #[must_use]
    pub const fn bytes_each(self) -> u64 {
        match self {
            Self::Full => 8,
            Self::Compact { compacted_2b: false } => 4,
            Self::Compact { compacted_2b: true } => 2,
        }
    }
}

/// The position of a file's last extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// In blocks, as other extents.
    Blocks,
    /// Right after the index.
    Inline {
        /// Encoded bytes: at least 1, at most a block.
        size: u16,
    },
    /// In the packed inode.
    Fragment {
        /// Its offset there in bytes; with full indexes only the low 32 bits.
        offset: u32,
    },
}

/// The parameters of a file's encoded extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentsHeader {
    /// The form of the records.
    pub records: Records,
    /// Stored extents of whole blocks are rotated.
    pub interlaced: bool,
    /// The last extent is in the packed inode.
    pub fragment_tail: bool,
}

/// The form of the records of encoded extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Records of 4 (or, when `with_start`, 8) bytes, one for each `unit` of the file.
    Regular {
        /// Whether each record stores the position of its data; otherwise the data is consecutive.
        with_start: bool,
        /// Decoded bytes of each extent but the last.
        unit: ClusterSize,
    },
    /// Records of 16 (or, when `wide`, 32) bytes, sorted by file offset.
    Sorted {
        /// File offsets can exceed 32 bits.
        wide: bool,
        /// The number of records; less than 2^47.
        count: u64,
    },
}

impl Records {
    /// Size of a record.
    #[must_use]
    pub const fn size(self) -> RecordSize {
        match self {
            Self::Regular { with_start: false, .. } => RecordSize::Bytes4,
            Self::Regular { with_start: true, .. } => RecordSize::Bytes8,
            Self::Sorted { wide: false, .. } => RecordSize::Bytes16,
            Self::Sorted { wide: true, .. } => RecordSize::Bytes32,
        }
    }
}

/// The size of an encoded extent's record. The smaller records are prefixes of the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordSize {
    /// `plen` alone.
    Bytes4,
    /// And 32 bits of `pstart`.
    Bytes8,
    /// And all of `pstart`, and 32 bits of `lstart`.
    Bytes16,
    /// And all of `lstart`.
    Bytes32,
}

impl RecordSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes4 => 4,
            Self::Bytes8 => 8,
            Self::Bytes16 => 16,
            Self::Bytes32 => 32,
        }
    }

    /// log2 of the size in units of 4 bytes.
    const fn code(self) -> u8 {
        match self {
            Self::Bytes4 => 0,
            Self::Bytes8 => 1,
            Self::Bytes16 => 2,
            Self::Bytes32 => 3,
        }
    }
}

impl IndexHeader {
    /// Whether any pcluster can have more than one block.
    #[must_use]
    pub const fn has_big_pclusters(&self) -> bool {
        let [first, second] = self.big_pclusters;
        first || second
    }

    fn parse(
        raw: &RawMapHeader,
        compact: bool,
        cluster: ClusterSize,
        block: BlockSize,
    ) -> Result<Self> {
        let advise = raw.h_advise.get();
        let has = |bit| advise & bit != 0;
        let big_pclusters = [has(ADVISE_BIG_PCLUSTER_1), has(ADVISE_BIG_PCLUSTER_2)];
        if (compact && big_pclusters[0] != big_pclusters[1])
            || (has(ADVISE_INLINE) && has(ADVISE_FRAGMENT))
        {
            return Err(field("h_advise", advise.into()));
        }
        let algorithm = |id| {
            Algorithm::from_id(id)
                .ok_or_else(|| field("h_algorithmtype", raw.h_algorithmtype.into()))
        };
        let [_, _, low, high] = raw.h_u1;
        let tail = if has(ADVISE_FRAGMENT) {
            Tail::Fragment { offset: u32::from_le_bytes(raw.h_u1) }
        } else if has(ADVISE_INLINE) {
            Tail::Inline { size: check_inline(u16::from_le_bytes([low, high]), block)? }
        } else {
            Tail::Blocks
        };
        Ok(Self {
            format: if compact {
                IndexFormat::Compact { compacted_2b: has(ADVISE_FORM) }
            } else {
                IndexFormat::Full
            },
            cluster,
            algorithms: [
                algorithm(raw.h_algorithmtype & 0xf)?,
                algorithm(raw.h_algorithmtype >> 4)?,
            ],
            big_pclusters,
            interlaced: has(ADVISE_INTERLACED),
            tail,
        })
    }

    fn raw(&self, block: BlockSize) -> Result<RawMapHeader> {
        let [big1, big2] = self.big_pclusters;
        let compacted_2b = match self.format {
            IndexFormat::Compact { .. } if big1 != big2 => {
                return Err(FormatError::new(
                    Structure::MapHeader,
                    Fault::Map("only one HEAD is big"),
                ));
            }
            IndexFormat::Compact { compacted_2b } => compacted_2b,
            IndexFormat::Full => false,
        };
        let mut advise = flag(compacted_2b, ADVISE_FORM)
            | flag(big1, ADVISE_BIG_PCLUSTER_1)
            | flag(big2, ADVISE_BIG_PCLUSTER_2)
            | flag(self.interlaced, ADVISE_INTERLACED);
        let h_u1 = match self.tail {
            Tail::Blocks => [0; 4],
            Tail::Inline { size } => {
                advise |= ADVISE_INLINE;
                let [low, high] = check_inline(size, block)?.to_le_bytes();
                [0, 0, low, high]
            }
            Tail::Fragment { offset } => {
                advise |= ADVISE_FRAGMENT;
                offset.to_le_bytes()
            }
        };
        let [first, second] = self.algorithms;
        let h_algorithmtype = first.id() | (second.id() << 4);
        Ok(RawMapHeader {
            h_u1,
            h_advise: advise.into(),
            h_algorithmtype,
            h_clusterbits: extra_bits(self.cluster, block)?,
        })
    }
}

impl ExtentsHeader {
    fn parse(raw: &RawMapHeader, cluster: ClusterSize) -> Self {
        let advise = raw.h_advise.get();
        let [a, b, c, d] = raw.h_u1;
        let count = u64::from_le_bytes([a, b, c, d, raw.h_algorithmtype, raw.h_clusterbits, 0, 0]);
        Self {
            records: match (advise & ADVISE_RECORD_SIZE) >> 1 {
                0 => Records::Regular { with_start: false, unit: cluster },
                1 => Records::Regular { with_start: true, unit: cluster },
                2 => Records::Sorted { wide: false, count },
                _ => Records::Sorted { wide: true, count },
            },
            interlaced: advise & ADVISE_INTERLACED != 0,
            fragment_tail: advise & ADVISE_FRAGMENT != 0,
        }
    }

    fn raw(&self, block: BlockSize) -> Result<RawMapHeader> {
        let (count, bits) = match self.records {
            Records::Regular { unit, .. } => (0, extra_bits(unit, block)?),
            Records::Sorted { count, .. } if count < EXTENTS_LIMIT => (count, 0),
            Records::Sorted { count, .. } => {
                let fault =
                    Fault::OutOfRange { field: "h_extents", value: count, limit: EXTENTS_LIMIT };
                return Err(FormatError::new(Structure::MapHeader, fault));
            }
        };
        let advise = ADVISE_FORM
            | (u16::from(self.records.size().code()) << 1)
            | flag(self.interlaced, ADVISE_INTERLACED)
            | flag(self.fragment_tail, ADVISE_FRAGMENT);
        let [a, b, c, d, e, f, _, _] = count.to_le_bytes();
        let h_u1 = [a, b, c, d];
        Ok(RawMapHeader {
            h_u1,
            h_advise: advise.into(),
            h_algorithmtype: e,
            h_clusterbits: f | bits,
        })
    }
}

impl MapHeader {
    /// The position of the header if the inode and its xattrs end at `inode_end`; `None` if it
    /// exceeds 64 bits.
    #[must_use]
    pub const fn pos(inode_end: BytePos) -> Option<BytePos> {
        inode_end.align_up(8)
    }

    /// Reads the header, of a file with this compressed `layout`, at the start of `bytes`; more
    /// bytes may follow.
    ///
    /// # Errors
    /// A header that is truncated or inconsistent, an unknown algorithm, another layout.
    pub fn parse(bytes: &[u8], layout: DataLayout, block: BlockSize) -> Result<Self> {
        let compact = match layout {
            DataLayout::CompressedFull => false,
            DataLayout::CompressedCompact => true,
            DataLayout::FlatPlain | DataLayout::FlatInline | DataLayout::ChunkBased => {
                return Err(FormatError::new(
                    Structure::MapHeader,
                    Fault::Map("the file is not compressed"),
                ));
            }
        };
        let raw = View::new(bytes, Structure::MapHeader).read::<RawMapHeader>()?;
        if raw.h_clusterbits & CLUSTERBITS_WHOLE_FRAGMENT != 0 {
            let whole: [u8; HEADER_SIZE] = zerocopy::transmute!(*raw);
            return Ok(Self::WholeFragment { offset: u64::from_le_bytes(whole) & !WHOLE_FRAGMENT });
        }
        let cluster = ClusterSize::new(block, raw.h_clusterbits & CLUSTERBITS_EXTRA)
            .ok_or_else(|| field("h_clusterbits", raw.h_clusterbits.into()))?;
        if !compact && raw.h_advise.get() & ADVISE_FORM != 0 {
            return Ok(Self::Extents(ExtentsHeader::parse(raw, cluster)));
        }
        IndexHeader::parse(raw, compact, cluster, block).map(Self::Index)
    }

    /// The header's bytes.
    ///
    /// # Errors
    /// The faults that a header cannot store: an offset or a count that is too large, an inline
    /// tail that is empty or beyond a block, lclusters smaller than a block, a compact index with
    /// one kind of big pclusters.
    pub fn to_bytes(&self, block: BlockSize) -> Result<[u8; HEADER_SIZE]> {
        let raw = match self {
            Self::WholeFragment { offset } if *offset < WHOLE_FRAGMENT => {
                return Ok((offset | WHOLE_FRAGMENT).to_le_bytes());
            }
            Self::WholeFragment { offset } => {
                let fault = Fault::OutOfRange {
                    field: "h_fragmentoff",
                    value: *offset,
                    limit: WHOLE_FRAGMENT,
                };
                return Err(FormatError::new(Structure::MapHeader, fault));
            }
            Self::Index(index) => index.raw(block)?,
            Self::Extents(extents) => extents.raw(block)?,
        };
        Ok(zerocopy::transmute!(raw))
    }

    /// The layout that an inode with this header has, unless the whole file is a fragment: then it
    /// may be either of the compressed ones.
    #[must_use]
    pub const fn layout(&self) -> DataLayout {
        match self {
            Self::Index(IndexHeader { format: IndexFormat::Full, .. }) | Self::Extents(_) => {
                DataLayout::CompressedFull
            }
            Self::Index(_) | Self::WholeFragment { .. } => DataLayout::CompressedCompact,
        }
    }

    /// Features that the superblock must announce for this header.
    #[must_use]
    pub fn features(&self) -> Incompat {
        let when = |yes, feature| if yes { feature } else { Incompat::empty() };
        match self {
            Self::WholeFragment { .. } => Incompat::FRAGMENTS,
            Self::Index(index) => {
                when(index.has_big_pclusters(), Incompat::BIG_PCLUSTER)
                    | match index.tail {
                        Tail::Blocks => Incompat::empty(),
                        Tail::Inline { .. } => Incompat::ZTAILPACKING,
                        Tail::Fragment { .. } => Incompat::FRAGMENTS,
                    }
            }
            Self::Extents(extents) => {
                Incompat::BIT48 | when(extents.fragment_tail, Incompat::FRAGMENTS)
            }
        }
    }
}

const fn flag(yes: bool, bit: u16) -> u16 {
    if yes { bit } else { 0 }
}

fn extra_bits(cluster: ClusterSize, block: BlockSize) -> Result<u8> {
    cluster
        .bits()
        .checked_sub(block.bits())
        .filter(|extra| *extra <= CLUSTERBITS_EXTRA)
        .ok_or_else(|| field("h_clusterbits", cluster.bits().into()))
}

fn check_inline(size: u16, block: BlockSize) -> Result<u16> {
    if size == 0 || u64::from(size) > block.bytes64() {
        return Err(field("h_idata_size", size.into()));
    }
    Ok(size)
}

const fn field(field: &'static str, value: u64) -> FormatError {
    FormatError::new(Structure::MapHeader, Fault::Field { field, value })
}
