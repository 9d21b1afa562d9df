//! The use of each block of the primary device.

use ferofs_format::{Algorithm, BlockSize, BytePos, DeviceId, Structure};

use crate::range_marks::{MarkedRange, RangeMarks};
use ferofs_read::device_range::DeviceRange;
use ferofs_read::error::Result;
use ferofs_read::{Image, MetadataPlace};

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// Nothing refers to it, and it is zero.
    Hole,
    /// Nothing refers to it, but it is not zero.
    Unused,
    /// The superblock, inodes, attributes, maps, inline data.
    Metadata,
    /// Directories.
    Directory,
    /// Content that is not compressed.
    Stored,
    /// Compressed content.
    Encoded(Algorithm),
    /// The packed inode: fragments.
    Packed,
}

impl BlockKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 6 + Algorithm::ALL.len()] = {
        let first = [Self::Hole, Self::Unused, Self::Metadata, Self::Directory, Self::Stored];
        let mut all = [Self::Packed; 6 + Algorithm::ALL.len()];
        all.split_at_mut(first.len()).0.copy_from_slice(&first);
        let mut number = 0;
        while number < Algorithm::ALL.len() {
            all[first.len() + number] = Self::Encoded(Algorithm::ALL[number]);
            number += 1;
        }
        all
    };

    /// A name for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hole => "hole",
            Self::Unused => "unused",
            Self::Metadata => "metadata",
            Self::Directory => "directory",
            Self::Stored => "stored",
            Self::Encoded(algorithm) => algorithm.name(),
            Self::Packed => "fragments",
        }
    }

    /// The index in [`Self::ALL`].
    #[must_use]
    pub fn code(self) -> u8 {
        // All kinds are in the list.
        (0u8..).zip(Self::ALL).find(|(_, kind)| *kind == self).map_or(0, |(code, _)| code)
    }

    /// The kind of a block that is used in several ways is the first of these in [`Self::ALL`].
    fn from_marks(run: &MarkedRange) -> Self {
        usize::try_from(run.once.trailing_zeros())
            .ok()
            .and_then(|code| Self::ALL.get(code))
            .copied()
            .unwrap_or(Self::Hole)
    }
}

/// The marks of all kinds that extents have: all but hole, unused and metadata.
const DATA: u16 = !0b111;

/// Consecutive blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The first block.
    pub start: u64,
    /// Their number.
    pub blocks: u64,
    /// Their use.
    pub kind: BlockKind,
}

/// The use of each block. Its memory depends on the number of runs.
#[derive(Debug)]
pub struct BlockMap {
    /// A mark for each kind, by its code.
    marks: RangeMarks,
    block_size: BlockSize,
    blocks: u64,
    totals: [u64; BlockKind::ALL.len()],
    shared: u64,
}

impl BlockMap {
    pub(super) fn new(image: &Image) -> Self {
        let superblock = image.superblock();
        let block_size = superblock.block_size;
        let have = image.device_size(DeviceId::new(0)).unwrap_or(0) >> block_size.bits();
        let mut map = Self {
            marks: RangeMarks::default(),
            block_size,
            blocks: superblock.blocks.min(have),
            totals: [0; BlockKind::ALL.len()],
            shared: 0,
        };
        // The superblock with its extension slots.
        map.mark(0, 0, 1024 + u64::try_from(superblock.size()).unwrap_or(0), BlockKind::Metadata);
        let area = superblock.xattr.to_pos(block_size);
        if let Some(area) =
            area.filter(|area| area.get() > 0 && superblock.xattr != superblock.meta)
        {
            map.mark(0, area.get(), area.get().saturating_add(1), BlockKind::Metadata);
        }
        map
    }

    /// Adds an inode with its map.
    pub(super) fn metadata(&mut self, start: MetadataPlace, end: BytePos) {
        if !start.in_metabox {
            let limit = self.blocks.saturating_mul(self.block_size.bytes64());
            self.mark(0, start.pos.get(), end.get().min(limit), BlockKind::Metadata);
        }
    }

    /// Adds data, and returns the bytes of the blocks that it uses.
    pub(super) fn data(&mut self, range: &DeviceRange, kind: BlockKind) -> u64 {
        self.mark(range.device.get(), range.start.get(), range.end(), kind)
    }

    fn mark(&mut self, device: u16, start: u64, end: u64, kind: BlockKind) -> u64 {
        let size = self.block_size.bytes64();
        let range = start / size..end.div_ceil(size);
        let blocks = range.end.saturating_sub(range.start);
        self.marks.add(device, range, 1 << kind.code());
        blocks.saturating_mul(size)
    }

    /// Computes the totals after all data was added.
    pub(super) fn sum_up(&mut self) {
        (self.totals, self.shared) = ([0; BlockKind::ALL.len()], 0);
        for run in self.marks.merge() {
            let total = &mut self.totals[usize::from(BlockKind::from_marks(run).code())];
            *total = total.saturating_add(run.len());
            if run.twice & DATA != 0 || (run.once & DATA).count_ones() > 1 {
                self.shared = self.shared.saturating_add(run.len());
            }
        }
    }

    /// Bytes of all blocks with data, each counted once.
    pub(super) fn data_bytes(&self) -> u64 {
        let data = |kind: &BlockKind| {
            !matches!(kind, BlockKind::Hole | BlockKind::Unused | BlockKind::Metadata)
        };
        let blocks: u64 =
            BlockKind::ALL.into_iter().filter(data).map(|kind| self.total(kind)).sum();
        blocks.saturating_mul(self.block_size.bytes64())
    }

    /// Reads the blocks that nothing refers to, and marks those that are not zero as unused.
    pub(super) fn find_nonzero(&mut self, image: &Image) -> Result<()> {
        let gaps: Vec<Run> = self.runs().filter(|run| run.kind == BlockKind::Hole).collect();
        let mut buffer = vec![0; self.block_size.bytes()];
        for gap in gaps {
            let (mut block, end) = (gap.start, gap.start.saturating_add(gap.blocks));
            while block < end {
                let pos = BytePos::new(block << self.block_size.bits());
                // Holes of the image file are zero.
                let stored = image.next_stored(pos).block(self.block_size).get();
                if stored > block {
                    block = stored;
                    continue;
                }
                image.read_device(DeviceId::new(0), pos, Structure::Extent, &mut buffer)?;
                if buffer.iter().any(|byte| *byte != 0) {
                    self.mark(0, pos.get(), pos.get() + 1, BlockKind::Unused);
                }
                block += 1;
            }
        }
        self.sum_up();
        let others = self.totals.iter().skip(1).fold(0u64, |sum, total| sum.saturating_add(*total));
        self.totals[0] = self.blocks.saturating_sub(others);
        Ok(())
    }

    /// Blocks of the primary device.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of this kind, on all devices.
    #[must_use]
    pub fn total(&self, kind: BlockKind) -> u64 {
        self.totals[usize::from(kind.code())]
    }

    /// Blocks that more than one extent refers to.
    #[must_use]
    pub const fn shared(&self) -> u64 {
        self.shared
    }

    /// The primary device's blocks in order, as runs of one kind.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let marked =
            self.marks.ranges().iter().take_while(|run| run.space == 0 && run.start < self.blocks);
        let mut marked = marked.peekable();
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            let Some(first) = marked.next_if(|run| run.start == start) else {
                // Blocks without a mark are a hole.
                next = marked.peek().map_or(self.blocks, |run| run.start);
                return (start < next).then_some(Run {
                    start,
                    blocks: next - start,
                    kind: BlockKind::Hole,
                });
            };
            let kind = BlockKind::from_marks(first);
            next = first.end;
            while let Some(run) =
                marked.next_if(|run| run.start == next && BlockKind::from_marks(run) == kind)
            {
                next = run.end;
            }
            next = next.min(self.blocks);
            Some(Run { start, blocks: next - start, kind })
        })
    }

    /// The map as at most `count` cells of the same number of blocks: this number, and the most
    /// frequent kind of each cell.
    #[must_use]
    pub fn cells(&self, count: u64) -> (u64, Vec<BlockKind>) {
        let per_cell = self.blocks.div_ceil(count.max(1)).max(1);
        let cells = usize::try_from(self.blocks.div_ceil(per_cell)).unwrap_or(0);
        let mut sums = vec![[0u64; BlockKind::ALL.len()]; cells];
        for run in self.runs() {
            let (mut at, end) = (run.start, run.start + run.blocks);
            while at < end {
                let cell = at / per_cell;
                let next = end.min((cell + 1) * per_cell);
                if let Some(sum) = usize::try_from(cell).ok().and_then(|cell| sums.get_mut(cell)) {
                    sum[usize::from(run.kind.code())] += next - at;
                }
                at = next;
            }
        }
        let most = |sum: [u64; BlockKind::ALL.len()]| {
            let (_, kind) =
                sum.into_iter().zip(BlockKind::ALL).max().unwrap_or((0, BlockKind::Hole));
            kind
        };
        (per_cell, sums.into_iter().map(most).collect())
    }
}
