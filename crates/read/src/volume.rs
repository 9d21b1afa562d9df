//! An image's medium: its devices, its superblock, and a cache of blocks.
//!
//! The volume reads bytes at positions. It does not know inodes, maps or compression, which the
//! layers above add.

pub(crate) mod block_cache;
pub(crate) mod devices;
pub(crate) mod fetched_source;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) mod file_source;
#[cfg(all(any(unix, windows), not(any(target_os = "linux", target_os = "android"))))]
pub(crate) mod portable_file;
pub(crate) mod source;

use std::sync::Arc;

use block_cache::{BlockCache, Key};
use devices::{Devices, check_bounds};
use ferofs_format::algorithm::CompressionConfigs;
use ferofs_format::device::{DEVICE_SLOT_SIZE, DeviceSlot};
use ferofs_format::superblock::{self, Compression, Superblock};
use ferofs_format::{Algorithm, BlockAddr, BytePos, Compat, DeviceId, Fault, Nid, Structure};
use source::{Access, ReadRange, Source};

use crate::accounting::budget::Budget;
use crate::accounting::memory::Memory;
use crate::accounting::stats::{Cause, Counters};
use crate::error::{Corruption, Error, Locate, Result};
use ferofs_format::units::to_u64;

/// The key of the metabox's content in the block cache. No primary device has this number, and
/// blocks of other devices are not metadata.
const METABOX: u16 = u16::MAX;

/// The parts of a volume that are read first, to know what the rest needs.
pub(crate) struct Header {
    pub superblock: Superblock,
    pub configs: CompressionConfigs,
    pub device_slots: Vec<DeviceSlot>,
    pub devices: Devices,
}

impl Header {
    /// Reads the superblock of `source`, verifies its checksum on request, and finds the extra
    /// devices, which may be missing if `may_miss`.
    pub(crate) fn read(
        source: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        verify: bool,
        may_miss: bool,
    ) -> Result<Self> {
        let superblock = read_superblock(&*source, verify)?;
        let configs = read_configs(&*source, &superblock)?;
        let device_slots = read_device_slots(&*source, &superblock)?;
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
}

impl Volume {
    /// The volume with at most `metadata_cache` bytes of cached metadata blocks.
    pub(crate) fn new(
        header: Header,
        metadata_cache: usize,
        budget: Budget,
        memory: Arc<Memory>,
    ) -> Self {
        let Header { superblock, configs, device_slots, devices } = header;
        let cache =
            BlockCache::new(superblock.block_size.bytes(), metadata_cache, Arc::clone(&memory));
        let batches = devices.prefer_batches();
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
        }
    }

    /// Compares the superblock's block with its checksum.
    pub(crate) fn verify_checksum(&self) -> Result<()> {
        match self.devices.locate(DeviceId::new(0), BytePos::new(0)) {
            Some((source, _)) => read_superblock(source, true).map(drop),
            None => Ok(()),
        }
    }

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
    pub(crate) fn read_primary(
        &self,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        check_bounds(self.devices.primary(), pos, buf.len(), structure)?;
        self.read_cached(0, pos, buf, |block, bytes| self.load_block(block, bytes))
    }

    /// Fills `buf` from the metabox, whose blocks `load` decodes. The caller has checked the
    /// bounds.
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
        primary.read_exact_at(start, head).map_err(Error::unreadable)
    }

    /// The source that holds `len` bytes at `pos`, and the position in it. Counts the work of
    /// finding the device.
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
            source.read_ranges(ranges, access).map_err(Error::unreadable)?;
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
        self.devices.locate(device, pos).is_some_and(|(source, pos)| {
            pos.get().checked_add(len).is_some_and(|end| end <= source.size())
        })
    }
}

pub(crate) fn read_superblock(source: &dyn Source, verify: bool) -> Result<Superblock> {
    let offset = BytePos::new(to_u64(superblock::OFFSET));
    let mut bytes = vec![0; superblock::SIZE + 255 * superblock::EXT_SLOT_SIZE];
    let sb = Superblock::parse(read_up_to(source, offset, &mut bytes)?).located_at(offset)?;
    if verify && sb.compat.contains(Compat::SB_CHKSUM) {
        bytes.resize(sb.checksum_len(), 0);
        sb.verify_checksum(read_up_to(source, offset, &mut bytes)?).located_at(offset)?;
    }
    Ok(sb)
}

pub(crate) fn read_configs(source: &dyn Source, sb: &Superblock) -> Result<CompressionConfigs> {
    let available = match sb.compression {
        Compression::Lz4Only { max_distance } => {
            return Ok(CompressionConfigs::of_lz4(max_distance));
        }
        Compression::Configured { available } => available,
    };
    let pos = BytePos::new(to_u64(superblock::OFFSET.saturating_add(sb.size())));
    // Records may have up to 64 KiB; real ones have at most 14 bytes.
    let mut bytes = vec![0; Algorithm::ALL.len().saturating_mul(2 + 14)];
    CompressionConfigs::parse(available, read_up_to(source, pos, &mut bytes)?).located_at(pos)
}

pub(crate) fn read_device_slots(source: &dyn Source, sb: &Superblock) -> Result<Vec<DeviceSlot>> {
    let mut slots = Vec::new();
    let mut at = sb.device_table;
    for _ in 0..sb.extra_devices {
        let mut bytes = [0; DEVICE_SLOT_SIZE];
        check_bounds(source, at, bytes.len(), Structure::DeviceTable)?;
        source.read_exact_at(at.get(), &mut bytes).map_err(Error::unreadable)?;
        slots.push(DeviceSlot::parse(&bytes, sb.incompat).located_at(at)?);
        let overflow = || Corruption::new(Structure::DeviceTable, Fault::Overflow("devt_slotoff"));
        at = at.checked_add(to_u64(bytes.len())).ok_or_else(overflow)?;
    }
    Ok(slots)
}

/// Fills as much of `buf` as the source has bytes; returns that part.
fn read_up_to<'b>(source: &dyn Source, pos: BytePos, buf: &'b mut [u8]) -> Result<&'b [u8]> {
    let have = usize::try_from(source.size().saturating_sub(pos.get())).unwrap_or(usize::MAX);
    let (buf, _) = buf.split_at_mut(have.min(buf.len()));
    source.read_exact_at(pos.get(), buf).map_err(Error::unreadable)?;
    Ok(buf)
}

/// The place of metadata: at a position of the image, or in the decoded content of the metabox.
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
        let overflow =
            || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.checked_add(len).ok_or_else(overflow)?, ..self })
    }

    /// The next multiple of `align`.
    pub(crate) fn align_up(self, align: u64) -> Result<Self> {
        let overflow =
            || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.align_up(align).ok_or_else(overflow)?, ..self })
    }
}
