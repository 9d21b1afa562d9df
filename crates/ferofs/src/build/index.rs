//! From a file's extents to its compression index. Source: FORMAT.md 6.2 to 6.5.

use ferofs_format::inode::DataLayout;
use ferofs_format::map::header::HEADER_SIZE;
use ferofs_format::map::{
    CompactIndex, CompactWriter, HeadKind, IndexFormat, IndexHeader, Lclusters, MapHeader, Pcluster, Tail,
    full,
};
use ferofs_format::{Algorithm, BlockAddr, BlockSize, BytePos, ClusterSize, FileOffset, FormatError};

/// Extents of one block each, in order, as variable-length integers: about two bytes an extent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentLog {
    bytes: Vec<u8>,
    count: u64,
    /// Every extent is stored, and takes its whole block but for the last one.
    flat: bool,
}

impl ExtentLog {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0, flat: true }
    }

    /// Adds an extent of `len` bytes, encoded or stored.
    pub(crate) fn push(&mut self, len: usize, encoded: bool) {
        let mut rest = ((len as u64) << 1) | u64::from(encoded);
        while rest > 0x7f {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
        self.count += 1;
        self.flat &= !encoded;
    }

    /// Adds the extents of the part of the file that follows.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.flat &= other.flat;
    }

    /// Number of extents, and of blocks.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether the blocks hold the content as it is.
    pub(crate) const fn is_flat(&self) -> bool {
        self.flat
    }

    /// The lengths, and whether each is encoded.
    fn iter(&self) -> impl Iterator<Item = (u64, bool)> {
        let mut bytes = self.bytes.iter();
        std::iter::from_fn(move || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some((value >> 1, value & 1 != 0));
                }
            }
        })
    }

    fn pclusters(&self, first: BlockAddr) -> impl Iterator<Item = Pcluster> {
        let (mut start, mut addr) = (0, first.get());
        self.iter().map(move |(len, encoded)| {
            let pcluster = Pcluster {
                start: FileOffset::new(start),
                kind: if encoded { HeadKind::Head1 } else { HeadKind::Plain },
                addr: BlockAddr::new(addr),
                blocks: 1,
                partial_ref: false,
            };
            start += len;
            addr += 1;
            pcluster
        })
    }
}

/// What follows an inode and its xattrs, `head_len` bytes, of a file of `size` bytes whose blocks start
/// at `first`: padding, the map header, the index.
pub(crate) fn encode(
    log: &ExtentLog,
    size: u64,
    first: BlockAddr,
    head_len: usize,
    block: BlockSize,
) -> Result<(DataLayout, Vec<u8>), FormatError> {
    // A block's size is always an lcluster's.
    let fault = ferofs_format::Fault::Map("no such lcluster size");
    let fault = FormatError::new(ferofs_format::Structure::MapHeader, fault);
    let cluster = ClusterSize::new(block, 0).ok_or(fault)?;
    let format = match block.bits() {
        0..=12 => IndexFormat::Compact { dense: true },
        13..=14 => IndexFormat::Compact { dense: false },
        _ => IndexFormat::Full,
    };
    let header = IndexHeader {
        format,
        cluster,
        algorithms: [Algorithm::Lz4; 2],
        big: [false; 2],
        interlaced: false,
        tail: Tail::Blocks,
    };
    // Inodes start at multiples of 32, which is all that a compact index needs to know of its place.
    let header_start = head_len.next_multiple_of(8);
    let mut out = vec![0; header_start - head_len];
    out.extend_from_slice(&MapHeader::Index(header).to_bytes(block)?);
    let lclusters = Lclusters::new(log.pclusters(first), size, cluster, false);
    if format == IndexFormat::Full {
        out.extend_from_slice(&[0; 8]);
        for lcluster in lclusters {
            out.extend_from_slice(&full::encode(&lcluster?)?);
        }
        return Ok((DataLayout::CompressedFull, out));
    }
    let header_end = BytePos::new((header_start + HEADER_SIZE) as u64);
    let index = CompactIndex::new(header_end, size, block, &header)?;
    let mut writer = CompactWriter::new(index);
    for lcluster in lclusters {
        writer.push(&lcluster?, &mut out)?;
    }
    writer.finish()?;
    Ok((DataLayout::CompressedCompact, out))
}

/// At least as many bytes as an index of a file of `size` bytes takes.
pub(crate) const fn size_estimate(size: u64, block: BlockSize) -> u64 {
    let each = if block.bits() <= 12 {
        2
    } else if block.bits() <= 14 {
        4
    } else {
        8
    };
    48 + each * block.blocks_for(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_gives_back_lengths() {
        let mut log = ExtentLog::new();
        log.push(4096, false);
        assert!(log.is_flat());
        let mut more = ExtentLog::new();
        more.push(1_000_000, true);
        more.push(1, false);
        log.extend(&more);
        assert!(!log.is_flat());
        assert_eq!(log.iter().collect::<Vec<_>>(), [(4096, false), (1_000_000, true), (1, false)]);
        let pclusters: Vec<_> = log.pclusters(BlockAddr::new(9)).collect();
        assert_eq!(pclusters[2].start, FileOffset::new(1_004_096));
        assert_eq!(pclusters[2].addr, BlockAddr::new(11));
    }

    #[test]
    fn every_block_size_has_an_index() {
        for bits in 9..=16 {
            let block = BlockSize::from_bits(bits).unwrap();
            let mut log = ExtentLog::new();
            let len = 100 * block.bytes() + 7;
            log.push(len, true);
            log.push(block.bytes(), false);
            let size = (len + block.bytes()) as u64;
            let (_, bytes) = encode(&log, size, BlockAddr::new(1), 44, block).unwrap();
            assert!(bytes.len() as u64 <= size_estimate(size, block), "{block}");
        }
    }
}
