//! Writes the metadata: plans a place for every inode first, and then writes everything in the order of places.
//! Source: FORMAT.md 2, 3, 4.

use std::ops::Range;

use ferofs_format::dirent::{DirPacker, Dirent, write_block};
use ferofs_format::inode::{DataLayout, FileType, Inode, Place, Timestamp};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, BytePos, Fault, FormatError, Incompat, Nid, Structure};

use crate::data::stored::{PackedInode, StoredContent};
use crate::error::{Error, Result};
use crate::metadata::compressed::{EncodedContent, MetadataEncoder, Queue};
use crate::metadata::places::{Item, ItemKind, Places, meta_block, slots_before};
use crate::metadata::self_check::{self, InodePlace};
use crate::options::Options;
use crate::options::compression::Compression;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};
use ferofs_format::area::AreaAllocator;

/// Bytes that stay free before the root inode. One slot: no inode has nid 0, which old C libraries treat as a deleted file. Two
/// more slots: a patch can put a new root inode there.
pub(crate) const RESERVED: u64 = 3 * SLOT_SIZE;

/// Writes the metadata of these inodes.
pub(crate) struct MetadataWriter<'a> {
    pub(crate) options: &'a Options,
    pub(crate) tree: &'a Tree,
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) xattrs: &'a XattrPlan,
    pub(crate) contents: &'a [StoredContent],
    pub(crate) packed: Option<&'a PackedInode>,
    pub(crate) spill: &'a mut Spill,
    pub(crate) behind_superblock: Option<BehindSuperblock>,
    /// Where the area begins that was written last.
    pub(crate) area: BlockAddr,
}

/// Free space in the last block of the superblock's area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BehindSuperblock {
    /// Where it starts, in bytes from the start of the image.
    pub(crate) start: u64,
    /// Whether data follows the superblock's area: then the metadata cannot go on in the next block.
    pub(crate) has_data: bool,
}

impl BehindSuperblock {
    /// The most bytes of an image whose metadata begins there. A patch can put its root inode only into the 2 MiB from the start of the metadata on,
    /// and not into the block of the superblock, which has a checksum.
    pub(crate) const LARGEST: u64 = 1 << 20;

    /// Where the block of the superblock starts, and how many bytes of it the metadata leaves free; `None` if there are no others.
    pub(crate) fn reserved(self, block: u64) -> Option<(u64, u64)> {
        let base = self.start - self.start % block;
        let reserved = (self.start - base).next_multiple_of(SLOT_SIZE).max(RESERVED);
        (reserved < block).then_some((base, reserved))
    }
}

fn allocate_packed(area: &mut AreaAllocator, packed: &PackedInode) -> u64 {
    let len = (inode_sizes::PACKED_LEN + packed.content.len_after()) as u64;
    area.allocate(len, packed.content.inline_len())
}

impl MetadataWriter<'_> {
    /// Appends the metadata and sets its positions in `superblock`.
    pub(crate) fn write(&mut self, superblock: &mut Superblock, output: &mut Output) -> Result<()> {
        let block = superblock.block_size;
        let compression = self.options.data.compression.as_ref().map(Compression::for_metadata);
        let timings = &self.options.run.progress.timings;
        let encoder = |compression| {
            MetadataEncoder::new(
                compression,
                Compression::for_directories(compression, block),
                block,
                timings,
                self.options.run.worker_count(),
            )
        };
        let encoder = compression.as_ref().map(encoder).transpose()?;
        let in_metabox = superblock.incompat.contains(Incompat::METABOX);
        let (mut area, mut places) = self.plan(block, encoder.as_ref(), in_metabox, RESERVED);
        let behind_superblock = self.plan_behind_superblock(block, in_metabox, &mut area, &mut places);
        if behind_superblock.is_none() {
            self.append_shared_xattrs(superblock, output)?;
        }
        let start = output.position().next_multiple_of(block.bytes64());
        places.slots_before = slots_before(start, block);
        self.options.check_size(start + places.total_blocks * block.bytes64())?;
        if places.slots_before > 0 && (in_metabox || !places.encoded_dirs.is_empty()) {
            let problem = "its index has no addresses behind 2^32 blocks";
            return Err(Error::Option { option: "compressed metadata", problem });
        }
        if let Some(encoder) = &encoder {
            self.encode_directories(encoder, &mut places, superblock, output)?;
        }
        // An inode in the metabox holds the address of its directory blocks, and the inode of the metabox holds the address of the
        // metabox: so they are written in this order.
        let metabox = match &encoder {
            Some(encoder) if in_metabox => {
                let blocks = places.total_blocks * block.bytes64();
                self.append_area(&places, blocks, None, superblock, output)?;
                Some(self.encode_metabox(encoder, &places, superblock, output)?)
            }
            _ => None,
        };
        if let Some(metabox) = &metabox {
            area = AreaAllocator::new(block, RESERVED);
            let pos = area.allocate((inode_sizes::PACKED_LEN + metabox.index.len()) as u64, 0);
            places.others = vec![Item { pos, kind: ItemKind::Metabox }];
            superblock.metabox = Some(places.nid_in_area(pos));
        }
        if let Some(packed) = self.packed {
            let pos = allocate_packed(&mut area, packed);
            places.packed = Some(pos);
            places.others.push(Item { pos, kind: ItemKind::Packed });
        }
        places.others.sort_unstable();
        places.total_blocks = area.blocks();
        superblock.root = places.nid(NodeId::ROOT);
        superblock.inodes = places.inodes.len() as u64;
        superblock.packed = places.packed.map(|pos| places.nid_in_area(pos));
        let (len, metabox) = (places.total_blocks * block.bytes64(), metabox.as_ref());
        match behind_superblock {
            Some(base) => {
                self.write_behind_superblock(&places, base..base + len, superblock, output)?;
                self.append_shared_xattrs(superblock, output)?;
            }
            None => self.append_area(&places, len, metabox, superblock, output)?,
        }
        let unit = block.bytes64().saturating_mul(self.options.output.size_alignment.get().into());
        output.pad_to(output.position().next_multiple_of(unit))?;
        superblock.blocks = output.position() >> block.bits();
        Ok(())
    }

    /// Appends the shared xattrs, from the start of a block on. The metadata follows them unless it begins behind the superblock: go-erofs, which
    /// containerd uses, reads a whole block from each shared xattr on.
    fn append_shared_xattrs(&self, superblock: &mut Superblock, output: &mut Output) -> Result<()> {
        if self.xattrs.shared.is_empty() {
            return Ok(());
        }
        let block = superblock.block_size;
        output.pad_to(output.position().next_multiple_of(block.bytes64()))?;
        superblock.xattr = BlockAddr::new(output.position() >> block.bits());
        output.append(&self.xattrs.shared)
    }

    /// Appends an area of `len` bytes.
    fn append_area(
        &mut self,
        places: &Places,
        len: u64,
        metabox: Option<&EncodedContent>,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let base = output.position().next_multiple_of(superblock.block_size.bytes64());
        output.pad_to(base)?;
        self.write_area(places, base, base + len, metabox, superblock, |pos, bytes| {
            output.pad_to(pos)?;
            output.append(bytes)
        })?;
        output.pad_to(base + len)
    }

    /// Writes an area that begins in the block of the superblock.
    fn write_behind_superblock(
        &mut self,
        places: &Places,
        area: Range<u64>,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let (start, mut bytes) = (area.start, Vec::new());
        let data_end = area.end.max(output.position());
        self.write_area(places, start, data_end, None, superblock, |pos, item| {
            bytes.resize((pos - start) as usize, 0);
            bytes.extend_from_slice(item);
            Ok(())
        })?;
        // The block of the superblock has been appended; the superblock is written into it later.
        let in_first_block = bytes.len().min((output.position() - start) as usize);
        let (first_block, rest) = bytes.split_at(in_first_block.min(superblock.block_size.bytes()));
        output.overwrite(start, first_block)?;
        output.append(rest)?;
        output.pad_to(output.position().next_multiple_of(superblock.block_size.bytes64()))
    }

    /// Passes the items of the area at `base` with their positions to `write`, and sets its address in `superblock`. All data that they
    /// refer to is before `data_end`.
    fn write_area(
        &mut self,
        places: &Places,
        base: u64,
        data_end: u64,
        metabox: Option<&EncodedContent>,
        superblock: &mut Superblock,
        mut write: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let block = superblock.block_size;
        self.area = BytePos::new(base).block(block);
        superblock.meta = meta_block(self.area);
        let mut bytes = Vec::new();
        for item in places.items() {
            self.options.run.check_cancelled()?;
            bytes.clear();
            let pos = base + item.pos;
            let place = InodePlace { pos, data_end };
            match (item.kind, metabox) {
                (ItemKind::Inode(node), _) => {
                    self.write_inode(node, places, superblock, place, &mut bytes)?
                }
                (ItemKind::Blocks(node), _) => self.write_blocks(node, places, block, &mut bytes)?,
                (ItemKind::Packed, _) => self.write_packed(superblock, place, &mut bytes)?,
                (ItemKind::Metabox, Some(metabox)) => {
                    self.write_metabox(metabox, superblock, place, &mut bytes)?
                }
                (ItemKind::Metabox, None) => {}
            }
            write(pos, &bytes)?;
        }
        Ok(())
    }

    /// Encodes and appends directories. Their entries hold nids only, which are known.
    fn encode_directories(
        &mut self,
        encoder: &MetadataEncoder<'_>,
        places: &mut Places,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        if places.encoded_dirs.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<NodeId> = places.encoded_dirs.keys().copied().collect();
        ids.sort_unstable();
        let mut finished = ids.iter();
        let mut bytes = Vec::new();
        encoder.encode_all(output, |queue| {
            for id in &ids {
                self.options.run.check_cancelled()?;
                bytes.clear();
                self.write_dir(*id, places, superblock.block_size, &mut bytes)?;
                queue.push(&bytes)?;
                queue.end(self.inode_sizes.len(*id))?;
                self.note_encoded(queue, &mut finished, places)?;
            }
            queue.wait()?;
            self.note_encoded(queue, &mut finished, places)
        })?;
        // Like erofs-utils. Linux reads encoded directories since 6.1, and these features keep older kernels away.
        superblock.incompat |= Incompat::LZ4_0PADDING | Incompat::DEDUPE;
        Ok(())
    }

    /// Notes where the next directories of `ids` are, as far as they are appended.
    fn note_encoded<'i>(
        &mut self,
        queue: &mut Queue<'_, '_>,
        ids: &mut impl Iterator<Item = &'i NodeId>,
        places: &mut Places,
    ) -> Result<()> {
        while let Some(EncodedContent { layout, blocks, index, .. }) = queue.finished() {
            let index = self.spill.push(&index)?;
            let stored = StoredContent::Compressed { layout, blocks, index, inline: 0 };
            // Each content is that of one directory.
            if let Some(id) = ids.next() {
                places.encoded_dirs.insert(*id, stored);
            }
        }
        Ok(())
    }

    /// Encodes and appends the metabox with all inodes.
    fn encode_metabox(
        &mut self,
        encoder: &MetadataEncoder<'_>,
        places: &Places,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<EncodedContent> {
        let (mut bytes, mut end) = (Vec::new(), 0);
        // All data is before the metabox.
        let data_end = output.position();
        let content = encoder.encode_all(output, |queue| {
            for &node in places.inodes.iter() {
                self.options.run.check_cancelled()?;
                let pos = places.inode_pos(node);
                bytes.clear();
                bytes.resize((pos - end) as usize, 0);
                self.write_inode(node, places, superblock, InodePlace { pos, data_end }, &mut bytes)?;
                end += bytes.len() as u64;
                queue.push(&bytes)?;
            }
            // Readers read the metabox in whole blocks.
            bytes.clear();
            bytes.resize((end.next_multiple_of(superblock.block_size.bytes64()) - end) as usize, 0);
            queue.push(&bytes)?;
            queue.end(inode_sizes::PACKED_LEN)?;
            queue.wait()?;
            Ok(queue.finished())
        })?;
        superblock.incompat |= Incompat::LZ4_0PADDING;
        content.ok_or(Error::Layout(FormatError::new(
            Structure::Inode,
            Fault::Map("the metabox has no content"),
        )))
    }

    fn is_skipped(&self, id: NodeId) -> bool {
        matches!(self.contents[id.index()], StoredContent::Skipped)
    }

    /// Plans the metadata again, so that it begins in the block of the superblock, if it fits there. Returns the position of that block.
    fn plan_behind_superblock(
        &self,
        block: BlockSize,
        in_metabox: bool,
        area: &mut AreaAllocator,
        places: &mut Places,
    ) -> Option<u64> {
        let behind = self.behind_superblock?;
        let is_small = area.blocks() * block.bytes64() < BehindSuperblock::LARGEST;
        let can_end_with_shared = self.xattrs.has_block_from_each_shared(block);
        if in_metabox || !places.encoded_dirs.is_empty() || !is_small || !can_end_with_shared {
            return None;
        }
        let (base, reserved) = behind.reserved(block.bytes64())?;
        let (planned_area, planned_places) = self.plan(block, None, false, reserved);
        let mut with_packed = planned_area.clone();
        self.packed.map(|packed| allocate_packed(&mut with_packed, packed));
        if behind.has_data && with_packed.blocks() > 1 {
            return None;
        }
        (*area, *places) = (planned_area, planned_places);
        Some(base)
    }

    /// Plans the place of every inode, in the metadata area or in the metabox, and of the blocks of directories and symbolic
    /// links. The first `reserved` bytes of the area stay free. Returns the area, where more can be allocated.
    fn plan(
        &self,
        block: BlockSize,
        encoder: Option<&MetadataEncoder<'_>>,
        in_metabox: bool,
        reserved: u64,
    ) -> (AreaAllocator, Places) {
        let mut area =
            if in_metabox { AreaAllocator::for_blocks(block) } else { AreaAllocator::new(block, reserved) };
        let mut metabox = AreaAllocator::new(block, RESERVED);
        let mut places = Places {
            nids: vec![Nid::default(); self.tree.nodes.len()],
            inodes: Vec::new(),
            in_metabox,
            ..Places::default()
        };
        let encoded_dirs =
            self.options.data.compression.as_ref().is_some_and(|compression| compression.directories);
        let encoded_dirs = encoder.filter(|_| encoded_dirs);
        // Directories first: whoever looks up a path reads only them, and reads neighbours with each.
        let is_dir = |id: &NodeId| matches!(self.tree.node(*id).kind, Kind::Directory(_));
        let (dirs, others) = (self.tree.ids().filter(is_dir), self.tree.ids().filter(|id| !is_dir(id)));
        for id in dirs.chain(others).filter(|id| !self.is_skipped(*id)) {
            let (after, blocks) = match &self.contents[id.index()] {
                StoredContent::None | StoredContent::Skipped => {
                    let size = self.own_content_size(id, block);
                    match encoded_dirs.filter(|_| is_dir(&id) && size > block.bytes64()) {
                        Some(encoder) => {
                            places.encoded_dirs.insert(id, StoredContent::None);
                            (encoder.max_index_size(size) as usize, 0)
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
            let inline = self.contents[id.index()].inline_len();
            places.inodes.push(id);
            places.nids[id.index()] = if in_metabox {
                Nid::metabox_slot(metabox.allocate(len, inline) / SLOT_SIZE)
            } else {
                Nid::new(area.allocate(len, inline) / SLOT_SIZE)
            };
            if blocks > 0 {
                let first = area.allocate_blocks(blocks);
                places.content_blocks.push((id, first));
                places.others.push(Item { pos: first * block.bytes64(), kind: ItemKind::Blocks(id) });
            }
        }
        let Places { nids, inodes, .. } = &mut places;
        inodes.sort_unstable_by_key(|id| nids[id.index()]);
        places.others.sort_unstable();
        places.content_blocks.sort_unstable_by_key(|(node, _)| *node);
        places.total_blocks = area.blocks();
        (area, places)
    }

    /// Bytes of content that the metadata holds: that of directories and symbolic links.
    fn own_content_size(&self, id: NodeId, block: BlockSize) -> u64 {
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

    /// Appends the blocks of directory `id`.
    fn write_dir(&self, id: NodeId, places: &Places, block: BlockSize, out: &mut Vec<u8>) -> Result<()> {
        let mut packer = DirPacker::new(block);
        let mut dirents: Vec<Dirent<'_>> = Vec::new();
        let start = out.len();
        for (name, node) in self.dir(id) {
            if packer.push(name.len()) && !dirents.is_empty() {
                self.write_dir_block(id, &dirents, out)?;
                out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                dirents.clear();
            }
            let nid = places.nid(node);
            dirents.push(Dirent { nid, file_type: Some(self.tree.node(node).kind.file_type()), name });
        }
        self.write_dir_block(id, &dirents, out)
    }

    /// Appends a block of directory `id`.
    fn write_dir_block(&self, id: NodeId, dirents: &[Dirent<'_>], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        write_block(dirents, out).map_err(Error::Layout)?;
        self_check::name_inode(self_check::check_dir_block(&out[start..], dirents), || {
            self.tree.display_path(id)
        })
    }

    fn write_own_content(
        &self,
        id: NodeId,
        places: &Places,
        block: BlockSize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
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
        self.write_own_content(id, places, block, out)?;
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
        match places.encoded_dirs.get(&id).unwrap_or(&self.contents[id.index()]) {
            StoredContent::None | StoredContent::Skipped => {
                self.write_own_content(id, places, block, &mut own)?;
                self.set_own_content(id, places, superblock, &mut own, &mut inode);
            }
            content => {
                if places.encoded_dirs.contains_key(&id) {
                    inode.size = self.own_content_size(id, block);
                }
                after = content.set_in(&mut inode);
            }
        }
        inode.dot_omitted = self.options.inodes.dot_omitted && inode.file_type == FileType::Directory;
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(self.xattrs.region(id, self.tree.node(id).xattrs));
        out.extend_from_slice(&own);
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        self_check::name_inode(place.check(&inode, &out[start..], superblock), || self.tree.display_path(id))
    }

    fn write_packed(&mut self, superblock: &Superblock, place: InodePlace, out: &mut Vec<u8>) -> Result<()> {
        let Some(packed) = self.packed else { return Ok(()) };
        let mtime = Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec };
        let mut inode = inode_sizes::packed_inode(packed.size, self.tree.nodes.len() as u32 + 1, mtime);
        let after = packed.content.set_in(&mut inode);
        inode.write(superblock, out).map_err(Error::Layout)?;
        if let Some(payload) = after {
            out.extend_from_slice(self.spill.get(payload)?);
        }
        self_check::name_inode(place.check(&inode, out, superblock), || "(packed inode)".to_owned())
    }

    fn write_metabox(
        &self,
        metabox: &EncodedContent,
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
        self_check::name_inode(place.check(&inode, out, superblock), || "(metabox)".to_owned())
    }

    /// Completes `inode` for the content `own`, and leaves in `own` only the tail that follows the inode.
    fn set_own_content(
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
            let index = places.content_blocks.binary_search_by_key(&id, |(node, _)| *node);
            let start = index.map_or(0, |index| self.area.get() + places.content_blocks[index].1);
            inode.place = Place::Blocks(BlockAddr::new(start));
        }
    }
}
