//! An open image: its superblock, its devices, and checked reads of its metadata.
//!
//! First in the read flow: everything else asks the image for bytes by [`MetadataPlace`].

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE, Lz4Config};
use ferofs_format::device::{DEVICE_SLOT_SIZE, DeviceSlot};
use ferofs_format::superblock::{self, Compression, Superblock};
use ferofs_format::xattr::LongPrefix;
use ferofs_format::{BlockAddr, BytePos, Compat, DeviceId, Fault, FileOffset, Nid, Structure};

use super::budget::Budget;
use super::cache::{BlockCache, Key};
use super::engine::stats::Cause;
use super::engine::{Engine, EngineOptions, PressureFile};
use super::map::Costly;
use super::source::{Source, Window};
use crate::error::{Corruption, Error, Locate, Result};

/// How to open an image.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Bytes of metadata blocks to cache. Default: 4 MiB.
    pub metadata_cache: usize,
    /// Verify the superblock's checksum. Default: yes.
    pub verify_checksum: bool,
    /// Budgets for reading content.
    pub engine: EngineOptions,
    /// Where to read how short memory is, for [`LowMemory::Auto`](super::LowMemory::Auto). Default: opened with the
    /// image. A process that may open nothing when it opens the image gives the file here.
    pub pressure: Option<PressureFile>,
    /// Limits what all reads together may cost to so many times what an image of that size may need: see
    /// [`crate::Error::Limit`]. Default: no limit, as a server needs.
    pub work_limit: Option<u32>,
    /// Once set, whatever reads the image ends with [`crate::Error::Interrupted`] after at most some milliseconds.
    /// Default: nothing cancels.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            metadata_cache: 4 << 20,
            verify_checksum: true,
            engine: EngineOptions::default(),
            pressure: None,
            work_limit: None,
            cancel: None,
        }
    }
}

/// Where metadata stands: at a position of the image, or in the decoded content of the metabox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPlace {
    /// In the metabox, and not on the primary device.
    pub in_metabox: bool,
    /// Bytes from the start of either.
    pub pos: BytePos,
}

impl MetadataPlace {
    /// A position on the primary device.
    #[must_use]
    pub const fn on_device(pos: BytePos) -> Self {
        Self { in_metabox: false, pos }
    }

    /// `len` bytes further on.
    pub(crate) fn offset(self, len: u64) -> Result<Self> {
        let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.checked_add(len).ok_or_else(overflow)?, ..self })
    }

    /// The next multiple of `align`.
    pub(crate) fn align_up(self, align: u64) -> Result<Self> {
        let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.align_up(align).ok_or_else(overflow)?, ..self })
    }
}

/// The metabox's content in the cache of metadata: no device has this number, as only the primary one's metadata is there.
const METABOX: u16 = u16::MAX;

struct Device {
    source: Arc<dyn Source>,
    /// Where this device's blocks are in the unified address space; `None` if nowhere.
    unified: Option<std::ops::Range<u64>>,
}

/// An open image. All methods take `&self` and may be called from many threads at once.
pub struct Image {
    superblock: Superblock,
    configs: CompressionConfigs,
    devices: Vec<Device>,
    slots: Vec<DeviceSlot>,
    prefixes: Vec<LongPrefix>,
    cache: BlockCache,
    /// The packed inode, read once.
    packed: OnceLock<super::Inode>,
    /// The metabox's inode, read once.
    metabox: OnceLock<super::Inode>,
    pub(super) costly: Costly,
    pub(crate) budget: Budget,
    pub(super) engine: Engine,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("superblock", &self.superblock).finish_non_exhaustive()
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
    /// [`Error::Corrupt`] for bytes that are no sound superblock, [`Error::Unsupported`] for features
    /// that this version does not know, [`Error::Option`] for too few devices.
    pub fn open_with(
        source: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let superblock = read_superblock(&*source, options.verify_checksum)?;
        let configs = read_configs(&*source, &superblock)?;
        let slots = read_device_slots(&*source, &superblock)?;
        let source: Arc<dyn Source> = source.into();
        let unified: Vec<_> = slots.iter().map(|slot| unified_range(slot, &superblock)).collect();
        let extra: Vec<Arc<dyn Source>> = match extra.is_empty() {
            true => behind(&source, &unified),
            false => extra.into_iter().map(Arc::from).collect(),
        };
        if extra.len() < slots.len() {
            return Err(Error::Option {
                option: "device",
                problem: "the image needs more devices than were given",
            });
        }
        let mut devices = vec![Device { source, unified: None }];
        devices.extend(extra.into_iter().zip(unified).map(|(source, unified)| Device { source, unified }));
        // Only where it limits anything: a confined process may not ask.
        let stored = match options.work_limit {
            Some(_) => devices.iter().map(|device| device.source.stored()).fold(0, u64::saturating_add),
            None => 0,
        };
        let block_size = superblock.block_size.bytes();
        let has_shared = superblock.packed.is_some() || superblock.metabox.is_some();
        let (engine, metadata_cache) = options.engine.fitted(options.metadata_cache, has_shared);
        let max_distance = configs.lz4.map_or(LZ4_MAX_DISTANCE, |lz4| lz4.max_distance);
        let engine = Engine::new(&engine, block_size, max_distance, options.pressure.as_ref())?;
        let cache = BlockCache::new(block_size, metadata_cache, Arc::clone(&engine.memory));
        let mut image = Self {
            superblock,
            configs,
            devices,
            slots,
            prefixes: Vec::new(),
            cache,
            packed: OnceLock::new(),
            metabox: OnceLock::new(),
            costly: Costly::default(),
            budget: Budget::new(stored, options.work_limit, options.cancel.clone()),
            engine,
        };
        image.prefixes = image.read_prefixes()?;
        Ok(image)
    }

    /// The superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The algorithms' configurations.
    #[must_use]
    pub const fn configs(&self) -> &CompressionConfigs {
        &self.configs
    }

    /// The table of extra devices.
    #[must_use]
    pub fn device_slots(&self) -> &[DeviceSlot] {
        &self.slots
    }

    /// The long xattr name prefixes.
    #[must_use]
    pub fn xattr_prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    /// Size in bytes of a device, or `None` when there is no such device.
    #[must_use]
    pub fn device_size(&self, device: DeviceId) -> Option<u64> {
        Some(self.devices.get(usize::from(device.get()))?.source.size())
    }

    /// Where inode `nid` starts.
    pub(super) fn inode_place(&self, nid: Nid) -> Result<MetadataPlace> {
        let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("nid")).of(nid);
        let base = if nid.in_metabox() {
            if self.superblock.metabox.is_none() {
                let fault = Fault::FeatureNotSet("METABOX");
                return Err(Corruption::new(Structure::Inode, fault).of(nid).into());
            }
            BytePos::new(0)
        } else {
            self.superblock.inode_base().ok_or_else(overflow)?
        };
        let pos = nid.to_pos(base).ok_or_else(overflow)?;
        Ok(MetadataPlace { in_metabox: nid.in_metabox(), pos })
    }

    /// Fills `buf` with metadata, which belongs to a `structure`.
    pub fn read_metadata(&self, place: MetadataPlace, structure: Structure, buf: &mut [u8]) -> Result<()> {
        let device = if place.in_metabox {
            self.check_metabox_bounds(place.pos, buf.len())?;
            METABOX
        } else {
            self.check_bounds(place.pos, buf.len(), structure)?;
            0
        };
        self.budget.charge_bytes(to_u64(buf.len()))?;
        let block_size = self.superblock.block_size;
        let (mut pos, mut rest) = (place.pos, buf);
        while !rest.is_empty() {
            let block = pos.block(block_size);
            let skip = usize::try_from(pos.in_block(block_size)).unwrap_or(usize::MAX);
            let len = rest.len().min(block_size.bytes() - skip);
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(len);
            self.cache.with_block(
                Key { device, block: block.get() },
                |bytes| match place.in_metabox {
                    true => self.load_metabox_block(block, bytes),
                    false => self.load_block(block, bytes),
                },
                |bytes| head.copy_from_slice(&bytes[skip..skip + len]),
            )?;
            rest = tail;
            pos = pos.checked_add(to_u64(len)).unwrap_or(pos);
        }
        Ok(())
    }

    /// Where on the primary device the next stored byte is, at or after `pos`, as far as its source knows.
    pub fn next_stored(&self, pos: BytePos) -> BytePos {
        BytePos::new(self.primary().next_stored(pos.get()))
    }

    /// Fills `buf` from a device without any caching; `device` 0 is the unified address space.
    pub fn read_device(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        self.budget.charge_bytes(to_u64(buf.len()))?;
        let (source, pos) = self.source_of(device, pos, structure, buf.len())?;
        source.read_exact_at(pos.get(), buf).map_err(|e| Error::io_unnamed("read image", e))
    }

    /// What holds `len` bytes at `pos`, and where.
    pub(super) fn source_of(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        len: usize,
    ) -> Result<(&dyn Source, BytePos)> {
        self.charge_devices()?;
        let (source, pos) = self.locate(device, pos).ok_or_else(|| {
            let limit = to_u64(self.devices.len());
            let fault = Fault::OutOfRange { field: "device", value: device.get().into(), limit };
            Corruption::new(structure, fault)
        })?;
        check_source_bounds(source, pos, len, structure)?;
        Ok((source, pos))
    }

    /// Says that a range of a device will be read soon.
    pub(super) fn will_need(&self, device: DeviceId, pos: BytePos, len: u64) {
        if let Some((source, pos)) = self.locate(device, pos) {
            source.will_need(pos.get(), len);
        }
    }

    /// The work that reading this image may still take. Those who work on what the image says charge to it.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Counts the work of finding a device, of which there may be 65,535.
    pub fn charge_devices(&self) -> Result<()> {
        self.budget.charge(to_u64(self.devices.len() / 32))
    }

    /// Counts bytes that the caller makes of the image, such as the paths of its names, as work that the image causes.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn count_made(&self, bytes: usize) -> Result<()> {
        self.budget.charge_bytes(to_u64(bytes))
    }

    fn locate(&self, device: DeviceId, pos: BytePos) -> Option<(&dyn Source, BytePos)> {
        if device.get() == 0 {
            for extra in &self.devices {
                if let Some(range) = extra.unified.as_ref().filter(|range| range.contains(&pos.get())) {
                    return Some((&*extra.source, BytePos::new(pos.get() - range.start)));
                }
            }
        }
        let device = self.devices.get(usize::from(device.get()))?;
        Some((&*device.source, pos))
    }

    /// Whether both are opened from the same files.
    #[must_use]
    pub fn is_same_image(&self, other: &Self) -> bool {
        let identities = |image: &Self| -> Option<Vec<_>> {
            image.devices.iter().map(|device| device.source.identity()).collect()
        };
        identities(self).is_some_and(|own| identities(other) == Some(own))
    }

    /// The device that holds `pos`, and where there; device 0 is the unified address space.
    pub fn physical(&self, device: DeviceId, pos: BytePos) -> Option<(DeviceId, BytePos)> {
        if device.get() == 0 {
            for (number, extra) in (0u16..).zip(&self.devices) {
                if let Some(range) = extra.unified.as_ref().filter(|range| range.contains(&pos.get())) {
                    return Some((DeviceId::new(number), BytePos::new(pos.get() - range.start)));
                }
            }
        }
        self.devices.get(usize::from(device.get())).map(|_| (device, pos))
    }

    /// Whether `len` bytes at `pos` lie within a device.
    #[must_use]
    pub fn has_range(&self, device: DeviceId, pos: BytePos, len: u64) -> bool {
        self.locate(device, pos)
            .is_some_and(|(source, pos)| pos.get().checked_add(len).is_some_and(|end| end <= source.size()))
    }

    fn check_bounds(&self, pos: BytePos, len: usize, structure: Structure) -> Result<()> {
        check_source_bounds(self.primary(), pos, len, structure)
    }

    fn primary(&self) -> &dyn Source {
        &*self.devices[0].source
    }

    /// Reads one block; a last block that the device cuts short is padded with zeroes.
    fn load_block(&self, block: BlockAddr, buf: &mut [u8]) -> Result<()> {
        let start = block.get() << self.superblock.block_size.bits();
        let have = self.primary().size().saturating_sub(start);
        let len = usize::try_from(have).unwrap_or(usize::MAX).min(buf.len());
        let (head, tail) = buf.split_at_mut(len);
        tail.fill(0);
        self.engine.counters.io(Cause::Metadata, head.len());
        self.primary().read_exact_at(start, head).map_err(|e| Error::io_unnamed("read image", e))
    }

    fn metabox(&self) -> Result<&super::Inode> {
        if let Some(metabox) = self.metabox.get() {
            return Ok(metabox);
        }
        let no_metabox = || Corruption::new(Structure::Metabox, Fault::FeatureNotSet("METABOX"));
        let metabox = self.inode(self.superblock.metabox.ok_or_else(no_metabox)?)?;
        Ok(self.metabox.get_or_init(|| metabox))
    }

    fn check_metabox_bounds(&self, pos: BytePos, len: usize) -> Result<()> {
        let limit = self.metabox()?.size();
        if pos.get().checked_add(to_u64(len)).is_some_and(|end| end <= limit) {
            return Ok(());
        }
        let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit };
        Err(Corruption::new(Structure::Metabox, fault).into())
    }

    /// Reads one block of the metabox's content; what its end cuts short is padded with zeroes.
    fn load_metabox_block(&self, block: BlockAddr, buf: &mut [u8]) -> Result<()> {
        let start = FileOffset::new(block.get() << self.superblock.block_size.bits());
        let len = self.read_at(self.metabox()?, start, buf)?;
        buf[len..].fill(0);
        Ok(())
    }

    /// Runs one request of a server: it ends, with an error, after about half a second's work, so that no image can keep a
    /// server's threads from others.
    pub fn request<T>(request: impl FnOnce() -> T) -> T {
        Budget::request(request)
    }

    /// Fills `buf` from the packed inode's content.
    pub(super) fn read_fragment(&self, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let packed = match self.packed.get() {
            Some(packed) => packed,
            None => {
                let fault = Fault::FeatureNotSet("FRAGMENTS");
                let no_packed = || Corruption::new(Structure::PackedInode, fault);
                let packed = self.inode(self.superblock.packed.ok_or_else(no_packed)?)?;
                self.packed.get_or_init(|| packed)
            }
        };
        self.read_exact(packed, BytePos::new(offset.get()), Structure::PackedInode, buf)
    }

    /// Fills `buf` from the decoded content of an inode that holds structures: the packed inode, the
    /// metabox.
    pub(super) fn read_exact(
        &self,
        holder: &super::Inode,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        let read = self.read_at(holder, FileOffset::new(pos.get()), buf)?;
        if read == buf.len() {
            return Ok(());
        }
        let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit: holder.size() };
        Err(Corruption::new(structure, fault).into())
    }
}

fn read_superblock(source: &dyn Source, verify: bool) -> Result<Superblock> {
    let offset = BytePos::new(to_u64(superblock::OFFSET));
    let mut bytes = vec![0; superblock::SIZE + 255 * superblock::EXT_SLOT_SIZE];
    let have = read_up_to(source, offset, &mut bytes)?;
    let sb = Superblock::parse(&bytes[..have]).located_at(offset)?;
    if verify && sb.compat.contains(Compat::SB_CHKSUM) {
        bytes.resize(sb.checksum_len(), 0);
        let have = read_up_to(source, offset, &mut bytes)?;
        sb.verify_checksum(&bytes[..have]).located_at(offset)?;
    }
    Ok(sb)
}

fn read_configs(source: &dyn Source, sb: &Superblock) -> Result<CompressionConfigs> {
    let Compression::Configured { available } = sb.compression else {
        let Compression::Lz4Only { max_distance } = sb.compression else { return Ok(Default::default()) };
        let max_distance = match max_distance {
            0 => LZ4_MAX_DISTANCE,
            distance => distance,
        };
        let lz4 = Lz4Config { max_distance, max_pcluster_blocks: 1 };
        return Ok(CompressionConfigs { lz4: Some(lz4), ..Default::default() });
    };
    let pos = BytePos::new(to_u64(superblock::OFFSET + sb.size()));
    // Four records of at most 64 KiB; real ones have 14 bytes.
    let mut bytes = vec![0; 4 * (2 + 14)];
    let have = read_up_to(source, pos, &mut bytes)?;
    CompressionConfigs::parse(available, &bytes[..have]).located_at(pos)
}

fn read_device_slots(source: &dyn Source, sb: &Superblock) -> Result<Vec<DeviceSlot>> {
    let mut slots = Vec::new();
    let mut at = sb.device_table;
    for _ in 0..sb.extra_devices {
        let mut bytes = [0; DEVICE_SLOT_SIZE];
        check_source_bounds(source, at, bytes.len(), Structure::DeviceTable)?;
        source.read_exact_at(at.get(), &mut bytes).map_err(|e| Error::io_unnamed("read image", e))?;
        slots.push(DeviceSlot::parse(&bytes, sb.incompat).located_at(at)?);
        let overflow = || Corruption::new(Structure::DeviceTable, Fault::Overflow("devt_slotoff"));
        at = at.checked_add(to_u64(bytes.len())).ok_or_else(overflow)?;
    }
    Ok(slots)
}

fn unified_range(slot: &DeviceSlot, sb: &Superblock) -> Option<std::ops::Range<u64>> {
    let start = slot.start?.to_pos(sb.block_size)?.get();
    let len = BlockAddr::new(slot.blocks).to_pos(sb.block_size)?.get();
    Some(start..start.checked_add(len)?)
}

/// The extra devices of an image that they stand behind, in one file, as its address space has them.
fn behind(image: &Arc<dyn Source>, unified: &[Option<std::ops::Range<u64>>]) -> Vec<Arc<dyn Source>> {
    let windows = unified.iter().map_while(|range| {
        // The last block may be cut short.
        let range = range.as_ref().filter(|range| range.start < image.size() || range.is_empty())?;
        let len = range.end.min(image.size()).saturating_sub(range.start);
        let window = Window { whole: Arc::clone(image), start: range.start, len };
        Some(Arc::new(window) as Arc<dyn Source>)
    });
    windows.collect()
}

fn check_source_bounds(source: &dyn Source, pos: BytePos, len: usize, structure: Structure) -> Result<()> {
    let limit = source.size();
    if pos.get().checked_add(to_u64(len)).is_some_and(|end| end <= limit) {
        return Ok(());
    }
    let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit };
    Err(Corruption::new(structure, fault).at(pos).into())
}

/// Reads as much of `buf` as the source has; says how much that is.
fn read_up_to(source: &dyn Source, pos: BytePos, buf: &mut [u8]) -> Result<usize> {
    let have = usize::try_from(source.size().saturating_sub(pos.get())).unwrap_or(usize::MAX);
    let len = have.min(buf.len());
    source.read_exact_at(pos.get(), &mut buf[..len]).map_err(|e| Error::io_unnamed("read image", e))?;
    Ok(len)
}

pub(super) fn to_u64(len: usize) -> u64 {
    // No platform has lengths beyond 64 bits.
    u64::try_from(len).unwrap_or(u64::MAX)
}
