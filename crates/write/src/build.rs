//! Runs the stages of a build: read the source's tree, write the data, then the metadata, and the
//! superblock last, so that an incomplete image cannot be mounted.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferofs_format::device::{DEVICE_TAG_SIZE, DeviceSlot};
use ferofs_format::inode::Timestamp;
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockAddr, Compat, Incompat, Nid};

use crate::data;
use crate::data::chunks::{deduplicated, external};
use crate::data::encode::dedupe::ExtentIndex;
use crate::data::identical::IdenticalFiles;
use crate::data::memory;
use crate::data::order::{Order, unused_hints, unused_priorities};
use crate::data::stored::{StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result, Warning};
use crate::metadata::SuperblockArea;
use crate::metadata::inodes::InodeWriter;
use crate::metadata::write::{AfterSuperblock, MetadataWriter};
use crate::options::Options;
use crate::options::image::InodeForm;
use crate::options::source::SourceData;
use crate::output::spill::Spill;
use crate::output::{Output, OwnFile};
use crate::paths::as_path;
use crate::progress::{Activity, Stage, Summary};
use crate::sources::content::Contents;
use crate::sources::{self, digest};
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree, apply_overrides};
use crate::verify::Verifier;
use ferofs_host::random;

/// Builds an image at `image`, a file or a block device. A file gets its name when the image is
/// complete.
///
/// # Errors
/// [`Error::Io`] and [`Error::SourceChanged`] with the file concerned, [`Error::DoesNotFit`],
/// [`Error::Option`] for an option out of range, [`Error::Interrupted`]. No new file exists after
/// an error.
pub fn build(options: &Options, image: impl AsRef<Path>) -> Result<Summary> {
    build_with(options, image.as_ref(), &data::run)
}

/// The data stage: appends the content of every regular file to an image that has only the space
/// for its superblock.
pub(crate) type DataStage<'s> = &'s dyn for<'a> Fn(
    WorkerContext<'a>,
    &mut Output,
    &mut Spill,
    &mut Vec<Warning>,
) -> Result<StoredData>;

/// [`build`] with this data stage.
pub(crate) fn build_with(
    options: &Options,
    image: &Path,
    data_stage: DataStage<'_>,
) -> Result<Summary> {
    sources::check(options)?;
    new_superblock(options)?;
    let mut output = Output::create(image, options.output.offset)?;
    let temporary = temporary_dir(image);
    let read = |own_files: &[OwnFile], time, warnings: &mut Vec<Warning>| {
        sources::read_source(options, own_files, temporary, time, warnings)
    };
    let summary = build_from_with(options, &mut output, temporary, data_stage, read)?;
    let timings = &options.run.progress.timings;
    timings.time(Activity::Sync, 0, || output.finish())?;
    Ok(summary)
}

/// The directory for the temporary files of a build: that of the image.
pub(crate) fn temporary_dir(image: &Path) -> &Path {
    image.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."))
}

/// A file that is left out has a warning for its first name: adds one for each other name.
fn warn_of_other_names(
    tree: &Tree,
    contents: &Contents,
    stored: &[StoredContent],
    warnings: &mut Vec<Warning>,
) {
    let is_skipped = |id: NodeId| matches!(stored[id.index()], StoredContent::Skipped);
    if !tree.ids().any(is_skipped) {
        return;
    }
    for parent in tree.ids() {
        let Kind::Directory(dir) = tree.node(parent).kind else { continue };
        for entry in tree.entries_of(dir).iter().filter(|entry| is_skipped(entry.node)) {
            let node = tree.node(entry.node);
            if node.parent != parent || tree.text(node.name) != tree.text(entry.name) {
                let name = contents.path(tree, parent).join(as_path(tree.text(entry.name)));
                warnings.push(Warning::SkippedName { name, of: contents.path(tree, entry.node) });
            }
        }
    }
}

/// Builds an image of the tree that `read` returns, and writes it to `output`, except that it does
/// not finish the output. `read` gets the files that must not become a part of the image, and the
/// time of the build.
pub(crate) fn build_from(
    options: &Options,
    output: &mut Output,
    temporary: &Path,
    read: impl FnOnce(&[OwnFile], Timestamp, &mut Vec<Warning>) -> Result<(Tree, Contents)>,
) -> Result<Summary> {
    build_from_with(options, output, temporary, &data::run, read)
}

fn build_from_with(
    options: &Options,
    output: &mut Output,
    temporary: &Path,
    data_stage: DataStage<'_>,
    read: impl FnOnce(&[OwnFile], Timestamp, &mut Vec<Warning>) -> Result<(Tree, Contents)>,
) -> Result<Summary> {
    let started = Instant::now();
    let superblock = new_superblock(options)?;
    check_sealer(options)?;
    // What any source needs, before threads list it.
    memory::fit(&mut options.clone(), 0)?;
    output.seal_with(options.output.sealer.clone());
    let build_time = options.image.build_time.unwrap_or_else(now);
    let mut warnings = Vec::new();
    let progress = &*options.run.progress.clone();

    progress.enter(Stage::Walk);
    let time = Timestamp { secs: build_time, nanos: 0 };
    let (mut tree, contents) = read(&output.own_files(options), time, &mut warnings)?;
    let mut options = digest::as_in_sources(options, &contents).into_owned();
    complete_tree(&options, &mut tree, &contents, &mut warnings)?;
    memory::fit(&mut options, tree.nodes.iter().map(|node| node.size).sum())?;
    let options = &options;
    let walked = Instant::now();

    progress.enter(Stage::Data);
    let mut stages = Stages::plan(options, &tree, &contents, superblock, build_time)?;
    let mut spill = Spill::new(temporary);
    let data = stages.store_data(data_stage, output, &mut spill, &mut warnings)?;
    let encoded = Instant::now();
    warn_of_other_names(&tree, &contents, &data.contents, &mut warnings);

    progress.enter(Stage::Metadata);
    stages.write_metadata(&data, &mut spill, output)?;
    stages.write_superblock(output)?;
    let written = Instant::now();
    let verify_time = match options.output.verify {
        true => {
            progress.enter(Stage::Verify);
            stages.verify(&data, output)?;
            written.elapsed()
        }
        false => Duration::ZERO,
    };
    output.seal()?;
    progress.timings.add(Activity::Write, output.time_writing(), output.position() as usize);
    let Stages { superblock, device, .. } = stages;
    progress.timings.time(Activity::Sync, 0, || device.map_or(Ok(()), Output::finish))?;

    let kept = || {
        tree.nodes
            .iter()
            .zip(data.contents.iter())
            .filter(|(_, c)| !matches!(c, StoredContent::Skipped))
    };
    options.run.check_warnings(&mut warnings)?;
    Ok(Summary {
        inodes: superblock.inodes,
        directories: kept().filter(|(node, _)| matches!(node.kind, Kind::Directory(_))).count()
            as u64,
        files: kept().filter(|(node, _)| matches!(node.kind, Kind::Regular { .. })).count() as u64,
        bytes_in: kept().map(|(node, _)| node.size).sum(),
        bytes_out: superblock.blocks * options.image.block_size.bytes64(),
        bytes_shared: data.bytes_shared,
        bytes_kept: data.bytes_kept,
        files_kept: data.files_kept,
        walk_time: walked - started,
        data_time: encoded - walked,
        metadata_time: encoded.elapsed() - verify_time,
        verify_time,
        peak_jobs: data.peak_jobs,
        workers: options.run.worker_count(),
        uuid: superblock.uuid,
        incompat: superblock.incompat,
        warnings,
    })
}

/// Applies the options on owners and attributes to the tree from the sources, and adds digests of
/// files.
fn complete_tree(
    options: &Options,
    tree: &mut Tree,
    contents: &Contents,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let unused = unused_priorities(tree, &options.data.priorities);
    warnings.extend(unused.into_iter().map(|path| Warning::UnusedPriority { path }));
    let hints = options.data.compression.iter().flat_map(|compression| &compression.hints);
    let unused = unused_hints(tree, hints.map(|hint| &hint.pattern));
    warnings.extend(unused.map(|pattern| Warning::UnusedHint { pattern: pattern.to_string() }));
    // Before the long work.
    options.run.check_warnings(warnings)?;
    if (options.output.verify || options.xattrs.digest.is_some()) && !contents.is_all_readable() {
        let problem =
            "verification and digests read the data again, and a stream cannot be read again";
        return Err(Error::Option { option: "standard input", problem });
    }
    apply_overrides(tree, &options.attributes, &options.run)?;
    if let Some(name) = &options.xattrs.digest {
        let is_regular = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Regular { .. });
        let files = tree.ids().filter(is_regular).collect();
        digest::add_digests(tree, files, (0, name), options, contents)?;
    }
    let bytes_in = tree.nodes.iter().map(|node| node.size).sum();
    options.run.progress.bytes_total.set(bytes_in);
    Ok(())
}

/// The stages of a build after its tree is complete, in the order of the methods.
struct Stages<'a> {
    options: &'a Options,
    tree: &'a Tree,
    contents: &'a Contents,
    superblock: Superblock,
    superblock_area: SuperblockArea,
    xattrs: XattrPlan,
    inode_sizes: InodeSizes,
    /// Whether addresses can need more than 32 bits.
    is_wide: bool,
    /// The extra device for chunks.
    device: Option<Output>,
}

impl<'a> Stages<'a> {
    /// Decides what must be known before the data is written: the forms and sizes of inodes, their
    /// attributes, and the superblock's area.
    fn plan(
        options: &'a Options,
        tree: &'a Tree,
        contents: &'a Contents,
        mut superblock: Superblock,
        build_time: i64,
    ) -> Result<Self> {
        if external::needs_wide_addresses(options, contents) {
            superblock.incompat |= Incompat::BIT48;
        }
        let epoch = match options.inodes.keep_mtime && options.inodes.form != InodeForm::Compact {
            true => inode_sizes::common_time(
                tree,
                build_time,
                superblock.incompat.contains(Incompat::BIT48),
            ),
            false => Timestamp { secs: build_time, nanos: 0 },
        };
        superblock.epoch = epoch.secs;
        superblock.fixed_nsec = epoch.nanos;
        superblock.build_time = u32::try_from(build_time.saturating_sub(epoch.secs)).unwrap_or(0);
        let root_xattrs = tree.node(NodeId::ROOT).xattrs;
        let in_metabox = superblock.incompat.contains(Incompat::METABOX);
        let is_wide = inode_sizes::is_wide(tree, &superblock);
        let mut xattr_options = options.xattrs.clone();
        if is_wide {
            // Shared attributes lie after the data; their 32-bit address may not reach that far.
            xattr_options.inline_limit = Some(u32::MAX);
        }
        let xattrs =
            tree.xattrs.plan(&xattr_options, root_xattrs, in_metabox).map_err(Error::Layout)?;
        if !xattrs.is_empty && options.xattrs.name_filter {
            superblock.compat |= Compat::XATTR_FILTER;
            superblock.xattr_filter = true;
        }
        if options.xattrs.digest.is_some() {
            superblock.compat |= Compat::ISHARE_XATTRS;
        }
        let device_path = options.data.chunks.as_ref().and_then(|chunks| chunks.device.as_deref());
        let device = device_path.map(|path| Output::create(path, 0)).transpose()?;
        let devices = contents.devices().len() as u16 + u16::from(device.is_some());
        let superblock_area =
            SuperblockArea::new(&mut superblock, devices, &options.xattrs.table())?;
        let inode_sizes =
            InodeSizes::new(tree, &xattrs, &superblock, &options.inodes, &options.source.path)?;
        Ok(Self {
            options,
            tree,
            contents,
            superblock,
            superblock_area,
            xattrs,
            inode_sizes,
            is_wide,
            device,
        })
    }

    /// Appends the content of all files.
    fn store_data(
        &mut self,
        data_stage: DataStage<'_>,
        output: &mut Output,
        spill: &mut Spill,
        warnings: &mut Vec<Warning>,
    ) -> Result<StoredData> {
        let (options, tree, contents) = (self.options, self.tree, self.contents);
        let compression = options.data.compression.as_ref();
        let extent_index =
            compression.is_some_and(|c| c.dedupe).then(|| ExtentIndex::new(spill.dir()));
        let order = Order::new(tree, compression, options.image.block_size, &options.data);
        let identical_files = if options.data.share_identical {
            IdenticalFiles::new(tree)?
        } else {
            IdenticalFiles::none(tree)
        };
        output.pad_to(self.superblock_area.len())?;
        let context = WorkerContext {
            options,
            tree,
            order: &order,
            inode_sizes: &self.inode_sizes,
            identical_files: &identical_files,
            extent_index: extent_index.as_ref(),
            base_image: None,
            contents,
            compression,
            block_size: options.image.block_size,
        };
        let data = if options.source.data == SourceData::External {
            external::run(context, output, spill, warnings)?
        } else if let Some(chunks) = &options.data.chunks {
            deduplicated::run(
                context,
                chunks,
                self.is_wide,
                output,
                self.device.as_mut(),
                spill,
                warnings,
            )?
        } else {
            data_stage(context, output, spill, warnings)?
        };
        contents.check_unchanged()?;
        options.check_size(output.position())?;
        self.superblock.incompat |= data.features;
        Ok(data)
    }

    /// Appends inodes, directories and attributes.
    fn write_metadata(
        &mut self,
        data: &StoredData,
        spill: &mut Spill,
        output: &mut Output,
    ) -> Result<()> {
        let options = self.options;
        let inodes = InodeWriter {
            run: &options.run,
            tree: self.tree,
            inode_sizes: &self.inode_sizes,
            xattrs: &self.xattrs,
            contents: &data.contents,
            spill,
            dot_omitted: options.inodes.dot_omitted,
            inos: Vec::new(),
            chunked_dirs: Vec::new(),
            root_has_no_tail: false,
        };
        let after_superblock =
            after_superblock(&self.superblock, &self.superblock_area, output.position());
        let earlier = data.earlier_inodes.as_ref();
        MetadataWriter { options, inodes, packed: data.packed.as_ref(), after_superblock, earlier }
            .write(&mut self.superblock, output)?;
        options.check_size(output.position())
    }

    /// Writes the superblock and the tables after it, and the first block of an extra device.
    fn write_superblock(&mut self, output: &mut Output) -> Result<()> {
        let (options, superblock) = (self.options, &mut self.superblock);
        let configs = match &options.data.compression {
            // Encoded files and encoded metadata set this bit.
            Some(compression) if superblock.incompat.contains(Incompat::LZ4_0PADDING) => {
                compression.configure(superblock)
            }
            _ => Vec::new(),
        };
        options.run.cancel.check()?;
        let mut slots = external::slots(options, self.contents, superblock.blocks);
        if let Some(device) = &mut self.device {
            let blocks = options.image.block_size.blocks_for(device.position());
            // The device continues the image's address space.
            let start = Some(BlockAddr::new(superblock.blocks));
            slots.push(DeviceSlot { tag: [0; DEVICE_TAG_SIZE], blocks, start });
            device.write_superblock_area(&[])?;
        }
        let start = output.start(self.superblock_area.written_len(superblock))?;
        output.write_superblock_area(
            &self.superblock_area.bytes(start, superblock, &configs, &slots)?,
        )
    }

    /// Compares the image with its source.
    fn verify(&self, data: &StoredData, output: &Output) -> Result<()> {
        let Self { options, tree, contents, superblock, xattrs, inode_sizes, .. } = self;
        let verifier = Verifier {
            options,
            tree,
            inode_sizes,
            xattrs,
            contents,
            stored: &data.contents,
            superblock,
        };
        let devices = self.device.iter().map(Output::reader).chain(contents.device_readers());
        let devices = devices.collect::<Result<_>>()?;
        verifier.run(Box::new(output.reader()?), devices)
    }
}

/// Where metadata can begin after the superblock. The data ends at `data_end`. `None` if the data
/// is so large that a patch could not place its root within reach.
fn after_superblock(
    superblock: &Superblock,
    area: &SuperblockArea,
    data_end: u64,
) -> Option<AfterSuperblock> {
    let start = area.end(superblock);
    let has_data = data_end > area.len();
    (data_end <= AfterSuperblock::LARGEST).then_some(AfterSuperblock { start, has_data })
}

/// Fails if the image would have data that a seal does not cover.
fn check_sealer(options: &Options) -> Result<()> {
    let has_device = options.data.chunks.as_ref().is_some_and(|chunks| chunks.device.is_some())
        || options.source.data == SourceData::External;
    let problem = match &options.output.sealer {
        Some(_) if has_device => "does not cover data outside the image",
        Some(_) if options.output.offset > 0 => "needs an image that starts its file",
        _ => return Ok(()),
    };
    Err(Error::Option { option: "a seal", problem })
}

pub(crate) fn new_superblock(options: &Options) -> Result<Superblock> {
    let mut superblock = Superblock::new(options.image.block_size);
    if let Some(compression) = &options.data.compression {
        compression.check(options.image.block_size)?;
        if compression.metadata.is_some() {
            superblock.incompat |= Incompat::METABOX;
            superblock.ext_slots = 1;
            superblock.metabox = Some(Nid::new(0));
        }
    }
    // The feature changes the form of inodes, which get their size before the data is encoded.
    superblock.incompat.set(Incompat::BIT48, options.has_wide_addresses());
    superblock.compat = Compat::MTIME;
    superblock.compat.set(Compat::SB_CHKSUM, options.image.checksum);
    superblock.uuid = match options.image.uuid {
        Some(uuid) => uuid,
        None => random_uuid()?,
    };
    let label = superblock.volume_name.get_mut(..options.image.label.len());
    let label = label.ok_or(Error::Option { option: "label", problem: "longer than 16 bytes" })?;
    label.copy_from_slice(&options.image.label);
    Ok(superblock)
}

/// The current time, in seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |secs| -secs),
    }
}

/// A random UUID: version 4, variant 1.
fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    random(&mut uuid)?;
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    Ok(uuid)
}
