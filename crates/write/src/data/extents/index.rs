//! Encodes the extents of a compressed file as the index that follows its inode. Source: FORMAT.md
//! 6.2 to 6.7.

#[cfg(test)]
mod tests;

use ferofs_format::inode::DataLayout;
use ferofs_format::map::header::HEADER_SIZE;
use ferofs_format::map::{
    Encoding, ExtentRecord, ExtentsHeader, HeadKind, Index, IndexFormat, IndexHeader, Lclusters,
    MapHeader, Pcluster, RecordSize, Records, Tail,
};
use ferofs_format::{
    Algorithm, BlockAddr, BlockSize, BytePos, ClusterSize, Fault, FileOffset, FormatError,
    Structure,
};

use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::options::compression::IndexKind;

/// Encodes the indexes of an image; all of them have these properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEncoder {
    pub index: IndexKind,
    pub block: BlockSize,
    /// Whether a pcluster of the image may have more than one block.
    pub big_pclusters: bool,
}

/// Where the last bytes of a file are that none of its logged extents holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileTail {
    /// The extents hold all bytes.
    None,
    /// Directly after the index.
    Inline {
        /// From one byte to one block, as stored.
        bytes: Vec<u8>,
        encoded: bool,
    },
    /// At this offset of the packed inode.
    Fragment { offset: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileExtents<'a> {
    pub log: &'a ExtentLog,
    pub tail: &'a FileTail,
    /// Bytes of the file, with its tail.
    pub size: u64,
    /// Where the first extent with [`ExtentPlace::Next`] starts.
    pub first: BytePos,
    pub algorithm: Algorithm,
    /// The pcluster to which the holes of an index refer.
    pub zeroes: Option<ZeroCluster>,
}

/// A pcluster of one block that decodes to zeroes. Linux before 7.2 reads it where a full index has
/// a hole. Source: FORMAT.md 6.4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroCluster {
    pub at: BytePos,
    /// Bytes that it decodes to: at least [`Self::BLOCKS_MIN`] blocks.
    pub len: u64,
}

impl ZeroCluster {
    /// Enough for parts of [`Self::part_len`].
    pub(crate) const BLOCKS_MIN: u64 = 3;

    /// The length of the next extent of a hole of which `rest` bytes remain. Extents start at
    /// multiples of a block. No extent is shorter than a block, which Linux 7.1 refuses, if the
    /// hole is not.
    fn part_len(&self, rest: u64, block: BlockSize) -> u64 {
        let most = self.len & !block.mask();
        match rest.checked_sub(most) {
            Some(1..) if rest - most < block.bytes64() => most - block.bytes64(),
            Some(_) => most,
            None => rest,
        }
    }
}

/// The most records of 4 bytes in an index. They hold no positions: a reader sums up all sizes
/// before the one it needs. Files with more extents get records of 8 bytes.
const UNPLACED_MAX: u64 = 1024;

impl IndexEncoder {
    /// Returns the bytes that follow an inode which has `inode_len` bytes with its xattrs: padding,
    /// the map header, the index, the inline tail.
    pub(crate) fn encode(
        &self,
        file: FileExtents<'_>,
        inode_len: usize,
    ) -> Result<(DataLayout, Vec<u8>), FormatError> {
        // Inodes start at multiples of 32, so the alignment of the index follows from `inode_len`
        // alone.
        let header_start = inode_len.next_multiple_of(8);
        let mut out = vec![0; header_start - inode_len];
        let layout = match file.tail {
            FileTail::Fragment { offset } if file.log.count() == 0 => {
                out.extend_from_slice(
                    &MapHeader::WholeFragment { offset: *offset }.to_bytes(self.block)?,
                );
                DataLayout::CompressedCompact
            }
            _ if !self.index.in_blocks() => self.extents(file, header_start, &mut out)?,
            _ => self.lclusters(file, header_start, &mut out)?,
        };
        if let FileTail::Inline { bytes, .. } = file.tail {
            out.extend_from_slice(bytes);
        }
        Ok((layout, out))
    }

    fn lclusters(
        &self,
        file: FileExtents<'_>,
        header_start: usize,
        out: &mut Vec<u8>,
    ) -> Result<DataLayout, FormatError> {
        let FileExtents { log, tail, size, .. } = file;
        let cluster = self.cluster(0)?;
        let far_fragment =
            matches!(tail, FileTail::Fragment { offset } if u32::try_from(*offset).is_err());
        let needs_full = log.shares() || log.has_holes() || far_fragment;
        let format = self.format().filter(|_| !needs_full).unwrap_or(IndexFormat::Full);
        let header = IndexHeader {
            format,
            cluster,
            algorithms: [file.algorithm; 2],
            big_pclusters: [self.big_pclusters; 2],
            interlaced: false,
            tail: match tail {
                FileTail::None => Tail::Blocks,
                FileTail::Inline { bytes, .. } => Tail::Inline { size: bytes.len() as u16 },
                FileTail::Fragment { offset } => Tail::Fragment { offset: *offset as u32 },
            },
        };
        let map_header = MapHeader::Index(header);
        out.extend_from_slice(&map_header.to_bytes(self.block)?);
        let lclusters = Lclusters::new(self.pclusters(file), size, cluster, self.big_pclusters);
        let header_end = BytePos::new((header_start + HEADER_SIZE) as u64);
        Index::open(header_end, size, self.block, &header)?.write(lclusters, out)?;
        Ok(map_header.layout())
    }

    /// The form of indexes of blocks that has the fewest bytes.
    const fn format(&self) -> Option<IndexFormat> {
        match (self.index, self.block.bits()) {
            (IndexKind::Compact, 0..=12) => Some(IndexFormat::Compact { compacted_2b: true }),
            (IndexKind::Compact, 13..=14) => Some(IndexFormat::Compact { compacted_2b: false }),
            (IndexKind::Compact | IndexKind::Full, _) => Some(IndexFormat::Full),
            (IndexKind::Extents, _) => None,
        }
    }

    fn pclusters<'f>(&'f self, file: FileExtents<'f>) -> impl Iterator<Item = Pcluster> + 'f {
        let (mut start, bits, block) = (0, self.block.bits(), self.block.bytes64());
        // The end of the extents so far, and the start of the last one if it is not a hole.
        let (mut end, mut last) = (0, None);
        let placed = file.log.placed(file.first).flat_map(move |(at, extent)| {
            // Holes are divided: older versions of Linux decode the pcluster of zeroes for each
            // part.
            let zeroes = file.zeroes.filter(|_| extent.is_hole());
            // Linux 7.2 takes an extent of one lcluster for a hole, too, if a hole is next and it
            // looks there for a number of blocks. So the first two blocks of the hole are stored
            // zeroes, or all of a short one.
            let mut unmarked =
                match last.replace(end).filter(|_| self.big_pclusters && zeroes.is_some()) {
                    Some(last) if last + block >= end && extent.len < 3 * block => extent.len,
                    Some(last) if last + block >= end => 2 * block,
                    _ => 0,
                };
            last = last.filter(|_| !extent.is_hole());
            end += extent.len;
            let mut rest = extent.len;
            std::iter::from_fn(move || {
                let Some(zeroes) = zeroes.filter(|_| rest > 0) else {
                    return (std::mem::take(&mut rest) > 0).then_some((at, extent, false));
                };
                let is_marked = unmarked == 0;
                let len = match std::mem::take(&mut unmarked) {
                    0 => zeroes.part_len(rest, self.block),
                    len => len,
                };
                rest -= len;
                let place = ExtentPlace::Shared { at: zeroes.at, partial: len < zeroes.len };
                Some((zeroes.at, Extent { len, encoded: true, size: block, place }, is_marked))
            })
        });
        let pclusters = placed.map(move |(at, extent, hole)| {
            let pcluster = Pcluster {
                start: FileOffset::new(start),
                kind: if extent.encoded { HeadKind::Head1 } else { HeadKind::Plain },
                addr: BlockAddr::new(at.get() >> bits),
                blocks: (extent.size >> bits) as u16,
                partial_ref: matches!(extent.place, ExtentPlace::Shared { partial: true, .. }),
                hole,
            };
            start += extent.len;
            pcluster
        });
        let last = |kind, addr, blocks| Pcluster {
            start: FileOffset::new(file.log.decoded_len()),
            kind,
            addr: BlockAddr::new(addr),
            blocks,
            partial_ref: false,
            hole: false,
        };
        let tail = match file.tail {
            FileTail::None => None,
            FileTail::Inline { encoded, .. } => {
                Some(last(if *encoded { HeadKind::Head1 } else { HeadKind::Plain }, 0, 1))
            }
            // In a full index, the address of this HEAD holds the high 32 bits of the offset.
            FileTail::Fragment { offset } => Some(last(HeadKind::Head1, offset >> 32, 0)),
        };
        pclusters.chain(tail)
    }

    fn extents(
        &self,
        file: FileExtents<'_>,
        header_start: usize,
        out: &mut Vec<u8>,
    ) -> Result<DataLayout, FormatError> {
        let records = self.choose_records(file)?;
        let fragment_tail = matches!(file.tail, FileTail::Fragment { .. });
        let header = ExtentsHeader { records, interlaced: false, fragment_tail };
        out.extend_from_slice(&MapHeader::Extents(header).to_bytes(self.block)?);
        let size = records.size();
        let start = (header_start + HEADER_SIZE).next_multiple_of(size.bytes());
        out.resize(out.len() + start - (header_start + HEADER_SIZE), 0);
        if size == RecordSize::Bytes4 {
            out.extend_from_slice(&file.first.get().to_le_bytes());
        }
        let mut lstart = 0;
        for (at, extent) in file.log.placed(file.first) {
            let encoding = match extent.is_hole() {
                true => Encoding::Hole,
                false => Encoding::Data {
                    len: u32::try_from(extent.size).unwrap_or(u32::MAX),
                    algorithm: extent.encoded.then_some(file.algorithm),
                    partial_ref: matches!(extent.place, ExtentPlace::Shared { partial: true, .. }),
                },
            };
            let at = if extent.is_hole() { BytePos::new(0) } else { at };
            ExtentRecord::new(encoding, at, FileOffset::new(lstart))?.write(size, out)?;
            lstart += extent.len;
        }
        if let FileTail::Fragment { offset } = file.tail {
            ExtentRecord::fragment(*offset, FileOffset::new(lstart)).write(size, out)?;
        }
        Ok(DataLayout::CompressedFull)
    }

    /// The smallest records that can hold all extents.
    fn choose_records(&self, file: FileExtents<'_>) -> Result<Records, FormatError> {
        let FileExtents { log, size, .. } = file;
        let fragment = matches!(file.tail, FileTail::Fragment { .. });
        let count = log.count() + u64::from(fragment);
        let sorted = Records::Sorted { wide: u32::try_from(size).is_err(), count };
        let unit = log.iter().next().map_or(0, |first| first.len);
        let Some(unit) = self.unit(unit, count) else { return Ok(sorted) };
        let mut starts = log.iter().scan(0, |start, extent| {
            let this = *start;
            *start += extent.len;
            Some(this)
        });
        let regular = starts.by_ref().zip(0..).all(|(start, n)| start == n * unit.bytes64())
            && (!fragment || log.decoded_len() == log.count() * unit.bytes64())
            && unit.lclusters_for(size) == count;
        if !regular {
            return Ok(sorted);
        }
        let near = log.placed(file.first).all(|(at, _)| u32::try_from(at.get()).is_ok());
        let far_fragment =
            matches!(file.tail, FileTail::Fragment { offset } if u32::try_from(*offset).is_err());
        let consecutive = !log.shares() && !far_fragment && count <= UNPLACED_MAX;
        Ok(match (near, consecutive) {
            (true, true) if count > 2 => Records::Regular { with_start: false, unit },
            (true, _) => Records::Regular { with_start: true, unit },
            (false, true) if count > 1 => Records::Regular { with_start: false, unit },
            (false, _) => sorted,
        })
    }

    /// The unit of regular extents whose first one decodes to `len` bytes; a single extent may be
    /// shorter than its unit.
    fn unit(&self, len: u64, count: u64) -> Option<ClusterSize> {
        let len = if count == 1 { len.next_power_of_two() } else { len };
        let len = len.max(self.block.bytes64());
        let bits = len.is_power_of_two().then(|| len.trailing_zeros() as u8 - self.block.bits())?;
        ClusterSize::new(self.block, bits)
    }

    fn cluster(&self, extra_bits: u8) -> Result<ClusterSize, FormatError> {
        let fault = Fault::Map("no such lcluster size");
        ClusterSize::new(self.block, extra_bits)
            .ok_or(FormatError::new(Structure::MapHeader, fault))
    }

    /// The most bytes that the index of a file of `size` bytes takes, without its inline tail.
    pub(crate) const fn max_size(&self, size: u64) -> u64 {
        match self.format() {
            Some(format) => 48 + format.bytes_each() * (self.block.blocks_for(size) + 1),
            None => 48,
        }
    }
}
