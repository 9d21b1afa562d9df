//! What to build, and how.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_format::BlockSize;
use ferofs_format::inode::Timestamp;

use crate::data::chunked::ChunkOptions;
use crate::data::encode::compression::Compression;
use crate::data::order::Hot;
use crate::progress::Progress;
use crate::sources::oci::OciOptions;
use crate::sources::overrides::Target;
use crate::sources::{Input, SourceData, Whiteouts, open};
use crate::tree::inode_sizes::InodeOptions;
use crate::tree::xattr::XattrOptions;
use crate::{Error, Result};

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

    pub(crate) fn uid(&self, uid: u32) -> u32 {
        self.force_uid.unwrap_or(uid).wrapping_add(self.uid_offset)
    }

    pub(crate) fn gid(&self, gid: u32) -> u32 {
        self.force_gid.unwrap_or(gid).wrapping_add(self.gid_offset)
    }

    pub(crate) fn is_excluded(&self, path: &[u8]) -> bool {
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
