//! The content of new inodes: extent maps copied from the old image, then reused blocks, then the
//! builder's data stage for the rest.

mod blocks;
pub(crate) mod extents;

use crate::data;
use crate::data::encode::SEGMENT;
use crate::data::identical::IdenticalFiles;
use crate::data::order::Order;
use crate::data::stored::{BaseImage, StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::error::{Result, Warning};
use crate::options::Options;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::reader::Reader;
use crate::tree::Kind;
use crate::tree::inode_sizes::InodeSizes;
use ferofs_format::inode::FileType;
use ferofs_format::{Incompat, Nid};

use self::extents::OldExtents;
use super::context::{CreateContext, Inputs};
use super::decide::growth::Growth;
use super::decide::{ReuseDecision, ReuseDecisions};
use super::describe::Segments;

/// Writes the content of new inodes to `output`, and the bytes that follow inodes to `spill`.
pub(crate) struct ContentWriter<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    pub(crate) growth: &'a Growth,
    /// Inodes of the old image that stay, by node: their content needs no work.
    pub(crate) kept: &'a [Option<Nid>],
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) output: &'a mut Output,
    pub(crate) spill: &'a mut Spill,
}

impl ContentWriter<'_> {
    /// Copies maps and reuses blocks of the old image where possible; [`StoredContent::None`] for
    /// the other nodes. A decision to reuse the same content becomes one to reuse parts of it where
    /// the map cannot be copied.
    pub(crate) fn reuse(&mut self, decisions: &mut ReuseDecisions) -> Result<Vec<StoredContent>> {
        let Inputs { old, tree, contents, .. } = self.context.inputs;
        let mut placed: Vec<StoredContent> = vec![StoredContent::None; tree.nodes.len()];
        let mut reader = Reader::new(contents, tree);
        for id in tree.ids() {
            let node = tree.node(id);
            let is_file = matches!(node.kind, Kind::Regular { .. }) && node.size > 0;
            if !is_file || self.kept[id.index()].is_some() {
                continue;
            }
            let decision = &mut decisions.by_node[id.index()];
            let mut content = None;
            if let ReuseDecision::SameContent(nid) = *decision {
                content = crate::incremental::create::content::extents::copy(
                    old,
                    &old.inode(nid)?,
                    self.inode_sizes.len(id),
                    self.spill,
                )?;
                if content.is_none() {
                    *decision = ReuseDecision::ChangedContent(nid);
                }
            }
            if let (None, ReuseDecision::ChangedContent(nid)) = (&content, *decision)
                && self.context.allowed.contains(Incompat::CHUNKED_FILE)
            {
                let inode = old.inode(nid)?;
                let inode_len = self.inode_sizes.len(id);
                content = blocks::store(
                    self.context.inputs,
                    &inode,
                    id,
                    inode_len,
                    &mut reader,
                    self.output,
                    self.spill,
                )?;
            }
            if let Some(content) = content {
                placed[id.index()] = content;
            }
        }
        Ok(placed)
    }

    /// Encodes the content of all nodes that [`reuse`](Self::reuse) left at
    /// [`StoredContent::None`]. Also returns where the compressors started again.
    pub(crate) fn encode(
        &mut self,
        decisions: &ReuseDecisions,
        placed: &[StoredContent],
        warnings: &mut Vec<Warning>,
    ) -> Result<(StoredData, Segments)> {
        let Inputs { options, old, tree, contents, .. } = self.context.inputs;
        let compression = self.context.compression.as_ref();
        if let Some(compression) = compression {
            compression.check(options.image.block_size)?;
        }
        let changed_from = |decision: &ReuseDecision| match decision {
            ReuseDecision::ChangedContent(nid) => Some(*nid),
            _ => None,
        };
        let old_extents = OldExtents {
            old,
            placed: self
                .kept
                .iter()
                .zip(placed)
                .map(|(kept, content)| kept.is_some() || !matches!(content, StoredContent::None))
                .collect(),
            from: decisions.by_node.iter().map(changed_from).collect(),
            compression,
            sizes: tree.nodes.iter().map(|node| node.size).collect(),
            packed: self.growth.packed.as_ref().map(|packed| &packed.earlier),
        };
        let sharing = compression.filter(|_| self.context.allowed.contains(Incompat::DEDUPE));
        let known = match sharing {
            Some(compression) => {
                let unused = unused_files(self.context, decisions);
                Some(extents::index(options, old, &unused, compression, self.spill.dir())?)
            }
            None => None,
        };
        // What is encoded must fit into memory, as in a build. 0 would be an unknown size.
        let new = tree.ids().filter(|id| !old_extents.has_content(*id));
        let new: u64 = new.map(|id| tree.node(id).size).sum();
        let mut fitted = options.clone();
        fitted.data.compression = compression.cloned();
        data::memory::fit(&mut fitted, new.max(2))?;
        let options = &Options { run: fitted.run, ..options.clone() };
        let identical_files = IdenticalFiles::new(tree)?;
        let order = Order::new(
            tree,
            compression,
            options.image.block_size,
            &crate::options::DataOptions::default(),
        );
        let context = WorkerContext {
            options,
            tree,
            order: &order,
            inode_sizes: self.inode_sizes,
            identical_files: &identical_files,
            extent_index: known.as_ref(),
            base_image: Some(&old_extents),
            contents,
            compression,
            block_size: options.image.block_size,
        };
        let mut segments = Segments::default();
        for id in
            tree.ids().filter(|id| tree.node(*id).size > SEGMENT && !old_extents.has_content(*id))
        {
            let size = tree.node(id).size;
            segments.add(id, &old_extents.split_ranges(id).unwrap_or_else(|| vec![(0, size)]));
        }
        Ok((data::run(context, self.output, self.spill, warnings)?, segments))
    }
}

/// Regular files of the old image that no node of the new tree reuses as a whole: their extents may
/// serve other files.
fn unused_files(context: &CreateContext<'_>, decisions: &ReuseDecisions) -> Vec<Nid> {
    let mut used = decisions.kept.clone();
    used.extend(decisions.by_node.iter().filter_map(|decision| match decision {
        ReuseDecision::SameContent(nid) => Some(*nid),
        _ => None,
    }));
    let files = context.inputs.survey.files.iter();
    let regular = files.filter(|file| file.file_type == FileType::Regular && file.size > 0);
    regular.map(|file| file.nid).filter(|nid| !used.contains(nid)).collect()
}
