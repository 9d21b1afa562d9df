//! Packs new directories. A large directory that changed a little keeps its old blocks, and only changed ones are written.
//! Source: FORMAT.md 3, 5.

use ferofs_format::dirent::{DirPacker, Dirent, write_block};
use ferofs_format::inode::Place;
use ferofs_format::{BlockAddr, BlockSize, DeviceId, Nid};
use ferofs_format::{BytePos, Structure};

use crate::error::Result;
use ferofs_build::metadata::self_check;
use ferofs_build::tree::{Kind, NodeId, Tree};
use ferofs_patch::format::prediction::old_blocks;
use ferofs_read::{Image, Inode};

/// Old directories with fewer blocks are written as a whole: a chunk table would save little.
const LARGE: u64 = 4;

/// A directory stored as chunks of one block.
#[derive(Debug)]
pub(crate) struct DirectoryBlocks {
    pub(crate) blocks: Vec<DirectoryBlock>,
    /// Bytes of the directory.
    pub(crate) size: u64,
}

/// A block of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryBlock {
    /// Its range of [`entries`].
    pub(crate) entries: std::ops::Range<usize>,
    /// The old block, if that stays.
    pub(crate) kept: Option<BlockAddr>,
}

/// The entries of directory `id` with `.` and `..`, sorted by name.
pub(crate) fn entries(tree: &Tree, id: NodeId) -> Vec<(&[u8], NodeId)> {
    let node = tree.node(id);
    let own = match node.kind {
        Kind::Directory(dir) => tree.entries_of(dir),
        _ => &[],
    };
    let mut all: Vec<(&[u8], NodeId)> = vec![(b".", id), (b"..", node.parent)];
    all.extend(own.iter().map(|entry| (tree.text(entry.name), entry.node)));
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

/// Appends a block of directory `id` with the entries `row`.
pub(crate) fn write(
    tree: &Tree,
    id: NodeId,
    row: &[(&[u8], NodeId)],
    nid: impl Fn(NodeId) -> Nid,
    out: &mut Vec<u8>,
) -> Result<()> {
    let dirents: Vec<Dirent<'_>> = row
        .iter()
        .map(|(name, node)| {
            let file_type = Some(tree.node(*node).kind.file_type());
            Dirent { nid: nid(*node), file_type, name }
        })
        .collect();
    let start = out.len();
    write_block(&dirents, out).map_err(ferofs_build::Error::Layout)?;
    Ok(self_check::name_inode(self_check::check_dir_block(&out[start..], &dirents), || {
        tree.display_path(id)
    })?)
}

/// Divides `entries` among blocks; also returns the directory's size.
pub(crate) fn pack(entries: &[(&[u8], NodeId)], block: BlockSize) -> (Vec<std::ops::Range<usize>>, u64) {
    let mut packer = DirPacker::new(block);
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    for (number, (name, _)) in entries.iter().enumerate() {
        match blocks.last_mut() {
            Some(last) if !packer.push(name.len()) => last.end = number + 1,
            Some(_) => blocks.push(number..number + 1),
            None => {
                packer.push(name.len());
                blocks.push(number..number + 1);
            }
        }
    }
    (blocks, packer.size())
}

/// Lays out directory `id` in the blocks of the old directory `inode`; `None` when too few of these can stay. `kept` gives the
/// nid of a node that keeps its old inode.
pub(crate) fn in_old_blocks(
    old: &Image,
    inode: &Inode,
    tree: &Tree,
    id: NodeId,
    kept: impl Fn(NodeId) -> Option<Nid>,
) -> Result<Option<DirectoryBlocks>> {
    let block = old.superblock().block_size;
    let is_plain = matches!(inode.on_disk().place, Place::Blocks(_) | Place::Chunked { .. });
    if !inode.is_dir() || !is_plain || inode.size() < LARGE * block.bytes64() {
        return Ok(None);
    }
    let old_blocks = old_blocks(old, inode)?;
    let entries = entries(tree, id);
    let mut blocks = Vec::new();
    let (mut start, mut reused) = (0, 0);
    for (number, (_, addr)) in old_blocks.iter().enumerate() {
        // The entries up to the first name of the next old block.
        let end = match old_blocks.get(number + 1) {
            Some((next, _)) => start + entries[start..].partition_point(|(name, _)| *name < next.as_slice()),
            None => entries.len(),
        };
        let group = &entries[start..end];
        let (parts, _) = pack(group, block);
        let stays = match addr {
            Some(addr) if parts.len() == 1 => is_same(old, (tree, id), group, *addr, &kept)?.then_some(*addr),
            _ => None,
        };
        reused += u64::from(stays.is_some());
        blocks.extend(
            parts
                .into_iter()
                .map(|part| DirectoryBlock { entries: start + part.start..start + part.end, kept: stays }),
        );
        start = end;
    }
    if reused < LARGE / 2 {
        return Ok(None);
    }
    let Some(last) = blocks.last() else { return Ok(None) };
    let used: usize = entries[last.entries.clone()]
        .iter()
        .map(|(name, _)| name.len() + ferofs_format::dirent::DIRENT_SIZE)
        .sum();
    let size = (blocks.len() as u64 - 1) * block.bytes64() + used as u64;
    Ok(Some(DirectoryBlocks { blocks, size }))
}

/// Whether the block at `addr` holds exactly the entries `group`.
fn is_same(
    old: &Image,
    (tree, id): (&Tree, NodeId),
    group: &[(&[u8], NodeId)],
    addr: BlockAddr,
    kept: &impl Fn(NodeId) -> Option<Nid>,
) -> Result<bool> {
    if !group.iter().all(|(_, node)| kept(*node).is_some()) {
        return Ok(false);
    }
    let block = old.superblock().block_size;
    let mut expected = Vec::with_capacity(block.bytes());
    write(tree, id, group, |node| kept(node).unwrap_or_default(), &mut expected)?;
    expected.resize(block.bytes(), 0);
    let mut found = vec![0; block.bytes()];
    let pos = addr.to_pos(block).unwrap_or(BytePos::new(u64::MAX));
    Ok(old.read_device(DeviceId::new(0), pos, Structure::Directory, &mut found).is_ok() && found == expected)
}
