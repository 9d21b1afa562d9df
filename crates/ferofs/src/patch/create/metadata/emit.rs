//! Writes new inodes: of files that changed, and of all directories above them. All other inodes stay where they are.
//! Source: FORMAT.md 2, 3, 5.

use std::collections::HashSet;

use ferofs_format::inode::{DataLayout, FileType, Inode, Place};
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, DeviceId, Incompat, Nid};

use super::directory::{self, DirectoryBlocks};
use super::root::RootPlace;
use crate::error::Result;
use crate::patch::create::decide::files::{ReuseDecision, ReuseDecisions};
use crate::patch::create::decide::growth::GrowingMetabox;
use crate::patch::create::options::GrowthParts;
use ferofs_build::Options;
use ferofs_build::data::stored::StoredContent;
use ferofs_build::metadata::compressed::{EncodedContent, MetadataEncoder};
use ferofs_build::metadata::self_check::{self, InodePlace};
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::tree::inode_sizes::{self, InodeSizes, PACKED_LEN};
use ferofs_build::tree::xattr::XattrPlan;
use ferofs_build::tree::{Kind, NodeId, Tree};
use ferofs_format::area::AreaAllocator;

/// The inputs for new metadata.
pub(crate) struct NewMetadata<'a> {
    pub(crate) options: &'a Options,
    pub(crate) tree: &'a Tree,
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) xattrs: &'a XattrPlan,
    pub(crate) contents: &'a [StoredContent],
    pub(crate) decisions: &'a ReuseDecisions,
    pub(crate) spill: &'a mut Spill,
    /// Inodes of the old image that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// Directories that get a new inode only because `..` changes.
    pub(crate) with_new_parent: &'a HashSet<NodeId>,
    /// Large directories that keep old blocks, sorted by node.
    pub(crate) block_dirs: &'a [(NodeId, DirectoryBlocks)],
    pub(crate) root: RootPlace,
    /// The first free inode number of those that `stat` shows.
    pub(crate) first_ino: u32,
    /// The metabox, if new inodes go there.
    pub(crate) metabox: Option<&'a GrowingMetabox>,
}

/// Where the new metadata is.
#[derive(Debug, Default)]
pub(crate) struct WrittenMetadata {
    pub(crate) root: Nid,
    /// The content of the metabox, if it has grown.
    pub(crate) metabox: Option<EncodedContent>,
    /// The nid of each node.
    pub(crate) nids: Vec<Nid>,
    /// Position and bytes of the root's inode, if it goes into free slots of the base.
    pub(crate) free_root: Option<(u64, Vec<u8>)>,
    pub(crate) features: Incompat,
    /// Bytes of new metadata, by node.
    pub(crate) costs: Vec<u64>,
    /// What the new metadata consists of.
    pub(crate) growth: GrowthParts,
    /// The position of the new metadata.
    pub(crate) base: u64,
    /// The first new block of each directory or symbolic link that has any, sorted by node.
    pub(crate) blocks: Vec<(NodeId, BlockAddr)>,
    /// The sizes of all new inodes, in the order of the tree.
    pub(crate) sizes: Vec<NewSize>,
}

/// The size of a new inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSize {
    pub(crate) node: NodeId,
    /// Bytes of the inode with all that follows it.
    pub(crate) len: u64,
    /// Blocks of a directory or a symbolic link.
    pub(crate) blocks: u64,
    /// The last bytes of `len` that are content.
    pub(crate) inline: u64,
}

impl WrittenMetadata {
    /// Divides the `encoded` bytes of all new metadata among inodes and parts, in proportion to their sizes before compression.
    fn scale(&mut self, encoded: u64) {
        let decoded: u64 = self.growth.named().iter().map(|(_, len)| len).sum();
        let scale = |bytes: &mut u64| {
            let scaled = u128::from(*bytes) * u128::from(encoded) / u128::from(decoded.max(1));
            *bytes = u64::try_from(scaled).unwrap_or(u64::MAX);
        };
        self.costs.iter_mut().for_each(scale);
        let GrowthParts { content, inodes, indexes, new_tails, copied_tails, directories, parents, padding } =
            &mut self.growth;
        let parts = [content, inodes, indexes, new_tails, copied_tails, directories, parents, padding];
        parts.into_iter().for_each(scale);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Inode(NodeId),
    Blocks(NodeId),
}

/// The positions of all new metadata.
struct Layout {
    /// The nid of each node.
    nids: Vec<Nid>,
    /// Offsets from the start of the new metadata, sorted.
    items: Vec<(u64, Item)>,
    /// Inodes in the metabox, with their positions in its content, sorted.
    in_metabox: Vec<(u64, NodeId)>,
    /// The first new block of each directory or symbolic link that has any, sorted by node.
    blocks: Vec<(NodeId, BlockAddr)>,
    total_blocks: u64,
}

impl NewMetadata<'_> {
    /// Appends the metadata to `output`. `first` is the position of the first appended byte.
    pub(crate) fn emit(
        &mut self,
        superblock: &Superblock,
        first: u64,
        output: &mut Output,
    ) -> Result<WrittenMetadata> {
        let block = superblock.block_size;
        let start = output.position();
        let base = start.next_multiple_of(block.bytes64());
        if self.metabox.is_none() {
            output.pad_to(base)?;
        }
        let mut written =
            WrittenMetadata { costs: vec![0; self.tree.nodes.len()], ..WrittenMetadata::default() };
        let places = self.plan(superblock, base, first, &mut written);
        written.base = base;
        written.root = places.nids[NodeId::ROOT.index()];
        let data_end = base + places.total_blocks * block.bytes64();
        let mut bytes = Vec::new();
        for (pos, item) in &places.items {
            self.options.run.check_cancelled()?;
            output.pad_to(base + pos)?;
            bytes.clear();
            match item {
                Item::Inode(node) => {
                    let place = InodePlace { pos: base + pos, data_end };
                    self.write_inode(*node, &places, superblock, place, &written.sizes, &mut bytes)?;
                }
                Item::Blocks(node) => self.write_blocks(*node, &places, block, &mut bytes)?,
            }
            output.append(&bytes)?;
        }
        if places.total_blocks > 0 {
            output.pad_to(data_end)?;
        }
        if let Some(metabox) = self.metabox {
            written.metabox =
                Some(self.append_metabox(metabox, &places, superblock, &written.sizes, output)?);
            written.scale(output.position() - start);
        } else if self.root != RootPlace::Anywhere {
            bytes.clear();
            let pos = if let RootPlace::Free(pos) = self.root { pos } else { first };
            let place = InodePlace { pos, data_end };
            self.write_inode(NodeId::ROOT, &places, superblock, place, &written.sizes, &mut bytes)?;
            match self.root {
                RootPlace::Free(pos) => written.free_root = Some((pos, bytes)),
                RootPlace::First | RootPlace::Anywhere => output.overwrite(first, &bytes)?,
            }
        }
        (written.nids, written.blocks) = (places.nids, places.blocks);
        Ok(written)
    }

    /// Encodes the new inodes behind the old content of the metabox.
    fn append_metabox(
        &mut self,
        metabox: &GrowingMetabox,
        places: &Layout,
        superblock: &Superblock,
        sizes: &[NewSize],
        output: &mut Output,
    ) -> Result<EncodedContent> {
        let GrowingMetabox { earlier, compression, .. } = metabox;
        let (block, run) = (superblock.block_size, &self.options.run);
        let file = compression.for_directories(block);
        let timings = &run.progress.timings;
        let encoder = MetadataEncoder::new(compression, file, block, timings, run.worker_count())?;
        // All blocks that the inodes refer to are written already.
        let data_end = output.position();
        let (mut bytes, mut end) = (Vec::new(), earlier.size);
        encoder.encode_after(earlier, output, |queue| {
            for &(pos, node) in &places.in_metabox {
                run.check_cancelled()?;
                bytes.clear();
                self.write_inode(node, places, superblock, InodePlace { pos, data_end }, sizes, &mut bytes)?;
                queue.push(&vec![0; (pos - end) as usize])?;
                queue.push(&bytes)?;
                end = pos + bytes.len() as u64;
            }
            // Readers read the metabox in whole blocks.
            queue.push(&vec![0; (end.next_multiple_of(block.bytes64()) - end) as usize])?;
            Ok(queue.end(PACKED_LEN)?)
        })
    }

    fn block_dir(&self, id: NodeId) -> Option<&DirectoryBlocks> {
        let index = self.block_dirs.binary_search_by_key(&id, |(node, _)| *node).ok()?;
        Some(&self.block_dirs[index].1)
    }

    /// The length of the inline tail of a directory or symbolic link of `size` bytes.
    fn tail(&self, id: NodeId, size: u64, block: BlockSize) -> usize {
        let in_free_slots = id == NodeId::ROOT && matches!(self.root, RootPlace::Free(_));
        if in_free_slots { 0 } else { self.inode_sizes.inline_tail(id, size, block) }
    }

    fn plan(&self, superblock: &Superblock, base: u64, first: u64, written: &mut WrittenMetadata) -> Layout {
        let block = superblock.block_size;
        // Appended metadata is always after the position that nids count from.
        let slots = superblock.inode_base().map_or(0, ferofs_format::BytePos::get);
        let nid = |pos: u64| Nid::new((pos - slots) / SLOT_SIZE);
        let mut packer = match self.metabox {
            Some(_) => AreaAllocator::for_blocks(block),
            None => AreaAllocator::new(block, 0),
        };
        let mut inodes = AreaAllocator::new(block, 0);
        let metabox_end = self.metabox.map(|metabox| metabox.earlier.size.next_multiple_of(block.bytes64()));
        let mut places = Layout {
            nids: self.kept.iter().map(|kept| kept.unwrap_or_default()).collect(),
            items: Vec::new(),
            in_metabox: Vec::new(),
            blocks: Vec::new(),
            total_blocks: 0,
        };
        for id in self.tree.ids().filter(|id| self.kept[id.index()].is_none()) {
            let (after, blocks) = match (&self.contents[id.index()], self.block_dir(id)) {
                (_, Some(dir)) => {
                    let new = dir.blocks.iter().filter(|block| block.kept.is_none()).count();
                    (dir.blocks.len() * TABLE_ENTRY, new as u64)
                }
                (StoredContent::None | StoredContent::Skipped, None) => {
                    let size = self.metadata_content_size(id, block);
                    let tail = self.tail(id, size, block);
                    (tail, block.blocks_for(size - tail as u64))
                }
                (content, None) => (content.len_after(), 0),
            };
            let len = (self.inode_sizes.len(id) + after) as u64;
            written.costs[id.index()] = len.next_multiple_of(SLOT_SIZE) + blocks * block.bytes64();
            let inline = self.contents[id.index()].inline_len();
            written.sizes.push(NewSize { node: id, len, blocks, inline });
            self.count(id, len, blocks * block.bytes64(), &mut written.growth);
            let apart = match self.root {
                _ if id != NodeId::ROOT => None,
                RootPlace::Anywhere => None,
                RootPlace::First => Some(first),
                RootPlace::Free(pos) => Some(pos),
            };
            match (metabox_end, apart) {
                (Some(end), _) => {
                    let pos = end + inodes.allocate(len, inline);
                    places.nids[id.index()] = Nid::metabox_slot(pos / SLOT_SIZE);
                    places.in_metabox.push((pos, id));
                }
                (None, Some(pos)) => places.nids[id.index()] = nid(pos),
                (None, None) => {
                    let pos = packer.allocate(len, inline);
                    places.nids[id.index()] = nid(base + pos);
                    places.items.push((pos, Item::Inode(id)));
                }
            }
            if blocks > 0 {
                let start = packer.allocate_blocks(blocks);
                places.blocks.push((id, BlockAddr::new((base >> block.bits()) + start)));
                places.items.push((start * block.bytes64(), Item::Blocks(id)));
            }
        }
        places.items.sort_unstable();
        places.in_metabox.sort_unstable();
        places.total_blocks = packer.blocks();
        if !self.block_dirs.is_empty() {
            written.features |= Incompat::CHUNKED_FILE;
        }
        places
    }

    /// Adds the inode of `id`, of `len` bytes with all that follows it, and its `blocks` to what the image grows by.
    fn count(&self, id: NodeId, len: u64, blocks: u64, growth: &mut GrowthParts) {
        // A root in free slots adds only its blocks.
        let in_free_slots = id == NodeId::ROOT && matches!(self.root, RootPlace::Free(_));
        let len = if in_free_slots { 0 } else { len };
        if matches!(self.tree.node(id).kind, Kind::Directory(_)) {
            let has_new_parent = self.with_new_parent.contains(&id);
            let part = if has_new_parent { &mut growth.parents } else { &mut growth.directories };
            *part += len + blocks;
            return;
        }
        let content = &self.contents[id.index()];
        let (after, tail) = (content.len_after() as u64, content.inline_len());
        let is_copied = matches!(self.decisions.by_node[id.index()], ReuseDecision::SameContent(_));
        growth.inodes += len.saturating_sub(after) + blocks;
        growth.indexes += after.saturating_sub(tail);
        *if is_copied { &mut growth.copied_tails } else { &mut growth.new_tails } += tail;
    }

    /// Bytes of a directory or symbolic link.
    fn metadata_content_size(&self, id: NodeId, block: BlockSize) -> u64 {
        match self.tree.node(id).kind {
            Kind::Directory(_) => directory::pack(&directory::entries(self.tree, id), block).1,
            Kind::Symlink(target) => self.tree.text(target).len() as u64,
            _ => 0,
        }
    }

    fn write_metadata_content(
        &self,
        id: NodeId,
        places: &Layout,
        block: BlockSize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.tree.node(id).kind {
            Kind::Directory(_) => {
                let entries = directory::entries(self.tree, id);
                let start = out.len();
                for row in directory::pack(&entries, block).0 {
                    out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                    directory::write(self.tree, id, &entries[row], |node| places.nids[node.index()], out)?;
                }
                Ok(())
            }
            Kind::Symlink(target) => {
                out.extend_from_slice(self.tree.text(target));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_blocks(&self, id: NodeId, places: &Layout, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        if let Some(dir) = self.block_dir(id) {
            let entries = directory::entries(self.tree, id);
            for new in dir.blocks.iter().filter(|block| block.kept.is_none()) {
                let nid = |node: NodeId| places.nids[node.index()];
                directory::write(self.tree, id, &entries[new.entries.clone()], nid, out)?;
                out.resize(out.len().next_multiple_of(block.bytes()), 0);
            }
            return Ok(());
        }
        self.write_metadata_content(id, places, block, out)?;
        let tail = self.tail(id, out.len() as u64, block);
        out.truncate(out.len() - tail);
        Ok(())
    }

    fn write_inode(
        &mut self,
        id: NodeId,
        places: &Layout,
        superblock: &Superblock,
        place: InodePlace,
        sizes: &[NewSize],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut inode =
            inode_sizes::inode(self.tree, self.xattrs, superblock, id, self.inode_sizes.version(id))?;
        // Inodes that are written have consecutive numbers, which a patch need not store.
        let number = sizes.binary_search_by_key(&id, |size| size.node).unwrap_or(0);
        inode.ino = self.first_ino.wrapping_add(number as u32);
        let mut own = Vec::new();
        let mut after = None;
        match &self.contents[id.index()] {
            _ if self.block_dir(id).is_some() => self.finish_block_dir(id, places, &mut own, &mut inode)?,
            StoredContent::None | StoredContent::Skipped => {
                self.write_metadata_content(id, places, superblock.block_size, &mut own)?;
                self.finish_flat(id, places, superblock.block_size, &mut own, &mut inode);
            }
            content => after = content.set_in(&mut inode),
        }
        inode.write(superblock, out).map_err(ferofs_build::Error::Layout)?;
        out.extend_from_slice(self.xattrs.region(id, self.tree.node(id).xattrs));
        out.extend_from_slice(&own);
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        Ok(self_check::name_inode(place.check(&inode, out, superblock), || self.tree.display_path(id))?)
    }

    /// Keeps only the inline tail in `own`, and puts the data layout into `inode`.
    fn finish_flat(
        &self,
        id: NodeId,
        places: &Layout,
        block: BlockSize,
        own: &mut Vec<u8>,
        inode: &mut Inode,
    ) {
        inode.size = own.len() as u64;
        let tail = self.tail(id, inode.size, block);
        own.drain(..own.len() - tail);
        if tail > 0 {
            inode.layout = DataLayout::FlatInline;
        }
        let has_content =
            matches!(inode.file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
        if has_content {
            inode.place = Place::Blocks(first_block(places, id));
        }
    }

    /// Writes the chunk table of a large directory to `table`, and puts the data layout into `inode`.
    fn finish_block_dir(
        &self,
        id: NodeId,
        places: &Layout,
        table: &mut Vec<u8>,
        inode: &mut Inode,
    ) -> Result<()> {
        let (Some(dir), Some(format)) = (self.block_dir(id), ChunkFormat::new(0, EntryFormat::Addresses))
        else {
            return Ok(());
        };
        inode.size = dir.size;
        inode.layout = DataLayout::ChunkBased;
        inode.place = Place::Chunked { format: format.raw() };
        let mut next = first_block(places, id).get();
        for block in &dir.blocks {
            let addr = block.kept.unwrap_or_else(|| {
                next += 1;
                BlockAddr::new(next - 1)
            });
            let place = ChunkPlace { device: DeviceId::new(0), addr };
            format.encode(Some(place), table).map_err(ferofs_build::Error::Layout)?;
        }
        Ok(())
    }
}

/// Bytes of an entry in a directory's chunk table.
const TABLE_ENTRY: usize = 4;

fn first_block(places: &Layout, id: NodeId) -> BlockAddr {
    let index = places.blocks.binary_search_by_key(&id, |(node, _)| *node);
    index.map_or(BlockAddr::new(0), |index| places.blocks[index].1)
}
