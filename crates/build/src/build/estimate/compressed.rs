//! The size of compressed metadata: writes a part of it as the metadata stage does, and encodes that.
//!
//! Positions of data are not known; numbers without a pattern stand for them, because such numbers hardly compress.

use std::time::Duration;

use ferofs_format::dirent::{DirPacker, Dirent, write_block};
use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::map::MapHeader;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, Nid};

use crate::build::estimate::metadata::{Content, Plan, is_whole_fragment};
use crate::data::encode::{Encoder, Following, Sink};
use crate::error::{Error, Result};
use crate::options::compression::Compression;
use crate::progress::timings::{Timings, processor_time};
use crate::sources::reader::Reader;
use crate::tree::inode_sizes;
use crate::tree::{Kind, NodeId};

/// The most bytes of inodes, and of directories, that are encoded. All of them in a tree of 10,000 files; more would take long at slow levels.
const SAMPLE_MAX: u64 = 1 << 20;
/// The parts of the metabox from which inodes are taken: each is as long as a few pclusters.
const RUNS: u64 = 4;

/// Encodes a part of the metadata.
pub(super) struct Sampler<'a> {
    plan: &'a Plan<'a>,
    content: &'a Content<'a>,
    reader: Reader<'a>,
    nids: &'a [Nid],
    compression: Compression,
    /// By node: where its fragment is in the packed inode, if its whole content is one.
    fragments: Vec<u64>,
    /// The state of the numbers without a pattern.
    seed: u64,
    /// Processor seconds of encoding all metadata.
    seconds: f64,
}

impl<'a> Sampler<'a> {
    /// `None` if the metadata is not compressed. `nids` has the number of each node's inode.
    pub(super) fn new(plan: &'a Plan<'a>, content: &'a Content<'a>, nids: &'a [Nid]) -> Result<Option<Self>> {
        let Some(compression) = &plan.settings.data.compression else { return Ok(None) };
        if compression.metadata.is_none() && !compression.directories {
            return Ok(None);
        }
        let block = plan.settings.image.block_size;
        let (mut fragments, mut end) = (vec![0; plan.tree.nodes.len()], 0);
        for id in content.order.ids() {
            let node = plan.tree.node(id);
            if matches!(node.kind, Kind::Regular { .. }) {
                fragments[id.index()] = end;
                end += compression.fragment_len(node.size, block);
            }
        }
        let reader = Reader::new(content.contents, plan.tree);
        let compression = compression.for_metadata();
        Ok(Some(Self { plan, content, reader, nids, compression, fragments, seed: 1, seconds: 0.0 }))
    }

    const fn block(&self) -> BlockSize {
        self.plan.settings.image.block_size
    }

    /// Bytes of these directories, of which the second number is the size, in the image.
    pub(super) fn directories(&mut self, dirs: &[(NodeId, u64)]) -> Result<u64> {
        let all: u64 = dirs.iter().map(|(_, size)| size).sum();
        let step = all.div_ceil(SAMPLE_MAX).max(1) as usize;
        let (mut encoded, mut sampled, mut bytes) = (0, 0, Vec::new());
        let started = processor_time();
        for (id, size) in dirs.iter().step_by(step) {
            bytes.clear();
            self.write_dir(*id, &mut bytes)?;
            encoded += self.encode(&bytes)?;
            sampled += size;
        }
        self.add_time(started, sampled, all);
        Ok(scaled(encoded, sampled, all))
    }

    /// Adds the time since `started` for `sampled` of `all` bytes.
    fn add_time(&mut self, started: Duration, sampled: u64, all: u64) {
        let seconds = processor_time().saturating_sub(started).as_secs_f64();
        self.seconds += seconds * all as f64 / sampled.max(1) as f64;
    }

    /// Processor seconds of encoding all metadata that was estimated so far.
    pub(super) const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Bytes of a metabox of `len` bytes in the image.
    pub(super) fn metabox(&mut self, len: u64) -> Result<u64> {
        let plan = self.plan;
        let runs = if len <= SAMPLE_MAX { 1 } else { RUNS };
        let run_len = SAMPLE_MAX / runs;
        let count = plan.tree.nodes.len() as u64;
        let (mut encoded, mut sampled, mut bytes) = (0, 0, Vec::new());
        let started = processor_time();
        for run in 0..runs {
            bytes.clear();
            for id in plan.in_order().skip((count * run / runs) as usize) {
                self.write_inode(id, &mut bytes)?;
                bytes.resize(bytes.len().next_multiple_of(SLOT_SIZE as usize), 0);
                if runs > 1 && bytes.len() as u64 >= run_len {
                    break;
                }
            }
            encoded += self.encode(&bytes)?;
            sampled += bytes.len() as u64;
        }
        self.add_time(started, sampled, sampled.max(len));
        Ok(if runs == 1 { encoded } else { scaled(encoded, sampled, len) })
    }

    /// Bytes that `bytes` take in whole blocks.
    fn encode(&self, bytes: &[u8]) -> Result<u64> {
        let (timings, block) = (Timings::default(), self.block());
        let mut encoder = Encoder::new(&self.compression, block, &timings);
        let file = self.compression.for_directories(block);
        let mut extents = Vec::new();
        let sink = Sink { extents: &mut extents, tails: &mut Vec::new() };
        let encoded = encoder.encode(bytes, file, Following::MoreData, None, u64::MAX, sink)?;
        let size = encoded.map_or(bytes.len() as u64, |encoded| encoded.log.size());
        Ok(size.next_multiple_of(block.bytes64()))
    }

    fn write_inode(&mut self, id: NodeId, out: &mut Vec<u8>) -> Result<()> {
        let Plan { settings, tree, superblock, xattrs, inode_sizes, .. } = self.plan;
        let (node, block) = (tree.node(id), self.block());
        let mut inode = inode_sizes::inode(tree, xattrs, superblock, id, inode_sizes.version(id))?;
        let mut after = Vec::new();
        match node.kind {
            Kind::Regular { .. } if node.size > 0 => {
                if self.plan.is_tiny(id) {
                    inode.layout = DataLayout::FlatInline;
                    inode.place = Place::Blocks(BlockAddr::new(0));
                    after.resize(node.size as usize, 0);
                    match self.reader.read(id, 0, &mut after) {
                        // The build says what cannot be read.
                        Err(error) if !error.is_unreadable() => return Err(error),
                        _ => {}
                    }
                    return Self::finish(inode, xattrs.region(id, node.xattrs), &after, superblock, out);
                }
                if let Some(chunks) = self.content.chunked.get(&id) {
                    let first = BlockAddr::new(self.number() >> 44);
                    let (format, table) = chunks.encode(first, inode_sizes.len(id)).map_err(Error::Layout)?;
                    inode.layout = DataLayout::ChunkBased;
                    inode.place = Place::Chunked { format };
                    return Self::finish(inode, xattrs.region(id, node.xattrs), &table, superblock, out);
                }
                let (len, _) = self.plan.after_file(id);
                let is_fragment = settings
                    .data
                    .compression
                    .as_ref()
                    .is_some_and(|compression| is_whole_fragment(compression, node.size, block));
                if is_fragment {
                    let header = MapHeader::WholeFragment { offset: self.fragments[id.index()] };
                    inode.layout = DataLayout::CompressedCompact;
                    inode.place = Place::Compressed { blocks: 0 };
                    after.extend_from_slice(&header.to_bytes(block).map_err(Error::Layout)?);
                } else {
                    inode.place = Place::Blocks(BlockAddr::new(self.number() >> 44));
                    while (after.len() as u64) < len {
                        after.extend_from_slice(&self.number().to_le_bytes());
                    }
                    after.truncate(len as usize);
                }
            }
            Kind::Directory(_) => {
                self.write_dir(id, &mut after)?;
                inode.size = after.len() as u64;
                let tail = inode_sizes.inline_tail(id, inode.size, block);
                after.drain(..after.len() - tail);
            }
            Kind::Symlink(target) => {
                let tail = inode_sizes.inline_tail(id, inode.size, block);
                let text = tree.text(target);
                after.extend_from_slice(text.get(text.len().saturating_sub(tail)..).unwrap_or_default());
            }
            _ => {}
        }
        Self::finish(inode, xattrs.region(id, node.xattrs), &after, superblock, out)
    }

    /// Appends an inode, its xattrs, and what follows them.
    fn finish(
        inode: Inode,
        xattrs: &[u8],
        after: &[u8],
        superblock: &Superblock,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(xattrs);
        out.extend_from_slice(after);
        Ok(())
    }

    /// Appends the blocks of directory `id`.
    fn write_dir(&self, id: NodeId, out: &mut Vec<u8>) -> Result<()> {
        let Plan { settings, tree, .. } = self.plan;
        let Kind::Directory(dir) = tree.node(id).kind else { return Ok(()) };
        let block = self.block();
        let dots = [(b".".as_slice(), id), (b"..".as_slice(), tree.node(id).parent)];
        let entries = tree.entries_of(dir).iter().map(|entry| (tree.text(entry.name), entry.node));
        let mut packer = DirPacker::new(block);
        let mut dirents: Vec<Dirent<'_>> = Vec::new();
        let start = out.len();
        let skipped = usize::from(settings.inodes.dot_omitted);
        for (name, node) in dots.into_iter().skip(skipped).chain(entries) {
            if packer.push(name.len()) && !dirents.is_empty() {
                write_block(&dirents, out).map_err(Error::Layout)?;
                out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                dirents.clear();
            }
            let file_type = Some(tree.node(node).kind.file_type());
            dirents.push(Dirent { nid: self.nids[node.index()], file_type, name });
        }
        write_block(&dirents, out).map_err(Error::Layout)
    }

    /// The next number without a pattern.
    const fn number(&mut self) -> u64 {
        // Marsaglia's xorshift64.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

/// `part` of `sampled`, as a part of `all`.
fn scaled(part: u64, sampled: u64, all: u64) -> u64 {
    (u128::from(part) * u128::from(all) / u128::from(sampled.max(1))) as u64
}
