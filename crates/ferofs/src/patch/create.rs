//! Making a patch: the old image and the new tree are compared, what is new is encoded and laid out behind the old image,
//! and packed into a file.

mod changes;
mod directories;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE, Lz4Config};
use ferofs_format::inode::Timestamp;
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::{FileOffset, Incompat, Nid};

use super::digest::Pieces;
use super::fate::{Fate, Fates, Pair};
use super::file::{self, Change, Header};
use super::history::{History, Origin, RECORD, Record};
use super::journal::Clean;
use super::metadata::NewMetadata;
use super::overlay::Overlay;
use super::payload::{self, Resemblance};
use super::reuse::{self, Reuse};
use super::root::{self, RootPlace};
use super::sector::{Front, SECTOR_POS, Sector};
use super::survey::Survey;
use super::{PatchFault, blocks, settings};
use crate::{Error, Result};
use ferofs_build::data;
use ferofs_build::data::identical::small::IdenticalFiles;
use ferofs_build::data::order::Order;
use ferofs_build::data::stored::StoredContent;
use ferofs_build::data::worker::context::WorkerContext;
use ferofs_build::output::Output;
use ferofs_build::output::spill::Spill;
use ferofs_build::sources::reader::Reader;
use ferofs_build::tree::inode_sizes::Heads;
use ferofs_build::tree::xattr::XattrPlan;
use ferofs_build::tree::{Kind, NodeId};
use ferofs_build::verify::Verifier;
use ferofs_build::{Compression, Options, Warning};
use ferofs_read::{ExtentData, FileSource, Image, Location, OpenOptions, Source};

/// Bytes of the old image's metadata that are kept at hand.
const METADATA_CACHE: usize = 64 << 20;

/// How new content is encoded.
#[derive(Clone, Debug, Default)]
pub enum Encoding {
    /// As most of the old image's, as far as that shows.
    #[default]
    AsOld,
    /// Not at all.
    Stored,
    /// Like this.
    With(Compression),
}

/// How to make a patch.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// What the new tree is made of, and what is done to it: source and input, excludes, owners, times, workers,
    /// progress, cancelling, verifying. What says how an image is encoded and laid out does not count here: that is as
    /// in the old image.
    pub build: Options,
    /// How new content is encoded.
    pub encoding: Encoding,
    /// Use no feature that the old image does not have, so that every kernel that mounts it mounts the new one.
    pub keep_features: bool,
    /// Directories whose entries are the same stay where they are although their `..` names their parent's old inode.
    /// Linux does not look at that; programs that check images do.
    pub loose_parents: bool,
}

impl CreateOptions {
    /// To what `source` holds, a directory or whatever [`ferofs_build::SourceFormat`] says, with every default.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        let build = Options::new(source);
        Self { build, encoding: Encoding::AsOld, keep_features: false, loose_parents: false }
    }
}

/// What was made.
#[derive(Debug)]
pub struct Created {
    /// Bytes of the patch.
    pub patch_len: u64,
    /// Bytes that the image will grow by.
    pub growth: u64,
    /// Those among them that are content.
    pub content_len: u64,
    /// Those among them that are metadata.
    pub metadata_len: u64,
    /// Features that the old image does not have, and readers of the new one must know.
    pub new_features: Incompat,
    /// What was left out of the new tree.
    pub warnings: Vec<Warning>,
}

/// Makes a patch that turns `old`, an image, into one that shows the new tree, and writes it to `patch`.
///
/// # Errors
/// [`PatchFault::Unchanged`], [`PatchFault::NoRootSlot`] and others in [`Error::Patch`]; what building can fail with. There
/// is no patch then.
pub fn create(old: &Path, options: &CreateOptions, patch: &Path) -> Result<Created> {
    let temporary = patch.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let mut output = Output::create(patch, 0)?;
    let avoid = output.own_files();
    let created = make(old, options, &avoid, temporary, &mut output)?;
    output.finish()?;
    Ok(created)
}

/// Makes a patch, and appends it to `output`. The files of `avoid` are no part of the new tree.
pub(super) fn make(
    old: &Path,
    options: &CreateOptions,
    avoid: &[(u32, u32, u64)],
    temporary: &Path,
    output: &mut Output,
) -> Result<Created> {
    let file = FileSource::open(old, 0)?;
    let front = Front::read(&file)?;
    let base: Arc<dyn Source> = Arc::new(Clean::new(file, &front)?);
    if front.superblock().extra_devices > 0 {
        return Err(Error::Patch(PatchFault::Devices));
    }
    let history = History::read(&*base, &front)?;
    let opening = OpenOptions { metadata_cache: METADATA_CACHE, ..OpenOptions::default() };
    let image = Image::open_with(Box::new(Arc::clone(&base)), Vec::new(), &opening)?;
    let build = settle_options(options, &image);
    build.run.check_cancelled()?;
    let mut warnings = Vec::new();
    let time = build.image.build_time.unwrap_or_else(ferofs_build::now);
    let stamp = Timestamp { secs: time, nanos: 0 };
    let (tree, contents) = ferofs_build::sources::gather(&build, avoid, temporary, stamp, &mut warnings)?;
    let survey = Survey::new(&image, &build)?;
    let pair = Pair { options: &build, old: &image, survey: &survey, tree: &tree, contents: &contents };
    let fates = Fates::new(pair)?;
    let compression = match &options.encoding {
        Encoding::AsOld => settings::like(&image, &survey)?,
        Encoding::Stored => None,
        Encoding::With(compression) => Some(compression.clone()),
    };
    // Such an image's pclusters have their padding behind the data. A kernel that is told of padding in front could not
    // decode them, and that flag goes with everything that is encoded here.
    let pads_behind = survey.is_compressed && !image.superblock().incompat.contains(Incompat::LZ4_0PADDING);
    let compression = match (&options.encoding, compression) {
        (Encoding::With(_), Some(_)) if pads_behind => return Err(Error::Patch(PatchFault::OldPadding)),
        (_, compression) => compression.filter(|_| !pads_behind),
    };
    let allowed = if options.keep_features { front.superblock().incompat } else { Incompat::all() };
    let maker = Maker { options, pair, base: &base, front: &front, history: &history, compression, allowed };
    let region = maker.region(fates, temporary, time, &mut warnings)?;
    contents.check_unchanged()?;
    maker.pack(region, time, output, warnings)
}

/// What says how things are stored is as in the old image.
fn settle_options(options: &CreateOptions, old: &Image) -> Options {
    let mut build = options.build.clone();
    build.image.block_size = old.superblock().block_size;
    build.source.skip_unreadable = false;
    build.xattrs.prefixes = old.xattr_prefixes().to_vec();
    build.xattrs.digest = None;
    build.xattrs.name_filter = old.superblock().xattr_filter;
    build.xattrs.root_min = 0;
    build.inodes = ferofs_build::InodeOptions::default();
    build.data.chunks = None;
    build
}

/// What a patch is made from.
struct Maker<'a> {
    options: &'a CreateOptions,
    pair: Pair<'a>,
    base: &'a Arc<dyn Source>,
    front: &'a Front,
    history: &'a History,
    compression: Option<Compression>,
    /// Features that may be used.
    allowed: Incompat,
}

/// What is appended, and what goes with it.
struct Region {
    output: Output,
    end: u64,
    content_len: u64,
    metadata_len: u64,
    root: Option<(u64, Vec<u8>)>,
    sector: Sector,
    superblock: Superblock,
    alike: Vec<Resemblance>,
    changes: Vec<Change>,
}

impl Maker<'_> {
    /// Lays out and writes everything that is appended.
    fn region(
        &self,
        mut fates: Fates,
        temporary: &Path,
        time: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<Region> {
        let Pair { options, old, survey, tree, .. } = self.pair;
        let directories = self.directories(&fates)?;
        let kept = directories.kept;
        if kept[NodeId::ROOT.index()].is_some() {
            return Err(Error::Patch(PatchFault::Unchanged));
        }
        let block = old.superblock().block_size;
        let start = self.front.size();
        let mut superblock = self.front.superblock().clone();
        let xattrs =
            tree.xattrs.plan_on(&options.xattrs, &survey.shared).map_err(ferofs_build::Error::Layout)?;
        let heads = Heads::new(tree, &xattrs, &superblock, &options.inodes, &options.source.path)?;
        let root_len = heads.len(NodeId::ROOT) as u64;
        let mut features = Incompat::empty();
        let root = match root::find(old, self.base, self.history, start, root_len) {
            Err(Error::Patch(PatchFault::NoRootSlot))
                if self.allowed.contains(Incompat::BIT48)
                    && root::can_be_wide(old, self.base, self.front, survey)? =>
            {
                features |= Incompat::BIT48;
                RootPlace::Anywhere
            }
            place => place?,
        };
        let mut spill = Spill::new(temporary);
        let mut output = Output::region(temporary, start)?;
        if root == RootPlace::First {
            output.pad_to(start + block.bytes64())?;
        }
        let content_start = output.position();
        let mut settled: Vec<StoredContent> = vec![StoredContent::None; tree.nodes.len()];
        self.settle(&mut fates, &kept, &heads, &mut settled, &mut output, &mut spill)?;
        if settled.iter().any(|content| matches!(content, StoredContent::Chunked { .. })) {
            features |= Incompat::CHUNKED_FILE;
        }
        let before_data = output.position();
        let data = self.encode(&fates, &kept, &settled, &heads, &mut output, &mut spill, warnings)?;
        features |= data.features;
        if self.compression.is_none() && !self.front.superblock().incompat.contains(Incompat::LZ4_0PADDING) {
            // Content that stays encoded has its padding where the old image says.
            features.remove(Incompat::LZ4_0PADDING);
        }
        for (place, content) in settled.iter_mut().zip(data.contents) {
            if matches!(place, StoredContent::None) {
                *place = content;
            }
        }
        let content_end = output.position();
        let block_dirs = self.block_dirs(&kept, &directories.like, root)?;
        let inodes = tree.nodes.len() as u64;
        let first_ino = survey.ino.wrapping_add(1);
        let written = NewMetadata {
            options,
            tree,
            heads: &heads,
            xattrs: &xattrs,
            contents: &settled,
            spill: &mut spill,
            kept: &kept,
            block_dirs: &block_dirs,
            root,
            first_ino,
        }
        .emit(&superblock, start, &mut output)?;
        features |= written.features;
        let metadata_end = output.position();
        let end = (metadata_end + RECORD).next_multiple_of(block.bytes64());
        superblock.root = written.root;
        superblock.inodes = inodes;
        superblock.blocks = end >> block.bits();
        superblock.incompat |= features;
        let configs = self.configure(&mut superblock, data_is_encoded(features))?;
        let sector = self.front.rewrite(&superblock, configs.as_deref())?;
        let record = Record {
            origin: Origin::Patch,
            number: self.history.current() + 1,
            time,
            start,
            end,
            previous: self.history.end(),
            before: self.front.sector(),
            after: sector,
            root: written.free_root.as_ref().map_or((0, 0), |(pos, bytes)| (*pos, bytes.len() as u32)),
        };
        output.pad_to(end - RECORD)?;
        output.append(&record.to_bytes())?;
        let metadata = content_end..metadata_end;
        let alike = self.alike(&fates, &kept, &directories.like, metadata, before_data..content_end)?;
        let mut region = Region {
            output,
            end,
            content_len: content_end - content_start,
            metadata_len: end - content_end + (content_start - start),
            root: written.free_root.clone(),
            sector,
            superblock,
            alike,
            changes: Vec::new(),
        };
        let costs = self.content_costs(&mut region, &kept, &written)?;
        region.changes = self.changes(&fates, &kept, &written, &costs)?;
        self.verify(region, &heads, &xattrs, &settled)
    }

    /// Settles the content of nodes that need not go through the data stage.
    #[allow(clippy::too_many_arguments, reason = "one step of the way, with everything at hand")]
    fn settle(
        &self,
        fates: &mut Fates,
        kept: &[Option<Nid>],
        heads: &Heads,
        settled: &mut [StoredContent],
        output: &mut Output,
        spill: &mut Spill,
    ) -> Result<()> {
        let Pair { old, tree, contents, .. } = self.pair;
        let mut reader = Reader::new(contents, tree);
        for id in tree.ids() {
            let node = tree.node(id);
            let is_file = matches!(node.kind, Kind::Regular { .. }) && node.size > 0;
            if !is_file || kept[id.index()].is_some() {
                continue;
            }
            let content = match fates.fates[id.index()] {
                Fate::Same(nid) => {
                    let inode = old.inode(nid)?;
                    let copied = reuse::copy(old, &inode, heads.len(id), spill)?;
                    if copied.is_none() {
                        fates.fates[id.index()] = Fate::From(nid);
                    }
                    copied
                }
                _ => None,
            };
            let content = match (content, fates.fates[id.index()]) {
                (None, Fate::From(nid)) if self.allowed.contains(Incompat::CHUNKED_FILE) => {
                    let inode = old.inode(nid)?;
                    blocks::store(old, &inode, id, node.size, &mut reader, output, spill)?
                }
                (content, _) => content,
            };
            if let Some(content) = content {
                settled[id.index()] = content;
            }
        }
        Ok(())
    }

    /// Sends what is left through the data stage.
    #[allow(clippy::too_many_arguments, reason = "one step of the way, with everything at hand")]
    fn encode(
        &self,
        fates: &Fates,
        kept: &[Option<Nid>],
        settled: &[StoredContent],
        heads: &Heads,
        output: &mut Output,
        spill: &mut Spill,
        warnings: &mut Vec<Warning>,
    ) -> Result<data::stored::Data> {
        let Pair { options, old, tree, contents, .. } = self.pair;
        let compression = self.compression.as_ref();
        if let Some(compression) = compression {
            compression.check(options.image.block_size)?;
        }
        let from = |fate: &Fate| match fate {
            Fate::From(nid) => Some(*nid),
            _ => None,
        };
        let reuse = Reuse {
            old,
            settled: kept
                .iter()
                .zip(settled)
                .map(|(kept, content)| kept.is_some() || !matches!(content, StoredContent::None))
                .collect(),
            from: fates.fates.iter().map(from).collect(),
            compression,
            sizes: tree.nodes.iter().map(|node| node.size).collect(),
        };
        let sharing = compression.filter(|_| self.allowed.contains(Incompat::DEDUPE));
        let known = match sharing {
            Some(compression) => Some(reuse::known(options, old, &self.orphans(fates), compression)?),
            None => None,
        };
        let identical_files = IdenticalFiles::new(tree);
        let order = Order::new(tree, compression, options.image.block_size, None);
        let context = WorkerContext {
            tree,
            order: &order,
            inode_sizes: heads,
            identical_files: &identical_files,
            extent_index: known.as_ref(),
            base_image: Some(&reuse),
            contents,
            timings: &options.run.progress.timings,
            compression,
            block_size: options.image.block_size,
            skip_unreadable: false,
        };
        Ok(data::run(options, context, output, spill, warnings)?)
    }

    /// Old files that are no part of the new tree.
    fn orphans(&self, fates: &Fates) -> Vec<Nid> {
        let mut used = fates.kept.clone();
        used.extend(fates.fates.iter().filter_map(|fate| match fate {
            Fate::Same(nid) => Some(*nid),
            _ => None,
        }));
        let regular = self
            .pair
            .survey
            .files
            .iter()
            .filter(|file| file.file_type == ferofs_format::inode::FileType::Regular && file.size > 0);
        regular.map(|file| file.nid).filter(|nid| !used.contains(nid)).collect()
    }

    /// Tells the superblock of the algorithms; what follows it, if that changes.
    fn configure(&self, superblock: &mut Superblock, encoded: bool) -> Result<Option<Vec<u8>>> {
        let Some(compression) = self.compression.as_ref().filter(|_| encoded) else { return Ok(None) };
        let old = self.pair.old.configs();
        let mut alone = Superblock::new(superblock.block_size);
        let bytes = compression.configure(&mut alone);
        let new = match alone.compression {
            superblock::Compression::Configured { available } => {
                CompressionConfigs::parse(available, &bytes).map_err(ferofs_build::Error::Layout)?
            }
            superblock::Compression::Lz4Only { max_distance } => {
                let max_distance = if max_distance == 0 { LZ4_MAX_DISTANCE } else { max_distance };
                let lz4 = Some(Lz4Config { max_distance, max_pcluster_blocks: 1 });
                CompressionConfigs { lz4, ..CompressionConfigs::default() }
            }
        };
        let all = union(old, &new);
        let is_configured = superblock.incompat.contains(Incompat::COMPR_CFGS);
        let one_block = all.lz4.is_none_or(|lz4| lz4.max_pcluster_blocks <= 1);
        let only_lz4 = all == CompressionConfigs { lz4: all.lz4, ..CompressionConfigs::default() };
        if !is_configured && only_lz4 && one_block {
            if let Some(lz4) = all.lz4 {
                let max_distance = if lz4.max_distance == LZ4_MAX_DISTANCE { 0 } else { lz4.max_distance };
                superblock.compression = superblock::Compression::Lz4Only { max_distance };
            }
            return Ok(None);
        }
        if is_configured && all == *old {
            return Ok(None);
        }
        let bytes = all.to_bytes();
        let old_len = if is_configured { old.to_bytes().len() } else { 0 };
        if !self.front.has_config_room(old_len, bytes.len()) {
            return Err(Error::Patch(PatchFault::NoConfigRoom));
        }
        superblock.incompat |= Incompat::COMPR_CFGS;
        superblock.compression = superblock::Compression::Configured { available: all.available() };
        Ok(Some(bytes))
    }

    /// What of the base resembles what is appended.
    fn alike(
        &self,
        fates: &Fates,
        kept: &[Option<Nid>],
        like: &HashMap<NodeId, Nid>,
        metadata: std::ops::Range<u64>,
        content: std::ops::Range<u64>,
    ) -> Result<Vec<Resemblance>> {
        let Pair { old, tree, .. } = self.pair;
        let mut alike = Vec::new();
        let (mut inodes, mut stored) = (Vec::new(), Vec::new());
        for id in tree.ids().filter(|id| kept[id.index()].is_none()) {
            let nid = match fates.fates[id.index()] {
                Fate::Same(nid) | Fate::From(nid) => Some(nid),
                Fate::New | Fate::Keep(_) => like.get(&id).copied(),
            };
            let Some(nid) = nid else { continue };
            let inode = old.inode(nid)?;
            let extents = old.extents(&inode, FileOffset::new(0))?;
            let end = extents.metadata_end()?;
            if !end.in_metabox {
                inodes.push((inode.place().pos.get(), end.pos.get()));
            }
            if !inode.is_dir() && !matches!(fates.fates[id.index()], Fate::From(_)) {
                continue;
            }
            for extent in extents {
                let extent = extent?;
                if let ExtentData::Stored { at: Location::Device(_, at) } = extent.data {
                    let range = (at.get(), at.get() + extent.len);
                    if inode.is_dir() { inodes.push(range) } else { stored.push(range) }
                }
            }
        }
        alike.push(Resemblance { new: metadata, old: inodes });
        alike.push(Resemblance { new: content, old: stored });
        Ok(alike)
    }

    /// Compares what will come out with the new tree, if that is asked for.
    fn verify(
        &self,
        mut region: Region,
        heads: &Heads,
        xattrs: &XattrPlan,
        stored: &[StoredContent],
    ) -> Result<Region> {
        let Pair { options, tree, contents, .. } = self.pair;
        if options.output.verify {
            let overlay = self.result(&mut region)?;
            let superblock = &region.superblock;
            Verifier { options, tree, heads, xattrs, contents, stored, superblock }
                .run(Box::new(overlay), Vec::new())?;
        }
        Ok(region)
    }

    /// The image that will come out.
    fn result(&self, region: &mut Region) -> Result<Overlay> {
        let start = self.front.size();
        let appended = region.output.appended(start)?;
        let overlay = Overlay::new(Arc::clone(self.base), start, Box::new(appended));
        let overlay = overlay.with(SECTOR_POS, &region.sector);
        Ok(match &region.root {
            Some((pos, bytes)) => overlay.with(*pos, bytes),
            None => overlay,
        })
    }

    /// Writes the patch file.
    fn pack(
        &self,
        mut region: Region,
        time: i64,
        output: &mut Output,
        warnings: Vec<Warning>,
    ) -> Result<Created> {
        let options = self.pair.options;
        let (start, end) = (self.front.size(), region.end);
        let before = Pieces::of(&**self.base, start, &options.run.cancel)?;
        let result = self.result(&mut region)?;
        let mut changed = vec![SECTOR_POS..SECTOR_POS + region.sector.len() as u64, start..end];
        changed.extend(region.root.iter().map(|(pos, bytes)| *pos..*pos + bytes.len() as u64));
        let after = before.changed(&result, end, &changed, &options.run.cancel)?;
        let appended = region.output.appended(start)?;
        let pieces = payload::pieces(options, &**self.base, start, &appended, &region.alike)?;
        let header = Header {
            uuid: self.front.superblock().uuid,
            time,
            base_state: self.history.current(),
            base_size: start,
            base_digest: before.digest(),
            base_sector: self.front.sector(),
            result_size: end,
            result_digest: after.digest(),
            sector: region.sector,
            root: region.root,
            content_len: region.content_len,
            metadata_len: region.metadata_len,
        };
        let patch_len = file::write(&header, &pieces, &region.changes, |bytes| Ok(output.append(bytes)?))?;
        Ok(Created {
            patch_len,
            growth: end - start,
            content_len: region.content_len,
            metadata_len: region.metadata_len,
            new_features: region.superblock.incompat - self.front.superblock().incompat,
            warnings,
        })
    }
}

/// Whether any content was encoded.
const fn data_is_encoded(features: Incompat) -> bool {
    features.contains(Incompat::LZ4_0PADDING)
}

/// What suits both.
fn union(a: &CompressionConfigs, b: &CompressionConfigs) -> CompressionConfigs {
    let lz4 = match (a.lz4, b.lz4) {
        (Some(a), Some(b)) => Some(Lz4Config {
            max_distance: a.max_distance.max(b.max_distance),
            max_pcluster_blocks: a.max_pcluster_blocks.max(b.max_pcluster_blocks),
        }),
        (a, b) => a.or(b),
    };
    let mut all = CompressionConfigs { lz4, ..CompressionConfigs::default() };
    all.lzma = [a.lzma, b.lzma].into_iter().flatten().max_by_key(|config| config.dict_size);
    all.deflate = [a.deflate, b.deflate].into_iter().flatten().max_by_key(|config| config.window_bits);
    all.zstd = [a.zstd, b.zstd].into_iter().flatten().max_by_key(|config| config.window_log);
    all
}
