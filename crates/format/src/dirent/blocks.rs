//! Divides the entries of a directory among blocks. Source: FORMAT.md 3.
//!
//! [`directory_size`] counts the bytes of a directory before [`for_each_block`] divides it, by the
//! same rule.

use alloc::vec::Vec;
use core::ops::Range;

use super::{DIRENT_SIZE, Dirent};
use crate::error::Result;
use crate::inode::{DataLayout, Inode, Place};
use crate::map::{ChunkFormat, ChunkPlace};
use crate::units::{BlockAddr, BlockSize, DeviceId, to_u64};

/// Distributes entries over blocks.
struct Packer {
    block_size: BlockSize,
    /// Blocks before the current one.
    full: u64,
    /// Bytes of the entries in the current block.
    used: usize,
}

impl Packer {
    const fn new(block_size: BlockSize) -> Self {
        Self { block_size, full: 0, used: 0 }
    }

    /// Adds an entry with a name of `name_len` bytes. Returns whether it starts a block after
    /// others.
    fn push(&mut self, name_len: usize) -> bool {
        let len = entry_len(name_len);
        let used = self.used.saturating_add(len);
        let is_next = used > self.block_size.bytes() && self.used > 0;
        if is_next {
            self.full = self.full.saturating_add(1);
        }
        self.used = if is_next { len } else { used };
        is_next
    }

    /// Whole blocks, and the used part of the last one.
    fn size(&self) -> u64 {
        self.full.saturating_mul(self.block_size.bytes64()).saturating_add(to_u64(self.used))
    }
}

/// Counts the bytes of a directory whose names have these lengths.
pub fn directory_size(name_lens: impl IntoIterator<Item = usize>, block_size: BlockSize) -> u64 {
    let mut packer = Packer::new(block_size);
    for len in name_lens {
        packer.push(len);
    }
    packer.size()
}

/// Passes the entries of each block of a directory to `each`, in order: as many as fit into a
/// block. `entries` are sorted by name.
///
/// # Errors
/// Errors of `each`.
pub fn for_each_block<'a, E>(
    entries: impl IntoIterator<Item = Dirent<'a>>,
    block_size: BlockSize,
    mut each: impl FnMut(&[Dirent<'a>]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut packer, mut block) = (Packer::new(block_size), Vec::new());
    for entry in entries {
        if packer.push(entry.name.len()) {
            each(&block)?;
            block.clear();
        }
        block.push(entry);
    }
    if block.is_empty() { Ok(()) } else { each(&block) }
}

/// Bytes of an entry with its name.
const fn entry_len(name_len: usize) -> usize {
    DIRENT_SIZE.saturating_add(name_len)
}

/// A large directory in chunks of one block: if it changes a little, most blocks of the old
/// directory stay, and a table gives the address of each block.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDir {
    blocks: Vec<ChunkedBlock>,
    /// Bytes of the entries in the last block.
    used: usize,
}

/// A block of a [`ChunkedDir`].
#[derive(Clone, Debug)]
struct ChunkedBlock {
    /// Its entries, of all entries of the directory.
    entries: Range<usize>,
    /// The address of the old block, if that stays.
    kept: Option<BlockAddr>,
}

impl ChunkedDir {
    /// Adds the next block of the directory, with `block` of its entries. `kept` is the address of
    /// the old block, if that stays.
    pub fn push(&mut self, block: &[Dirent<'_>], kept: Option<BlockAddr>) {
        let start = self.blocks.last().map_or(0, |last| last.entries.end);
        self.blocks.push(ChunkedBlock { entries: start..start.saturating_add(block.len()), kept });
        self.used =
            block.iter().fold(0, |used, entry| used.saturating_add(entry_len(entry.name.len())));
    }

    /// The number of old blocks that stay.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.blocks.iter().filter(|block| block.kept.is_some()).count()
    }

    /// The new blocks, in order, with their parts of all entries.
    pub fn new_blocks(&self) -> impl Iterator<Item = Range<usize>> {
        self.blocks.iter().filter(|block| block.kept.is_none()).map(|block| block.entries.clone())
    }

    /// Bytes of the table, which follows the inode.
    #[must_use]
    pub const fn table_len(&self) -> usize {
        self.blocks.len().saturating_mul(ChunkFormat::BLOCKS.entry_size())
    }

    /// Appends the table to `out`. The new blocks are at `first` and after it.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`](crate::Fault::OutOfRange) for an address that has more than 32 bits.
    pub fn write_table(&self, first: BlockAddr, out: &mut Vec<u8>) -> Result<()> {
        let mut next = first.get();
        for block in &self.blocks {
            let addr = block.kept.unwrap_or_else(|| {
                let addr = BlockAddr::new(next);
                next = next.saturating_add(1);
                addr
            });
            ChunkFormat::BLOCKS.encode(Some(ChunkPlace { device: DeviceId::new(0), addr }), out)?;
        }
        Ok(())
    }

    /// Sets size, layout and place of the directory's inode.
    pub fn set_in(&self, inode: &mut Inode, block_size: BlockSize) {
        let full = to_u64(self.blocks.len()).saturating_sub(1);
        inode.size = full.saturating_mul(block_size.bytes64()).saturating_add(to_u64(self.used));
        inode.layout = DataLayout::ChunkBased;
        inode.place = Place::Chunked { format: ChunkFormat::BLOCKS.raw() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::Superblock;
    use crate::units::Nid;

    #[test]
    fn a_directory_in_old_and_new_blocks() {
        let dirent = |name| Dirent { nid: Nid::new(1), file_type: None, name };
        let block = [dirent(&b"name"[..]), dirent(b"other")];
        let old = BlockAddr::new(77);
        let mut dir = ChunkedDir::default();
        for (count, kept) in [(2, None), (1, Some(old)), (1, Some(old)), (2, None)] {
            dir.push(&block[..count], kept);
        }
        assert_eq!((dir.kept(), dir.table_len()), (2, 16));
        assert_eq!(dir.new_blocks().collect::<Vec<_>>(), [0..2, 4..6]);
        let mut table = Vec::new();
        dir.write_table(BlockAddr::new(5), &mut table).unwrap();
        assert_eq!(table, [5, 0, 0, 0, 77, 0, 0, 0, 77, 0, 0, 0, 6, 0, 0, 0]);
        let mut bytes = [0; 32];
        bytes[4..6].copy_from_slice(&0o040_755u16.to_le_bytes());
        let mut inode = Inode::parse(&bytes, &Superblock::new(BlockSize::DEFAULT)).unwrap();
        dir.set_in(&mut inode, BlockSize::DEFAULT);
        assert_eq!(
            (inode.size, inode.layout),
            (3 * 4096 + 12 + 4 + 12 + 5, DataLayout::ChunkBased)
        );
        assert_eq!(inode.place, Place::Chunked { format: 0 });
    }
}
