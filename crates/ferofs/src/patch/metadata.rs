//! New metadata: inodes that changed, their directories, up to the root. Everything else stays where it is.
//! Source: FORMAT.md 2, 3, 5.

use ferofs_format::inode::{DataLayout, FileType, Inode, Place};
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, DeviceId, Incompat, Nid};

use super::dirs::{self, BlockDir};
use super::root::RootPlace;
use crate::Result;
use ferofs_build::Options;
use ferofs_build::data::stored::StoredContent;
use ferofs_build::metadata::area::AreaAllocator;
use ferofs_build::metadata::self_check::{self, InodePlace};
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::tree::inode_sizes::{self, Heads};
use ferofs_build::tree::xattr::XattrPlan;
use ferofs_build::tree::{Kind, NodeId, Tree};

/// All that new metadata is made from.
pub(crate) struct NewMetadata<'a> {
    pub(crate) options: &'a Options,
    pub(crate) tree: &'a Tree,
    pub(crate) heads: &'a Heads,
    pub(crate) xattrs: &'a XattrPlan,
    pub(crate) contents: &'a [StoredContent],
    pub(crate) spill: &'a mut Spill,
    /// Inodes that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// Large directories, by node, sorted.
    pub(crate) block_dirs: &'a [(NodeId, BlockDir)],
    pub(crate) root: RootPlace,
    /// The first number for old `stat` that is free.
    pub(crate) first_ino: u32,
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) root: Nid,
    /// Numbers of all inodes, by node.
    pub(crate) nids: Vec<Nid>,
    /// The root's inode, if it goes into free slots of the base.
    pub(crate) free_root: Option<(u64, Vec<u8>)>,
    pub(crate) features: Incompat,
    /// Bytes of metadata for each node.
    pub(crate) costs: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Inode(NodeId),
    Blocks(NodeId),
}

/// Where everything is.
struct Places {
    /// Numbers of inodes, by node.
    nids: Vec<Nid>,
    /// Bytes from the base on, sorted.
    items: Vec<(u64, What)>,
    /// First blocks of directories' content, by node; sorted.
    blocks: Vec<(NodeId, BlockAddr)>,
    total_blocks: u64,
}

impl NewMetadata<'_> {
    /// Appends the metadata to `output`; `first` is where that began.
    pub(crate) fn emit(
        &mut self,
        superblock: &Superblock,
        first: u64,
        output: &mut Output,
    ) -> Result<Written> {
        let block = superblock.block_size;
        let base = output.position().next_multiple_of(block.bytes64());
        output.pad_to(base)?;
        let mut written = Written { costs: vec![0; self.tree.nodes.len()], ..Written::default() };
        let places = self.plan(superblock, base, first, &mut written);
        written.root = places.nids[NodeId::ROOT.index()];
        let data_end = base + places.total_blocks * block.bytes64();
        let mut bytes = Vec::new();
        for (pos, what) in &places.items {
            self.options.run.check_cancelled()?;
            output.pad_to(base + pos)?;
            bytes.clear();
            match what {
                What::Inode(node) => {
                    let place = InodePlace { pos: base + pos, data_end };
                    self.write_inode(*node, &places, superblock, place, &mut bytes)?;
                }
                What::Blocks(node) => self.write_blocks(*node, &places, block, &mut bytes)?,
            }
            output.append(&bytes)?;
        }
        output.pad_to(base + places.total_blocks * block.bytes64())?;
        if self.root != RootPlace::Anywhere {
            bytes.clear();
            let pos = if let RootPlace::Free(pos) = self.root { pos } else { first };
            let place = InodePlace { pos, data_end };
            self.write_inode(NodeId::ROOT, &places, superblock, place, &mut bytes)?;
            match self.root {
                RootPlace::Free(pos) => written.free_root = Some((pos, bytes)),
                RootPlace::First | RootPlace::Anywhere => output.overwrite(first, &bytes)?,
            }
        }
        written.nids = places.nids;
        Ok(written)
    }

    fn block_dir(&self, id: NodeId) -> Option<&BlockDir> {
        let index = self.block_dirs.binary_search_by_key(&id, |(node, _)| *node).ok()?;
        Some(&self.block_dirs[index].1)
    }

    /// How many of the last bytes of `size` follow `id`, of those that are no regular file's.
    fn tail(&self, id: NodeId, size: u64, block: BlockSize) -> usize {
        let alone = id == NodeId::ROOT && matches!(self.root, RootPlace::Free(_));
        if alone { 0 } else { self.heads.inline_tail(id, size, block) }
    }

    fn plan(&self, superblock: &Superblock, base: u64, first: u64, written: &mut Written) -> Places {
        let block = superblock.block_size;
        // Metadata starts after the slots that inodes are counted from.
        let slots = superblock.inode_base().map_or(0, ferofs_format::BytePos::get);
        let nid = |pos: u64| Nid::new((pos - slots) / SLOT_SIZE);
        let mut packer = AreaAllocator::new(block, 0);
        let mut places = Places {
            nids: self.kept.iter().map(|kept| kept.unwrap_or_default()).collect(),
            items: Vec::new(),
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
                    let size = self.own_size(id, block);
                    let tail = self.tail(id, size, block);
                    (tail, block.blocks_for(size - tail as u64))
                }
                (content, None) => (content.len_after(), 0),
            };
            let len = (self.heads.len(id) + after) as u64;
            written.costs[id.index()] = len.next_multiple_of(SLOT_SIZE) + blocks * block.bytes64();
            let apart = match self.root {
                _ if id != NodeId::ROOT => None,
                RootPlace::Anywhere => None,
                RootPlace::First => Some(first),
                RootPlace::Free(pos) => Some(pos),
            };
            match apart {
                Some(pos) => places.nids[id.index()] = nid(pos),
                None => {
                    let pos = packer.allocate(len, self.contents[id.index()].inline_len());
                    places.nids[id.index()] = nid(base + pos);
                    places.items.push((pos, What::Inode(id)));
                }
            }
            if blocks > 0 {
                let start = packer.allocate_blocks(blocks);
                places.blocks.push((id, BlockAddr::new((base >> block.bits()) + start)));
                places.items.push((start * block.bytes64(), What::Blocks(id)));
            }
        }
        places.items.sort_unstable();
        places.total_blocks = packer.blocks();
        if !self.block_dirs.is_empty() {
            written.features |= Incompat::CHUNKED_FILE;
        }
        places
    }

    /// Bytes of content that lives in the metadata: directories and symbolic links.
    fn own_size(&self, id: NodeId, block: BlockSize) -> u64 {
        match self.tree.node(id).kind {
            Kind::Directory(_) => dirs::pack(&dirs::entries(self.tree, id), block).1,
            Kind::Symlink(target) => self.tree.text(target).len() as u64,
            _ => 0,
        }
    }

    fn write_own(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        match self.tree.node(id).kind {
            Kind::Directory(_) => {
                let entries = dirs::entries(self.tree, id);
                let start = out.len();
                for row in dirs::pack(&entries, block).0 {
                    out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                    dirs::write(self.tree, id, &entries[row], |node| places.nids[node.index()], out)?;
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

    fn write_blocks(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        if let Some(dir) = self.block_dir(id) {
            let entries = dirs::entries(self.tree, id);
            for new in dir.blocks.iter().filter(|block| block.kept.is_none()) {
                let nid = |node: NodeId| places.nids[node.index()];
                dirs::write(self.tree, id, &entries[new.entries.clone()], nid, out)?;
                out.resize(out.len().next_multiple_of(block.bytes()), 0);
            }
            return Ok(());
        }
        self.write_own(id, places, block, out)?;
        let tail = self.tail(id, out.len() as u64, block);
        out.truncate(out.len() - tail);
        Ok(())
    }

    fn write_inode(
        &mut self,
        id: NodeId,
        places: &Places,
        superblock: &Superblock,
        place: InodePlace,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut inode = inode_sizes::inode(self.tree, self.xattrs, superblock, id, self.heads.version(id))?;
        inode.ino = self.first_ino.wrapping_add(id.0);
        let mut own = Vec::new();
        let mut after = None;
        match &self.contents[id.index()] {
            _ if self.block_dir(id).is_some() => self.settle_blocks(id, places, &mut own, &mut inode)?,
            StoredContent::None | StoredContent::Skipped => {
                self.write_own(id, places, superblock.block_size, &mut own)?;
                self.settle_own(id, places, superblock.block_size, &mut own, &mut inode);
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

    /// Leaves in `own` only what follows the inode.
    fn settle_own(
        &self,
        id: NodeId,
        places: &Places,
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

    /// Puts the table of a large directory's blocks into `table`.
    fn settle_blocks(
        &self,
        id: NodeId,
        places: &Places,
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

/// Bytes of an entry in the table of a directory's blocks.
const TABLE_ENTRY: usize = 4;

fn first_block(places: &Places, id: NodeId) -> BlockAddr {
    let index = places.blocks.binary_search_by_key(&id, |(node, _)| *node);
    index.map_or(BlockAddr::new(0), |index| places.blocks[index].1)
}
