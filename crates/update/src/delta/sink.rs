//! Takes the bytes of the new image in order: compares the digest of each chunk before it is
//! written, and computes the hash tree.

use std::io::Write;

use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::Source;
use ferofs_verity::{Digest as VerityDigest, TreeBuilder};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, PatchFault, Result};
use crate::format::delta_file::{CHUNK, DeltaHeader, TREE_MAX, digest};

/// Bytes that a lowest hash block covers at most: 512 KiB with the usual sizes.
const UNIT_MAX: u64 = 8 << 20;

/// The place of the new image.
pub enum DeltaOutput<'a> {
    /// Gets the bytes in order.
    Stream(&'a mut dyn Write),
    /// Gets the bytes with their position, but those that are there already and right.
    Resume(&'a dyn Source, &'a mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>),
}

/// The result of applying a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// Bytes of the new image.
    pub len: u64,
    /// Bytes of these that were there before.
    pub resumed: u64,
}

/// See the module.
pub(super) struct DeltaSink<'h, 'o> {
    header: &'h DeltaHeader,
    output: DeltaOutput<'o>,
    hasher: Sha256,
    tree: Option<Tree>,
    /// Bytes of chunks that are complete.
    done: u64,
    /// The beginning of the next chunk.
    chunk: Vec<u8>,
    /// Bytes that the output had before.
    resumed: u64,
    /// Bytes that have come, those that were passed over included.
    at: u64,
}

/// A hash tree that grows with the image.
struct Tree {
    builder: TreeBuilder,
    /// Its position in the new image.
    start: u64,
    unit: Vec<u8>,
    digests: Vec<VerityDigest>,
    bytes: Vec<u8>,
}

impl Tree {
    fn new(header: &DeltaHeader) -> Result<Option<Self>> {
        let Some(seal) = &header.seal else { return Ok(None) };
        let wrong = || Error::Patch(PatchFault::Malformed("its hash tree is wrong"));
        let params = &seal.superblock.params;
        let builder = TreeBuilder::new(seal.superblock.data_blocks, params).map_err(|_| wrong())?;
        let start = seal.position.saturating_add(params.hash_block_size.into());
        let layout = builder.layout();
        let fits = layout.len() <= TREE_MAX
            && builder.unit_len() <= UNIT_MAX
            && layout.data_len() <= start
            && start.saturating_add(layout.len()) <= header.new_size;
        if !fits {
            return Err(wrong());
        }
        let bytes = vec![0; to_usize(layout.len())];
        Ok(Some(Self { builder, start, unit: Vec::new(), digests: Vec::new(), bytes }))
    }

    /// Hashes the next bytes of the image, those before the tree.
    fn add(&mut self, mut bytes: &[u8]) {
        while to_u64(self.digests.len()) < self.builder.units() && !bytes.is_empty() {
            let unit = to_u64(self.digests.len());
            let range = self.builder.unit_range(unit);
            let missing =
                range.end.saturating_sub(range.start).saturating_sub(to_u64(self.unit.len()));
            let (own, rest) = bytes.split_at(to_usize(missing).min(bytes.len()));
            self.unit.extend_from_slice(own);
            bytes = rest;
            if to_u64(own.len()) == missing {
                let block = self.builder.hash_unit(unit, &self.unit);
                place(&mut self.bytes, block.position, &block.bytes);
                self.digests.push(block.digest);
                self.unit.clear();
            }
        }
    }

    /// The bytes of the tree.
    fn finish(mut self) -> Vec<u8> {
        let bytes = &mut self.bytes;
        let levels = self.builder.finish(self.digests, |at, block| {
            place(bytes, at, block);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(_) = levels;
        self.bytes
    }
}

fn place(tree: &mut [u8], at: u64, block: &[u8]) {
    let tree = tree.get_mut(to_usize(at)..).unwrap_or_default();
    tree.iter_mut().zip(block).for_each(|(to, from)| *to = *from);
}

impl<'h, 'o> DeltaSink<'h, 'o> {
    pub(super) fn new(header: &'h DeltaHeader, output: DeltaOutput<'o>) -> Result<Self> {
        let (tree, hasher, chunk) = (Tree::new(header)?, Sha256::new(), Vec::new());
        Ok(Self { header, output, hasher, tree, done: 0, chunk, resumed: 0, at: 0 })
    }

    /// Bytes of the hash tree.
    pub(super) fn tree_len(&self) -> u64 {
        self.tree.as_ref().map_or(0, |tree| to_u64(tree.bytes.len()))
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.done.saturating_add(to_u64(self.chunk.len()))
    }

    /// Passes over the chunks that the output has already, up to the first wrong one.
    pub(super) fn skip_present(&mut self, check: impl Fn() -> Result<()>) -> Result<()> {
        let DeltaOutput::Resume(present, _) = &self.output else { return Ok(()) };
        let present = *present;
        let mut chunk = Vec::new();
        for expected in &self.header.chunks {
            check()?;
            let len = self.header.new_size.saturating_sub(self.done).min(to_u64(CHUNK));
            if present.size() < self.done.saturating_add(len) {
                break;
            }
            chunk.resize(to_usize(len), 0);
            present
                .read_exact_at(self.done, &mut chunk)
                .map_err(|e| Error::io_unnamed("read", e))?;
            if digest(&chunk) != *expected {
                break;
            }
            if let Some(tree) = &mut self.tree {
                tree.add(&chunk);
            }
            self.count(&chunk);
        }
        self.resumed = self.done;
        Ok(())
    }

    /// Whether the next `len` bytes are in the output already. They are passed over then.
    pub(super) fn pass_over(&mut self, len: u64) -> bool {
        let end = self.at.saturating_add(len);
        let has_tree = self.tree.as_ref().is_some_and(|tree| end >= tree.start);
        let is_present = end <= self.resumed && !has_tree;
        if is_present {
            self.at = end;
        }
        is_present
    }

    /// Takes the next bytes of pieces. The hash tree is inserted at its place.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        let before = self.tree.as_ref().map(|tree| to_usize(tree.start.saturating_sub(self.at)));
        if let Some((own, after)) = before.and_then(|before| bytes.split_at_checked(before))
            && !own.is_empty()
        {
            self.put_part(own)?;
            if let Some(tree) = self.tree.take() {
                self.put_part(&tree.finish())?;
            }
            bytes = after;
        }
        self.put_part(bytes)
    }

    /// Takes the next bytes, of which the output may have the first ones.
    fn put_part(&mut self, bytes: &[u8]) -> Result<()> {
        let present = to_usize(self.resumed.saturating_sub(self.at)).min(bytes.len());
        self.at = self.at.saturating_add(to_u64(bytes.len()));
        let bytes = bytes.get(present..).unwrap_or_default();
        if let Some(tree) = &mut self.tree {
            tree.add(bytes);
        }
        self.put_one(bytes)
    }

    fn put_one(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let wanted = CHUNK.saturating_sub(self.chunk.len()).min(bytes.len());
            let (own, rest) = bytes.split_at(wanted);
            self.chunk.extend_from_slice(own);
            bytes = rest;
            if self.len() > self.header.new_size {
                return Err(Error::Patch(PatchFault::Malformed(
                    "it makes more bytes than the new image has",
                )));
            }
            if self.chunk.len() == CHUNK {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<()> {
        let number = to_usize(self.done.checked_div(to_u64(CHUNK)).unwrap_or(0));
        if self.header.chunks.get(number) != Some(&digest(&self.chunk)) {
            return Err(Error::Patch(PatchFault::WrongBytes(self.done)));
        }
        let written = match &mut self.output {
            DeltaOutput::Stream(stream) => stream.write_all(&self.chunk),
            DeltaOutput::Resume(_, write) => write(self.done, &self.chunk),
        };
        written.map_err(|e| Error::io_unnamed("write", e))?;
        let chunk = std::mem::take(&mut self.chunk);
        self.count(&chunk);
        self.chunk = chunk;
        self.chunk.clear();
        Ok(())
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.done = self.done.saturating_add(to_u64(bytes.len()));
    }

    /// Writes the last chunk, and compares size and digest.
    pub(super) fn finish(mut self) -> Result<Applied> {
        if !self.chunk.is_empty() {
            self.write_chunk()?;
        }
        if self.done != self.header.new_size || self.hasher.finalize()[..] != self.header.new_digest
        {
            return Err(Error::Patch(PatchFault::ResultDiffers));
        }
        Ok(Applied { len: self.done, resumed: self.resumed })
    }
}
