//! Appends all new metadata of a patch: the inodes of files that changed, and of all directories
//! above them, in the metabox if that needs less space. All other inodes stay where they are.
//! Source: FORMAT.md 2, 3, 5.

pub(crate) mod root;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::data::stored::PackedInode;
use crate::metadata::compressed::{EncodedContent, MetadataEncoder};
use crate::metadata::inodes::{InodeWriter, UnnamedInode};
use crate::metadata::places::{Places, Planner};
use crate::metadata::self_check::InodePlace;
use crate::output::Output;
use crate::tree::{Kind, NodeId};
use ferofs_format::area::MetadataSize;
use ferofs_format::superblock::Superblock;
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BytePos, Incompat, Nid};

use self::root::RootPlace;
use crate::error::Result;
use crate::incremental::create::context::CreateContext;
use crate::incremental::create::decide::growth::{GrowingMetabox, Growth};
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions, directories};
use crate::incremental::create::options::GrowthParts;

/// The inputs for new metadata.
pub(crate) struct MetadataWriter<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    pub(crate) inodes: InodeWriter<'a>,
    pub(crate) decisions: &'a ReuseDecisions,
    /// The packed inode with new fragments, if it grows.
    pub(crate) packed: Option<&'a PackedInode>,
    /// Inodes of the old image that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// The old directory that a new one resembles.
    pub(crate) old_dirs: &'a HashMap<NodeId, Nid>,
    /// Directories that get a new inode only because `..` changes.
    pub(crate) with_new_parent: &'a HashSet<NodeId>,
    pub(crate) root: RootPlace,
}

/// Where the new metadata is.
#[derive(Debug)]
pub(crate) struct WrittenMetadata {
    pub(crate) places: Places,
    /// The content of the metabox, if it has grown.
    pub(crate) metabox: Option<EncodedContent>,
    /// Position and bytes of the root's inode, if it goes into free slots of the base.
    pub(crate) free_root: Option<(u64, Vec<u8>)>,
    /// Whether a directory is stored in chunks.
    pub(crate) has_chunked_dirs: bool,
    /// Bytes of new metadata, by node.
    pub(crate) costs: Vec<u64>,
    /// What the new metadata consists of.
    pub(crate) growth: GrowthParts,
    /// The position of the new metadata.
    pub(crate) base: u64,
    /// All new inodes, in the order of the tree.
    pub(crate) inodes: Vec<NewInode>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode {
    pub(crate) node: NodeId,
    pub(crate) size: MetadataSize,
}

impl WrittenMetadata {
    /// The number of the inode of `node`.
    pub(crate) fn nid(&self, node: NodeId) -> Nid {
        self.places.nid(node)
    }

    /// Divides the `encoded` bytes of all new metadata among inodes and parts, in proportion to
    /// their sizes before compression.
    fn scale(&mut self, encoded: u64) {
        let decoded: u64 = self.growth.named().iter().map(|(_, len)| len).sum();
        let scale = |bytes: &mut u64| {
            let scaled = u128::from(*bytes) * u128::from(encoded) / u128::from(decoded.max(1));
            *bytes = u64::try_from(scaled).unwrap_or(u64::MAX);
        };
        self.costs.iter_mut().for_each(scale);
        let GrowthParts {
            content,
            inodes,
            indexes,
            new_tails,
            copied_tails,
            directories,
            parents,
            padding,
        } = &mut self.growth;
        let parts =
            [content, inodes, indexes, new_tails, copied_tails, directories, parents, padding];
        parts.into_iter().for_each(scale);
    }
}

/// The inode numbers that `stat` shows, by node: consecutive ones from `first` on for inodes that
/// are written, so that a patch need not store them.
pub(crate) fn inode_numbers(kept: &[Option<Nid>], first: u32) -> Vec<u32> {
    let mut next = first;
    let number = |kept: &Option<Nid>| {
        let number = next;
        next = next.wrapping_add(u32::from(kept.is_none()));
        number
    };
    kept.iter().map(number).collect()
}

impl MetadataWriter<'_> {
    /// Appends the metadata to `output`, and names in `superblock` what has grown. `first` is the
    /// position of the first appended byte.
    pub(crate) fn append(
        &mut self,
        growth: &Growth,
        superblock: &mut Superblock,
        first: u64,
        output: &mut Output,
    ) -> Result<WrittenMetadata> {
        let inputs = self.context.inputs;
        // Linux reads the chunk table of an inode in the metabox, erofs-utils 1.9 does not.
        let in_chunks =
            self.context.allowed.contains(Incompat::CHUNKED_FILE) && growth.metabox.is_none();
        self.inodes.chunked_dirs = match in_chunks {
            true => directories::in_old_blocks(inputs, self.kept, self.old_dirs, self.root)?,
            false => Vec::new(),
        };
        let written = self.append_inodes(growth.metabox.as_ref(), superblock, first, output)?;
        self.append_grown(growth, written.metabox.as_ref(), superblock, output)?;
        Ok(written)
    }

    /// Whether metadata at `start` takes fewer blocks with new inodes in the metabox: it is written
    /// in both ways, to temporary files in the directory `temporary`. Outside of the metabox, large
    /// directories keep their old blocks, and no index is written again.
    pub(crate) fn is_smaller_in_metabox(
        &mut self,
        growth: &Growth,
        superblock: &Superblock,
        start: u64,
        temporary: &Path,
    ) -> Result<bool> {
        let mut end = |growth: &Growth| -> Result<u64> {
            let mut output = Output::region(temporary, start)?;
            self.append(growth, &mut superblock.clone(), start, &mut output)?;
            Ok(output.position().next_multiple_of(superblock.block_size.bytes64()))
        };
        let apart = Growth { metabox: None, packed: growth.packed.clone() };
        Ok(end(growth)? < end(&apart)?)
    }

    /// Appends all inodes and directories to `output`.
    fn append_inodes(
        &mut self,
        metabox: Option<&GrowingMetabox>,
        superblock: &Superblock,
        first: u64,
        output: &mut Output,
    ) -> Result<WrittenMetadata> {
        let block = superblock.block_size;
        let start = output.position();
        let base = start.next_multiple_of(block.bytes64());
        if metabox.is_none() {
            output.pad_to(base)?;
        }
        let new = self.inodes.tree.ids().filter(|id| self.kept[id.index()].is_none());
        let inodes: Vec<_> =
            new.map(|node| NewInode { node, size: self.inodes.size(node, block) }).collect();
        let places = self.plan(&inodes, metabox, superblock, (first, base));
        let mut written = WrittenMetadata {
            places,
            metabox: None,
            free_root: None,
            has_chunked_dirs: !self.inodes.chunked_dirs.is_empty(),
            costs: vec![0; self.inodes.tree.nodes.len()],
            growth: GrowthParts::default(),
            base,
            inodes,
        };
        for NewInode { node, size } in &written.inodes {
            let blocks = size.blocks * block.bytes64();
            written.costs[node.index()] = size.len.next_multiple_of(SLOT_SIZE) + blocks;
            self.count(*node, size.len, blocks, &mut written.growth);
        }
        let places = &written.places;
        let data_end = base + places.total_blocks * block.bytes64();
        self.inodes.write_area(places, &[], data_end, superblock, |pos, bytes| {
            output.pad_to(pos)?;
            output.append(bytes)
        })?;
        if places.total_blocks > 0 {
            output.pad_to(data_end)?;
        }
        if let Some(GrowingMetabox { earlier, compression, .. }) = metabox {
            let run = self.inodes.run;
            let (file, timings) = (compression.for_directories(block), &run.progress.timings);
            let encoder =
                MetadataEncoder::new(compression, file, block, timings, run.worker_count())?;
            let content =
                self.inodes.encode_metabox(&encoder, Some(earlier), places, superblock, output)?;
            written.metabox = Some(content);
            written.scale(output.position() - start);
        } else if let Some(pos) = self.root_apart(metabox, first) {
            let (mut bytes, place) = (Vec::new(), InodePlace { pos, data_end });
            self.inodes.write_inode(NodeId::ROOT, places, superblock, place, &mut bytes)?;
            match self.root {
                RootPlace::Free(pos) => written.free_root = Some((pos, bytes)),
                RootPlace::First | RootPlace::Anywhere => output.overwrite(first, &bytes)?,
            }
        }
        Ok(written)
    }

    /// The position of the root's inode if it is not among the other inodes.
    const fn root_apart(&self, metabox: Option<&GrowingMetabox>, first: u64) -> Option<u64> {
        match self.root {
            _ if metabox.is_some() => None,
            RootPlace::Anywhere => None,
            RootPlace::First => Some(first),
            RootPlace::Free(pos) => Some(pos),
        }
    }

    /// Plans the places of all new `inodes`. The area begins at `base`.
    fn plan(
        &self,
        inodes: &[NewInode],
        metabox: Option<&GrowingMetabox>,
        superblock: &Superblock,
        (first, base): (u64, u64),
    ) -> Places {
        let block = superblock.block_size;
        let nids = self.kept.iter().map(|kept| kept.unwrap_or_default()).collect();
        // Appended metadata is always after the position that nids count from.
        let nid = |pos: u64| superblock.nid_at(BytePos::new(pos)).unwrap_or_default();
        let first_slot = match metabox {
            Some(metabox) => metabox.earlier.size.next_multiple_of(block.bytes64()) / SLOT_SIZE,
            None => nid(base).get(),
        };
        let mut planner = Planner::new(block, metabox.is_some(), 0, first_slot, nids);
        for NewInode { node, size } in inodes {
            match self.root_apart(metabox, first).filter(|_| *node == NodeId::ROOT) {
                Some(pos) => planner.add_apart(*node, *size, nid(pos)),
                None => planner.add(*node, *size),
            }
        }
        let (_, mut places) = planner.finish(block);
        places.area = BytePos::new(base).block(block);
        places
    }

    /// Adds the inode of `id`, of `len` bytes with all that follows it, and its `blocks` to what
    /// the image grows by.
    fn count(&self, id: NodeId, len: u64, blocks: u64, growth: &mut GrowthParts) {
        // A root in free slots adds only its blocks.
        let in_free_slots = id == NodeId::ROOT && matches!(self.root, RootPlace::Free(_));
        let len = if in_free_slots { 0 } else { len };
        if matches!(self.inodes.tree.node(id).kind, Kind::Directory(_)) {
            let has_new_parent = self.with_new_parent.contains(&id);
            let part = if has_new_parent { &mut growth.parents } else { &mut growth.directories };
            *part += len + blocks;
            return;
        }
        let content = &self.inodes.contents[id.index()];
        let (after, tail) = (content.len_after() as u64, content.inline_len());
        let is_copied = matches!(self.decisions.by_node[id.index()], ReuseDecision::SameContent(_));
        growth.inodes += len.saturating_sub(after) + blocks;
        growth.indexes += after.saturating_sub(tail);
        *if is_copied { &mut growth.copied_tails } else { &mut growth.new_tails } += tail;
    }

    /// Appends the inodes of the metabox and the packed inode again if they have grown, and names
    /// them in `superblock`.
    fn append_grown(
        &mut self,
        growth: &Growth,
        metabox: Option<&EncodedContent>,
        superblock: &mut Superblock,
        output: &mut Output,
    ) -> Result<()> {
        let metabox = growth.metabox.as_ref().zip(metabox);
        let packed = growth.packed.as_ref().zip(self.packed);
        if metabox.is_some() || packed.is_some() {
            // Content that is placed to the byte can end within a block, which then holds no inode.
            let block = superblock.block_size.bytes64();
            output.pad_to(output.position().next_multiple_of(block))?;
        }
        // These inodes have the number and the time of the old ones.
        let old = self.context.inputs.old;
        let like = |nid| old.inode(nid).map(|inode| (inode.on_disk().ino, inode.on_disk().mtime));
        if let Some((metabox, content)) = metabox {
            let (ino, mtime) = like(metabox.nid)?;
            let inode = UnnamedInode::metabox(content, ino, mtime);
            superblock.metabox = Some(append_inode(&inode, superblock, output)?);
        }
        if let Some((packed, content)) = packed {
            let (ino, mtime) = like(packed.nid)?;
            let inode = UnnamedInode::packed(content, ino, mtime, self.inodes.spill)?;
            superblock.packed = Some(append_inode(&inode, superblock, output)?);
        }
        Ok(())
    }
}

/// Appends `inode` with the bytes that follow it, at the next slot.
fn append_inode(inode: &UnnamedInode, superblock: &Superblock, output: &mut Output) -> Result<Nid> {
    let data_end = output.position();
    let pos = data_end.next_multiple_of(SLOT_SIZE);
    let mut bytes = Vec::new();
    inode.write(superblock, InodePlace { pos, data_end }, &mut bytes)?;
    output.pad_to(pos)?;
    output.append(&bytes)?;
    // Appended metadata is always after the position that nids count from.
    Ok(superblock.nid_at(BytePos::new(pos)).unwrap_or_default())
}
