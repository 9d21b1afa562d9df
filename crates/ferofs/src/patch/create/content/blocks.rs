//! Uncompressed files that changed in part: a chunk table refers to the old blocks, and only changed blocks are written.
//! Source: FORMAT.md 5.

use std::collections::HashMap;

use ferofs_format::inode::Place;
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, DeviceId, FileOffset};

use crate::error::Result;
use ferofs_build::data::stored::StoredContent;
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::sources::reader::Reader;
use ferofs_build::tree::NodeId;
use ferofs_read::{ExtentData, Image, Inode, Location};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// Blocks per chunk at most, as a power of two. Larger chunks make the table little shorter, and each change costs a chunk.
const EXTRA_BITS_MAX: u8 = 6;
/// At least one block in this number must be an old one. With fewer, the builder encodes the file instead.
const REUSED_ONE_IN: u64 = 8;

/// Stores the content of `node`, of `size` bytes, and reuses the blocks that it has in common with `inode`. Returns `None`
/// and writes nothing when these are too few.
pub(super) fn store(
    old: &Image,
    inode: &Inode,
    node: NodeId,
    size: u64,
    reader: &mut Reader<'_>,
    output: &mut Output,
    spill: &mut Spill,
) -> Result<Option<StoredContent>> {
    let block = old.superblock().block_size;
    let is_plain = matches!(inode.on_disk().place, Place::Blocks(_) | Place::Chunked { .. });
    if !is_plain || size < 2 * block.bytes64() || inode.size() < block.bytes64() {
        return Ok(None);
    }
    let (by_place, by_digest) = old_blocks(old, inode)?;
    let mut found: Vec<Option<u64>> = Vec::new();
    each_block(reader, node, size, block.bytes(), |number, bytes| {
        let digest = digest(bytes);
        let here = by_place.get(number).filter(|(_, there)| *there == digest).map(|(at, _)| *at);
        found.push(here.or_else(|| by_digest.get(&digest).copied()));
        Ok(())
    })?;
    let reused = found.iter().flatten().count() as u64;
    if reused * REUSED_ONE_IN < found.len() as u64 {
        return Ok(None);
    }
    let extra_bits = (0..=EXTRA_BITS_MAX).min_by_key(|bits| cost(&found, *bits, block.bytes64()));
    let extra_bits = extra_bits.unwrap_or(0);
    let per_chunk = 1usize << extra_bits;
    output.pad_to(output.position().next_multiple_of(block.bytes64()))?;
    let mut chunks: Vec<u64> = Vec::new();
    let kept: Vec<Option<u64>> = found.chunks(per_chunk).map(consecutive).collect();
    each_block(reader, node, size, block.bytes(), |number, bytes| {
        let chunk = number / per_chunk;
        let kept = kept.get(chunk).copied().flatten();
        if number % per_chunk == 0 {
            chunks.push(kept.unwrap_or(output.position() >> block.bits()));
        }
        match kept {
            Some(_) => Ok(()),
            None => Ok(output.append(bytes)?),
        }
    })?;
    let format = ChunkFormat::new(extra_bits, EntryFormat::Addresses);
    let Some(format) = format else { return Ok(None) };
    let mut table = Vec::new();
    for addr in chunks {
        let place = ChunkPlace { device: DeviceId::new(0), addr: BlockAddr::new(addr) };
        format.encode(Some(place), &mut table).map_err(ferofs_build::Error::Layout)?;
    }
    Ok(Some(StoredContent::Chunked { format: format.raw(), table: spill.push(&table)? }))
}

/// Bytes of the table and of new blocks with chunks of 2^`extra_bits` blocks.
fn cost(found: &[Option<u64>], extra_bits: u8, block: u64) -> u64 {
    let chunks = found.chunks(1 << extra_bits);
    chunks.map(|chunk| 4 + if consecutive(chunk).is_some() { 0 } else { chunk.len() as u64 * block }).sum()
}

/// The first block's address, if each block follows the one before.
fn consecutive(blocks: &[Option<u64>]) -> Option<u64> {
    let first = (*blocks.first()?)?;
    let follows = |(n, block): (u64, &Option<u64>)| *block == first.checked_add(n);
    (0..).zip(blocks).all(follows).then_some(first)
}

/// The first half of a BLAKE3 hash: blocks with the same digest are taken as equal.
type Digest = [u8; 16];

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    digest
}

/// The whole blocks of an old file, by their order in the file and by content.
#[allow(clippy::type_complexity, reason = "two indexes of the same blocks, both used once")]
fn old_blocks(old: &Image, inode: &Inode) -> Result<(Vec<(u64, Digest)>, HashMap<Digest, u64>)> {
    let block = old.superblock().block_size;
    let (mut by_place, mut by_digest) = (Vec::new(), HashMap::new());
    let mut buffer = vec![0; BUFFER];
    for extent in old.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        let ExtentData::Stored { at: Location::Device(device, at) } = extent.data else { continue };
        if device != DeviceId::new(0) || at.in_block(block) != 0 {
            continue;
        }
        let whole = extent.len & !block.mask();
        let mut done = 0;
        while done < whole {
            let len = (whole - done).min(BUFFER as u64) as usize;
            let offset = FileOffset::new(extent.start.get() + done);
            old.read_at(inode, offset, &mut buffer[..len])?;
            for (n, bytes) in (0..).zip(buffer[..len].chunks(block.bytes())) {
                let addr = ((at.get() + done) >> block.bits()) + n;
                let digest = digest(bytes);
                by_place.push((addr, digest));
                by_digest.entry(digest).or_insert(addr);
            }
            done += len as u64;
        }
    }
    Ok((by_place, by_digest))
}

/// Calls `each` for each block of a new file; the last one is filled up with zeroes.
fn each_block(
    reader: &mut Reader<'_>,
    node: NodeId,
    size: u64,
    block: usize,
    mut each: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let (mut at, mut number) = (0, 0);
    while at < size {
        let len = (size - at).min(BUFFER as u64) as usize;
        reader.read(node, at, &mut buffer[..len])?;
        let padded = len.next_multiple_of(block);
        buffer[len..padded].fill(0);
        for bytes in buffer[..padded].chunks(block) {
            each(number, bytes)?;
            number += 1;
        }
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_until_a_change_costs_more_than_the_table() {
        let found = |changed: usize| {
            (0..25_600).map(|n| (n as usize != changed).then_some(n)).collect::<Vec<Option<u64>>>()
        };
        let best = (0..=EXTRA_BITS_MAX).min_by_key(|bits| cost(&found(77), *bits, 4096)).unwrap();
        assert_eq!(best, 2);
        assert!(cost(&found(77), best, 4096) < 64 << 10);
        assert_eq!(consecutive(&[Some(5), Some(6)]), Some(5));
        assert_eq!(consecutive(&[Some(5), None]), None);
        assert_eq!(consecutive(&[Some(5), Some(7)]), None);
    }
}
