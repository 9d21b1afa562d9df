//! An open image: the interface of this crate.

use std::sync::Arc;

use ferofs_format::algorithm::LZ4_MAX_DISTANCE;
use ferofs_format::superblock::Superblock;
use ferofs_format::xattr::LongPrefix;
use ferofs_format::{Algorithm, FileOffset, Nid};

use crate::accounting::budget::Budget;
use crate::accounting::memory::Memory;
use crate::accounting::pressure::PressureFile;
use crate::accounting::progress::Cancel;
use crate::accounting::stats::Stats;
use crate::content::ContentReader;
use crate::engine::options::EngineOptions;
use crate::engine::state::Engine;
use crate::error::Result;
use crate::metadata::inode::{Inode, read_inode};
use crate::metadata::map::Extents;
use crate::volume::source::Source;
use crate::volume::{Header, Volume};

/// How to open an image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Bytes of metadata blocks to cache. Default: 4 MiB.
    pub metadata_cache: usize,
    /// Verify the superblock's checksum. Default: yes.
    pub verify_checksum: bool,
    /// Open an image also if none of its extra devices is given, for its names and attributes;
    /// reading data on these devices fails. Default: no.
    pub missing_devices: bool,
    /// Budgets for reading content.
    pub engine: EngineOptions,
    /// The file that tells how short memory is, for [`LowMemory::Auto`](super::LowMemory::Auto).
    /// Default: opened with the image. A sandboxed process that can open no files when it opens the
    /// image passes the open file here.
    pub pressure: Option<PressureFile>,
    /// Limits the work of all reads together to this many times what an image of that size may
    /// need; beyond it, reads fail with [`crate::Error::Limit`]. Default: no limit, as a server
    /// needs.
    pub work_limit: Option<u32>,
    /// The size that counts for `work_limit`, in bytes. Default: that of the image.
    pub work_size: Option<u64>,
    /// After it is cancelled, all reads fail with [`crate::Error::Interrupted`] within a few
    /// milliseconds.
    pub cancel: Cancel,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            metadata_cache: 4 << 20,
            verify_checksum: true,
            missing_devices: false,
            engine: EngineOptions::default(),
            pressure: None,
            work_limit: None,
            work_size: None,
            cancel: Cancel::default(),
        }
    }
}

/// An open image.
///
/// | to | call |
/// |---|---|
/// | open a file, a device, or bytes in memory | [`open`](Self::open) |
/// | read a file | [`read`](Self::read), or [`open_file`](Self::open_file) to read and seek in it |
/// | list a directory, or all names | [`read_dir`](Self::read_dir), [`walk`](Self::walk) |
/// | see type, mode, owner, time and size | [`metadata`](Self::metadata), [`symlink_metadata`](Self::symlink_metadata) |
/// | read a link's target, or attributes | [`read_link`](Self::read_link), [`xattr`](Self::xattr), [`xattrs`](Self::xattrs) |
/// | see how a file is stored | [`extents`](Self::extents) |
/// | keep decoded what is read most | [`profile`](Self::profile), [`pin`](Self::pin) |
///
/// The last methods of this page are for programs that look at structures, as a checker does, or
/// limit work, as a server does.
///
/// All methods take `&self` and may be called from many threads at once. A clone shares the open
/// image and costs nothing; the image is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Image {
    pub(crate) content: Arc<ContentReader>,
    pub(crate) prefixes: Arc<[LongPrefix]>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("superblock", self.superblock()).finish_non_exhaustive()
    }
}

impl Image {
    /// Opens an image on one device, with default options.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(source: impl Source + 'static) -> Result<Self> {
        Self::open_with(Box::new(source), Vec::new(), &OpenOptions::default())
    }

    /// Opens an image whose primary device is `source`, with `extra` devices in the order of its
    /// table.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a superblock that is not sound, [`crate::Error::Unsupported`]
    /// for features that this version does not know, [`crate::Error::Option`] for too few or too
    /// many devices.
    pub fn open_with(
        source: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let header = Header::read(source, extra, options.verify_checksum, options.missing_devices)?;
        // Only with a limit: a sandboxed process may not be allowed to look for the holes of its
        // files.
        let stored = match (options.work_limit, options.work_size) {
            (None, _) => 0,
            (Some(_), size) => size.unwrap_or_else(|| header.devices.stored()),
        };
        let superblock = &header.superblock;
        let has_shared = superblock.packed.is_some() || superblock.metabox.is_some();
        let (engine, metadata_cache) = options.engine.fitted(options.metadata_cache, has_shared);
        let max_distance = header.configs.window(Algorithm::Lz4);
        let max_distance = max_distance.and_then(|window| u16::try_from(window).ok());
        let max_distance = max_distance.unwrap_or(LZ4_MAX_DISTANCE);
        let memory = Arc::new(Memory::new(engine.memory_limit));
        let (block_size, pressure) = (superblock.block_size.bytes(), options.pressure.as_ref());
        let engine = Engine::new(&engine, block_size, max_distance, pressure, Arc::clone(&memory))?;
        let budget = Budget::new(stored, options.work_limit, options.cancel.clone());
        let content =
            ContentReader::new(Volume::new(header, metadata_cache, budget, memory), engine);
        let prefixes = content.xattr_prefixes()?.into();
        Ok(Self { content: Arc::new(content), prefixes })
    }

    /// Reads the root directory's inode.
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn root(&self) -> Result<Inode> {
        self.inode(self.superblock().root)
    }

    /// Reads inode `nid`.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when there is no sound inode.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        read_inode(&*self.content, nid)
    }

    /// Reads `inode`'s content from `offset` on into `buf`; returns how many bytes that gave, which
    /// are fewer than asked only at the content's end.
    ///
    /// Any inode with content may be read: a directory's content is its blocks, a symbolic link's
    /// its target.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the content is damaged where it is read,
    /// [`crate::Error::Io`].
    pub fn read_at(&self, inode: &Inode, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        self.content.read_at(inode, offset, buf)
    }

    /// The extents of `inode` from `offset` on, without reading any data.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the map's header is damaged; an item that fails is the last
    /// one.
    pub fn extents<'a>(&'a self, inode: &'a Inode, offset: FileOffset) -> Result<Extents<'a>> {
        Extents::open(&*self.content, inode, offset)
    }

    /// Compares the superblock's block with its checksum, if it has one, for images that were
    /// opened without that.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when they differ, [`crate::Error::Io`].
    pub fn verify_checksum(&self) -> Result<()> {
        self.content.volume.verify_checksum()
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.content.volume.superblock
    }

    /// Counters of all reads so far, and the memory held.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.content.stats()
    }

    /// The same image for one operation, whose reads fail with [`crate::Error::Interrupted`] a few
    /// milliseconds after [`Cancel::cancel`]. Reads through other handles go on.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Self {
        Self {
            content: Arc::new(self.content.cancelled_by(cancel)),
            prefixes: Arc::clone(&self.prefixes),
        }
    }
}
