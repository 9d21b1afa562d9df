//! Everything that a patch appends to the image, in order: content, metadata, and the record of the
//! history.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::data::stored::StoredContent;
use crate::error::{Error, Result, Warning};
use crate::metadata::inodes::InodeWriter;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::tree::NodeId;
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::xattr::XattrPlan;
use crate::verify::Verifier;
use ferofs_format::superblock::Superblock;
use ferofs_format::{Incompat, Nid};
use ferofs_read::Image;

use super::content::ContentWriter;
use super::context::{CreateContext, Inputs};
use super::decide::ReuseDecisions;
use super::decide::directories::{self, Directories};
use super::decide::growth::Growth;
use super::describe::relocations::{self, Relocated};
use super::describe::{Segments, changed_content, content_costs, list_changes, pieces, units};
use super::encoding;
use super::metadata::root::{self, RootPlace};
use super::metadata::{MetadataWriter, WrittenMetadata, inode_numbers};
use super::options::GrowthParts;
use ferofs_update::PatchFault;
use ferofs_update::format::change::{Change, NewParents};
use ferofs_update::format::header::Header;
use ferofs_update::format::piece::Piece;
use ferofs_update::image::history::{Origin, RECORD, Record};
use ferofs_update::image::overlay::Overlay;
use ferofs_update::image::{SECTOR_POS, Sector};

/// The appended bytes, and the other changes of the patch.
pub(crate) struct Region {
    pub(crate) output: Output,
    /// Bytes of the new image.
    pub(crate) end: u64,
    pub(crate) content_len: u64,
    pub(crate) metadata_len: u64,
    pub(crate) growth: GrowthParts,
    /// Position and bytes of the root's inode, if it goes into free slots of the base.
    pub(crate) root: Option<(u64, Vec<u8>)>,
    /// The new superblock's sector.
    pub(crate) sector: Sector,
    pub(crate) superblock: Superblock,
    pub(crate) changes: Vec<Change>,
    pub(crate) new_parents: NewParents,
    decisions: ReuseDecisions,
    kept: Vec<Option<Nid>>,
    written: WrittenMetadata,
    segments: Segments,
    old_dirs: HashMap<NodeId, Nid>,
    /// Where metadata starts in the new image.
    metadata: u64,
    /// The largest pcluster of the metabox, if it has grown.
    metabox_pcluster: Option<u32>,
}

impl Region {
    /// The new image, as an overlay over the old one.
    pub(crate) fn result(&mut self, context: &CreateContext<'_>) -> Result<Overlay> {
        let start = context.area.size();
        let appended = self.output.appended(start)?;
        let overlay = Overlay::new(Arc::clone(context.base), start, Box::new(appended));
        let overlay = overlay.with(SECTOR_POS, &self.sector);
        Ok(match &self.root {
            Some((pos, bytes)) => overlay.with(*pos, bytes),
            None => overlay,
        })
    }

    /// The appended bytes as pieces of a patch file with `header`, and the encoded list of
    /// relocated inodes.
    pub(crate) fn pieces(
        &mut self,
        context: &CreateContext<'_>,
        header: &Header,
    ) -> Result<(Vec<Piece>, Vec<u8>)> {
        let image = Image::open(self.result(context)?)?;
        let Relocated { prediction, encoded } = relocations::list(&relocations::Inputs {
            context,
            image: &image,
            decisions: &self.decisions,
            kept: &self.kept,
            old_dirs: &self.old_dirs,
            written: &self.written,
            header,
        })?;
        let region = self.output.appended(context.area.size())?;
        let methods = &context.methods[..];
        let Self { decisions, kept, written, segments, .. } = &*self;
        let units = match (context.options.portable, &context.compression, &written.metabox) {
            (true, Some(_), _) | (true, _, Some(_)) => Vec::new(),
            _ => units::find(context, &image, decisions, kept, written, segments)?,
        };
        let old_content = match units.is_empty() {
            true => changed_content(context, decisions, kept)?,
            false => Vec::new(),
        };
        let old_files = units::old_files(context, decisions, &units);
        let pieces = pieces::make(&pieces::Inputs {
            context,
            image: &image,
            written,
            region: &region,
            metadata: self.metadata,
            units: &units,
            old_files: &old_files,
            prediction: &prediction,
            old_content: &old_content,
            methods,
            metabox_pcluster: self.metabox_pcluster,
        })?;
        Ok((pieces, encoded))
    }
}

/// Writes the region to a temporary file in `temporary`, and verifies the new image if the options
/// ask for that.
pub(crate) fn write(
    context: &CreateContext<'_>,
    mut decisions: ReuseDecisions,
    mut growth: Growth,
    temporary: &Path,
    time: i64,
    warnings: &mut Vec<Warning>,
) -> Result<Region> {
    let Inputs { options, old, survey, tree, .. } = context.inputs;
    let Directories { kept, old_dirs, with_new_parent } =
        directories::decide(context.inputs, &decisions, context.options.loose_parents)?;
    if kept[NodeId::ROOT.index()].is_some() {
        return Err(Error::Patch(PatchFault::Unchanged));
    }
    let block = old.superblock().block_size;
    let start = context.area.size();
    let mut superblock = context.area.superblock().clone();
    let xattrs = tree
        .xattrs
        .plan_on(&options.xattrs, &survey.shared, growth.metabox.is_some())
        .map_err(crate::error::Error::Layout)?;
    let inode_sizes =
        InodeSizes::new(tree, &xattrs, &superblock, &options.inodes, &options.source.path)?;
    let (root, mut features) = root_place(context, inode_sizes.len(NodeId::ROOT) as u64)?;

    let mut spill = Spill::new(temporary);
    let mut output = Output::region(temporary, start)?;
    if root == RootPlace::First {
        output.pad_to(start + block.bytes64())?;
    }
    let content_start = output.position();
    let mut writer = ContentWriter {
        context,
        growth: &growth,
        kept: &kept,
        inode_sizes: &inode_sizes,
        output: &mut output,
        spill: &mut spill,
    };
    let mut placed = writer.reuse(&mut decisions)?;
    let (data, segments) = writer.encode(&decisions, &placed, warnings)?;
    features |= data_features(context, &placed, data.features);
    for (place, content) in placed.iter_mut().zip(data.contents.iter().copied()) {
        if matches!(place, StoredContent::None) {
            *place = content;
        }
    }
    let content_end = output.position();

    let first_ino = survey.ino.wrapping_add(1);
    let inodes = InodeWriter {
        run: &options.run,
        tree,
        inode_sizes: &inode_sizes,
        xattrs: &xattrs,
        contents: &placed,
        spill: &mut spill,
        dot_omitted: false,
        inos: inode_numbers(&kept, first_ino),
        chunked_dirs: Vec::new(),
        root_has_no_tail: matches!(root, RootPlace::Free(_)),
    };
    let mut metadata = MetadataWriter {
        context,
        inodes,
        decisions: &decisions,
        packed: data.packed.as_ref(),
        kept: &kept,
        old_dirs: &old_dirs,
        with_new_parent: &with_new_parent,
        root,
    };
    // The builder sets LZ4_0PADDING for all encoded content, whatever its algorithm.
    let content =
        context.compression.as_ref().filter(|_| features.contains(Incompat::LZ4_0PADDING));
    let metabox = growth.metabox.as_ref().map(|metabox| metabox.compression.clone());
    // New metadata is written apart if it is not smaller in the metabox, or if the superblock's
    // sector has no space for what decodes it.
    if growth.metabox.is_some()
        && (encoding::update_configs(
            old,
            context.area,
            content,
            metabox.as_ref(),
            &mut superblock.clone(),
        )
        .is_err()
            || !metadata.is_smaller_in_metabox(&growth, &superblock, content_end, temporary)?)
    {
        growth.metabox = None;
    }
    let written = metadata.append(&growth, &mut superblock, start, &mut output)?;
    if written.has_chunked_dirs {
        features |= Incompat::CHUNKED_FILE;
    }

    let end = (output.position() + RECORD).next_multiple_of(block.bytes64());
    superblock.root = written.nid(NodeId::ROOT);
    superblock.inodes = tree.nodes.len() as u64;
    superblock.blocks = end >> block.bits();
    superblock.incompat |= features;
    if superblock.blocks >= 1 << 32 && !superblock.incompat.contains(Incompat::BIT48) {
        return Err(crate::error::Error::TooManyBlocks);
    }
    let metabox = metabox.filter(|_| growth.metabox.is_some());
    let configs =
        encoding::update_configs(old, context.area, content, metabox.as_ref(), &mut superblock)?;
    let sector = context.area.rewrite(&superblock, configs.as_deref())?;
    let record = Record {
        origin: Origin::Patch,
        number: context.history.next(),
        time,
        start,
        end,
        previous: context.history.end(),
        before: context.area.sector(),
        after: sector,
        root: written.free_root.as_ref().map_or((0, 0), |(pos, bytes)| (*pos, bytes.len() as u32)),
    };
    output.pad_to(end - RECORD)?;
    output.append(&record.to_bytes())?;

    let (content, known) = (content_end - content_start, written.growth);
    let counted = known.named().iter().map(|(_, len)| len).sum::<u64>() + content;
    let padding = (end - start).saturating_sub(counted);
    let mut region = Region {
        output,
        end,
        content_len: content,
        metadata_len: end - content_end + (content_start - start),
        growth: GrowthParts { content, padding, ..known },
        root: written.free_root.clone(),
        sector,
        superblock,
        changes: Vec::new(),
        new_parents: NewParents::default(),
        decisions,
        kept,
        written,
        segments,
        old_dirs,
        metadata: content_end,
        metabox_pcluster: growth.metabox.as_ref().and_then(|metabox| metabox.compression.pcluster),
    };
    let image = Image::open(region.result(context)?)?;
    let costs = content_costs(context, &image, &region.kept, &region.written)?;
    let Region { decisions, kept, written, .. } = &region;
    let changes = list_changes(context.inputs, decisions, kept, written, &costs, &with_new_parent)?;
    (region.changes, region.new_parents) = changes;
    verify(context, region, &inode_sizes, &xattrs, &placed)
}

/// Finds where the root's inode of `len` bytes goes, and the features that this needs.
fn root_place(context: &CreateContext<'_>, len: u64) -> Result<(RootPlace, Incompat)> {
    let CreateContext { base, area, .. } = context;
    let Inputs { old, survey, .. } = context.inputs;
    match root::find(old, base, context.history, area.size(), len) {
        Err(Error::Patch(PatchFault::NoRootSlot))
            if context.allowed.contains(Incompat::BIT48)
                && root::can_be_48bit(old, base, area, survey)? =>
        {
            Ok((RootPlace::Anywhere, Incompat::BIT48))
        }
        place => Ok((place?, Incompat::empty())),
    }
}

/// The features of new content: `reused` was placed by reusing the old image, `encoded` comes from
/// the data stage.
fn data_features(
    context: &CreateContext<'_>,
    reused: &[StoredContent],
    encoded: Incompat,
) -> Incompat {
    let mut features = encoded;
    if reused.iter().any(|content| matches!(content, StoredContent::Chunked { .. })) {
        features |= Incompat::CHUNKED_FILE;
    }
    let old = context.area.superblock().incompat;
    if context.compression.is_none() && !old.contains(Incompat::LZ4_0PADDING) {
        // No content was encoded: reused extents have their padding where the old image's flags
        // say.
        features.remove(Incompat::LZ4_0PADDING);
    }
    features
}

/// Compares the new image with the new tree, if the options ask for that.
fn verify(
    context: &CreateContext<'_>,
    mut region: Region,
    inode_sizes: &InodeSizes,
    xattrs: &XattrPlan,
    stored: &[StoredContent],
) -> Result<Region> {
    let Inputs { options, tree, contents, .. } = context.inputs;
    if options.output.verify {
        let overlay = region.result(context)?;
        let superblock = &region.superblock;
        Verifier { options, tree, inode_sizes, xattrs, contents, stored, superblock }
            .run(Box::new(overlay), Vec::new())?;
    }
    Ok(region)
}
