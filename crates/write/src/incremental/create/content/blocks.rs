//! Uncompressed files that changed in part: a chunk table refers to the old blocks, and only
//! changed blocks are written. Holes are neither read nor stored. Source: FORMAT.md 5.

use std::collections::HashMap;

use crate::data::chunks::check_table_size;
use crate::data::stored::StoredContent;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::reader::Reader;
use crate::tree::NodeId;
use ferofs_format::inode::Place;
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, DeviceId, FileOffset};
use ferofs_read::{ExtentData, Image, Inode, Location};

use crate::error::Result;
use crate::incremental::create::context::Inputs;
use crate::incremental::create::sparse;

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// Blocks per chunk at most, as a power of two. Larger chunks make the table little shorter, and
/// each change costs a chunk.
const EXTRA_BITS_MAX: u8 = 6;
/// The same for files with holes, whose tables would be long: as in the builder.
const SPARSE_EXTRA_BITS_MAX: u8 = 20;
/// At least one block with data in this number must be an old one. With fewer, the builder encodes
/// the file instead.
const REUSED_ONE_IN: usize = 8;

/// Stores the content of `node`, whose new inode has `inode_len` bytes with its attributes, and
/// reuses the blocks that it has in common with `inode`. Returns `None` and writes nothing when
/// these are too few.
pub(super) fn store(
    inputs: Inputs<'_>,
    inode: &Inode,
    node: NodeId,
    inode_len: usize,
    reader: &mut Reader<'_>,
    output: &mut Output,
    spill: &mut Spill,
) -> Result<Option<StoredContent>> {
    let (old, size) = (inputs.old, inputs.tree.node(node).size);
    let block = old.superblock().block_size;
    let is_plain = matches!(inode.on_disk().place, Place::Blocks(_) | Place::Chunked { .. });
    if !is_plain || size < 2 * block.bytes64() || inode.size() < block.bytes64() {
        return Ok(None);
    }
    let blocks = compare(inputs, inode, node, reader)?;
    let has_data = |block: &&Block| block.content != BlockContent::Zeroes;
    let is_old = |block: &&Block| matches!(block.content, BlockContent::Old(_));
    if blocks.iter().filter(is_old).count() * REUSED_ONE_IN < blocks.iter().filter(has_data).count()
    {
        return Ok(None);
    }
    let file = ChunkedFile {
        blocks: &blocks,
        count: size.div_ceil(block.bytes64()),
        block: block.bytes64(),
    };
    let extra_bits = file.best_extra_bits();
    output.pad_to(output.position().next_multiple_of(block.bytes64()))?;
    let is_wide = (output.position() >> block.bits()).saturating_add(file.count) > u32::MAX.into();
    let entries = if is_wide { EntryFormat::Indexes48 } else { EntryFormat::Addresses };
    let Some(format) = ChunkFormat::new(extra_bits, entries) else { return Ok(None) };
    check_table_size(file.table_size(extra_bits), || inputs.contents.path(inputs.tree, node))?;
    let chunk_size = block.bytes64() << extra_bits;
    let mut chunks = file.chunks(extra_bits).peekable();
    // Entries are aligned to their size, and inodes start at multiples of 32.
    let mut table = vec![0; inode_len.next_multiple_of(format.entry_size()) - inode_len];
    let mut buffer = Vec::new();
    for number in 0..size.div_ceil(chunk_size) {
        let addr = match chunks.next_if(|chunk| chunk.number == number).map(|chunk| chunk.content())
        {
            None | Some(BlockContent::Zeroes) => None,
            Some(BlockContent::Old(addr)) => Some(addr),
            Some(BlockContent::New) => {
                let addr = output.position() >> block.bits();
                let at = number * chunk_size;
                let range = (at, chunk_size.min(size - at));
                each_block(reader, node, range, block.bytes(), &mut buffer, |_, bytes| {
                    output.append(bytes)
                })?;
                Some(addr)
            }
        };
        let place =
            addr.map(|addr| ChunkPlace { device: DeviceId::new(0), addr: BlockAddr::new(addr) });
        format.encode(place, &mut table).map_err(crate::error::Error::Layout)?;
    }
    Ok(Some(StoredContent::Chunked { format: format.raw(), table: spill.push(&table)? }))
}

/// Where the content of a block or of a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockContent {
    /// Nowhere: a hole.
    Zeroes,
    /// In the old image, from this block on.
    Old(u64),
    /// Only in the new file.
    New,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// The number of blocks before it in the file.
    number: u64,
    content: BlockContent,
}

/// A file by its blocks. Those that are not listed have zeroes.
struct ChunkedFile<'a> {
    /// In the file's order.
    blocks: &'a [Block],
    /// Blocks of the file.
    count: u64,
    /// Bytes of a block.
    block: u64,
}

/// The listed blocks of a chunk, at least one.
struct Chunk<'a> {
    number: u64,
    listed: &'a [Block],
    /// Blocks of the chunk: fewer at the end of the file.
    count: u64,
}

impl<'a> ChunkedFile<'a> {
    /// Bytes of the table with chunks of 2^`extra_bits` blocks.
    const fn table_size(&self, extra_bits: u8) -> u64 {
        self.count.div_ceil(1 << extra_bits) * 4
    }

    /// Bytes of the table and of new blocks with chunks of 2^`extra_bits` blocks.
    fn cost(&self, extra_bits: u8) -> u64 {
        let is_new = |chunk: &Chunk<'_>| chunk.content() == BlockContent::New;
        let written: u64 = self.chunks(extra_bits).filter(is_new).map(|chunk| chunk.count).sum();
        self.table_size(extra_bits) + written * self.block
    }

    fn best_extra_bits(&self) -> u8 {
        let is_sparse = (self.blocks.len() as u64) < self.count;
        let most = if is_sparse { SPARSE_EXTRA_BITS_MAX } else { EXTRA_BITS_MAX };
        (0..=most).min_by_key(|bits| self.cost(*bits)).unwrap_or(0)
    }

    /// The chunks that have listed blocks, in the file's order.
    fn chunks(&self, extra_bits: u8) -> impl Iterator<Item = Chunk<'a>> {
        let of_file = self.count;
        self.blocks.chunk_by(move |a, b| a.number >> extra_bits == b.number >> extra_bits).map(
            move |listed| {
                let number = listed[0].number >> extra_bits;
                Chunk {
                    number,
                    listed,
                    count: (of_file - (number << extra_bits)).min(1 << extra_bits),
                }
            },
        )
    }
}

impl Chunk<'_> {
    /// Where all of the chunk is: old blocks must follow each other in the old image, too.
    fn content(&self) -> BlockContent {
        let is_hole = |block: &Block| block.content == BlockContent::Zeroes;
        if self.listed.iter().all(is_hole) {
            return BlockContent::Zeroes;
        }
        let (BlockContent::Old(first), true) =
            (self.listed[0].content, self.listed.len() as u64 == self.count)
        else {
            return BlockContent::New;
        };
        let follows = |(n, block): (u64, &Block)| {
            first.checked_add(n).map(BlockContent::Old) == Some(block.content)
        };
        match (0..).zip(self.listed).all(follows) {
            true => BlockContent::Old(first),
            false => BlockContent::New,
        }
    }
}

/// The first half of a BLAKE3 hash: blocks with the same digest are taken as equal.
type Digest = [u8; 16];

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    digest
}

/// A whole block of an old file.
struct OldBlock {
    /// The number of blocks before it in the file.
    number: u64,
    /// Where it is in the image.
    addr: u64,
    digest: Digest,
}

/// The whole stored blocks of an old file, in the file's order.
fn old_blocks(old: &Image, inode: &Inode) -> Result<Vec<OldBlock>> {
    let block = old.superblock().block_size;
    let mut blocks = Vec::new();
    let mut buffer = vec![0; BUFFER];
    for extent in old.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        let ExtentData::Stored { at: Location::Device(device, at) } = extent.data else { continue };
        let start = extent.start.get();
        if device != DeviceId::new(0) || at.in_block(block) != 0 || start & block.mask() != 0 {
            continue;
        }
        let whole = extent.len & !block.mask();
        let mut done = 0;
        while done < whole {
            let len = (whole - done).min(BUFFER as u64) as usize;
            old.read_at(inode, FileOffset::new(start + done), &mut buffer[..len])?;
            for (n, bytes) in (0..).zip(buffer[..len].chunks(block.bytes())) {
                let number = ((start + done) >> block.bits()) + n;
                let addr = ((at.get() + done) >> block.bits()) + n;
                blocks.push(OldBlock { number, addr, digest: digest(bytes) });
            }
            done += len as u64;
        }
    }
    Ok(blocks)
}

/// Lists the blocks of a new file, except for those that are in a hole of both files: each is
/// compared with the old block at the same place, then looked up by its digest.
fn compare(
    inputs: Inputs<'_>,
    inode: &Inode,
    node: NodeId,
    reader: &mut Reader<'_>,
) -> Result<Vec<Block>> {
    let size = inputs.tree.node(node).size;
    let known = old_blocks(inputs.old, inode)?;
    let mut by_digest = HashMap::with_capacity(known.len());
    for old in &known {
        by_digest.entry(old.digest).or_insert(old.addr);
    }
    let mut known = known.into_iter().peekable();
    let of_old = sparse::ranges_of_inode(inputs.old, inode)?;
    let ranges = sparse::union(&sparse::ranges_of_node(inputs, node), &of_old);
    let block = inputs.old.superblock().block_size.bytes();
    let (mut blocks, mut buffer) = (Vec::new(), Vec::new());
    for range in sparse::parts(&ranges, BUFFER as u64, size) {
        each_block(reader, node, range, block, &mut buffer, |number, bytes| {
            while known.next_if(|old| old.number < number).is_some() {}
            let digest = digest(bytes);
            let here = known.peek().filter(|old| old.number == number && old.digest == digest);
            let content = match (here, by_digest.get(&digest)) {
                (Some(old), _) => BlockContent::Old(old.addr),
                (None, _) if bytes.iter().all(|byte| *byte == 0) => BlockContent::Zeroes,
                (None, Some(addr)) => BlockContent::Old(*addr),
                (None, None) => BlockContent::New,
            };
            blocks.push(Block { number, content });
            Ok(())
        })?;
    }
    Ok(blocks)
}

/// Calls `each` for each block of a range of a new file, given by offset and length, with the
/// number of blocks before it in the file. The last block of the file is filled up with zeroes.
fn each_block(
    reader: &mut Reader<'_>,
    node: NodeId,
    (start, len): (u64, u64),
    block: usize,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    buffer.resize(BUFFER, 0);
    let (mut at, end) = (start, start + len);
    while at < end {
        let len = (end - at).min(BUFFER as u64) as usize;
        reader.read(node, at, &mut buffer[..len])?;
        let padded = len.next_multiple_of(block);
        buffer[len..padded].fill(0);
        for (n, bytes) in (0..).zip(buffer[..padded].chunks(block)) {
            each(at / block as u64 + n, bytes)?;
        }
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(contents: impl IntoIterator<Item = (u64, BlockContent)>) -> Vec<Block> {
        contents.into_iter().map(|(number, content)| Block { number, content }).collect()
    }

    #[test]
    fn chunks_grow_until_a_change_costs_more_than_the_table() {
        let old = |n: u64| (n, if n == 77 { BlockContent::New } else { BlockContent::Old(n) });
        let blocks = of((0..25_600).map(old));
        let file = ChunkedFile { blocks: &blocks, count: 25_600, block: 4096 };
        let best = file.best_extra_bits();
        assert_eq!(best, 2);
        assert!(file.cost(best) < 64 << 10);
    }

    #[test]
    fn a_chunk_is_old_only_if_all_its_blocks_follow_each_other() {
        use BlockContent::{New, Old, Zeroes};
        let content = |contents: &[BlockContent], count| {
            let listed = of((0..).zip(contents.iter().copied()));
            Chunk { number: 0, listed: &listed, count }.content()
        };
        assert_eq!(content(&[Old(5), Old(6)], 2), Old(5));
        assert_eq!(content(&[Old(5), Old(6)], 3), New);
        assert_eq!(content(&[Old(5), New], 2), New);
        assert_eq!(content(&[Old(5), Zeroes], 2), New);
        assert_eq!(content(&[Old(5), Old(7)], 2), New);
        assert_eq!(content(&[Zeroes, Zeroes], 2), Zeroes);
        assert_eq!(content(&[Zeroes], 4), Zeroes);
    }

    #[test]
    fn files_with_terabytes_of_holes_have_short_tables() {
        let blocks = of([(7, BlockContent::Old(1)), (5 << 28, BlockContent::New)]);
        let file = ChunkedFile { blocks: &blocks, count: 10 << 28, block: 4096 };
        let best = file.best_extra_bits();
        assert!(file.cost(best) < 64 << 20, "{} bytes", file.cost(best));
        assert_eq!(file.chunks(best).count(), 2);
    }
}
