//! An open image: the interface of this crate.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE};
use ferofs_format::device::DeviceSlot;
use ferofs_format::superblock::Superblock;
use ferofs_format::xattr::{Entry, LongPrefix, NameFilter};
use ferofs_format::{BytePos, DeviceId, FileOffset, Nid, Structure};

use crate::accounting::budget::Budget;
use crate::accounting::memory::Memory;
use crate::accounting::pressure::PressureFile;
use crate::accounting::stats::Stats;
use crate::content::{ContentReader, InodeReader};
use crate::engine::options::EngineOptions;
use crate::engine::state::Engine;
use crate::error::{Error, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::inode::{Inode, read_inode};
use crate::metadata::map::Extents;
use crate::metadata::xattr;
use crate::volume::MetadataPlace;
use crate::volume::source::Source;
use crate::volume::{Header, Volume};
use ferofs_format::units::to_u64;

/// How to open an image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Bytes of metadata blocks to cache. Default: 4 MiB.
    pub metadata_cache: usize,
    /// Verify the superblock's checksum. Default: yes.
    pub verify_checksum: bool,
    /// Open an image also if none of its extra devices is given, for its names and attributes; reading data on these devices fails.
    /// Default: no.
    pub missing_devices: bool,
    /// Budgets for reading content.
    pub engine: EngineOptions,
    /// The file that tells how short memory is, for [`LowMemory::Auto`](super::LowMemory::Auto). Default: opened with the
    /// image. A sandboxed process that can open no files when it opens the image passes the open file here.
    pub pressure: Option<PressureFile>,
    /// Limits the work of all reads together to this many times what an image of that size may need; beyond it, reads fail
    /// with [`crate::Error::Limit`]. Default: no limit, as a server needs.
    pub work_limit: Option<u32>,
    /// The size that counts for `work_limit`, in bytes. Default: that of the image.
    pub work_size: Option<u64>,
    /// Once set, all reads fail with [`crate::Error::Interrupted`] after a few milliseconds. Default: none.
    pub cancel: Option<Arc<AtomicBool>>,
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
            cancel: None,
        }
    }
}

/// An open image.
///
/// All methods take `&self` and may be called from many threads at once. A clone shares the open image and costs nothing; the
/// image is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Image {
    pub(crate) content: Arc<ContentReader>,
    prefixes: Arc<[LongPrefix]>,
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

    /// Opens an image whose primary device is `source`, with `extra` devices in the order of its table.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a superblock that is not sound, [`Error::Unsupported`] for features
    /// that this version does not know, [`Error::Option`] for too few or too many devices.
    pub fn open_with(
        source: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let header = Header::read(source, extra, options.verify_checksum, options.missing_devices)?;
        // Only with a limit: a sandboxed process may not be allowed to look for the holes of its files.
        let stored = match (options.work_limit, options.work_size) {
            (None, _) => 0,
            (Some(_), size) => size.unwrap_or_else(|| header.devices.stored()),
        };
        let superblock = &header.superblock;
        let has_shared = superblock.packed.is_some() || superblock.metabox.is_some();
        let (engine, metadata_cache) = options.engine.fitted(options.metadata_cache, has_shared);
        let max_distance = header.configs.lz4.map_or(LZ4_MAX_DISTANCE, |lz4| lz4.max_distance);
        let memory = Arc::new(Memory::new(engine.memory_limit));
        let (block_size, pressure) = (superblock.block_size.bytes(), options.pressure.as_ref());
        let engine = Engine::new(&engine, block_size, max_distance, pressure, Arc::clone(&memory))?;
        let budget = Budget::new(stored, options.work_limit, options.cancel.clone());
        let content = ContentReader::new(Volume::new(header, metadata_cache, budget, memory), engine);
        let prefixes = content.xattr_prefixes()?.into();
        Ok(Self { content: Arc::new(content), prefixes })
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.content.volume.superblock
    }

    /// The algorithms' configurations.
    #[must_use]
    pub fn configs(&self) -> &CompressionConfigs {
        &self.content.volume.configs
    }

    /// The table of extra devices.
    #[must_use]
    pub fn device_slots(&self) -> &[DeviceSlot] {
        &self.content.volume.device_slots
    }

    /// The long xattr name prefixes.
    #[must_use]
    pub fn xattr_prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    /// Size in bytes of a device, or `None` when there is no such device.
    #[must_use]
    pub fn device_size(&self, device: DeviceId) -> Option<u64> {
        self.content.volume.devices.size(device)
    }

    /// Fills `buf` with metadata, which belongs to a `structure`.
    pub fn read_metadata(&self, place: MetadataPlace, structure: Structure, buf: &mut [u8]) -> Result<()> {
        self.content.read_metadata(place, structure, buf)
    }

    /// The position of the next stored byte of the primary device, at or after `pos`, if its source knows its holes.
    pub fn next_stored(&self, pos: BytePos) -> BytePos {
        BytePos::new(self.content.volume.devices.primary().next_stored(pos.get()))
    }

    /// Fills `buf` from a device without any caching; `device` 0 is the unified address space.
    pub fn read_device(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        self.content.volume.budget.charge_bytes(to_u64(buf.len()))?;
        let (source, pos) = self.content.volume.source_of(device, pos, structure, buf.len())?;
        source.read_exact_at(pos.get(), buf).map_err(|e| Error::io_unnamed("read image", e))
    }

    /// The same image for one operation, whose reads fail with [`crate::Error::Interrupted`] a few milliseconds after `cancel` is set. Reads
    /// through other handles go on.
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Arc<AtomicBool>) -> Self {
        Self { content: Arc::new(self.content.cancelled_by(cancel)), prefixes: Arc::clone(&self.prefixes) }
    }

    /// The limit on the work that this image may cause. Code whose work depends on the contents of the image charges it here.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.content.volume.budget
    }

    /// Counts the work of finding a device, of which there may be 65,535.
    pub fn charge_devices(&self) -> Result<()> {
        self.content.volume.charge_devices()
    }

    /// Charges the work of making a path of `len` bytes: in a deep tree, paths are far longer than the names in the image.
    ///
    /// # Errors
    /// As [`Budget::charge`].
    pub fn charge_path(&self, len: usize) -> Result<()> {
        self.budget().charge_bytes(to_u64(len))
    }

    /// Whether both are opened from the same files.
    #[must_use]
    pub fn is_same_image(&self, other: &Self) -> bool {
        self.content.volume.devices.are_same(&other.content.volume.devices)
    }

    /// Whether both are handles of one opened image.
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content.engine, &other.content.engine)
    }

    /// The device that holds `pos`, and the position in it; device 0 is the unified address space.
    pub fn physical(&self, device: DeviceId, pos: BytePos) -> Option<(DeviceId, BytePos)> {
        self.content.volume.devices.physical(device, pos)
    }

    /// Whether `len` bytes at `pos` lie within a device.
    #[must_use]
    pub fn has_range(&self, device: DeviceId, pos: BytePos, len: u64) -> bool {
        self.content.volume.has_range(device, pos, len)
    }

    /// Runs one request of a server. It fails after about half a second of work, so that no image can block the server's threads.
    pub fn request<T>(request: impl FnOnce() -> T) -> T {
        Budget::request(request)
    }

    /// Counters of all reads so far, and the memory held.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.content.stats()
    }

    /// Reads inode `nid`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there is no sound inode.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        read_inode(&*self.content, nid)
    }

    /// Reads the root directory's inode.
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn root(&self) -> Result<Inode> {
        self.inode(self.superblock().root)
    }

    /// Calls `each` with each entry, and with its place if it is shared; returns the name filter.
    pub fn walk_xattrs(
        &self,
        inode: &Inode,
        each: impl FnMut(&Entry<'_>, Option<MetadataPlace>),
    ) -> Result<NameFilter> {
        xattr::walk(&*self.content, inode, each)
    }

    /// Reads `inode`'s content from `offset` on into `buf`; returns how many bytes that gave, which are fewer than
    /// asked only at the content's end.
    ///
    /// Any inode with content may be read: a directory's content is its blocks, a symbolic link's its target.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the content is damaged where it is read, [`Error::Io`].
    pub fn read_at(&self, inode: &Inode, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        self.content.read_at(inode, offset, buf)
    }

    /// Reads like [`Self::read_at`], but ends before a pcluster that does not fit `buf`, unless the range starts in that
    /// pcluster. A caller that continues there decodes no pcluster twice.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_whole_at(&self, inode: &Inode, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        self.content.read_whole_at(inode, offset, buf)
    }

    /// `inode` for several reads during one request, which share its map.
    #[must_use]
    pub fn reader<'a>(&'a self, inode: &'a Inode) -> InodeReader<'a> {
        InodeReader::new(&self.content, inode)
    }

    /// The extents of `inode` from `offset` on, without reading any data.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the map's header is damaged; an item that fails is the last one.
    pub fn extents<'a>(&'a self, inode: &'a Inode, offset: FileOffset) -> Result<Extents<'a>> {
        Extents::open(&*self.content, inode, offset)
    }
}
