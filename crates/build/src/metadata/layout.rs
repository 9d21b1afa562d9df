//! Who lives where in the metadata area: inodes with what follows them, and blocks of directories.
//!
//! A few blocks that still have room stay open, and each inode goes into the fullest one that holds it.
//! Inodes stay near those before and after them, and little room is lost.

use ferofs_format::BlockSize;
use ferofs_format::units::SLOT_SIZE;

/// Blocks that stay open for small inodes.
const OPEN: usize = 32;

/// Gives places, in bytes and blocks from the area's start.
#[derive(Debug)]
pub struct Packer {
    block: u64,
    /// Blocks given so far.
    blocks: u64,
    /// Blocks with room, and how much of each is used.
    open: Vec<(u64, u64)>,
}

impl Packer {
    /// An area whose first `reserved` bytes, fewer than a block, are taken.
    pub fn new(block: BlockSize, reserved: u64) -> Self {
        Self { block: block.bytes64(), blocks: 1, open: vec![(0, reserved.next_multiple_of(SLOT_SIZE))] }
    }

    /// An area for whole blocks.
    pub const fn of_blocks(block: BlockSize) -> Self {
        Self { block: block.bytes64(), blocks: 0, open: Vec::new() }
    }

    /// Blocks given so far.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// A place for an inode of `len` bytes with what follows it, at a multiple of an inode slot: within one block if they
    /// fit in one. The last `inline` of these bytes, at least a slot less than a block, are content that readers want
    /// within one block in any case, and not at its start: Linux takes a compressed tail there for padding alone where
    /// its pages are larger than a block.
    pub fn place(&mut self, len: u64, inline: u64) -> u64 {
        if len.next_multiple_of(SLOT_SIZE) > self.block {
            return self.place_long(len, inline);
        }
        let len = len.next_multiple_of(SLOT_SIZE);
        let room = self.open.iter().enumerate().filter(|(_, (_, used))| self.block - used >= len);
        // Among equals the oldest: the result must not depend on the order in the list.
        let best = room.max_by_key(|(_, (block, used))| (*used, std::cmp::Reverse(*block))).map(|(i, _)| i);
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

    /// A place for more than a block: right behind what was placed last if that has room.
    fn place_long(&mut self, len: u64, inline: u64) -> u64 {
        let end_of_area = self.blocks * self.block;
        let last = self.open.iter().position(|(block, _)| (block + 1) * self.block == end_of_area);
        let behind = last.map(|index| (index, self.blocks * self.block - self.block + self.open[index].1));
        let pos = self.keep_together(behind.map_or(end_of_area, |(_, pos)| pos), len, inline);
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

    /// The first slot from `pos` on where the last `inline` of `len` bytes are in one block, behind its start.
    fn keep_together(&self, pos: u64, len: u64, inline: u64) -> u64 {
        let start = pos + len - inline;
        let in_block = start % self.block;
        if inline == 0 || in_block != 0 && in_block + inline <= self.block {
            return pos;
        }
        let next_block = start.next_multiple_of(self.block) + 1;
        pos + (next_block - start).next_multiple_of(SLOT_SIZE)
    }

    /// The first of `count` consecutive blocks.
    pub fn place_blocks(&mut self, count: u64) -> u64 {
        let first = self.blocks;
        self.blocks += count;
        first
    }

    fn reopen(&mut self, block: u64, used: u64) {
        if used + SLOT_SIZE > self.block {
            return;
        }
        self.open.push((block, used));
        if self.open.len() > OPEN {
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

    proptest! {
        #[test]
        fn nothing_overlaps_and_what_fits_crosses_no_block(
            wanted in proptest::collection::vec((1u64..6000, 0u64..4, 0u64..5000), 1..300),
            bits in 9u8..=13,
        ) {
            let block = BlockSize::from_bits(bits).unwrap();
            let mut packer = Packer::new(block, 96);
            let mut taken = vec![(0, 96)];
            let mut net = 0;
            for (len, blocks, inline) in wanted {
                // The inode's own bytes and its index are never part of the inline content.
                let inline = inline.min(len.saturating_sub(SLOT_SIZE)).min(block.bytes64() - SLOT_SIZE);
                let pos = packer.place(len, inline);
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
                    let first = packer.place_blocks(blocks) * block.bytes64();
                    taken.push((first, first + blocks * block.bytes64()));
                }
            }
            taken.sort_unstable();
            for pair in taken.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
            }
            let end = taken.last().unwrap().1;
            prop_assert!(end <= packer.blocks() * block.bytes64());
            prop_assert!(net <= end);
        }
    }
}
