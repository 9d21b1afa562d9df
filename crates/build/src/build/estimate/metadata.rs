//! The size of the metadata, which follows from the tree: a plan of its places, as the metadata stage makes one.
//! [`size`](super::size) makes the size of the image of it.

use std::collections::HashMap;

use ferofs_format::dirent::DirPacker;
use ferofs_format::inode::Timestamp;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockSize, Incompat, Nid};

use crate::build::estimate::identical::Stored;
use crate::build::{new_superblock, now};
use crate::data::chunks::sparse::ChunkPlan;
use crate::data::encode::SEGMENT;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::metadata::area::AreaAllocator;
use crate::metadata::superblock_area::SuperblockArea;
use crate::metadata::write::RESERVED;
use crate::options::Options;
use crate::options::compression::{Compression, Fragments, IndexKind};
use crate::options::inodes::InodeForm;
use crate::sources::content::Contents;
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};

/// Bytes of the map header of a compressed file.
const HEADER: u64 = 8;
/// Bytes of a compact index that are not its records: padding, and records of 4 bytes at its ends.
const INDEX_PADDING: u64 = 8;
/// Bytes of the record of an extent in an image whose extents are placed to the byte.
const EXTENT_RECORD: u64 = 16;

/// The form of the metadata of an image.
pub(super) struct Plan<'a> {
    pub(super) settings: &'a Options,
    pub(super) tree: &'a Tree,
    pub(super) superblock: Superblock,
    pub(super) xattrs: XattrPlan,
    pub(super) inode_sizes: InodeSizes,
    pub(super) superblock_area: SuperblockArea,
}

/// The content of an image, as the data stage leaves it.
pub(super) struct Content<'a> {
    pub(super) order: &'a Order,
    pub(super) contents: &'a Contents,
    pub(super) stored: &'a Stored,
    /// Files that are stored in chunks.
    pub(super) chunked: &'a HashMap<NodeId, ChunkPlan>,
    /// Bytes of the data, with all inline tails.
    pub(super) bytes: u64,
    /// The sizes of some files and the bytes of their inline tails, which stand for those of files of about these sizes, sorted: a tail shares its block
    /// only with what fits beside it.
    pub(super) tails: &'a [(u64, u16)],
}

/// Places of inodes and of what follows them.
pub(super) struct Places {
    pub(super) area: AreaAllocator,
    /// By node.
    pub(super) nids: Vec<Nid>,
    /// Bytes of inline tails.
    pub(super) inline: u64,
    /// Blocks of files whose place is known without their content.
    pub(super) known_blocks: u64,
    /// Directories that are encoded, with their bytes.
    pub(super) encoded_dirs: Vec<(NodeId, u64)>,
    /// Bytes of the metabox.
    pub(super) metabox: u64,
}

impl Content<'_> {
    /// The tail of a file of `size` bytes: that of one of the files of the most similar size, each of which is taken as often.
    fn tail(&self, size: u64, number: usize) -> Option<u16> {
        let larger = self.tails.partition_point(|(other, _)| *other < size);
        let nearest =
            match (self.tails.get(larger), larger.checked_sub(1).and_then(|last| self.tails.get(last))) {
                (Some(next), Some(last)) if size - last.0 < next.0 - size => last.0,
                (Some((next, _)), _) => *next,
                (None, last) => last?.0,
            };
        let first = self.tails.partition_point(|(other, _)| *other < nearest);
        let count = self.tails.partition_point(|(other, _)| *other <= nearest) - first;
        Some(self.tails[first + number % count].1)
    }
}

impl<'a> Plan<'a> {
    /// Decides the form of the inodes of `tree`.
    pub(super) fn new(settings: &'a Options, tree: &'a Tree) -> Result<Self> {
        let mut superblock = new_superblock(settings)?;
        let build_time = settings.image.build_time.unwrap_or_else(now);
        let epoch = match settings.inodes.keep_mtime && settings.inodes.form != InodeForm::Compact {
            true => inode_sizes::common_time(tree, build_time, superblock.incompat.contains(Incompat::BIT48)),
            false => Timestamp { secs: build_time, nanos: 0 },
        };
        (superblock.epoch, superblock.fixed_nsec) = (epoch.secs, epoch.nanos);
        let in_metabox = superblock.incompat.contains(Incompat::METABOX);
        let root_xattrs = tree.node(NodeId::ROOT).xattrs;
        let xattrs = tree.xattrs.plan(&settings.xattrs, root_xattrs, in_metabox).map_err(Error::Layout)?;
        let superblock_area = SuperblockArea::new(&mut superblock, 0, &settings.xattrs.table())?;
        let inode_sizes =
            InodeSizes::new(tree, &xattrs, &superblock, &settings.inodes, &settings.source.path)?;
        Ok(Self { settings, tree, superblock, xattrs, inode_sizes, superblock_area })
    }

    pub(super) fn in_metabox(&self) -> bool {
        self.superblock.incompat.contains(Incompat::METABOX)
    }

    /// Plans places in an area whose first `reserved` bytes stay free.
    pub(super) fn places(&self, content: &Content<'_>, reserved: u64) -> Places {
        let (tree, block) = (self.tree, self.settings.image.block_size);
        let in_metabox = self.in_metabox();
        let mut metabox = AreaAllocator::new(block, RESERVED);
        let mut places = Places {
            area: match in_metabox {
                true => AreaAllocator::for_blocks(block),
                false => AreaAllocator::new(block, reserved),
            },
            nids: vec![Nid::default(); tree.nodes.len()],
            inline: 0,
            known_blocks: 0,
            encoded_dirs: Vec::new(),
            metabox: 0,
        };
        let mut number = 0;
        let compression = self.settings.data.compression.as_ref();
        let encodes_dirs = compression.is_some_and(|compression| compression.directories);
        for id in self.in_order() {
            let len = self.inode_sizes.len(id) as u64;
            let (after, inline, blocks) = match tree.node(id).kind {
                Kind::Regular { .. } => match content.chunked.get(&id) {
                    Some(plan) => (plan.table_size(), 0, 0),
                    None => {
                        let (after, blocks) = self.after_file(id);
                        places.known_blocks += blocks;
                        let size = tree.node(id).size;
                        let has_tail = size > 0 && !is_known(self.settings, size);
                        let tail = if has_tail { content.tail(size, number) } else { None };
                        number += 1;
                        let room = block.bytes64().saturating_sub(len + after);
                        let tail = tail.map_or(0, u64::from).min(room).min(size);
                        // The content of an identical file is not in the sum of the data, but it has its own tail.
                        places.inline += if content.stored.contains(id) { tail } else { 0 };
                        (after + tail, tail, 0)
                    }
                },
                Kind::Directory(_) | Kind::Symlink(_) => {
                    let size = self.own_size(id);
                    let is_dir = matches!(tree.node(id).kind, Kind::Directory(_));
                    if encodes_dirs && is_dir && size > block.bytes64() {
                        places.encoded_dirs.push((id, size));
                        (compact_index_len(block, size), 0, 0)
                    } else {
                        let tail = self.inode_sizes.inline_tail(id, size, block) as u64;
                        (tail, 0, block.blocks_for(size - tail))
                    }
                }
                _ => (0, 0, 0),
            };
            places.nids[id.index()] = match in_metabox {
                true => Nid::metabox_slot(metabox.allocate(len + after, inline) / SLOT_SIZE),
                false => Nid::new(places.area.allocate(len + after, inline) / SLOT_SIZE),
            };
            if blocks > 0 {
                places.area.allocate_blocks(blocks);
            }
        }
        places.metabox = metabox.blocks() * block.bytes64();
        places
    }

    /// All inodes in the order of the metadata: directories first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = NodeId> {
        let is_dir = |id: &NodeId| matches!(self.tree.node(*id).kind, Kind::Directory(_));
        self.tree.ids().filter(is_dir).chain(self.tree.ids().filter(move |id| !is_dir(id)))
    }

    /// Bytes that follow the inode of a file, without inline tails that depend on the content, and blocks of a file that is stored in one block.
    pub(super) fn after_file(&self, id: NodeId) -> (u64, u64) {
        let (size, block) = (self.tree.node(id).size, self.settings.image.block_size);
        if size == 0 {
            return (0, 0);
        }
        if is_known(self.settings, size) {
            let tail = self.inode_sizes.inline_tail(id, size, block) as u64;
            return (tail, block.blocks_for(size - tail));
        }
        let Some(compression) = &self.settings.data.compression else { return (0, 0) };
        if self.is_tiny(id) {
            return (0, 0);
        }
        if is_whole_fragment(compression, size, block) {
            return (HEADER, 0);
        }
        match compression.index {
            IndexKind::Extents => (2 * HEADER, 0),
            IndexKind::Compact => (compact_index_len(block, size), 0),
            IndexKind::Full => (HEADER + INDEX_PADDING + 8 * block.blocks_for(size), 0),
        }
    }

    /// Whether the content of a file takes no more slots behind its inode than what would refer to it elsewhere: so the data stage leaves it there.
    pub(super) fn is_tiny(&self, id: NodeId) -> bool {
        let (size, block) = (self.tree.node(id).size, self.settings.image.block_size);
        let slots = |len: u64| (self.inode_sizes.len(id) as u64 + len).div_ceil(SLOT_SIZE);
        let inline = self.inode_sizes.inline_tail(id, size, block) as u64;
        size <= block.bytes64() && inline == size && slots(size) <= slots(2 * HEADER)
    }

    /// Bytes of the names of a directory, or of the target of a symbolic link.
    pub(super) fn own_size(&self, id: NodeId) -> u64 {
        match self.tree.node(id).kind {
            Kind::Directory(dir) => {
                let mut packer = DirPacker::new(self.settings.image.block_size);
                let dots: &[usize] = if self.settings.inodes.dot_omitted { &[2] } else { &[1, 2] };
                for len in dots {
                    packer.push(*len);
                }
                for entry in self.tree.entries_of(dir) {
                    packer.push(self.tree.text(entry.name).len());
                }
                packer.size()
            }
            Kind::Symlink(target) => self.tree.text(target).len() as u64,
            _ => 0,
        }
    }

    /// Bytes of the packed inode with its index, in an image with `data` bytes of data; 0 if there is none.
    pub(super) fn packed_inode_len(&self, data: u64) -> u64 {
        let block = self.settings.image.block_size;
        let Some(compression) = &self.settings.data.compression else { return 0 };
        let is_file = |id: &NodeId| matches!(self.tree.node(*id).kind, Kind::Regular { .. });
        let files = self.tree.ids().filter(is_file).map(|id| self.tree.node(id).size);
        let fragments: u64 = files.map(|size| compression.fragment_len(size, block)).sum();
        if fragments == 0 {
            return 0;
        }
        let index = match compression.index {
            IndexKind::Extents => {
                let pcluster = compression.for_packed_inode(block).pcluster as u64;
                HEADER + EXTENT_RECORD * data.min(fragments).div_ceil(pcluster)
            }
            IndexKind::Compact | IndexKind::Full => compact_index_len(block, fragments),
        };
        inode_sizes::PACKED_LEN as u64 + index
    }
}

/// Bytes of a compact index of `size` bytes, with its header.
pub(super) fn compact_index_len(block: BlockSize, size: u64) -> u64 {
    let each = match block.bits() {
        0..=12 => 2,
        13..=14 => 4,
        _ => 8,
    };
    HEADER + INDEX_PADDING + each * block.blocks_for(size)
}

/// Whether the place of a file of `size` bytes is known without its content: it has at most one block, and no feature lets it share
/// blocks with others.
pub(super) fn is_known(settings: &Options, size: u64) -> bool {
    let shares_blocks = settings.data.compression.as_ref().is_some_and(|compression| {
        compression.inline_tails
            || compression.fragments != Fragments::None
            || compression.index == IndexKind::Extents
    });
    size <= settings.image.block_size.bytes64() && !shares_blocks
}

/// Whether the whole content of a file of `size` bytes becomes a fragment.
pub(super) fn is_whole_fragment(compression: &Compression, size: u64, block: BlockSize) -> bool {
    match compression.fragments {
        Fragments::None => false,
        Fragments::Tails => size < u64::from(compression.pcluster.unwrap_or(block.bytes() as u32)),
        Fragments::All => size <= SEGMENT,
    }
}
