//! Files in chunks (chunk-based layout). Source: FORMAT.md 5.
//!
//! | module | which files |
//! |---|---|
//! | [`deduplicated`] | all files of an image in chunks: equal chunks are stored once |
//! | [`external`] | all files of an image whose content stays in its sources |
//!
//! This file plans single files with large holes, in all other images: chunks that leave out their
//! holes.

pub(crate) mod deduplicated;
pub(crate) mod external;

use std::collections::HashMap;
use std::path::PathBuf;

use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, BlockSize, DeviceId, FormatError};

use crate::data::encode::SEGMENT;
use crate::data::encode::zero_runs::{HOLE_MIN, is_zero};
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result};
use crate::options::source::SourceData;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Origin, Tree};
use ferofs_host::stat::Ranges;

/// The largest chunk, as a power of two of blocks: the table of a file then takes at most 4 bytes
/// per 512 MiB or more, and larger chunks save nothing.
const EXTRA_BITS_MAX: u8 = 20;
/// With compression, a file is stored in chunks only if its holes have at least this many times the
/// bytes of its data, since chunks are not compressed...
const HOLES_PER_DATA_MIN: u64 = 16;
/// ...and at least this many bytes: encoding fewer zeroes takes little time and space.
const HOLES_MIN: u64 = 256 << 20;
/// Without compression, a file is stored in chunks only if its holes have at least this many bytes:
/// Linux reads other files faster, and versions before 5.15 read no chunks.
const UNCOMPRESSED_HOLES_MIN: u64 = 1 << 20;
/// Bytes of the units that are compared with zeroes: a hole is a run of them.
const UNIT: u64 = HOLE_MIN as u64;
/// The start of this many units of a file, at equal distances, is read first: if none of them is
/// zero, the file has no holes. So files without holes are not read twice.
const SAMPLES: u64 = 64;
/// Bytes of a unit that are read first.
const SAMPLE_LEN: u64 = 4 << 10;
/// Bytes that are read at once.
const READ_LEN: u64 = 1 << 20;
/// The largest file whose holes are those of a compressed file with extents, in bytes: a record of
/// 32 bytes for each GiB is enough. A larger file with holes is stored in chunks.
const EXTENTS_HOLES_MAX: u64 = 1 << 50;

/// The most bytes of the chunk table of a file, which is held in memory. The build fails for a file
/// that needs more.
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
    /// The stored chunk of zeroes to which all later ones refer; `None`: they are holes.
    zeroes: Option<u64>,
}

impl ChunkPlan {
    /// Plans the smallest form of a file of `size` bytes with data in `ranges`; `None` if chunks
    /// save nothing. `compressing`: the file is compressed otherwise, so that its holes take almost
    /// no space.
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
        let plans = (0..=EXTRA_BITS_MAX).map(|extra_bits| {
            let runs = widen(ranges, 1 << (u32::from(block.bits()) + u32::from(extra_bits)), size);
            Self { size, block, extra_bits, runs, zeroes: None }
        });
        plans.min_by_key(Self::cost).filter(|best| best.cost() < size)
    }

    /// Stores the first chunk of zeroes, to which the others refer; `None` if that saves nothing.
    fn without_holes(self) -> Option<Self> {
        let start = self.runs.first().filter(|run| run.0 == 0).map_or(0, |run| run.1);
        if start >= self.size {
            return Some(self);
        }
        // The chunk size is chosen again: a large chunk of zeroes takes much space.
        let plans = (0..=self.extra_bits).map(|extra_bits| {
            let mut plan = Self { extra_bits, runs: self.runs.clone(), ..self.clone() };
            let chunk = plan.chunk_size();
            let zeroes = (start, (start + chunk).min(plan.size));
            let after = plan.runs.partition_point(|run| run.0 < start);
            plan.runs.insert(after, zeroes);
            plan.runs = widen(&plan.runs, chunk, plan.size);
            plan.zeroes = Some(start / chunk);
            plan
        });
        plans.min_by_key(Self::cost).filter(|best| best.cost() < best.size)
    }

    /// Bytes of the data and the table.
    fn cost(&self) -> u64 {
        let stored: u64 =
            self.runs.iter().map(|(start, end)| self.block.blocks_for(end - start)).sum();
        stored * self.block.bytes64() + self.table_size()
    }

    const fn chunk_size(&self) -> u64 {
        self.block.bytes64() << self.extra_bits
    }

    /// Bytes of the chunk table.
    pub(crate) const fn table_size(&self) -> u64 {
        self.size.div_ceil(self.chunk_size()) * 4
    }

    /// The chunk format for the inode and the table that follows it, when the stored ranges start
    /// at `first`, and the inode has `inode_len` bytes with its xattrs.
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
        let (mut addr, mut zeroes) = (first.get(), None);
        for chunk in 0..self.size.div_ceil(self.chunk_size()) {
            let start = chunk * self.chunk_size();
            while runs.next_if(|(_, end)| *end <= start).is_some() {}
            let place = runs.peek().filter(|(from, _)| *from <= start).map(|_| {
                let place = ChunkPlace { device: DeviceId::new(0), addr: BlockAddr::new(addr) };
                addr += 1 << self.extra_bits;
                place
            });
            if self.zeroes == Some(chunk) {
                zeroes = place;
            }
            format.encode(place.or(zeroes), &mut table)?;
        }
        Ok((format.raw(), table))
    }
}

/// The files that are stored in chunks because of their holes.
pub(crate) type ChunkPlans = HashMap<NodeId, ChunkPlan>;

/// Plans all files with large holes, on all cores.
pub(crate) fn plan_all(context: WorkerContext<'_>) -> Result<ChunkPlans> {
    let has_content = |id: &NodeId| context.base_image.is_some_and(|base| base.has_content(*id));
    let in_extents = |id: &NodeId| {
        context.file_compression(*id).is_some_and(|(compression, _)| compression.has_long_holes())
    };
    let compressing = context.compression.is_some();
    let metadata = context.compression.and_then(|compression| compression.metadata);
    let is_absent = context.options.source.data == SourceData::Absent;
    let has_holes = context.options.has_chunk_holes();
    let ids: Vec<NodeId> = context
        .order
        .ids()
        .filter(|id| may_have_holes(context.tree, *id, compressing, is_absent))
        .filter(|id| !has_content(id))
        .filter(|id| !in_extents(id) || context.tree.node(*id).size > EXTENTS_HOLES_MAX)
        .collect();
    let plans = context.options.run.parallel(
        ids.len(),
        || Reader::new(context.contents, context.tree),
        |reader, number| {
            let (block, id) = (context.block_size, ids[number]);
            let plan = plan(reader, context.contents, context.tree, id, block, compressing);
            let plan = match (has_holes, metadata) {
                (true, _) => plan,
                // fsck.erofs 1.9 reads wrong chunks if their table is compressed.
                (false, Some(_)) => None,
                (false, None) => plan.and_then(ChunkPlan::without_holes),
            };
            Ok::<_, Error>(plan.map(|plan| (id, plan)))
        },
    )?;
    Ok(plans.into_iter().flatten().collect())
}

/// Whether the file is large enough for [`plan`]. With `is_absent`, the image has no content: each
/// file is one hole.
pub(crate) fn may_have_holes(tree: &Tree, id: NodeId, compressing: bool, is_absent: bool) -> bool {
    let node = tree.node(id);
    let is_reserved =
        matches!(node.kind, Kind::Regular { sparse: false }) && node.origin == Origin::Zeroes;
    let least = match (compressing, is_absent) {
        (true, _) => HOLES_MIN,
        (false, false) => SEGMENT,
        (false, true) => 0,
    };
    matches!(node.kind, Kind::Regular { .. }) && node.size > least && !is_reserved
}

/// How to store a file with holes in chunks; `None`: like other files, also if it cannot be read:
/// the worker then reports the error.
///
/// The plan follows from the content alone. The holes that a source reports only save reading.
pub(crate) fn plan(
    reader: &mut Reader<'_>,
    contents: &Contents,
    tree: &Tree,
    id: NodeId,
    block: BlockSize,
    compressing: bool,
) -> Option<ChunkPlan> {
    let node = tree.node(id);
    let (size, sparse) = (node.size, matches!(node.kind, Kind::Regular { sparse: true }));
    let source = if sparse { contents.data_ranges(tree, id) } else { None };
    let source = source.unwrap_or_else(|| vec![(0, size)]);
    let mut buffer = vec![0; READ_LEN as usize];
    let mut read = |start: u64, len: u64| -> Option<Vec<u64>> {
        let bytes = &mut buffer[..len as usize];
        reader.read(id, start, bytes).ok()?;
        let units = bytes.chunks(UNIT as usize).zip((start..).step_by(UNIT as usize));
        Some(units.filter(|(unit, _)| !is_zero(unit)).map(|(_, at)| at).collect())
    };
    let mut has_zeroes = node.origin == Origin::Zeroes;
    for sample in 0..SAMPLES {
        let start =
            (u128::from(size / UNIT) * u128::from(sample) / u128::from(SAMPLES)) as u64 * UNIT;
        let next = source.partition_point(|(_, end)| *end <= start);
        let is_hole =
            source.get(next).is_none_or(|(data, _)| *data >= (start + SAMPLE_LEN).min(size));
        if is_hole || read(start, SAMPLE_LEN.min(size - start))?.is_empty() {
            has_zeroes = true;
            break;
        }
    }
    if !has_zeroes {
        return None;
    }
    let mut ranges = Ranges::new();
    let mut data = 0;
    for (range_start, range_end) in widen(&source, UNIT, size) {
        let mut at = range_start;
        while at < range_end {
            let len = READ_LEN.min(range_end - at);
            for start in read(at, len)? {
                let end = (start + UNIT).min(size);
                data += end - start;
                match ranges.last_mut() {
                    Some((_, last)) if *last == start => *last = end,
                    _ => ranges.push((start, end)),
                }
            }
            if compressing && data > size / HOLES_PER_DATA_MIN {
                return None;
            }
            at += len;
        }
    }
    let holes = size - data;
    if !compressing && holes < UNCOMPRESSED_HOLES_MIN.min(size) {
        return None;
    }
    ChunkPlan::new(size, &ranges, block, compressing)
}

/// `ranges`, widened to multiples of `unit` and merged.
pub(crate) fn widen(ranges: &[(u64, u64)], unit: u64, size: u64) -> Ranges {
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
        // Without holes, they refer to one chunk of zeroes.
        let full = plan.clone().without_holes().unwrap();
        let (format, table) = full.encode(BlockAddr::new(7), 36).unwrap();
        let format = ChunkFormat::parse(format).unwrap();
        let entries = table.chunks(format.entry_size());
        let addresses: Vec<u64> =
            entries.map(|entry| format.decode(entry).unwrap().unwrap().addr.get()).collect();
        let zeroes =
            addresses.iter().filter(|addr| **addr == addresses[addresses.len() / 2]).count();
        assert!(addresses[0] == 7 && full.cost() < 4 << 20 && zeroes + 3 >= addresses.len());
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
