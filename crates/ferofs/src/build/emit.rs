//! The metadata: first every inode gets its place, then everything is written in the order of places.
//! Source: FORMAT.md 2, 3, 4.

use ferofs_format::dirent::{DirPacker, Dirent, write_block};
use ferofs_format::inode::{DataLayout, FileType, Inode, Place, Timestamp};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, Nid};

use super::Options;
use super::data::{Content, PackedInode};
use super::heads::{self, Heads};
use super::layout::Packer;
use super::output::Output;
use super::spill::Spill;
use super::tree::{Kind, NodeId, Tree};
use super::xattr::XattrPlan;
use crate::{Error, Result};

/// Bytes kept free before the root inode: no inode has nid 0, which old `readdir`s take for a deleted file,
/// and an updated root inode can live in the two slots after that.
const RESERVED: u64 = 3 * SLOT_SIZE;

/// All that the metadata is made from.
pub(crate) struct Emitter<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) heads: &'a Heads,
    pub(crate) xattrs: &'a XattrPlan,
    pub(crate) contents: &'a [Content],
    pub(crate) packed: Option<&'a PackedInode>,
    pub(crate) spill: &'a mut Spill,
}

/// Something with a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// Bytes from the area's start.
    pos: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// An inode with what follows it.
    Inode(NodeId),
    /// Blocks of its content.
    Blocks(NodeId),
    /// The packed inode.
    Packed,
}

/// Where everything is.
struct Places {
    /// Positions of inodes, by node.
    inodes: Vec<u64>,
    /// Sorted.
    items: Vec<Item>,
    /// First blocks of the content in the area, by node; sorted.
    blocks: Vec<(NodeId, u64)>,
    /// Position of the packed inode.
    packed: Option<u64>,
    total_blocks: u64,
}

impl Emitter<'_> {
    /// Appends the metadata and completes `superblock` with what is where.
    pub(crate) fn emit(
        &mut self,
        options: &Options,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let block = superblock.block_size;
        let base = output.position().next_multiple_of(block.bytes64());
        output.pad_to(base)?;
        superblock.meta = BlockAddr::new(base >> block.bits());
        let places = self.plan(block);
        superblock.root = Nid::new(places.inodes[0] / SLOT_SIZE);
        superblock.inodes =
            places.items.iter().filter(|item| matches!(item.what, What::Inode(_))).count() as u64;
        superblock.packed = places.packed.map(|pos| Nid::new(pos / SLOT_SIZE));
        let mut bytes = Vec::new();
        for item in &places.items {
            options.check_cancelled()?;
            output.pad_to(base + item.pos)?;
            bytes.clear();
            match item.what {
                What::Inode(node) => self.write_inode(node, &places, superblock, &mut bytes)?,
                What::Blocks(node) => self.write_blocks(node, &places, block, &mut bytes)?,
                What::Packed => self.write_packed(superblock, &mut bytes)?,
            }
            output.append(&bytes)?;
        }
        output.pad_to(base + places.total_blocks * block.bytes64())?;
        if !self.xattrs.shared.is_empty() {
            superblock.xattr = BlockAddr::new(output.position() >> block.bits());
            output.append(&self.xattrs.shared)?;
        }
        let unit = block.bytes64().saturating_mul(options.image_unit.get().into());
        output.pad_to(output.position().next_multiple_of(unit))?;
        superblock.blocks = output.position() >> block.bits();
        Ok(())
    }

    fn is_skipped(&self, id: NodeId) -> bool {
        matches!(self.contents[id.index()], Content::Skipped)
    }

    fn plan(&self, block: BlockSize) -> Places {
        let mut packer = Packer::new(block, RESERVED);
        let mut places = Places {
            inodes: vec![0; self.tree.nodes.len()],
            items: Vec::with_capacity(self.tree.nodes.len()),
            blocks: Vec::new(),
            packed: None,
            total_blocks: 0,
        };
        for id in self.tree.ids().filter(|id| !self.is_skipped(*id)) {
            let (after, blocks) = match &self.contents[id.index()] {
                Content::None | Content::Skipped => {
                    let size = self.own_size(id, block);
                    let tail = self.heads.inline_tail(id, size, block);
                    (tail, block.blocks_for(size - tail as u64))
                }
                content => (content.len_after(), 0),
            };
            let pos = packer.place((self.heads.len(id) + after) as u64);
            places.inodes[id.index()] = pos;
            places.items.push(Item { pos, what: What::Inode(id) });
            if blocks > 0 {
                let first = packer.place_blocks(blocks);
                places.blocks.push((id, first));
                places.items.push(Item { pos: first * block.bytes64(), what: What::Blocks(id) });
            }
        }
        if let Some(packed) = self.packed {
            let pos = packer.place((heads::PACKED_LEN + packed.content.len_after()) as u64);
            places.packed = Some(pos);
            places.items.push(Item { pos, what: What::Packed });
        }
        places.items.sort_unstable();
        places.total_blocks = packer.blocks();
        places
    }

    /// Bytes of content that live in the metadata: directories and symbolic links.
    fn own_size(&self, id: NodeId, block: BlockSize) -> u64 {
        match self.tree.node(id).kind {
            Kind::Directory(_) => {
                let mut packer = DirPacker::new(block);
                for (name, _) in self.dir(id) {
                    packer.push(name.len());
                }
                packer.size()
            }
            Kind::Symlink(target) => self.tree.text(target).len() as u64,
            _ => 0,
        }
    }

    /// The names of directory `id`, sorted, with `.` and `..`.
    fn dir(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let node = self.tree.node(id);
        let entries = match node.kind {
            Kind::Directory(dir) => self.tree.entries_of(dir),
            _ => &[],
        };
        let mut dots = [(b".".as_slice(), id), (b"..".as_slice(), node.parent)].into_iter().peekable();
        let mut entries = entries
            .iter()
            .filter(|entry| !self.is_skipped(entry.node))
            .map(|entry| (self.tree.text(entry.name), entry.node))
            .peekable();
        std::iter::from_fn(move || match (dots.peek(), entries.peek()) {
            (Some((dot, _)), Some((name, _))) if name < dot => entries.next(),
            (Some(_), _) => dots.next(),
            (None, _) => entries.next(),
        })
    }

    /// Directory `id` block by block.
    fn write_dir(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        let mut packer = DirPacker::new(block);
        let mut row: Vec<Dirent<'_>> = Vec::new();
        let start = out.len();
        for (name, node) in self.dir(id) {
            if packer.push(name.len()) && !row.is_empty() {
                write_block(&row, out).map_err(Error::Layout)?;
                out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                row.clear();
            }
            let nid = Nid::new(places.inodes[node.index()] / SLOT_SIZE);
            row.push(Dirent { nid, file_type: Some(self.tree.node(node).kind.file_type()), name });
        }
        write_block(&row, out).map_err(Error::Layout)
    }

    fn write_own(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        match self.tree.node(id).kind {
            Kind::Directory(_) => self.write_dir(id, places, block, out),
            Kind::Symlink(target) => {
                out.extend_from_slice(self.tree.text(target));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_blocks(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        self.write_own(id, places, block, out)?;
        let tail = self.heads.inline_tail(id, out.len() as u64, block);
        out.truncate(out.len() - tail);
        Ok(())
    }

    fn write_inode(
        &mut self,
        id: NodeId,
        places: &Places,
        superblock: &Superblock,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let block = superblock.block_size;
        let mut inode = heads::inode(self.tree, self.xattrs, superblock, id, self.heads.version(id))?;
        let mut own = Vec::new();
        let mut after = None;
        let content = &self.contents[id.index()];
        match content {
            Content::None | Content::Skipped => {
                self.write_own(id, places, block, &mut own)?;
                self.settle_own(id, places, superblock, &mut own, &mut inode);
            }
            content => after = content.settle(&mut inode),
        }
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(self.xattrs.region(id, self.tree.node(id).xattrs));
        out.extend_from_slice(&own);
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        Ok(())
    }

    fn write_packed(&mut self, superblock: &Superblock, out: &mut Vec<u8>) -> Result<()> {
        let Some(packed) = self.packed else { return Ok(()) };
        let mtime = Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec };
        let mut inode = heads::packed_inode(packed.size, self.tree.nodes.len() as u32 + 1, mtime);
        let after = packed.content.settle(&mut inode);
        inode.write(superblock, out).map_err(Error::Layout)?;
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        Ok(())
    }

    /// Leaves in `own` only what follows the inode.
    fn settle_own(
        &self,
        id: NodeId,
        places: &Places,
        superblock: &Superblock,
        own: &mut Vec<u8>,
        inode: &mut Inode,
    ) {
        inode.size = own.len() as u64;
        let tail = self.heads.inline_tail(id, inode.size, superblock.block_size);
        own.drain(..own.len() - tail);
        if tail > 0 {
            inode.layout = DataLayout::FlatInline;
        }
        let has_content =
            matches!(inode.file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
        if has_content {
            let index = places.blocks.binary_search_by_key(&id, |(node, _)| *node);
            let start = index.map_or(0, |index| superblock.meta.get() + places.blocks[index].1);
            inode.place = Place::Blocks(BlockAddr::new(start));
        }
    }
}
