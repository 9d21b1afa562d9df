//! Allocates places in the metadata area: for inodes with the bytes that follow them, and for blocks of directories.
//!
//! The allocator remembers some blocks that have free space and puts each inode into the fullest one where it fits. So inodes
//! stay near those before and after them, and little space is lost.
//!
//! Patches compute places with it, too: if it gives other places, the version of the patch format must be raised (docs/PATCH_FORMAT.md).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "callers refuse areas that are larger than an image can be; indexes are of elements that were just found"
)]

use alloc::vec;
use alloc::vec::Vec;

use crate::BlockSize;
use crate::units::SLOT_SIZE;

/// The most blocks with free space that are remembered; beyond it, the fullest one is forgotten. With more, less space is lost,
/// but inodes are farther from their neighbours.
const OPEN_BLOCKS: usize = 32;

/// Allocates places, in bytes and blocks from the start of the area.
#[derive(Clone, Debug)]
pub struct AreaAllocator {
    block: u64,
    /// Blocks allocated so far.
    blocks: u64,
    /// Blocks with free space, and how many bytes of each are used.
    open: Vec<(u64, u64)>,
}

impl AreaAllocator {
    /// An area whose first `reserved` bytes, less than a block, stay free.
    pub fn new(block: BlockSize, reserved: u64) -> Self {
        Self { block: block.bytes64(), blocks: 1, open: vec![(0, reserved.next_multiple_of(SLOT_SIZE))] }
    }

    /// An area for whole blocks.
    pub const fn for_blocks(block: BlockSize) -> Self {
        Self { block: block.bytes64(), blocks: 0, open: Vec::new() }
    }

    /// Blocks allocated so far.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Allocates a place for an inode of `len` bytes with the bytes that follow it, at a multiple of an inode slot. It is within
    /// one block if it fits into one. The last `inline` bytes, at most a block minus one slot, are content, which is always within
    /// one block, and never at its start: where its pages are larger than a block, Linux treats a compressed tail there as
    /// padding.
    pub fn allocate(&mut self, len: u64, inline: u64) -> u64 {
        if len.next_multiple_of(SLOT_SIZE) > self.block {
            return self.allocate_long(len, inline);
        }
        let len = len.next_multiple_of(SLOT_SIZE);
        let fitting = self.open.iter().enumerate().filter(|(_, (_, used))| self.block - used >= len);
        // Of two equally full blocks the first one: the result must not depend on the order in the list.
        let best =
            fitting.max_by_key(|(_, (block, used))| (*used, core::cmp::Reverse(*block))).map(|(i, _)| i);
        let Some(index) = best else {
            let block = self.blocks;
            self.blocks += 1;
            self.reopen(block, len);
            return block * self.block;
        };
        let (block, used) = &mut self.open[index];
        let pos = *block * self.block + *used;
        *used += len;
        if *used + SLOT_SIZE > self.block {
            self.open.swap_remove(index);
        }
        pos
    }

    /// Allocates a place for more than a block: directly after the last allocation if its block has free space.
    fn allocate_long(&mut self, len: u64, inline: u64) -> u64 {
        let end_of_area = self.blocks * self.block;
        let last = self.open.iter().position(|(block, _)| (block + 1) * self.block == end_of_area);
        let behind = last.map(|index| (index, self.blocks * self.block - self.block + self.open[index].1));
        let pos = self.avoid_block_boundary(behind.map_or(end_of_area, |(_, pos)| pos), len, inline);
        if let Some((index, _)) = behind
            && pos < end_of_area
        {
            self.open.swap_remove(index);
        }
        let end = pos + len.next_multiple_of(SLOT_SIZE);
        self.blocks = end.div_ceil(self.block);
        if !end.is_multiple_of(self.block) {
            self.reopen(self.blocks - 1, end % self.block);
        }
        pos
    }

    /// The first slot from `pos` on where the last `inline` of `len` bytes are within one block and not at its start.
    fn avoid_block_boundary(&self, pos: u64, len: u64, inline: u64) -> u64 {
        let start = pos + len - inline;
        let in_block = start % self.block;
        if inline == 0 || in_block != 0 && in_block + inline <= self.block {
            return pos;
        }
        let next_block = start.next_multiple_of(self.block) + 1;
        pos + (next_block - start).next_multiple_of(SLOT_SIZE)
    }

    /// Allocates `count` consecutive blocks; returns the first one.
    pub fn allocate_blocks(&mut self, count: u64) -> u64 {
        let first = self.blocks;
        self.blocks += count;
        first
    }

    fn reopen(&mut self, block: u64, used: u64) {
        if used + SLOT_SIZE > self.block {
            return;
        }
        self.open.push((block, used));
        if self.open.len() > OPEN_BLOCKS {
            let fullest = self.open.iter().enumerate().max_by_key(|(_, (block, used))| (*used, *block));
            if let Some((index, _)) = fullest {
                self.open.swap_remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_those_that_patches_rely_on() {
        let mut area = AreaAllocator::new(BlockSize::from_bits(12).unwrap(), 0);
        let (mut state, mut sum) = (1u64, 0u64);
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 32 + (state >> 33) % if state >> 60 == 0 { 9000 } else { 700 };
            let place = match state >> 61 {
                7 => area.allocate_blocks(len % 5),
                _ => area.allocate(len, if len > 4064 { len % 1000 } else { 0 }),
            };
            sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place);
        }
        assert_eq!((area.blocks(), sum), (823, 4_700_938_518_225_166_544));
    }

    proptest! {
        #[test]
        fn places_do_not_overlap_and_cross_no_block_if_they_fit(
            wanted in proptest::collection::vec((1u64..6000, 0u64..4, 0u64..5000), 1..300),
            bits in 9u8..=13,
        ) {
            let block = BlockSize::from_bits(bits).unwrap();
            let mut area = AreaAllocator::new(block, 96);
            let mut taken = vec![(0, 96)];
            let mut net = 0;
            for (len, blocks, inline) in wanted {
                // An inode and its index are not part of the inline content.
                let inline = inline.min(len.saturating_sub(SLOT_SIZE)).min(block.bytes64() - SLOT_SIZE);
                let pos = area.allocate(len, inline);
                if inline > 0 {
                    let start = pos + len - inline;
                    prop_assert_eq!(start / block.bytes64(), (pos + len - 1) / block.bytes64());
                    prop_assert_ne!(start % block.bytes64(), 0);
                }
                prop_assert_eq!(pos % SLOT_SIZE, 0);
                if len <= block.bytes64() {
                    prop_assert_eq!(pos / block.bytes64(), (pos + len - 1) / block.bytes64());
                }
                taken.push((pos, pos + len));
                net += len.next_multiple_of(SLOT_SIZE);
                if blocks > 0 {
                    let first = area.allocate_blocks(blocks) * block.bytes64();
                    taken.push((first, first + blocks * block.bytes64()));
                }
            }
            taken.sort_unstable();
            for pair in taken.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
            }
            let end = taken.last().unwrap().1;
            prop_assert!(end <= area.blocks() * block.bytes64());
            prop_assert!(net <= end);
        }
    }
}
