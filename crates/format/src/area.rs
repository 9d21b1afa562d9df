//! Allocates places in the metadata area: for inodes with the bytes that follow them, and for
//! blocks of directories.
//!
//! The allocator remembers some blocks that have free space and puts each inode into the fullest
//! one where it fits. So inodes stay near those before and after them, and little space is lost.
//!
//! Builds and patches compute places with it. A program that applies a patch computes them again:
//! if the allocator gives other places, the version of the patch format must be raised
//! (docs/PATCH_FORMAT.md).

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::units::{BlockSize, SLOT_SIZE};

/// The most blocks with free space that are remembered; beyond it, the fullest one is forgotten.
/// With more, less space is lost, but inodes are farther from their neighbours.
const OPEN_BLOCKS: usize = 32;

/// Allocates places, in bytes and blocks from the start of the area.
#[derive(Clone, Debug)]
pub struct AreaAllocator {
    block: BlockSize,
    /// Blocks allocated so far.
    blocks: u64,
    /// Blocks with free space.
    open: Vec<OpenBlock>,
}

/// A block with free space at its end.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    number: u64,
    /// Bytes in use, a multiple of an inode slot.
    used: u64,
}

impl AreaAllocator {
    /// An area whose first `reserved` bytes, less than a block, stay free.
    #[must_use]
    pub fn new(block: BlockSize, reserved: u64) -> Self {
        let first = OpenBlock { number: 0, used: slots(reserved) };
        Self { block, blocks: 1, open: vec![first] }
    }

    /// An area for whole blocks.
    #[must_use]
    pub const fn for_blocks(block: BlockSize) -> Self {
        Self { block, blocks: 0, open: Vec::new() }
    }

    /// Blocks allocated so far.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Allocates a place for an inode of `len` bytes with the bytes that follow it, at a multiple
    /// of an inode slot. It is within one block if it fits into one. The last `inline` bytes, at
    /// most a block minus one slot, are content, which is always within one block, and never at its
    /// start: where its pages are larger than a block, Linux treats a compressed tail there as
    /// padding.
    pub fn allocate(&mut self, len: u64, inline: u64) -> u64 {
        let block = self.block.bytes64();
        if slots(len) > block {
            return self.allocate_long(len, inline);
        }
        let len = slots(len);
        let fitting = self
            .open
            .iter_mut()
            .enumerate()
            .filter(|(_, open)| block.saturating_sub(open.used) >= len);
        // The first one of equally full blocks: the result must not depend on the order in the
        // list.
        let Some((index, best)) = fitting.max_by_key(|(_, open)| (open.used, Reverse(open.number)))
        else {
            let number = self.allocate_blocks(1);
            self.reopen(OpenBlock { number, used: len });
            return self.start_of(number);
        };
        let OpenBlock { number, used } = *best;
        best.used = used.saturating_add(len);
        if is_full(best.used, block) {
            self.open.swap_remove(index);
        }
        self.start_of(number).saturating_add(used)
    }

    /// Allocates a place for more than a block: directly after the last allocation if its block has
    /// free space.
    fn allocate_long(&mut self, len: u64, inline: u64) -> u64 {
        let end_of_area = self.start_of(self.blocks);
        let last = self.open.iter().position(|open| open.number.saturating_add(1) == self.blocks);
        let free = last.and_then(|index| self.open.get(index)).copied();
        let behind =
            free.map_or(end_of_area, |open| self.start_of(open.number).saturating_add(open.used));
        let pos = self.avoid_block_boundary(behind, len, inline);
        if let Some(index) = last
            && pos < end_of_area
        {
            self.open.swap_remove(index);
        }
        let end = pos.saturating_add(slots(len));
        self.blocks = self.block.blocks_for(end);
        let used = end & self.block.mask();
        if used != 0 {
            self.reopen(OpenBlock { number: self.blocks.saturating_sub(1), used });
        }
        pos
    }

    /// The first slot from `pos` on where the last `inline` of `len` bytes are within one block and
    /// not at its start.
    const fn avoid_block_boundary(&self, pos: u64, len: u64, inline: u64) -> u64 {
        let start = pos.saturating_add(len).saturating_sub(inline);
        let in_block = start & self.block.mask();
        if inline == 0 || in_block != 0 && in_block.saturating_add(inline) <= self.block.bytes64() {
            return pos;
        }
        // From the start of the next block on, without its first byte.
        let distance = match in_block {
            0 => 1,
            _ => self.block.bytes64().saturating_sub(in_block).saturating_add(1),
        };
        pos.saturating_add(slots(distance))
    }

    /// Allocates `count` consecutive blocks; returns the first one.
    pub const fn allocate_blocks(&mut self, count: u64) -> u64 {
        let first = self.blocks;
        self.blocks = first.saturating_add(count);
        first
    }

    /// The position of block `number`.
    const fn start_of(&self, number: u64) -> u64 {
        number.saturating_mul(self.block.bytes64())
    }

    fn reopen(&mut self, open: OpenBlock) {
        if is_full(open.used, self.block.bytes64()) {
            return;
        }
        self.open.push(open);
        if self.open.len() > OPEN_BLOCKS {
            let fullest =
                self.open.iter().enumerate().max_by_key(|(_, open)| (open.used, open.number));
            if let Some((index, _)) = fullest {
                self.open.swap_remove(index);
            }
        }
    }
}

/// The bytes of the slots that `len` bytes need.
const fn slots(len: u64) -> u64 {
    len.div_ceil(SLOT_SIZE).saturating_mul(SLOT_SIZE)
}

/// Whether a block has no free slot.
const fn is_full(used: u64, block: u64) -> bool {
    used.saturating_add(SLOT_SIZE) > block
}

/// The requirements of an inode in new metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataSize {
    /// Bytes of the inode with all that follows it.
    pub len: u64,
    /// The last bytes of `len` that are content, which must be within one block.
    pub inline: u64,
    /// Blocks of a directory or a symbolic link.
    pub blocks: u64,
}

/// Allocates places for inodes and for the blocks of directories: in one area, or the inodes in the
/// metabox and the blocks in an area.
#[derive(Clone, Debug)]
pub struct MetadataAreas {
    area: AreaAllocator,
    metabox: Option<AreaAllocator>,
}

impl MetadataAreas {
    /// Inodes and blocks in one area, or the inodes in the metabox. The first `reserved` bytes of
    /// where the inodes are stay free.
    #[must_use]
    pub fn new(block: BlockSize, in_metabox: bool, reserved: u64) -> Self {
        let inodes = AreaAllocator::new(block, reserved);
        match in_metabox {
            true => Self { area: AreaAllocator::for_blocks(block), metabox: Some(inodes) },
            false => Self { area: inodes, metabox: None },
        }
    }

    /// Allocates a place for an inode, in bytes from the start of the area or of the metabox.
    pub fn allocate_inode(&mut self, size: MetadataSize) -> u64 {
        self.metabox.as_mut().unwrap_or(&mut self.area).allocate(size.len, size.inline)
    }

    /// Allocates the blocks of a directory or a symbolic link. Returns the first one; `None` if
    /// there are none.
    pub fn allocate_blocks(&mut self, size: MetadataSize) -> Option<u64> {
        (size.blocks > 0).then(|| self.area.allocate_blocks(size.blocks))
    }

    /// Blocks of the area so far.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.area.blocks()
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Places of many small inodes, and of larger ones, which leave space in more blocks than are
    /// remembered.
    #[test]
    fn places_are_those_that_patches_rely_on() {
        assert_eq!(places(700), (823, 4_700_938_518_225_166_544));
        assert_eq!(places(3900), (1504, 9_355_397_885_945_201_313));
    }

    /// The blocks of an area after 2000 allocations of at most about `most` bytes, and a digest of
    /// their places.
    fn places(most: u64) -> (u64, u64) {
        let mut area = AreaAllocator::new(BlockSize::from_bits(12).unwrap(), 0);
        let (mut state, mut sum) = (1u64, 0u64);
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 32 + (state >> 33) % if state >> 60 == 0 { 9000 } else { most };
            let place = match state >> 61 {
                7 => area.allocate_blocks(len % 5),
                _ => area.allocate(len, if len > 4064 { len % 1000 } else { 0 }),
            };
            sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place);
        }
        (area.blocks(), sum)
    }

    #[test]
    fn inodes_are_in_the_metabox_and_blocks_outside() {
        let size = |len, blocks| MetadataSize { len, inline: 0, blocks };
        for (in_metabox, first_inode, first_block, blocks) in [(false, 96, 1, 4), (true, 96, 0, 3)]
        {
            let mut areas = MetadataAreas::new(BlockSize::DEFAULT, in_metabox, 70);
            assert_eq!(areas.allocate_inode(size(64, 0)), first_inode);
            assert_eq!(areas.allocate_blocks(size(0, 0)), None);
            assert_eq!(areas.allocate_blocks(size(0, 2)), Some(first_block));
            assert_eq!(areas.allocate_blocks(size(0, 1)), Some(first_block + 2));
            assert_eq!(
                (areas.allocate_inode(size(32, 0)), areas.blocks()),
                (first_inode + 64, blocks)
            );
        }
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
