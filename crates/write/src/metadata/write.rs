//! Writes the metadata of an image: plans a place for every inode first, and then writes everything
//! in the order of places. Source: FORMAT.md 2, 3, 4.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ferofs_format::area::{MetadataAreas, MetadataSize};
use ferofs_format::inode::Timestamp;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, BytePos, Incompat, Nid};

use crate::data::stored::{EarlierInodes, PackedInode, StoredContent};
use crate::error::{Error, Result};
use crate::metadata::compressed::{EncodedContent, MetadataEncoder, Queue};
use crate::metadata::earlier::EarlierArea;
use crate::metadata::inodes::{ALL_BLOCKS, InodeWriter, UnnamedInode};
use crate::metadata::places::{Places, Planner, meta_block, slots_before};
use crate::options::Options;
use crate::options::compression::Compression;
use crate::output::Output;
use crate::tree::inode_sizes::PACKED_LEN;
use crate::tree::{Kind, NodeId};

/// Bytes that stay free before the root inode. One slot: no inode has nid 0, which old C libraries
/// treat as a deleted file. Two more slots: a patch can put a new root inode there.
pub(crate) const RESERVED: u64 = 3 * SLOT_SIZE;

/// Writes the metadata of these inodes.
pub(crate) struct MetadataWriter<'a> {
    pub(crate) options: &'a Options,
    pub(crate) inodes: InodeWriter<'a>,
    pub(crate) packed: Option<&'a PackedInode>,
    pub(crate) after_superblock: Option<AfterSuperblock>,
    /// The inodes of an earlier image that the new one is built like.
    pub(crate) earlier: Option<&'a EarlierInodes>,
}

/// How often places like those of an earlier image are planned at most, each time with fewer of its
/// places.
const PLANS_MAX: u64 = 8;

/// Places like those of an earlier image.
struct PlacesLikeEarlier {
    places: Places,
    /// The place of the packed inode, in bytes from the start of the area.
    packed: Option<u64>,
    /// The numbers of inodes that `stat` shows, by node.
    inos: Vec<u32>,
}

/// Free space in the last block of the superblock's area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AfterSuperblock {
    /// Where it starts, in bytes from the start of the image.
    pub(crate) start: u64,
    /// Whether data follows the superblock's area: then the metadata cannot go on in the next
    /// block.
    pub(crate) has_data: bool,
}

impl AfterSuperblock {
    /// The most bytes of an image whose metadata begins there. A patch can put its root inode only
    /// into the 2 MiB from the start of the metadata on, and not into the block of the superblock,
    /// which has a checksum.
    pub(crate) const LARGEST: u64 = 1 << 20;

    /// Where the block of the superblock starts, and how many bytes of it the metadata leaves free;
    /// `None` if there are no others.
    pub(crate) fn reserved(self, block: u64) -> Option<(u64, u64)> {
        let base = self.start - self.start % block;
        let reserved = (self.start - base).next_multiple_of(SLOT_SIZE).max(RESERVED);
        (reserved < block).then_some((base, reserved))
    }
}

/// The bytes that an inode without a name needs.
fn unnamed_size(after: usize, inline: u64) -> MetadataSize {
    MetadataSize { len: (PACKED_LEN + after) as u64, inline, blocks: 0 }
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
        let (mut areas, mut places) = self.plan(block, encoder.as_ref(), in_metabox, RESERVED);
        let like_earlier = self.plan_like_earlier(block, in_metabox, areas.blocks());
        let after_superblock = match &like_earlier {
            Some(_) => None,
            None => self.plan_after_superblock(block, in_metabox, &mut areas, &mut places),
        };
        let mut earlier_packed = None;
        let is_like_earlier = like_earlier.is_some();
        if let Some(planned) = like_earlier {
            (places, earlier_packed, self.inodes.inos) =
                (planned.places, planned.packed, planned.inos);
        }
        if after_superblock.is_none() {
            self.append_shared_xattrs(superblock, output)?;
        }
        let start = output.position().next_multiple_of(block.bytes64());
        let slots_before = slots_before(start, block);
        self.options.check_size(start + places.total_blocks * block.bytes64())?;
        if slots_before > 0 && (in_metabox || !places.encoded_dirs.is_empty()) {
            let problem = "its index has no addresses after 2^32 blocks";
            return Err(Error::Option { option: "compressed metadata", problem });
        }
        places.move_by(slots_before);
        if let Some(encoder) = &encoder {
            self.encode_directories(encoder, &mut places, superblock, output)?;
        }
        let (mut unnamed, mut positions) = (Vec::new(), Vec::new());
        let mtime = Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec };
        let nodes = self.inodes.tree.nodes.len() as u32;
        // An inode in the metabox holds the address of its directory blocks, and the inode of the
        // metabox holds the address of the metabox: so they are written in this order.
        if let Some(encoder) = &encoder
            && in_metabox
        {
            let blocks = places.total_blocks * block.bytes64();
            self.append_area(&mut places, blocks, &[], superblock, output)?;
            let metabox = self.inodes.encode_metabox(encoder, None, &places, superblock, output)?;
            superblock.incompat |= Incompat::LZ4_0PADDING;
            areas = MetadataAreas::new(block, false, RESERVED);
            let pos = areas.allocate_inode(unnamed_size(metabox.index.len(), 0));
            superblock.metabox = Some(places.nid_in_area(pos));
            positions.push(pos);
            unnamed.push(UnnamedInode::metabox(&metabox, nodes + 2, mtime));
        }
        if let Some(packed) = self.packed {
            let pos = earlier_packed.unwrap_or_else(|| allocate_packed(&mut areas, packed));
            superblock.packed = Some(places.nid_in_area(pos));
            positions.push(pos);
            unnamed.push(UnnamedInode::packed(packed, nodes + 1, mtime, self.inodes.spill)?);
        }
        places.set_unnamed(&positions);
        if !is_like_earlier {
            places.total_blocks = areas.blocks();
        }
        superblock.root = places.nid(NodeId::ROOT);
        superblock.inodes = places.inodes.len() as u64;
        let len = places.total_blocks * block.bytes64();
        match after_superblock {
            Some(base) => {
                self.write_after_superblock(
                    &mut places,
                    base..base + len,
                    &unnamed,
                    superblock,
                    output,
                )?;
                self.append_shared_xattrs(superblock, output)?;
            }
            None => self.append_area(&mut places, len, &unnamed, superblock, output)?,
        }
        let unit = block.bytes64().saturating_mul(self.options.output.size_alignment.get().into());
        output.pad_to(output.position().next_multiple_of(unit))?;
        superblock.blocks = output.position() >> block.bits();
        Ok(())
    }

    /// Appends the shared xattrs, from the start of a block on. The metadata follows them unless it
    /// begins after the superblock: go-erofs, which containerd uses, reads a whole block from each
    /// shared xattr on.
    fn append_shared_xattrs(&self, superblock: &mut Superblock, output: &mut Output) -> Result<()> {
        if self.inodes.xattrs.shared.is_empty() {
            return Ok(());
        }
        let block = superblock.block_size;
        output.pad_to(output.position().next_multiple_of(block.bytes64()))?;
        superblock.xattr = BlockAddr::new(output.position() >> block.bits());
        output.append(&self.inodes.xattrs.shared)
    }

    /// Appends an area of `len` bytes.
    fn append_area(
        &mut self,
        places: &mut Places,
        len: u64,
        unnamed: &[UnnamedInode],
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let base = output.position().next_multiple_of(superblock.block_size.bytes64());
        output.pad_to(base)?;
        place_area(places, base, superblock);
        self.inodes.write_area(places, unnamed, base + len, superblock, |pos, bytes| {
            output.pad_to(pos)?;
            output.append(bytes)
        })?;
        output.pad_to(base + len)
    }

    /// Writes an area that begins in the block of the superblock.
    fn write_after_superblock(
        &mut self,
        places: &mut Places,
        area: Range<u64>,
        unnamed: &[UnnamedInode],
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let (start, mut bytes) = (area.start, Vec::new());
        let data_end = area.end.max(output.position());
        place_area(places, start, superblock);
        self.inodes.write_area(places, unnamed, data_end, superblock, |pos, item| {
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
        encoder.encode_all(None, output, |queue| {
            for id in &ids {
                self.inodes.run.cancel.check()?;
                bytes.clear();
                self.inodes.write_own(
                    *id,
                    ALL_BLOCKS,
                    places,
                    superblock.block_size,
                    &mut bytes,
                )?;
                queue.push(&bytes)?;
                queue.end(self.inodes.inode_sizes.len(*id))?;
                self.note_encoded(queue, &mut finished, places)?;
            }
            queue.wait()?;
            self.note_encoded(queue, &mut finished, places)
        })?;
        // Like erofs-utils. Linux reads encoded directories since 6.1, and these features keep
        // older kernels away.
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
            let index = self.inodes.spill.push(&index)?;
            let stored = StoredContent::Compressed { layout, blocks, index, inline: 0 };
            // Each content is that of one directory.
            if let Some(id) = ids.next() {
                places.encoded_dirs.insert(*id, stored);
            }
        }
        Ok(())
    }

    /// Plans the metadata again, so that it begins in the block of the superblock, if it fits
    /// there. Returns the position of that block.
    fn plan_after_superblock(
        &self,
        block: BlockSize,
        in_metabox: bool,
        areas: &mut MetadataAreas,
        places: &mut Places,
    ) -> Option<u64> {
        let behind = self.after_superblock?;
        let is_small = areas.blocks() * block.bytes64() < AfterSuperblock::LARGEST;
        let can_end_with_shared = self.inodes.xattrs.has_block_from_each_shared(block);
        if in_metabox || !places.encoded_dirs.is_empty() || !is_small || !can_end_with_shared {
            return None;
        }
        let (base, reserved) = behind.reserved(block.bytes64())?;
        let (planned_areas, planned_places) = self.plan(block, None, false, reserved);
        let mut with_packed = planned_areas.clone();
        self.packed.map(|packed| allocate_packed(&mut with_packed, packed));
        if behind.has_data && with_packed.blocks() > 1 {
            return None;
        }
        (*areas, *places) = (planned_areas, planned_places);
        Some(base)
    }

    /// Plans places as in the earlier image, if there is one, for inodes that are not in a metabox
    /// and directories that are not encoded. `None` also if too much space would stay free; without
    /// this, the metadata has `fresh` blocks.
    fn plan_like_earlier(
        &self,
        block: BlockSize,
        in_metabox: bool,
        fresh: u64,
    ) -> Option<PlacesLikeEarlier> {
        let earlier = self.earlier?;
        let compression = self.options.data.compression.as_ref();
        if in_metabox || compression.is_some_and(|compression| compression.directories) {
            return None;
        }
        let unused =
            fresh.saturating_mul(earlier.waste) / 100 + earlier.unused_left / block.bytes64() / 2;
        // One block is for the packed inode.
        let most = fresh.saturating_add(unused).saturating_add(1);
        let mut limit = most;
        while limit > 0 {
            let planned = self.plan_like(earlier, block, limit.saturating_mul(block.bytes64()))?;
            let excess = planned.places.total_blocks.saturating_sub(most);
            if excess == 0 {
                return Some(planned);
            }
            limit = limit.saturating_sub(excess.max(most / PLANS_MAX));
        }
        None
    }

    /// Plans places as in the earlier image before `limit`. `None` if the root's number gets too
    /// large.
    fn plan_like(
        &self,
        earlier: &EarlierInodes,
        block: BlockSize,
        limit: u64,
    ) -> Option<PlacesLikeEarlier> {
        let tree = self.inodes.tree;
        let ids: Vec<(NodeId, MetadataSize)> =
            self.ids().map(|id| (id, self.inodes.size(id, block))).collect();
        let mut area = EarlierArea::new(block, RESERVED, limit);
        let packed = self.packed.map(packed_size);
        let mut packed_pos =
            packed.and_then(|size| earlier.packed.filter(|pos| area.take(*pos, size)));
        let (mut inodes, mut blocks) = (Vec::new(), Vec::new());
        let (mut new_inodes, mut new_blocks) = (Vec::new(), Vec::new());
        let mut numbers = HashSet::new();
        let mut inos = vec![None; tree.nodes.len()];
        for (id, size) in &ids {
            let earlier = earlier.by_node.get(id.index()).copied().flatten();
            inos[id.index()] =
                earlier.map(|earlier| earlier.ino).filter(|ino| numbers.insert(*ino));
            match earlier.filter(|earlier| area.take(earlier.pos, *size)) {
                Some(earlier) => inodes.push((*id, earlier.pos)),
                None => new_inodes.push((*id, *size)),
            }
            if size.blocks > 0 {
                let first = earlier.and_then(|earlier| earlier.first_block);
                match first.filter(|first| area.take_blocks(*first, size.blocks)) {
                    Some(first) => blocks.push((*id, first)),
                    None => new_blocks.push((*id, size.blocks)),
                }
            }
        }
        inodes.extend(new_inodes.into_iter().map(|(id, size)| (id, area.allocate(size))));
        blocks.extend(new_blocks.into_iter().map(|(id, count)| (id, area.allocate_blocks(count))));
        if packed_pos.is_none() {
            packed_pos = packed.map(|size| area.allocate(size));
        }
        let places = Places::in_area(tree.nodes.len(), &inodes, blocks, area.blocks(), block);
        // The superblock has 16 bits for the number of the root.
        if places.nid(NodeId::ROOT).get() > u16::MAX.into() {
            return None;
        }
        let mut free = (1..).filter(|ino| !numbers.contains(ino));
        let inos =
            inos.into_iter().map(|ino| ino.or_else(|| free.next()).unwrap_or_default()).collect();
        Some(PlacesLikeEarlier { places, packed: packed_pos, inos })
    }

    /// All nodes with an inode, directories first: whoever looks up a path reads only them, and
    /// reads neighbours with each.
    fn ids(&self) -> impl Iterator<Item = NodeId> {
        let tree = self.inodes.tree;
        let is_dir = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Directory(_));
        let (dirs, others) = (tree.ids().filter(is_dir), tree.ids().filter(move |id| !is_dir(id)));
        dirs.chain(others).filter(|id| !self.inodes.is_skipped(*id))
    }

    /// Plans the place of every inode, in the metadata area or in the metabox, and of the blocks of
    /// directories and symbolic links. The first `reserved` bytes of the area stay free. Returns
    /// the areas, where more can be allocated.
    fn plan(
        &self,
        block: BlockSize,
        encoder: Option<&MetadataEncoder<'_>>,
        in_metabox: bool,
        reserved: u64,
    ) -> (MetadataAreas, Places) {
        let tree = self.inodes.tree;
        let nids = vec![Nid::default(); tree.nodes.len()];
        let mut planner = Planner::new(block, in_metabox, reserved, 0, nids);
        let encoded_dirs = self
            .options
            .data
            .compression
            .as_ref()
            .is_some_and(|compression| compression.directories);
        let encoder = encoder.filter(|_| encoded_dirs);
        let mut encoded_dirs = HashMap::new();
        for id in self.ids() {
            let encoder = encoder.filter(|_| matches!(tree.node(id).kind, Kind::Directory(_)));
            let index = encoder.and_then(|encoder| {
                let size = self.inodes.own_size(id, block);
                (size > block.bytes64()).then(|| encoder.max_index_size(size))
            });
            let size = match index {
                Some(index) => {
                    encoded_dirs.insert(id, StoredContent::None);
                    let len = self.inodes.inode_sizes.len(id) as u64 + index;
                    MetadataSize { len, ..MetadataSize::default() }
                }
                None => self.inodes.size(id, block),
            };
            planner.add(id, size);
        }
        let (areas, mut places) = planner.finish(block);
        places.encoded_dirs = encoded_dirs;
        (areas, places)
    }
}

/// The bytes that the packed inode needs.
fn packed_size(packed: &PackedInode) -> MetadataSize {
    unnamed_size(packed.content.len_after(), packed.content.inline_len())
}

/// Allocates a place for the packed inode.
fn allocate_packed(areas: &mut MetadataAreas, packed: &PackedInode) -> u64 {
    areas.allocate_inode(packed_size(packed))
}

/// Lets the area begin at `base`.
fn place_area(places: &mut Places, base: u64, superblock: &mut Superblock) {
    places.area = BytePos::new(base).block(superblock.block_size);
    superblock.meta = meta_block(places.area);
}
