//! From a source to an image.
//!
//! | room | what it does | next |
//! |---|---|---|
//! | [`sources`] | goes to the room of the source's kind | |
//! | [`walk`] | lists a source directory, in parallel, without holding descriptors | [`tree`] |
//! | [`tar`] | reads archives, layer by layer | [`sketch`] |
//! | [`oci`] | finds the layers of an image in an OCI image layout | [`tar`] |
//! | [`image`] | reads EROFS images, layer by layer | [`sketch`] |
//! | [`sketch`] | a tree whose entries come in any order, and go again | [`tree`] |
//! | [`tree`], [`xattr`] | inodes and names, without places; attribute sets | [`amend`] |
//! | [`amend`], [`labels`], [`fs_config`] | labels, owners and digests that the options add | [`heads`] |
//! | [`heads`] | which inodes are compact, and how long each is | [`data`] |
//! | [`content`] | where each file's bytes come from, and reading them | [`data`] |
//! | [`clones`] | large files that are the same | [`feed`] |
//! | [`order`] | what is read together stands together | [`feed`] |
//! | [`feed`], [`segment`], [`twins`] | content: cut into works, read by workers, known again | [`encode`] |
//! | [`compression`], [`encode`], [`dedupe`], [`log`] | what is asked for, content in extents | [`data`] |
//! | [`data`], [`packed`], [`chunk`], [`index`] | appended in order, with what finds it again | [`emit`] |
//! | [`chunks`] | the same, for images in chunks | [`emit`] |
//! | [`refer`] | the same, for images whose content stays in their sources | [`emit`] |
//! | [`layout`], [`emit`] | who lives where in the metadata, and its bytes | [`output`] |
//! | [`dense`] | directories and the metabox, if they are compressed | [`emit`] |
//! | [`front`] | the superblock, and tables that stand near it | [`output`] |
//! | [`verify`] | the image, compared with the source | |
//! | [`base`] | what a patch builds on | [`segment`] |
//! | [`timings`] | where the time goes | |
//! | [`spill`], [`output`] | what waits for its place; the image itself | |
//!
//! An image is: block 0 with the superblock; data, in the order of reading; metadata, in that of the tree; shared xattrs. It
//! does not depend on the number of workers. Nothing has the image's name before it is complete.

mod amend;
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod chunk;
mod chunks;
mod clones;
#[doc(hidden)]
pub mod compression;
#[doc(hidden)]
pub mod content;
#[doc(hidden)]
pub mod data;
#[doc(hidden)]
pub mod dedupe;
mod dense;
mod emit;
mod encode;
mod error;
mod feed;
mod front;
mod fs_config;
#[doc(hidden)]
pub mod heads;
#[doc(hidden)]
pub mod image;
mod index;
mod labels;
#[doc(hidden)]
pub mod layout;
mod log;
mod new_file;
mod oci;
#[doc(hidden)]
pub mod open;
#[doc(hidden)]
pub mod order;
#[doc(hidden)]
pub mod output;
mod packed;
mod pages;
mod refer;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod self_check;
mod settle;
mod sketch;
#[doc(hidden)]
pub mod sources;
#[doc(hidden)]
pub mod spill;
mod tar;
mod timings;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod twins;
#[doc(hidden)]
pub mod verify;
#[doc(hidden)]
pub mod walk;
#[doc(hidden)]
pub mod xattr;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use compression::{Compression, Fragments, Hint, Index, MetadataCompression, PCLUSTER_MAX};
pub use ferofs_codec::{Lz4Params, Method, Params, ParamsError};
use ferofs_format::device::{DEVICE_TAG_SIZE, DeviceSlot};
pub use ferofs_format::inode::Timestamp;
use ferofs_format::superblock::Superblock;
pub use ferofs_format::{Algorithm, BlockSize};
use ferofs_format::{BlockAddr, Compat, Incompat, Nid};

pub use amend::Target;
pub use chunks::ChunkOptions;
use data::Content;
use dedupe::Known;
use emit::Emitter;
pub use error::{Error, Result};
use ferofs_read::escape::Escaped;
use front::Front;
pub use fs_config::{FsConfig, FsConfigError};
use heads::Heads;
pub use heads::{InodeForm, InodeOptions};
pub use labels::{Labels, LabelsError};
pub use new_file::NewFile;
pub use oci::fault::OciFault;
pub use oci::{OciOptions, Platform};
pub use order::Hot;
use order::Order;
use output::Output;
use segment::Shop;
pub use sketch::Misplaced;
pub use sources::{Input, SourceData, Whiteouts, block_size};
use spill::Spill;
pub use tar::fault::ArchiveFault;
pub use timings::{Activity, Spent, Timings};
use tree::{Kind, NodeId};
use twins::Twins;
use verify::Verifier;
pub use xattr::{DIGEST_NAME, XattrOptions};

/// What is left out of the image, with everything below it. Paths are relative to the source.
#[derive(Clone, Debug)]
pub enum Exclude {
    /// Exactly this path.
    Path(PathBuf),
    /// Paths in which this expression is found.
    Regex(regex::bytes::Regex),
}

/// What to build, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the image is made of.
    pub source: PathBuf,
    /// What the source is.
    pub input: Input,
    /// More sources of the same kind: layers over the first one, the topmost last.
    pub upper: Vec<PathBuf>,
    /// An EROFS image that the sources are laid over. What they leave of it stays as it is, whatever other options say of
    /// owners, times and excludes.
    pub below: Option<PathBuf>,
    /// Where an archive that is read goes once more, as plain bytes: with [`SourceData::Referred`], what a compressed one's
    /// content stays in.
    pub plain_copy: Option<PathBuf>,
    /// Where content stays, or goes.
    pub source_data: SourceData,
    /// What becomes of whiteouts in archives and images.
    pub whiteouts: Whiteouts,
    /// Leave out overlayfs' whiteouts and marks, of sources that are no directories.
    pub strip_overlay: bool,
    /// An archive of no bytes has no members, instead of being an error.
    pub allow_empty_archives: bool,
    /// Which image of an OCI image layout is meant.
    pub oci: OciOptions,
    /// Multiplies the limits that keep a small archive from taking much memory, time or room: on the sizes of extended headers, on
    /// memory for attributes and sparse maps, on decompressors' windows, and on holes. 1 is for every archive that means
    /// well.
    pub archive_limits: NonZeroU32,
    /// How content is encoded; `None`: stored as it is.
    pub compression: Option<Compression>,
    /// Files with the same content share it.
    pub share: bool,
    /// What is read most comes first; not if content stays in its sources.
    pub hot: Option<Hot>,
    /// The image's block size. Linux mounts those up to its page size.
    pub block_size: BlockSize,
    /// Number of worker threads; `None`: one for each processor that this process may use.
    pub workers: Option<NonZeroUsize>,
    /// When the image was made, in seconds since 1970; `None`: now.
    pub build_time: Option<i64>,
    /// Every file's time, instead of its own.
    pub all_time: Option<Timestamp>,
    /// Later times than this, in seconds since 1970, become this.
    pub newest_time: Option<i64>,
    /// Compare the image with the source before it gets its name.
    pub verify: bool,
    /// The image's identity; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// The image's label: at most 16 bytes.
    pub label: Vec<u8>,
    /// What is left out.
    pub excludes: Vec<Exclude>,
    /// Leave out what cannot be read, with a [`Warning`], instead of failing.
    pub skip_unreadable: bool,
    /// Every file's owner.
    pub force_uid: Option<u32>,
    /// Every file's group.
    pub force_gid: Option<u32>,
    /// Added to owners, after [`Self::force_uid`]; wraps.
    pub uid_offset: u32,
    /// Added to groups, after [`Self::force_gid`]; wraps.
    pub gid_offset: u32,
    /// Store each name of a file with several as a file of its own.
    pub hard_dereference: bool,
    /// How extended attributes are stored.
    pub xattrs: XattrOptions,
    /// How inodes are stored.
    pub inodes: InodeOptions,
    /// Store files in chunks, equal ones once, whatever [`Self::compression`] says.
    pub chunks: Option<ChunkOptions>,
    /// What the place says where the image will be mounted.
    pub target: Target,
    /// The superblock has a checksum.
    pub checksum: bool,
    /// Content starts at multiples of this many blocks.
    pub data_unit: NonZeroU32,
    /// The image starts at this byte of its file or device.
    pub offset: u64,
    /// The image's size is a multiple of this many blocks.
    pub image_unit: NonZeroU32,
    /// Is kept up to date while building.
    pub progress: Arc<Progress>,
    /// Once true, building ends with [`Error::Interrupted`].
    pub cancel: Arc<AtomicBool>,
}

/// What a build is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Listing the source.
    Walk,
    /// Reading, encoding and writing content.
    Data,
    /// Writing metadata, and making all durable.
    Metadata,
    /// Comparing the image with the source.
    Verify,
}

/// How far a build is. Other threads may look at any time.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    /// Files found by the walk so far.
    pub found: AtomicU64,
    /// Regular files whose content is done; a large one counts once for each part.
    pub files_done: AtomicU64,
    /// Bytes of content to be read; 0 until the walk is over.
    pub bytes_total: AtomicU64,
    /// Bytes of content that were read and written.
    pub bytes_done: AtomicU64,
    /// Where the time goes.
    pub timings: Timings,
}

impl Progress {
    /// What the build is doing.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Walk,
            1 => Stage::Data,
            2 => Stage::Metadata,
            _ => Stage::Verify,
        }
    }

    fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

/// Something that is not in the image although the source has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// It could not be read; only with [`Options::skip_unreadable`].
    #[error("left out: {0}")]
    Skipped(Error),
    /// An extended attribute that EROFS has no form for.
    #[error("{}: attribute {name} left out", Escaped::path(path))]
    ForeignXattr {
        /// The file.
        path: PathBuf,
        /// The attribute's name.
        name: String,
    },
    /// An archive's member of a type that no standard has.
    #[error("{}: left out: unknown type {kind:?}", Escaped::path(path))]
    UnknownMember {
        /// The member.
        path: PathBuf,
        /// Its type.
        kind: char,
    },
    /// A source that is read as an archive without members: zeroes are one.
    #[error("{}: an archive without members: the image is empty", archive.display())]
    EmptyArchive {
        /// The archive.
        archive: PathBuf,
    },
    /// An archive that ends with one block of zeroes, and not with two. What may follow is left out.
    #[error(
        "{}: a lone block of zeroes at byte {offset}: anything after it is left out",
        Escaped::path(archive)
    )]
    LoneZeroBlock {
        /// The archive.
        archive: PathBuf,
        /// Where the block is.
        offset: u64,
    },
    /// An archive without its end mark: it may have been cut short.
    #[error("{}: no end of archive at byte {offset}: it may be incomplete", Escaped::path(archive))]
    NoEndOfArchive {
        /// The archive.
        archive: PathBuf,
        /// Where the end should be.
        offset: u64,
    },
}

/// What was built.
#[derive(Debug)]
pub struct Summary {
    /// Inodes in the image.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of all regular files, each counted once.
    pub bytes_in: u64,
    /// Bytes of the image.
    pub bytes_out: u64,
    /// Bytes of regular files that are stored as equal ones elsewhere in the image.
    pub bytes_shared: u64,
    /// Time spent listing the source.
    pub walk_time: Duration,
    /// Time spent on content.
    pub data_time: Duration,
    /// Time spent on metadata, and until everything was durable.
    pub metadata_time: Duration,
    /// Time spent on comparing the image with the source.
    pub verify_time: Duration,
    /// The most works that were under way at once: each holds at most some 5 MiB.
    pub peak_works: usize,
    /// Worker threads.
    pub workers: usize,
    /// The image's identity.
    pub uuid: [u8; 16],
    /// What was left out.
    pub warnings: Vec<Warning>,
}

impl Options {
    /// Builds from the directory `source`, uncompressed, with every default.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            input: Input::Directory,
            upper: Vec::new(),
            below: None,
            plain_copy: None,
            source_data: SourceData::default(),
            whiteouts: Whiteouts::default(),
            strip_overlay: false,
            allow_empty_archives: false,
            oci: OciOptions::default(),
            archive_limits: NonZeroU32::MIN,
            compression: None,
            share: true,
            hot: None,
            block_size: BlockSize::DEFAULT,
            workers: None,
            build_time: None,
            all_time: None,
            newest_time: None,
            verify: false,
            uuid: None,
            label: Vec::new(),
            excludes: Vec::new(),
            skip_unreadable: false,
            force_uid: None,
            force_gid: None,
            uid_offset: 0,
            gid_offset: 0,
            hard_dereference: false,
            xattrs: XattrOptions::default(),
            inodes: InodeOptions::default(),
            chunks: None,
            target: Target::default(),
            checksum: true,
            data_unit: NonZeroU32::MIN,
            offset: 0,
            image_unit: NonZeroU32::MIN,
            progress: Arc::default(),
            cancel: Arc::default(),
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get)
            .min(WORKERS_MAX)
    }

    fn uid(&self, uid: u32) -> u32 {
        self.force_uid.unwrap_or(uid).wrapping_add(self.uid_offset)
    }

    fn gid(&self, gid: u32) -> u32 {
        self.force_gid.unwrap_or(gid).wrapping_add(self.gid_offset)
    }

    fn is_excluded(&self, path: &[u8]) -> bool {
        self.excludes.iter().any(|exclude| match exclude {
            Exclude::Path(excluded) => excluded == open::as_path(path),
            Exclude::Regex(regex) => regex.is_match(path),
        })
    }

    /// Does tasks 0 to `count` - 1 on all workers, in any order, and returns the results in their order.
    ///
    /// # Errors
    /// The first task's that fails; [`Error::Interrupted`]; [`Error::Io`] when the system starts no thread.
    pub fn parallel<C, T: Send, E: From<ferofs_threads::Error> + From<Error> + Send>(
        &self,
        count: usize,
        context: impl Fn() -> C + Sync,
        task: impl Fn(&mut C, usize) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        ferofs_threads::parallel(self.worker_count(), count, context, |context, number| {
            self.check_cancelled()?;
            task(context, number)
        })
    }

    /// Fails once [`Self::cancel`] is set.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// More threads than this are never of use.
const WORKERS_MAX: usize = 512;

/// Builds an image at `image`: a file, which gets that name when it is complete, or a block device.
///
/// # Errors
/// [`Error::Io`] and [`Error::SourceChanged`] with the file concerned, [`Error::DoesNotFit`],
/// [`Error::Option`] for an option out of range, [`Error::Interrupted`]. There is no new file then.
pub fn build(options: &Options, image: &Path) -> Result<Summary> {
    let started = Instant::now();
    sources::check(options)?;
    let mut superblock = new_superblock(options)?;
    let build_time = options.build_time.unwrap_or_else(now);
    let mut output = Output::create(image, options.offset)?;
    let mut warnings = Vec::new();

    options.progress.enter(Stage::Walk);
    let temporary = image.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let time = Timestamp { secs: build_time, nanos: 0 };
    let (mut tree, contents) = sources::gather(options, &output.own_files(), temporary, time, &mut warnings)?;
    if (options.verify || options.xattrs.digest.is_some()) && !contents.is_all_readable() {
        let problem = "what is left in a stream cannot be read again";
        return Err(Error::Option { option: "standard input", problem });
    }
    amend::amend(&mut tree, options, &contents)?;
    let bytes_in = tree.nodes.iter().map(|node| node.size).sum();
    options.progress.bytes_total.store(bytes_in, Ordering::Relaxed);
    let walked = Instant::now();

    options.progress.enter(Stage::Data);
    let epoch = match options.inodes.keep_mtime && options.inodes.form != InodeForm::Compact {
        true => heads::common_time(&tree, build_time, superblock.incompat.contains(Incompat::BIT48)),
        false => Timestamp { secs: build_time, nanos: 0 },
    };
    superblock.epoch = epoch.secs;
    superblock.fixed_nsec = epoch.nanos;
    superblock.build_time = u32::try_from(build_time.saturating_sub(epoch.secs)).unwrap_or(0);
    let root_xattrs = tree.node(NodeId::ROOT).xattrs;
    let in_metabox = superblock.incompat.contains(Incompat::METABOX);
    let xattrs = tree.xattrs.plan(&options.xattrs, root_xattrs, in_metabox).map_err(Error::Layout)?;
    if !xattrs.is_empty && options.xattrs.name_filter {
        superblock.compat |= Compat::XATTR_FILTER;
        superblock.xattr_filter = true;
    }
    if options.xattrs.digest.is_some() {
        superblock.compat |= Compat::ISHARE_XATTRS;
    }
    let device_path = options.chunks.as_ref().and_then(|chunks| chunks.device.as_deref());
    let mut device = device_path.map(|path| Output::create(path, 0)).transpose()?;
    let devices = contents.devices().len() as u16 + u16::from(device.is_some());
    let front = Front::new(&mut superblock, devices, &options.xattrs.table())?;
    let heads = Heads::new(&tree, &xattrs, &superblock, &options.inodes, &contents)?;
    let known = options.compression.as_ref().is_some_and(|c| c.dedupe).then(Known::default);
    let order = Order::new(&tree, options.compression.as_ref(), options.block_size, options.hot.as_ref());
    let twins = if options.share { Twins::new(&tree) } else { Twins::none(&tree) };
    let mut spill = Spill::new(temporary);
    output.pad_to(front.len())?;
    let data = if options.source_data == SourceData::Referred {
        let room = refer::Room { options, tree: &tree, heads: &heads, contents: &contents };
        refer::run(room, &mut output, &mut spill, &mut warnings)?
    } else if let Some(chunks) = &options.chunks {
        let room =
            chunks::Room { options, chunks, tree: &tree, order: &order, heads: &heads, contents: &contents };
        chunks::run(room, &mut output, device.as_mut(), &mut spill, &mut warnings)?
    } else {
        let shop = Shop {
            tree: &tree,
            order: &order,
            heads: &heads,
            twins: &twins,
            known: known.as_ref(),
            base: None,
            contents: &contents,
            timings: &options.progress.timings,
            compression: options.compression.as_ref(),
            block: options.block_size,
            skip_unreadable: options.skip_unreadable,
        };
        data::run(options, shop, &mut output, &mut spill, &mut warnings)?
    };
    contents.verify()?;
    superblock.incompat |= data.features;
    let encoded = Instant::now();

    options.progress.enter(Stage::Metadata);
    let spill = &mut spill;
    let (nodes, packed) = (&data.contents, data.packed.as_ref());
    Emitter { options, tree: &tree, heads: &heads, xattrs: &xattrs, contents: nodes, packed, spill }
        .emit(&mut superblock, &mut output)?;
    let configs = match &options.compression {
        // What is encoded, files or metadata, has set this.
        Some(compression) if superblock.incompat.contains(Incompat::LZ4_0PADDING) => {
            compression.configure(&mut superblock)
        }
        _ => Vec::new(),
    };
    options.check_cancelled()?;
    let mut slots = refer::slots(options, &contents, superblock.blocks);
    if let Some(device) = &mut device {
        let blocks = options.block_size.blocks_for(device.position());
        // The device continues the image's address space.
        let start = Some(BlockAddr::new(superblock.blocks));
        slots.push(DeviceSlot { tag: [0; DEVICE_TAG_SIZE], blocks, start });
        device.write_front(&[])?;
    }
    output.write_front(&front.bytes(&superblock, &configs, &slots)?)?;
    let written = Instant::now();
    if options.verify {
        options.progress.enter(Stage::Verify);
        let stored = &data.contents;
        let (heads, xattrs, superblock) = (&heads, &xattrs, &superblock);
        let verifier =
            Verifier { options, tree: &tree, heads, xattrs, contents: &contents, stored, superblock };
        let devices = device.iter().map(Output::reader).chain(contents.device_readers());
        let devices = devices.collect::<Result<_>>()?;
        verifier.run(Box::new(output.reader()?), devices)?;
    }
    let verify_time = if options.verify { written.elapsed() } else { Duration::ZERO };
    let timings = &options.progress.timings;
    timings.add(Activity::Write, output.time_writing(), output.position() as usize);
    timings.time(Activity::Sync, 0, || {
        device.map_or(Ok(()), Output::finish)?;
        output.finish()
    })?;

    let kept = || tree.nodes.iter().zip(&data.contents).filter(|(_, c)| !matches!(c, Content::Skipped));
    Ok(Summary {
        inodes: superblock.inodes,
        directories: kept().filter(|(node, _)| matches!(node.kind, Kind::Directory(_))).count() as u64,
        files: kept().filter(|(node, _)| matches!(node.kind, Kind::Regular { .. })).count() as u64,
        bytes_in: kept().map(|(node, _)| node.size).sum(),
        bytes_out: superblock.blocks * options.block_size.bytes64(),
        bytes_shared: data.bytes_shared,
        walk_time: walked - started,
        data_time: encoded - walked,
        metadata_time: encoded.elapsed() - verify_time,
        verify_time,
        peak_works: data.peak_works,
        workers: options.worker_count(),
        uuid: superblock.uuid,
        warnings,
    })
}

fn new_superblock(options: &Options) -> Result<Superblock> {
    let mut superblock = Superblock::new(options.block_size);
    if let Some(compression) = &options.compression {
        compression.check(options.block_size)?;
        if compression.index == Index::Extents {
            // It decides on the form of inodes, which are made before any extent is.
            superblock.incompat |= Incompat::BIT48;
        }
        if compression.metadata.is_some() {
            superblock.incompat |= Incompat::BIT48 | Incompat::METABOX;
            superblock.ext_slots = 1;
            superblock.metabox = Some(Nid::new(0));
        }
    }
    if options.inodes.dot_omitted {
        superblock.incompat |= Incompat::BIT48;
    }
    superblock.compat = Compat::MTIME;
    superblock.compat.set(Compat::SB_CHKSUM, options.checksum);
    superblock.uuid = match options.uuid {
        Some(uuid) => uuid,
        None => random_uuid()?,
    };
    let label = superblock.volume_name.get_mut(..options.label.len());
    let label = label.ok_or(Error::Option { option: "label", problem: "longer than 16 bytes" })?;
    label.copy_from_slice(&options.label);
    Ok(superblock)
}

/// The time, in seconds since 1970.
#[doc(hidden)]
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

pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .map(|_| ())
        .map_err(|e| Error::io_unnamed("get random bytes", e))
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
