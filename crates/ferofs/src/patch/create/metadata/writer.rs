//! Appends all new metadata: with new inodes in the metabox, if that needs less space, or outside of it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ferofs_build::data::stored::{PackedInode, StoredContent};
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::tree::NodeId;
use ferofs_build::tree::inode_sizes::InodeSizes;
use ferofs_build::tree::xattr::XattrPlan;
use ferofs_format::superblock::Superblock;
use ferofs_format::{Incompat, Nid};

use super::emit::{NewMetadata, WrittenMetadata};
use super::grown_inodes;
use super::root::RootPlace;
use crate::error::Result;
use crate::patch::create::context::CreateContext;
use crate::patch::create::decide::directories;
use crate::patch::create::decide::files::ReuseDecisions;
use crate::patch::create::decide::growth::Growth;

/// The inputs for new metadata.
pub(crate) struct MetadataWriter<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    pub(crate) decisions: &'a ReuseDecisions,
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) xattrs: &'a XattrPlan,
    pub(crate) contents: &'a [StoredContent],
    /// The packed inode with new fragments, if it grows.
    pub(crate) packed: Option<&'a PackedInode>,
    /// Inodes of the old image that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// The old directory that a new one resembles.
    pub(crate) old_dirs: &'a HashMap<NodeId, Nid>,
    /// Directories that get a new inode only because `..` changes.
    pub(crate) with_new_parent: &'a HashSet<NodeId>,
    pub(crate) root: RootPlace,
    /// The first free inode number of those that `stat` shows.
    pub(crate) first_ino: u32,
    pub(crate) spill: &'a mut Spill,
}

impl MetadataWriter<'_> {
    /// Appends the metadata to `output`, and names in `superblock` what has grown. `first` is the position of the first appended byte.
    pub(crate) fn append(
        &mut self,
        growth: &Growth,
        superblock: &mut Superblock,
        first: u64,
        output: &mut Output,
    ) -> Result<WrittenMetadata> {
        let inputs = self.context.inputs;
        // Linux reads the chunk table of an inode in the metabox, erofs-utils 1.9 does not.
        let in_chunks = self.context.allowed.contains(Incompat::CHUNKED_FILE) && growth.metabox.is_none();
        let block_dirs = match in_chunks {
            true => directories::in_old_blocks(inputs, self.kept, self.old_dirs, self.root)?,
            false => Vec::new(),
        };
        let written = NewMetadata {
            options: inputs.options,
            tree: inputs.tree,
            inode_sizes: self.inode_sizes,
            xattrs: self.xattrs,
            contents: self.contents,
            decisions: self.decisions,
            spill: self.spill,
            kept: self.kept,
            with_new_parent: self.with_new_parent,
            block_dirs: &block_dirs,
            root: self.root,
            first_ino: self.first_ino,
            metabox: growth.metabox.as_ref(),
        }
        .emit(superblock, first, output)?;
        let grown = (written.metabox.as_ref(), self.packed);
        grown_inodes::append(inputs.old, growth, grown, superblock, self.spill, output)?;
        Ok(written)
    }

    /// Whether metadata at `start` takes fewer blocks with new inodes in the metabox: it is written in both ways, to temporary files
    /// in the directory `temporary`. Outside of the metabox, large directories keep their old blocks, and no index is written again.
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
}
