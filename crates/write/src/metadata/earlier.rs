//! Places of inodes in an image that is built like an earlier one: those that they have there, if
//! they still fit, and then the space between them. So most blocks of metadata stay the same,
//! wherever the area begins.

use ferofs_format::BlockSize;
use ferofs_format::area::{AreaAllocator, MetadataSize};
use ferofs_format::units::SLOT_SIZE;

/// Allocates places, in bytes and blocks from the start of the area. First all places of the
/// earlier image are taken, then others allocated.
#[derive(Debug)]
pub(super) struct EarlierArea {
    block: BlockSize,
    /// No place after this position is taken: the earlier image can claim any, and the area must
    /// not have much free space.
    limit: u64,
    /// Which slots of the earlier area are used, in whole blocks.
    used: Vec<bool>,
    /// The area after these blocks.
    behind: AreaAllocator,
    /// By the slots of an inode: the first block where it may fit.
    first_fit: Vec<usize>,
}

impl EarlierArea {
    /// An area where places of the first `limit` bytes are taken. The first `reserved` bytes, less
    /// than a block, stay free.
    pub(super) fn new(block: BlockSize, reserved: u64, limit: u64) -> Self {
        let slots_of_block = block.bytes() / SLOT_SIZE as usize;
        let mut area = Self {
            block,
            limit,
            used: Vec::new(),
            behind: AreaAllocator::for_blocks(block),
            first_fit: vec![0; slots_of_block + 1],
        };
        area.mark(0, reserved);
        area
    }

    const fn slots_of_block(&self) -> usize {
        self.block.bytes() / SLOT_SIZE as usize
    }

    fn mark(&mut self, pos: u64, len: u64) {
        let (start, end) =
            ((pos / SLOT_SIZE) as usize, pos.saturating_add(len).div_ceil(SLOT_SIZE) as usize);
        if self.used.len() < end {
            self.used.resize(end.next_multiple_of(self.slots_of_block()), false);
        }
        self.used[start..end].fill(true);
    }

    fn is_free(&self, pos: u64, len: u64) -> bool {
        let (start, end) = (pos / SLOT_SIZE, pos.saturating_add(len).div_ceil(SLOT_SIZE));
        let end_of_area = self.used.len() as u64;
        let known = start.min(end_of_area) as usize..end.min(end_of_area) as usize;
        pos.saturating_add(len) <= self.limit && !self.used[known].contains(&true)
    }

    /// Takes the place at `pos` for an inode of this size. Returns whether it is free and fits
    /// there.
    pub(super) fn take(&mut self, pos: u64, size: MetadataSize) -> bool {
        let MetadataSize { len, inline, .. } = size;
        if len == 0 || !pos.is_multiple_of(SLOT_SIZE) {
            return false;
        }
        let end = pos.saturating_add(len);
        let inline_start = end.saturating_sub(inline);
        let is_in_one_block =
            |from: u64, to: u64| from >> self.block.bits() == (to - 1) >> self.block.bits();
        let fits = match len <= self.block.bytes64() {
            true => is_in_one_block(pos, end),
            // As of `AreaAllocator::allocate`.
            false => {
                inline == 0
                    || inline_start & self.block.mask() != 0 && is_in_one_block(inline_start, end)
            }
        };
        let takes = fits && self.is_free(pos, len);
        if takes {
            self.mark(pos, len);
        }
        takes
    }

    /// Takes `count` blocks from `first` on. Returns whether they are free.
    pub(super) fn take_blocks(&mut self, first: u64, count: u64) -> bool {
        let bytes = |blocks: u64| blocks.saturating_mul(self.block.bytes64());
        let (pos, len) = (bytes(first), bytes(count));
        let takes = self.is_free(pos, len);
        if takes {
            self.mark(pos, len);
        }
        takes
    }

    /// Allocates a place for an inode. No place is taken after that.
    pub(super) fn allocate(&mut self, size: MetadataSize) -> u64 {
        let (slots, slots_of_block) =
            (size.len.div_ceil(SLOT_SIZE) as usize, self.slots_of_block());
        if let Some(first) = self.first_fit.get(slots).copied() {
            for (number, block) in self.used.chunks_mut(slots_of_block).enumerate().skip(first) {
                let Some(at) = block.windows(slots).position(|slots| !slots.contains(&true)) else {
                    continue;
                };
                block[at..at + slots].fill(true);
                self.first_fit[slots] = number;
                return (number * slots_of_block + at) as u64 * SLOT_SIZE;
            }
            self.first_fit[slots] = self.used.len() / slots_of_block;
        }
        self.used.len() as u64 * SLOT_SIZE + self.behind.allocate(size.len, size.inline)
    }

    /// Allocates blocks; returns the first one. No place is taken after that.
    pub(super) fn allocate_blocks(&mut self, count: u64) -> u64 {
        (self.used.len() / self.slots_of_block()) as u64 + self.behind.allocate_blocks(count)
    }

    /// Blocks allocated so far.
    pub(super) fn blocks(&self) -> u64 {
        (self.used.len() / self.slots_of_block()) as u64 + self.behind.blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockSize = BlockSize::DEFAULT;

    fn inode(len: u64) -> MetadataSize {
        MetadataSize { len, ..MetadataSize::default() }
    }

    #[test]
    fn places_are_taken_again_and_the_rest_goes_around_them() {
        let mut area = EarlierArea::new(BLOCK, 96, 81_920);
        assert!(!area.take(64, inode(32)) && !area.take(100, inode(32)), "reserved, and no slot");
        assert!(area.take(96, inode(64)) && !area.take(128, inode(32)));
        assert!(!area.take(4064, inode(64)), "in two blocks");
        assert!(
            area.take(4096 + 64, inode(5000)) && area.take_blocks(3, 2) && !area.take_blocks(4, 1)
        );
        assert!(!area.take(80_000 + 4096, inode(32)), "beyond the limit");
        let tail = MetadataSize { len: 4100, inline: 8, blocks: 0 };
        assert!(
            !area.take(5 * 4096, tail) && !area.take(5 * 4096, MetadataSize { inline: 4, ..tail })
        );
        assert_eq!(area.allocate(inode(3936)), 160);
        assert_eq!((area.allocate(inode(64)), area.allocate(inode(64))), (4096, 2 * 4096 + 992));
        assert_eq!(
            (area.blocks(), area.allocate_blocks(1), area.allocate(inode(4096))),
            (5, 5, 6 * 4096)
        );
    }
}
