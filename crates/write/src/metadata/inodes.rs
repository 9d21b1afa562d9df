//! Writes inodes with what follows them, and the blocks of directories: those of a whole image, and
//! those that a patch adds. First it counts the bytes of each inode, from which
//! [`places`](crate::metadata::places) follow. Source: FORMAT.md 2, 3, 4.

use std::ops::Range;

use ferofs_format::BlockSize;
use ferofs_format::area::MetadataSize;
use ferofs_format::dirent::{ChunkedDir, Dirent, directory_size, for_each_block, write_block};
use ferofs_format::inode::{DataLayout, FileType, Inode, InodeVersion, Place, Timestamp};
use ferofs_format::superblock::Superblock;

use crate::data::stored::{EarlierContent, PackedInode, StoredContent};
use crate::error::{Error, Result};
use crate::metadata::compressed::{EncodedContent, MetadataEncoder};
use crate::metadata::places::{ItemKind, Places};
use crate::metadata::self_check::{self, InodePlace};
use crate::options::RunOptions;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::tree::inode_sizes::{self, InodeSizes, PACKED_LEN};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};

/// All blocks of a directory.
pub(super) const ALL_BLOCKS: Range<u64> = 0..u64::MAX;

pub(crate) struct InodeWriter<'a> {
    pub run: &'a RunOptions,
    pub tree: &'a Tree,
    pub inode_sizes: &'a InodeSizes,
    pub xattrs: &'a XattrPlan,
    pub contents: &'a [StoredContent],
    pub spill: &'a mut Spill,
    /// Whether directories have no `.`.
    pub dot_omitted: bool,
    /// The inode numbers that `stat` shows, by node. Without them, the nodes are counted from 1.
    pub inos: Vec<u32>,
    /// Large directories that keep old blocks, sorted by node.
    pub chunked_dirs: Vec<(NodeId, ChunkedDir)>,
    /// Whether the root's inode is in slots that have no space for a tail.
    pub root_has_no_tail: bool,
}

/// An inode that has no name: the packed inode, or the inode of the metabox.
pub(crate) struct UnnamedInode {
    pub inode: Inode,
    /// The bytes that follow it.
    pub after: Vec<u8>,
    /// The name of the inode in messages.
    pub name: &'static str,
}

impl UnnamedInode {
    pub(crate) fn packed(
        packed: &PackedInode,
        ino: u32,
        mtime: Timestamp,
        spill: &mut Spill,
    ) -> Result<Self> {
        let mut inode = Self::without_content(packed.size, ino, mtime);
        let after = packed.content.set_in(&mut inode);
        let after = after
            .map(|after| spill.get(after).map(<[u8]>::to_vec))
            .transpose()?
            .unwrap_or_default();
        Ok(Self { inode, after, name: "(packed inode)" })
    }

    /// The inode of the metabox with this content.
    pub(crate) fn metabox(content: &EncodedContent, ino: u32, mtime: Timestamp) -> Self {
        let mut inode = Self::without_content(content.size, ino, mtime);
        inode.layout = content.layout;
        inode.place = Place::Compressed { blocks: content.blocks };
        Self { inode, after: content.index.clone(), name: "(metabox)" }
    }

    const fn without_content(size: u64, ino: u32, mtime: Timestamp) -> Inode {
        Inode {
            version: InodeVersion::Extended,
            layout: DataLayout::FlatPlain,
            file_type: FileType::Regular,
            permissions: 0,
            uid: 0,
            gid: 0,
            size,
            nlink: 1,
            mtime,
            ino,
            xattr_icount: 0,
            place: Place::Nothing,
            dot_omitted: false,
        }
    }

    /// Appends the inode with what follows it.
    pub(crate) fn write(
        &self,
        superblock: &Superblock,
        place: InodePlace,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        self.inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(&self.after);
        self_check::name_inode(place.check(&self.inode, &out[start..], superblock), || {
            self.name.to_owned()
        })
    }
}

impl InodeWriter<'_> {
    /// Counts the bytes of the inode of `id` with all that follows it, and its blocks.
    pub(crate) fn size(&self, id: NodeId, block: BlockSize) -> MetadataSize {
        let content = &self.contents[id.index()];
        let (after, blocks) = match (content, self.chunked_dir(id)) {
            (_, Some(dir)) => (dir.table_len() as u64, dir.new_blocks().count() as u64),
            (StoredContent::None | StoredContent::Skipped, None) => {
                let size = self.own_size(id, block);
                let tail = self.tail(id, size, block);
                (tail, block.blocks_for(size - tail))
            }
            (content, None) => (content.len_after() as u64, 0),
        };
        let len = self.inode_sizes.len(id) as u64 + after;
        MetadataSize { len, inline: content.inline_len(), blocks }
    }

    /// Counts the bytes of content that the metadata holds: that of directories and symbolic links.
    pub(super) fn own_size(&self, id: NodeId, block: BlockSize) -> u64 {
        match self.tree.node(id).kind {
            Kind::Directory(_) => directory_size(self.names(id).map(|(name, _)| name.len()), block),
            Kind::Symlink(target) => self.tree.text(target).len() as u64,
            _ => 0,
        }
    }

    /// The last bytes of own content of `size` bytes that follow the inode; the others are in
    /// blocks.
    fn tail(&self, id: NodeId, size: u64, block: BlockSize) -> u64 {
        let has_no_tail = self.root_has_no_tail && id == NodeId::ROOT;
        if has_no_tail { 0 } else { self.inode_sizes.inline_tail(id, size, block) as u64 }
    }

    fn chunked_dir(&self, id: NodeId) -> Option<&ChunkedDir> {
        let index = self.chunked_dirs.binary_search_by_key(&id, |(node, _)| *node).ok()?;
        Some(&self.chunked_dirs[index].1)
    }

    /// Whether the image leaves out `id`.
    pub(super) fn is_skipped(&self, id: NodeId) -> bool {
        matches!(self.contents[id.index()], StoredContent::Skipped)
    }

    /// The names of directory `id` in the image, sorted.
    fn names(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        self.tree.names(id, !self.dot_omitted).filter(|(_, node)| !self.is_skipped(*node))
    }

    /// The entries of directory `id`.
    fn dirents<'d>(&'d self, id: NodeId, places: &'d Places) -> impl Iterator<Item = Dirent<'d>> {
        self.names(id).map(|(name, node)| self.tree.dirent(name, node, places.nid(node)))
    }

    /// Passes the items of the area to `write`, in order, with their positions in the image. All
    /// data that they refer to is before `data_end`.
    pub(crate) fn write_area(
        &mut self,
        places: &Places,
        unnamed: &[UnnamedInode],
        data_end: u64,
        superblock: &Superblock,
        mut write: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let base = places.area.get() << superblock.block_size.bits();
        let mut bytes = Vec::new();
        for item in places.items() {
            self.run.cancel.check()?;
            bytes.clear();
            let pos = base + item.pos;
            let place = InodePlace { pos, data_end };
            match item.kind {
                ItemKind::Inode(node) => {
                    self.write_inode(node, places, superblock, place, &mut bytes)?
                }
                ItemKind::Blocks(node) => {
                    self.write_blocks(node, places, superblock.block_size, &mut bytes)?
                }
                ItemKind::Unnamed(number) => {
                    unnamed[number].write(superblock, place, &mut bytes)?
                }
            }
            write(pos, &bytes)?;
        }
        Ok(())
    }

    /// Encodes and appends all inodes as content of the metabox, after its `earlier` content if it
    /// has any.
    pub(crate) fn encode_metabox(
        &mut self,
        encoder: &MetadataEncoder<'_>,
        earlier: Option<&EarlierContent>,
        places: &Places,
        superblock: &Superblock,
        output: &mut Output,
    ) -> Result<EncodedContent> {
        // All data is before the metabox, and the blocks that the inodes refer to are, too.
        let data_end = output.position();
        let (mut bytes, mut end) = (Vec::new(), earlier.map_or(0, |earlier| earlier.size));
        encoder.encode_one(earlier, output, |queue| {
            for &node in &places.inodes {
                self.run.cancel.check()?;
                let pos = places.inode_pos(node);
                bytes.clear();
                bytes.resize((pos - end) as usize, 0);
                self.write_inode(
                    node,
                    places,
                    superblock,
                    InodePlace { pos, data_end },
                    &mut bytes,
                )?;
                end += bytes.len() as u64;
                queue.push(&bytes)?;
            }
            // Readers read the metabox in whole blocks.
            bytes.clear();
            bytes.resize((end.next_multiple_of(superblock.block_size.bytes64()) - end) as usize, 0);
            queue.push(&bytes)?;
            queue.end(PACKED_LEN)
        })
    }

    /// Appends the inode of `id` with all that follows it.
    pub(crate) fn write_inode(
        &mut self,
        id: NodeId,
        places: &Places,
        superblock: &Superblock,
        place: InodePlace,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (block, start) = (superblock.block_size, out.len());
        let mut inode = inode_sizes::inode(
            self.tree,
            self.xattrs,
            superblock,
            id,
            self.inode_sizes.version(id),
        )?;
        inode.ino = self.inos.get(id.index()).copied().unwrap_or(inode.ino);
        inode.dot_omitted = self.dot_omitted && inode.file_type == FileType::Directory;
        let encoded = places.encoded_dirs.get(&id);
        let content = encoded.unwrap_or(&self.contents[id.index()]);
        let first_block = places.first_block(id);
        let (mut stored, mut own_blocks) = (None, None);
        match (content, self.chunked_dir(id)) {
            (_, Some(dir)) => dir.set_in(&mut inode, block),
            (StoredContent::None | StoredContent::Skipped, None) => {
                inode.size = self.own_size(id, block);
                let tail = self.tail(id, inode.size, block);
                if tail > 0 {
                    inode.layout = DataLayout::FlatInline;
                    own_blocks = Some(block.blocks_for(inode.size - tail));
                }
                if matches!(
                    inode.file_type,
                    FileType::Regular | FileType::Directory | FileType::Symlink
                ) {
                    inode.place = Place::Blocks(first_block);
                }
            }
            (content, None) => {
                if encoded.is_some() {
                    inode.size = self.own_size(id, block);
                }
                stored = content.set_in(&mut inode);
            }
        }
        inode.write(superblock, out).map_err(Error::Layout)?;
        out.extend_from_slice(self.xattrs.region(id, self.tree.node(id).xattrs));
        if let Some(dir) = self.chunked_dir(id) {
            dir.write_table(first_block, out).map_err(Error::Layout)?;
        }
        if let Some(blocks) = own_blocks {
            self.write_own(id, blocks..u64::MAX, places, block, out)?;
        }
        if let Some(stored) = stored {
            out.extend_from_slice(self.spill.get(stored)?);
        }
        self_check::name_inode(place.check(&inode, &out[start..], superblock), || {
            self.tree.display_path(id)
        })
    }

    /// Appends the blocks of a directory or a symbolic link.
    fn write_blocks(
        &self,
        id: NodeId,
        places: &Places,
        block: BlockSize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(dir) = self.chunked_dir(id) else {
            let blocks = self.size(id, block).blocks;
            return self.write_own(id, 0..blocks, places, block, out);
        };
        let dirents: Vec<Dirent<'_>> = self.dirents(id, places).collect();
        for entries in dir.new_blocks() {
            out.resize(out.len().next_multiple_of(block.bytes()), 0);
            self.write_dir_block(id, &dirents[entries], out)?;
        }
        Ok(())
    }

    /// Appends the bytes of own content that are in these `blocks` of it.
    pub(super) fn write_own(
        &self,
        id: NodeId,
        blocks: Range<u64>,
        places: &Places,
        block: BlockSize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.tree.node(id).kind {
            Kind::Directory(_) => {
                let (start, mut number) = (out.len(), 0);
                for_each_block(self.dirents(id, places), block, |dirents| {
                    number += 1;
                    if !blocks.contains(&(number - 1)) {
                        return Ok(());
                    }
                    out.resize(start + (out.len() - start).next_multiple_of(block.bytes()), 0);
                    self.write_dir_block(id, dirents, out)
                })?;
            }
            Kind::Symlink(target) => {
                let target = self.tree.text(target);
                let bytes =
                    |blocks: u64| blocks.saturating_mul(block.bytes64()).min(target.len() as u64);
                out.extend_from_slice(
                    &target[bytes(blocks.start) as usize..bytes(blocks.end) as usize],
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends a block of directory `id`.
    fn write_dir_block(&self, id: NodeId, dirents: &[Dirent<'_>], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        write_block(dirents, out).map_err(Error::Layout)?;
        self_check::name_inode(self_check::check_dir_block(&out[start..], dirents), || {
            self.tree.display_path(id)
        })
    }
}
