//! The size of the metadata, which follows from the tree.

use ferofs_format::dirent::DirPacker;
use ferofs_format::inode::Timestamp;
use ferofs_format::{BlockSize, Incompat};

use crate::build::{new_superblock, now};
use crate::error::{Error, Result};
use crate::metadata::area::AreaAllocator;
use crate::options::Options;
use crate::options::compression::{Compression, Fragments, IndexKind};
use crate::options::inodes::InodeForm;
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::{Kind, NodeId, Tree};

/// Bytes of the map header of a compressed file.
const HEADER: u64 = 8;
/// Bytes of a compact index that are not its records: padding, and records of 4 bytes at its ends.
const INDEX_PADDING: u64 = 8;
/// Seconds for each inode in the metadata stage: placing and writing it, and its name. Measured: 0.7 s for 500,000 inodes.
const SECONDS_EACH: f64 = 1.4e-6;

/// The metadata of an image.
pub(super) struct Plan {
    pub(super) inode_sizes: InodeSizes,
    /// Bytes of the shared xattrs.
    shared: u64,
}

impl Plan {
    /// How long the metadata stage takes.
    pub(super) fn seconds(tree: &Tree) -> f64 {
        tree.nodes.len() as f64 * SECONDS_EACH
    }

    /// Bytes of the superblock, the inodes with their indexes, xattrs and tails, and the directories. `tails` has the bytes of the tails of
    /// some files, which stand for all: a tail shares its block only with what fits beside it.
    pub(super) fn size(&self, settings: &Options, tree: &Tree, tails: &[u16]) -> u64 {
        let block = settings.image.block_size;
        let mut area = AreaAllocator::new(block, 0);
        let mut tails = tails.iter().cycle();
        let is_dir = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Directory(_));
        for id in tree.ids().filter(is_dir).chain(tree.ids().filter(|id| !is_dir(id))) {
            let len = self.inode_sizes.len(id) as u64;
            let (after, inline, blocks) = match tree.node(id).kind {
                Kind::Regular { .. } => {
                    let (after, blocks) = after_file(settings, &self.inode_sizes, tree, id);
                    let size = tree.node(id).size;
                    let tail = if size == 0 || is_known(settings, size) { None } else { tails.next() };
                    let room = block.bytes64().saturating_sub(len + after);
                    let tail = tail.map_or(0, |tail| u64::from(*tail)).min(room).min(size);
                    (after + tail, tail, blocks)
                }
                Kind::Directory(_) | Kind::Symlink(_) => {
                    let size = own_size(settings, tree, id, block);
                    let tail = self.inode_sizes.inline_tail(id, size, block) as u64;
                    (tail, 0, block.blocks_for(size - tail))
                }
                _ => (0, 0, 0),
            };
            area.allocate(len + after, inline);
            if blocks > 0 {
                area.allocate_blocks(blocks);
            }
        }
        (area.blocks() + 1) * block.bytes64() + self.shared
    }
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

/// Computes the metadata of `tree`.
pub(super) fn plan(settings: &Options, tree: &Tree) -> Result<Plan> {
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
    let inode_sizes = InodeSizes::new(tree, &xattrs, &superblock, &settings.inodes, &settings.source.path)?;
    let shared = xattrs.shared.len() as u64;
    Ok(Plan { inode_sizes, shared })
}

/// Bytes that follow the inode of a file, without inline tails that depend on the content, and blocks of a file that is stored in one block.
fn after_file(settings: &Options, inode_sizes: &InodeSizes, tree: &Tree, id: NodeId) -> (u64, u64) {
    let (size, block) = (tree.node(id).size, settings.image.block_size);
    if size == 0 {
        return (0, 0);
    }
    if is_known(settings, size) {
        let tail = inode_sizes.inline_tail(id, size, block) as u64;
        return (tail, block.blocks_for(size - tail));
    }
    let Some(compression) = &settings.data.compression else { return (0, 0) };
    let pcluster = u64::from(compression.pcluster.unwrap_or(block.bytes() as u32));
    if is_whole_fragment(compression, size, pcluster) {
        return (HEADER, 0);
    }
    let each = match (compression.index, block.bits()) {
        (IndexKind::Extents, _) => return (2 * HEADER, 0),
        (IndexKind::Compact, 0..=12) => 2,
        (IndexKind::Compact, 13..=14) => 4,
        _ => 8,
    };
    (HEADER + INDEX_PADDING + each * block.blocks_for(size), 0)
}

/// Bytes of the names of a directory, or of the target of a symbolic link.
fn own_size(settings: &Options, tree: &Tree, id: NodeId, block: BlockSize) -> u64 {
    match tree.node(id).kind {
        Kind::Directory(dir) => {
            let mut packer = DirPacker::new(block);
            let dots: &[usize] = if settings.inodes.dot_omitted { &[2] } else { &[1, 2] };
            for len in dots {
                packer.push(*len);
            }
            for entry in tree.entries_of(dir) {
                packer.push(tree.text(entry.name).len());
            }
            packer.size()
        }
        Kind::Symlink(target) => tree.text(target).len() as u64,
        _ => 0,
    }
}

/// Whether the whole content of a file of `size` bytes becomes a fragment.
fn is_whole_fragment(compression: &Compression, size: u64, pcluster: u64) -> bool {
    match compression.fragments {
        Fragments::None => false,
        Fragments::Tails => size < pcluster,
        Fragments::All => true,
    }
}
