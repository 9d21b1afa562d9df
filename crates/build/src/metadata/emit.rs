//! The metadata: first every inode gets its place, then everything is written in the order of places.
//! Source: FORMAT.md 2, 3, 4.

use std::collections::HashMap;

use ferofs_format::dirent::{DirPacker, Dirent, write_block};
use ferofs_format::inode::{DataLayout, FileType, Inode, Place, Timestamp};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, Incompat, Nid};

use crate::Options;
use crate::data::{Content, PackedInode};
use crate::metadata::compressed::{Coder, Dense};
use crate::metadata::layout::Packer;
use crate::metadata::self_check::{self, InodePlace};
use crate::options::compression::Compression;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};
use crate::{Error, Result};

/// Bytes kept free before the root inode: no inode has nid 0, which old `readdir`s take for a deleted file,
/// and an updated root inode can live in the two slots after that.
const RESERVED: u64 = 3 * SLOT_SIZE;

/// All that the metadata is made from.
pub(crate) struct Emitter<'a> {
    pub(crate) options: &'a Options,
    pub(crate) tree: &'a Tree,
    pub(crate) inode_sizes: &'a InodeSizes,
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
    /// The metabox' inode.
    Metabox,
}

/// Where everything is.
#[derive(Default)]
struct Places {
    /// By node.
    nids: Vec<Nid>,
    /// Of the area on the device; sorted.
    items: Vec<Item>,
    /// Of the metabox, inodes alone; sorted.
    metabox: Vec<Item>,
    /// First blocks of the content in the area, by node; sorted.
    blocks: Vec<(NodeId, u64)>,
    /// Position of the packed inode.
    packed: Option<u64>,
    /// Directories whose content is encoded.
    dense: HashMap<NodeId, Content>,
    total_blocks: u64,
}

impl Emitter<'_> {
    /// Appends the metadata and completes `superblock` with what is where.
    pub(crate) fn emit(&mut self, superblock: &mut Superblock, output: &mut Output) -> Result<()> {
        let block = superblock.block_size;
        let compression = self.options.data.compression.as_ref().map(Compression::for_metadata);
        let timings = &self.options.run.progress.timings;
        let coder = |compression| {
            Coder::new(compression, Compression::metadata_recipe(compression, block), block, timings)
        };
        let mut coder = compression.as_ref().map(coder).transpose()?;
        let in_metabox = superblock.incompat.contains(Incompat::METABOX);
        let (mut packer, mut places) = self.plan(block, coder.as_ref(), in_metabox);
        if let Some(coder) = &mut coder {
            self.encode_directories(coder, &mut places, superblock, output)?;
        }
        // Blocks of directories must be known before the inodes in the metabox are written, and these before the metabox'.
        let metabox = match &mut coder {
            Some(coder) if in_metabox => {
                let blocks = places.total_blocks * block.bytes64();
                self.write_area(&places, blocks, None, superblock, output)?;
                Some(self.encode_metabox(coder, &places, superblock, output)?)
            }
            _ => None,
        };
        if let Some(metabox) = &metabox {
            packer = Packer::new(block, RESERVED);
            places.items.clear();
            let pos = packer.place((inode_sizes::PACKED_LEN + metabox.index.len()) as u64, 0);
            places.items.push(Item { pos, what: What::Metabox });
            superblock.metabox = Some(Nid::new(pos / SLOT_SIZE));
        }
        if let Some(packed) = self.packed {
            let pos = packer.place(
                (inode_sizes::PACKED_LEN + packed.content.len_after()) as u64,
                packed.content.inline_len(),
            );
            places.packed = Some(pos);
            places.items.push(Item { pos, what: What::Packed });
        }
        places.items.sort_unstable();
        places.total_blocks = packer.blocks();
        superblock.root = places.nids[0];
        let inodes = |items: &[Item]| items.iter().filter(|item| matches!(item.what, What::Inode(_))).count();
        superblock.inodes = (inodes(&places.items) + inodes(&places.metabox)) as u64;
        superblock.packed = places.packed.map(|pos| Nid::new(pos / SLOT_SIZE));
        self.write_area(
            &places,
            places.total_blocks * block.bytes64(),
            metabox.as_ref(),
            superblock,
            output,
        )?;
        if !self.xattrs.shared.is_empty() {
            superblock.xattr = BlockAddr::new(output.position() >> block.bits());
            output.append(&self.xattrs.shared)?;
        }
        let unit = block.bytes64().saturating_mul(self.options.output.size_alignment.get().into());
        output.pad_to(output.position().next_multiple_of(unit))?;
        superblock.blocks = output.position() >> block.bits();
        Ok(())
    }

    /// Appends an area of `len` bytes, and says where it is.
    fn write_area(
        &mut self,
        places: &Places,
        len: u64,
        metabox: Option<&Dense>,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let block = superblock.block_size;
        let base = output.position().next_multiple_of(block.bytes64());
        output.pad_to(base)?;
        superblock.meta = BlockAddr::new(base >> block.bits());
        let mut bytes = Vec::new();
        for item in &places.items {
            self.options.run.check_cancelled()?;
            output.pad_to(base + item.pos)?;
            bytes.clear();
            let place = InodePlace { pos: base + item.pos, data_end: base + len };
            match (item.what, metabox) {
                (What::Inode(node), _) => self.write_inode(node, places, superblock, place, &mut bytes)?,
                (What::Blocks(node), _) => self.write_blocks(node, places, block, &mut bytes)?,
                (What::Packed, _) => self.write_packed(superblock, place, &mut bytes)?,
                (What::Metabox, Some(metabox)) => {
                    self.write_metabox(metabox, superblock, place, &mut bytes)?
                }
                (What::Metabox, None) => {}
            }
            output.append(&bytes)?;
        }
        output.pad_to(base + len)
    }

    /// Appends the content of directories that are to be encoded: their entries need only numbers of inodes.
    fn encode_directories(
        &mut self,
        coder: &mut Coder<'_>,
        places: &mut Places,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let mut ids: Vec<NodeId> = places.dense.keys().copied().collect();
        ids.sort_unstable();
        let mut bytes = Vec::new();
        for id in ids {
            self.options.run.check_cancelled()?;
            bytes.clear();
            self.write_dir(id, places, superblock.block_size, &mut bytes)?;
            let mut stream = coder.start(output)?;
            coder.push(&mut stream, &bytes, output)?;
            let Dense { layout, blocks, index, .. } =
                coder.finish(stream, self.inode_sizes.len(id), output)?;
            let index = self.spill.push(&index)?;
            places.dense.insert(id, Content::Compressed { layout, blocks, index, inline: 0 });
            // As erofs-utils says it: by then Linux surely reads them (6.1).
            superblock.incompat |= Incompat::LZ4_0PADDING | Incompat::DEDUPE;
        }
        Ok(())
    }

    /// Appends the metabox' content: all inodes.
    fn encode_metabox(
        &mut self,
        coder: &mut Coder<'_>,
        places: &Places,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<Dense> {
        let mut stream = coder.start(output)?;
        let (mut bytes, mut end) = (Vec::new(), 0);
        for item in &places.metabox {
            self.options.run.check_cancelled()?;
            let What::Inode(node) = item.what else { continue };
            bytes.clear();
            bytes.resize((item.pos - end) as usize, 0);
            let place = InodePlace { pos: item.pos, data_end: output.position() };
            self.write_inode(node, places, superblock, place, &mut bytes)?;
            end += bytes.len() as u64;
            coder.push(&mut stream, &bytes, output)?;
        }
        // Whole blocks, which readers take at once.
        bytes.clear();
        bytes.resize((end.next_multiple_of(superblock.block_size.bytes64()) - end) as usize, 0);
        coder.push(&mut stream, &bytes, output)?;
        superblock.incompat |= Incompat::LZ4_0PADDING;
        coder.finish(stream, inode_sizes::PACKED_LEN, output)
    }

    fn is_skipped(&self, id: NodeId) -> bool {
        matches!(self.contents[id.index()], Content::Skipped)
    }

    /// Gives every inode its place, and blocks to what lies beside inodes: in one area, or inodes in the metabox. The
    /// area's packer can take more.
    fn plan(&self, block: BlockSize, coder: Option<&Coder<'_>>, in_metabox: bool) -> (Packer, Places) {
        let mut area = if in_metabox { Packer::of_blocks(block) } else { Packer::new(block, RESERVED) };
        let mut metabox = Packer::new(block, RESERVED);
        let mut places = Places { nids: vec![Nid::default(); self.tree.nodes.len()], ..Places::default() };
        let dense = self.options.data.compression.as_ref().is_some_and(|compression| compression.directories);
        let dense = coder.filter(|_| dense);
        for id in self.tree.ids().filter(|id| !self.is_skipped(*id)) {
            let (after, blocks) = match &self.contents[id.index()] {
                Content::None | Content::Skipped => {
                    let size = self.own_size(id, block);
                    let is_dir = matches!(self.tree.node(id).kind, Kind::Directory(_));
                    match dense.filter(|_| is_dir && size > block.bytes64()) {
                        Some(coder) => {
                            places.dense.insert(id, Content::None);
                            (coder.index_max(size) as usize, 0)
                        }
                        None => {
                            let tail = self.inode_sizes.inline_tail(id, size, block);
                            (tail, block.blocks_for(size - tail as u64))
                        }
                    }
                }
                content => (content.len_after(), 0),
            };
            let len = (self.inode_sizes.len(id) + after) as u64;
            let (what, inline) = (What::Inode(id), self.contents[id.index()].inline_len());
            places.nids[id.index()] = if in_metabox {
                let pos = metabox.place(len, inline);
                places.metabox.push(Item { pos, what });
                Nid::metabox_slot(pos / SLOT_SIZE)
            } else {
                let pos = area.place(len, inline);
                places.items.push(Item { pos, what });
                Nid::new(pos / SLOT_SIZE)
            };
            if blocks > 0 {
                let first = area.place_blocks(blocks);
                places.blocks.push((id, first));
                places.items.push(Item { pos: first * block.bytes64(), what: What::Blocks(id) });
            }
        }
        places.metabox.sort_unstable();
        places.items.sort_unstable();
        places.total_blocks = area.blocks();
        (area, places)
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

    /// The names of directory `id`, sorted, with `..`, and `.` unless that is omitted.
    fn dir(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let node = self.tree.node(id);
        let entries = match node.kind {
            Kind::Directory(dir) => self.tree.entries_of(dir),
            _ => &[],
        };
        let dots = [(b".".as_slice(), id), (b"..".as_slice(), node.parent)].into_iter();
        let mut dots = dots.skip(usize::from(self.options.inodes.dot_omitted)).peekable();
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
                self.write_row(id, &row, out)?;
                out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                row.clear();
            }
            let nid = places.nids[node.index()];
            row.push(Dirent { nid, file_type: Some(self.tree.node(node).kind.file_type()), name });
        }
        self.write_row(id, &row, out)
    }

    /// Appends a block of directory `id`.
    fn write_row(&self, id: NodeId, row: &[Dirent<'_>], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        write_block(row, out).map_err(Error::Layout)?;
        self_check::named(self_check::check_dir_block(&out[start..], row), || self.tree.display_path(id))
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
        let tail = self.inode_sizes.inline_tail(id, out.len() as u64, block);
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
        let (block, start) = (superblock.block_size, out.len());
        let mut inode =
            inode_sizes::inode(self.tree, self.xattrs, superblock, id, self.inode_sizes.version(id))?;
        let mut own = Vec::new();
        let mut after = None;
        match places.dense.get(&id).unwrap_or(&self.contents[id.index()]) {
            Content::None | Content::Skipped => {
                self.write_own(id, places, block, &mut own)?;
                self.settle_own(id, places, superblock, &mut own, &mut inode);
            }
            content => {
                if places.dense.contains_key(&id) {
                    inode.size = self.own_size(id, block);
                }
                after = content.settle(&mut inode);
            }
        }
        inode.dot_omitted = self.options.inodes.dot_omitted && inode.file_type == FileType::Directory;
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(self.xattrs.region(id, self.tree.node(id).xattrs));
        out.extend_from_slice(&own);
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        self_check::named(place.check(&inode, &out[start..], superblock), || self.tree.display_path(id))
    }

    fn write_packed(&mut self, superblock: &Superblock, place: InodePlace, out: &mut Vec<u8>) -> Result<()> {
        let Some(packed) = self.packed else { return Ok(()) };
        let mtime = Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec };
        let mut inode = inode_sizes::packed_inode(packed.size, self.tree.nodes.len() as u32 + 1, mtime);
        let after = packed.content.settle(&mut inode);
        inode.write(superblock, out).map_err(Error::Layout)?;
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        self_check::named(place.check(&inode, out, superblock), || "(packed inode)".to_owned())
    }

    fn write_metabox(
        &self,
        metabox: &Dense,
        superblock: &Superblock,
        place: InodePlace,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mtime = Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec };
        let mut inode = inode_sizes::packed_inode(metabox.size, self.tree.nodes.len() as u32 + 2, mtime);
        inode.layout = metabox.layout;
        inode.place = Place::Compressed { blocks: metabox.blocks };
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(&metabox.index);
        self_check::named(place.check(&inode, out, superblock), || "(metabox)".to_owned())
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
        let tail = self.inode_sizes.inline_tail(id, inode.size, superblock.block_size);
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
