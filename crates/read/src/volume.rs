//! An image's medium: its devices, its superblock, and a cache of blocks.
//!
//! The volume reads bytes at positions. It does not know inodes, maps or compression, which the layers above add.

pub(crate) mod block_cache;
pub(crate) mod devices;
pub(crate) mod fetched_source;
#[cfg(unix)]
pub(crate) mod file_source;
pub(crate) mod place;
pub(crate) mod source;
pub(crate) mod superblock;

use std::sync::Arc;

use ferofs_format::algorithm::CompressionConfigs;
use ferofs_format::device::DeviceSlot;
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockAddr, BytePos, DeviceId, Fault, Nid, Structure};

use crate::accounting::budget::Budget;
use crate::accounting::memory::Memory;
use crate::accounting::stats::{Cause, Counters};
use crate::error::{Corruption, Error, Result};
use crate::numbers::to_u64;
use block_cache::{BlockCache, Key};
use devices::{Devices, check_bounds};
use place::MetadataPlace;
use source::{Access, ReadRange, Source};

/// The key of the metabox's content in the block cache. No primary device has this number, and blocks of other devices
/// are not metadata.
const METABOX: u16 = u16::MAX;

/// The parts of a volume that are read first, to know what the rest needs.
pub(crate) struct Header {
    pub superblock: Superblock,
    pub configs: CompressionConfigs,
    pub device_slots: Vec<DeviceSlot>,
    pub devices: Devices,
}

impl Header {
    /// Reads the superblock of `source`, verifies its checksum on request, and finds the extra devices, which may be missing if
    /// `may_miss`.
    pub(crate) fn read(
        source: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        verify: bool,
        may_miss: bool,
    ) -> Result<Self> {
        let superblock = superblock::read_superblock(&*source, verify)?;
        let configs = superblock::read_configs(&*source, &superblock)?;
        let device_slots = superblock::read_device_slots(&*source, &superblock)?;
        let devices = Devices::new(source, extra, &device_slots, &superblock, may_miss)?;
        Ok(Self { superblock, configs, device_slots, devices })
    }
}

/// The medium of an open image. A clone shares all but the tokens that cancel its reads.
#[derive(Clone)]
pub(crate) struct Volume {
    pub superblock: Superblock,
    pub configs: CompressionConfigs,
    pub device_slots: Arc<[DeviceSlot]>,
    pub devices: Arc<Devices>,
    cache: Arc<BlockCache>,
    pub budget: Budget,
    pub counters: Arc<Counters>,
    pub memory: Arc<Memory>,
    /// Whether a device is on a source that [prefers batches](Source::prefers_batches).
    pub batches: bool,
    /// The largest [prefetch distance](Source::prefetch_distance) of a device.
    pub prefetch_distance: u64,
}

impl Volume {
    /// The volume with at most `metadata_cache` bytes of cached metadata blocks.
    pub(crate) fn new(header: Header, metadata_cache: usize, budget: Budget, memory: Arc<Memory>) -> Self {
        let Header { superblock, configs, device_slots, devices } = header;
        let cache = BlockCache::new(superblock.block_size.bytes(), metadata_cache, Arc::clone(&memory));
        let (batches, prefetch_distance) = devices.hints();
        Self {
            superblock,
            configs,
            device_slots: device_slots.into(),
            devices: Arc::new(devices),
            cache: Arc::new(cache),
            budget,
            counters: Arc::default(),
            memory,
            batches,
            prefetch_distance,
        }
    }

    /// The place of inode `nid`.
    pub(crate) fn inode_place(&self, nid: Nid) -> Result<MetadataPlace> {
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

    /// Fills `buf` with metadata of the primary device, which belongs to a `structure`.
    pub(crate) fn read_primary(&self, pos: BytePos, structure: Structure, buf: &mut [u8]) -> Result<()> {
        check_bounds(self.devices.primary(), pos, buf.len(), structure)?;
        self.read_cached(0, pos, buf, |block, bytes| self.load_block(block, bytes))
    }

    /// Fills `buf` from the metabox, whose blocks `load` decodes. The caller has checked the bounds.
    pub(crate) fn read_metabox(
        &self,
        pos: BytePos,
        buf: &mut [u8],
        load: impl Fn(BlockAddr, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.read_cached(METABOX, pos, buf, load)
    }

    /// Fills `buf` from cached blocks; `load` reads those that the cache does not have.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`skip` is below the size of a block, and `len` ends in that block"
    )]
    fn read_cached(
        &self,
        device: u16,
        pos: BytePos,
        buf: &mut [u8],
        load: impl Fn(BlockAddr, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.budget.charge_bytes(to_u64(buf.len()))?;
        let block_size = self.superblock.block_size;
        let (mut pos, mut unread) = (pos, buf);
        while !unread.is_empty() {
            let block = pos.block(block_size);
            let skip = usize::try_from(pos.in_block(block_size)).unwrap_or(usize::MAX);
            let len = unread.len().min(block_size.bytes() - skip);
            let (head, tail) = std::mem::take(&mut unread).split_at_mut(len);
            self.cache.with_block(
                Key { device, block: block.get() },
                |bytes| load(block, bytes),
                |bytes| head.copy_from_slice(&bytes[skip..skip + len]),
            )?;
            unread = tail;
            pos = pos.checked_add(to_u64(len)).unwrap_or(pos);
        }
        Ok(())
    }

    /// Reads one block; a shorter last block is padded with zeroes.
    fn load_block(&self, block: BlockAddr, buf: &mut [u8]) -> Result<()> {
        let primary = self.devices.primary();
        let start = block.get() << self.superblock.block_size.bits();
        let have = primary.size().saturating_sub(start);
        let len = usize::try_from(have).unwrap_or(usize::MAX).min(buf.len());
        let (head, tail) = buf.split_at_mut(len);
        tail.fill(0);
        self.counters.io(Cause::Metadata, head.len());
        primary.read_exact_at(start, head).map_err(|e| Error::io_unnamed("read image", e))
    }

    /// The source that holds `len` bytes at `pos`, and the position in it. Counts the work of finding the device.
    pub(crate) fn source_of(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        len: usize,
    ) -> Result<(&dyn Source, BytePos)> {
        self.charge_devices()?;
        self.devices.source_of(device, pos, structure, len)
    }

    /// Fills the buffers of several ranges, with one call for each device.
    pub(crate) fn read_ranges<'b>(
        &self,
        ranges: impl Iterator<Item = (DeviceId, BytePos, &'b mut [u8])>,
        access: Access,
    ) -> Result<()> {
        let mut by_device: Vec<(DeviceId, &dyn Source, Vec<ReadRange<'_>>)> = Vec::new();
        for (device, pos, buf) in ranges {
            let (source, pos_there) = self.source_of(device, pos, Structure::Extent, buf.len())?;
            let range = ReadRange { pos: pos_there.get(), buf };
            let device = self.devices.physical(device, pos).map_or(device, |(device, _)| device);
            match by_device.iter_mut().find(|(other, ..)| *other == device) {
                Some((.., ranges)) => ranges.push(range),
                None => by_device.push((device, source, vec![range])),
            }
        }
        for (_, source, ranges) in &mut by_device {
            source.read_ranges(ranges, access).map_err(|e| Error::io_unnamed("read image", e))?;
        }
        Ok(())
    }

    /// Announces that a range of a device will be read soon.
    pub(crate) fn will_need(&self, device: DeviceId, pos: BytePos, len: u64) {
        if let Some((source, pos)) = self.devices.locate(device, pos) {
            source.will_need(pos.get(), len);
        }
    }

    /// Counts the work of finding a device, of which there may be 65,535.
    pub(crate) fn charge_devices(&self) -> Result<()> {
        self.budget.charge(self.devices.count() / 32)
    }

    /// Whether `len` bytes at `pos` lie within a device.
    pub(crate) fn has_range(&self, device: DeviceId, pos: BytePos, len: u64) -> bool {
        self.devices
            .locate(device, pos)
            .is_some_and(|(source, pos)| pos.get().checked_add(len).is_some_and(|end| end <= source.size()))
    }
}
