//! Files in chunks (chunk-based layout). Source: FORMAT.md 5.
//!
//! | module | which files |
//! |---|---|
//! | [`deduplicated`] | all files of an image in chunks: equal chunks are stored once |
//! | [`external`] | all files of an image whose content stays in its sources |
//!
//! This file plans single files with large holes, in all other images: chunks that leave out their holes.

pub(crate) mod deduplicated;
pub(crate) mod external;

use std::path::PathBuf;

use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, BlockSize, DeviceId, FormatError};

use crate::error::{Error, Result};
use crate::host::Ranges;

/// The largest chunk, as a power of two of blocks: the table of a file then takes at most 4 bytes per 512 MiB or more, and larger
/// chunks save nothing.
const EXTRA_BITS_MAX: u8 = 20;
/// With compression, a file is stored in chunks only if its holes have at least this many times the bytes of its data, since
/// chunks are not compressed...
const HOLES_PER_DATA_MIN: u64 = 16;
/// ...and at least this many bytes: encoding fewer zeroes takes little time and space.
const HOLES_MIN: u64 = 256 << 20;

/// The most bytes of the chunk table of a file, which is held in memory. The build fails for a file that needs more.
const TABLE_MAX: u64 = 1 << 30;

/// Checks the size of the chunk table of the file at `path`.
///
/// # Errors
/// [`Error::DoesNotFit`].
pub(crate) fn check_table_size(bytes: u64, path: impl FnOnce() -> PathBuf) -> Result<()> {
    if bytes <= TABLE_MAX {
        return Ok(());
    }
    Err(Error::DoesNotFit {
        path: path(),
        what: "the size of its chunk table in bytes (larger chunks need fewer):",
        value: bytes,
        limit: TABLE_MAX,
    })
}

/// How a sparse file is stored in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan {
    size: u64,
    block: BlockSize,
    extra_bits: u8,
    /// The ranges that are stored: whole chunks, except at the end of the file.
    pub runs: Ranges,
}

impl ChunkPlan {
    /// Plans the smallest form of a file of `size` bytes with data in `ranges`; `None` if chunks save nothing. `compressing`: the
    /// file is compressed otherwise, so that its holes take almost no space.
    pub(crate) fn new(
        size: u64,
        ranges: &[(u64, u64)],
        block: BlockSize,
        compressing: bool,
    ) -> Option<Self> {
        let data: u64 = ranges.iter().map(|(start, end)| end - start).sum();
        let holes = size.checked_sub(data)?;
        if compressing && (holes < HOLES_MIN || holes / HOLES_PER_DATA_MIN < data) {
            return None;
        }
        let cost = |plan: &Self| {
            let stored: u64 =
                plan.runs.iter().map(|(start, end)| block.blocks_for(end - start)).sum();
            stored * block.bytes64() + plan.table_size()
        };
        let plans = (0..=EXTRA_BITS_MAX).map(|extra_bits| Self {
            size,
            block,
            extra_bits,
            runs: widen(ranges, 1 << (u32::from(block.bits()) + u32::from(extra_bits)), size),
        });
        let best = plans.min_by_key(cost)?;
        (cost(&best) < size).then_some(best)
    }

    const fn chunk_size(&self) -> u64 {
        self.block.bytes64() << self.extra_bits
    }

    /// Bytes of the chunk table.
    pub(crate) const fn table_size(&self) -> u64 {
        self.size.div_ceil(self.chunk_size()) * 4
    }

    /// The chunk format for the inode and the table that follows it, when the stored ranges start at `first`, and the inode has `inode_len`
    /// bytes with its xattrs.
    pub(crate) fn encode(
        &self,
        first: BlockAddr,
        inode_len: usize,
    ) -> std::result::Result<(u16, Vec<u8>), FormatError> {
        let fault = ferofs_format::Fault::Map("no such chunk size");
        let fault = FormatError::new(ferofs_format::Structure::ChunkIndex, fault);
        let stored: u64 =
            self.runs.iter().map(|(start, end)| (end - start).div_ceil(self.chunk_size())).sum();
        let end = stored
            .checked_shl(self.extra_bits.into())
            .and_then(|blocks| blocks.checked_add(first.get()));
        let entries = match end {
            Some(0..=0xffff_ffff) => EntryFormat::Addresses,
            _ => EntryFormat::Indexes48,
        };
        let format = ChunkFormat::new(self.extra_bits, entries).ok_or(fault)?;
        // Entries are aligned to their size, and inodes start at multiples of 32.
        let mut table = vec![0; inode_len.next_multiple_of(format.entry_size()) - inode_len];
        table.reserve_exact(self.table_size() as usize / 4 * format.entry_size());
        let mut runs = self.runs.iter().peekable();
        let mut addr = first.get();
        for chunk in 0..self.size.div_ceil(self.chunk_size()) {
            let start = chunk * self.chunk_size();
            while runs.next_if(|(_, end)| *end <= start).is_some() {}
            let place = runs.peek().filter(|(from, _)| *from <= start).map(|_| {
                let place = ChunkPlace { device: DeviceId::new(0), addr: BlockAddr::new(addr) };
                addr += 1 << self.extra_bits;
                place
            });
            format.encode(place, &mut table)?;
        }
        Ok((format.raw(), table))
    }
}

/// `ranges`, widened to multiples of `unit` and merged.
fn widen(ranges: &[(u64, u64)], unit: u64, size: u64) -> Ranges {
    let mut wide: Ranges = Vec::new();
    for (start, end) in ranges {
        let start = start / unit * unit;
        let end = end.checked_next_multiple_of(unit).unwrap_or(size).min(size);
        match wide.last_mut() {
            Some(last) if last.1 >= start => last.1 = end.max(last.1),
            _ => wide.push((start, end)),
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockSize = BlockSize::DEFAULT;

    #[test]
    fn stores_only_ranges_with_data() {
        let size = (1 << 30) + 5;
        let plan = ChunkPlan::new(size, &[(8192, 12288), (1 << 30, size)], BLOCK, false).unwrap();
        assert_eq!(plan.runs.len(), 2);
        // The last address has 32 bits, or more.
        for (first, padding) in [(7, 0), ((1 << 32) - 4, 4)] {
            let (format, table) = plan.encode(BlockAddr::new(first), 36).unwrap();
            let format = ChunkFormat::parse(format).unwrap();
            let entries = table[padding..].chunks(format.entry_size());
            let used: Vec<_> = entries.filter_map(|entry| format.decode(entry).unwrap()).collect();
            assert_eq!(used.len(), 2);
            assert_eq!(used[0].addr, BlockAddr::new(first));
            assert_eq!(used[1].addr, BlockAddr::new(first + (1 << plan.extra_bits)));
        }
    }

    #[test]
    fn files_with_few_holes_are_not_stored_in_chunks() {
        assert_eq!(ChunkPlan::new(100_000, &[(0, 100_000)], BLOCK, false), None);
        assert_eq!(ChunkPlan::new(10 << 20, &[(0, 4096)], BLOCK, true), None);
    }

    #[test]
    fn files_with_terabytes_of_holes_have_small_tables() {
        let plan = ChunkPlan::new(8 << 40, &[(5 << 40, (5 << 40) + 1)], BLOCK, true).unwrap();
        assert!(plan.table_size() < 64 << 20);
        let empty = ChunkPlan::new(1 << 40, &[], BLOCK, true).unwrap();
        assert!(empty.runs.is_empty());
    }
}
