//! The superblock. Source: FORMAT.md 1.
//!
//! Parsing checks the fields. The checksum covers the rest of the block, so that
//! [`Superblock::verify_checksum`] verifies it separately.

mod checksum;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::checksum::superblock_checksum;
use crate::error::{Fault, FormatError, Result, Structure};
use crate::feature::{Compat, Incompat};
use crate::units::{BlockAddr, BlockSize, BytePos, Nid, SLOT_SIZE};
use crate::view::View;

/// Bytes from the image's start to the superblock.
pub const OFFSET: usize = 1024;
/// Bytes of the superblock without extension slots.
pub const SIZE: usize = 128;
/// Bytes of an extension slot.
pub const EXT_SLOT_SIZE: usize = 16;
/// The first field of a superblock.
pub const MAGIC: u32 = 0xe0f5_e1e2;
/// Bytes of a device slot: `devt_slotoff` counts slots.
const DEVICE_SLOT_SIZE: u64 = 128;
/// `xattr_prefix_start` counts units of this many bytes.
const PREFIX_UNIT: u64 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: U32,
    checksum: U32,
    feature_compat: U32,
    blkszbits: u8,
    sb_extslots: u8,
    /// `rootnid_2b`, or `blocks_hi` when 48BIT is on and `rootnid_8b` is not 0.
    rb: U16,
    inos: U64,
    epoch: U64,
    fixed_nsec: U32,
    blocks_lo: U32,
    meta_blkaddr: U32,
    xattr_blkaddr: U32,
    uuid: [u8; 16],
    volume_name: [u8; 16],
    feature_incompat: U32,
    /// `available_compr_algs` with `COMPR_CFGS`, else `lz4_max_distance`.
    u1: U16,
    extra_devices: U16,
    devt_slotoff: U16,
    dirblkbits: u8,
    xattr_prefix_count: u8,
    xattr_prefix_start: U32,
    packed_nid: U64,
    xattr_filter_reserved: u8,
    ishare_xattr_prefix_id: u8,
    reserved: [u8; 2],
    build_time: U32,
    rootnid_8b: U64,
    reserved2: [u8; 8],
}

const _: () = assert!(core::mem::size_of::<RawSuperblock>() == SIZE);

/// The compression fields of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Without `COMPR_CFGS`: LZ4 with one-block pclusters, or no compression.
    Lz4Only {
        /// The largest match distance in bytes; 0 means 65535.
        max_distance: u16,
    },
    /// Configuration records for these algorithms follow the superblock.
    Configured {
        /// The bitmap `available_compr_algs`.
        available: u16,
    },
}

/// Where the long xattr name prefixes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixTable {
    /// Number of records, at least 1.
    pub count: u8,
    /// Position of the first record: in the packed inode, the metabox, or on disk.
    pub start: BytePos,
}

/// A parsed superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Block size of the whole image.
    pub block_size: BlockSize,
    /// Features that a reader may ignore.
    pub compat: Compat,
    /// Features that a reader must support.
    pub incompat: Incompat,
    /// 16-byte extension slots that follow: 0 to 255.
    pub ext_slots: u8,
    /// The root directory.
    pub root: Nid,
    /// Number of inodes, for statfs.
    pub inodes: u64,
    /// The base of compact inodes' times, in seconds since 1970.
    pub epoch: i64,
    /// Nanoseconds of compact inodes' times.
    pub fixed_nsec: u32,
    /// The time of the build, in seconds after `epoch`.
    pub build_time: u32,
    /// Size of the primary device in blocks.
    pub blocks: u64,
    /// Inode slots are counted from this block.
    pub meta: BlockAddr,
    /// The shared-xattr area starts with this block.
    pub xattr: BlockAddr,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// The image's label, padded with NULs.
    pub volume_name: [u8; 16],
    /// The compression fields.
    pub compression: Compression,
    /// Number of device slots.
    pub extra_devices: u16,
    /// Position of the first device slot.
    pub device_table: BytePos,
    /// Long xattr name prefixes, if any.
    pub xattr_prefixes: Option<PrefixTable>,
    /// The packed inode, which holds fragments.
    pub packed: Option<Nid>,
    /// Whether the inodes' xattr name filters are valid.
    pub xattr_filter: bool,
    /// The long xattr prefix of the digests for page-cache sharing.
    pub ishare_xattr_prefix_id: u8,
    /// The inode whose content holds further metadata.
    pub metabox: Option<Nid>,
}

impl Superblock {
    /// A superblock of an empty image: no features, no addresses.
    #[must_use]
    pub const fn new(block_size: BlockSize) -> Self {
        Self {
            block_size,
            compat: Compat::empty(),
            incompat: Incompat::empty(),
            ext_slots: 0,
            root: Nid::new(0),
            inodes: 0,
            epoch: 0,
            fixed_nsec: 0,
            build_time: 0,
            blocks: 0,
            meta: BlockAddr::new(0),
            xattr: BlockAddr::new(0),
            uuid: [0; 16],
            volume_name: [0; 16],
            compression: Compression::Lz4Only { max_distance: 0 },
            extra_devices: 0,
            device_table: BytePos::new(0),
            xattr_prefixes: None,
            packed: None,
            xattr_filter: false,
            ishare_xattr_prefix_id: 0,
            metabox: None,
        }
    }

    /// Reads the superblock from `bytes`, which start at [`OFFSET`]; more bytes may follow.
    ///
    /// # Errors
    /// Bytes that are not a superblock, features that this crate does not support, values out of
    /// range.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut view = View::new(bytes, Structure::Superblock);
        let raw = view.read::<RawSuperblock>()?;
        if raw.magic.get() != MAGIC {
            return Err(bad(Fault::Magic(raw.magic.get())));
        }
        let block_size =
            BlockSize::from_bits(raw.blkszbits).ok_or_else(|| field("blkszbits", raw.blkszbits))?;
        let incompat = raw.feature_incompat.get();
        let unknown = incompat & !Incompat::all().bits();
        if unknown != 0 {
            return Err(bad(Fault::UnknownFeatures(unknown)));
        }
        let incompat = Incompat::from_bits_retain(incompat);
        let compat = Compat::from_bits_retain(raw.feature_compat.get());
        if raw.dirblkbits != 0 {
            return Err(field("dirblkbits", raw.dirblkbits));
        }
        if raw.extra_devices.get() != 0 && !incompat.contains(Incompat::DEVICE_TABLE) {
            return Err(bad(Fault::FeatureNotSet("DEVICE_TABLE")));
        }
        let wide = incompat.contains(Incompat::BIT48) && raw.rootnid_8b.get() != 0;
        let (root, blocks_hi) =
            if wide { (raw.rootnid_8b.get(), raw.rb.get()) } else { (u64::from(raw.rb.get()), 0) };
        let mut extension = view.sub(
            usize::from(raw.sb_extslots).saturating_mul(EXT_SLOT_SIZE),
            Structure::Superblock,
        )?;
        let metabox = if incompat.contains(Incompat::METABOX) {
            let nid = Nid::new(extension.read::<U64>()?.get());
            if nid.in_metabox() {
                return Err(bad(Fault::Field { field: "metabox_nid", value: nid.get() }));
            }
            Some(nid)
        } else {
            None
        };
        let packed = match raw.packed_nid.get() {
            nid if nid == 0 || !incompat.contains(Incompat::FRAGMENTS) => None,
            nid if Nid::new(nid).in_metabox() => {
                return Err(bad(Fault::Field { field: "packed_nid", value: nid }));
            }
            nid => Some(Nid::new(nid)),
        };
        // As Linux does, read the table even if the feature is not announced.
        let prefixes = raw.xattr_prefix_count > 0;
        Ok(Self {
            block_size,
            compat,
            incompat,
            ext_slots: raw.sb_extslots,
            root: Nid::new(root),
            inodes: raw.inos.get(),
            epoch: raw.epoch.get().cast_signed(),
            fixed_nsec: raw.fixed_nsec.get(),
            build_time: raw.build_time.get(),
            blocks: u64::from(raw.blocks_lo.get()) | (u64::from(blocks_hi) << 32),
            meta: BlockAddr::new(raw.meta_blkaddr.get().into()),
            xattr: BlockAddr::new(raw.xattr_blkaddr.get().into()),
            uuid: raw.uuid,
            volume_name: raw.volume_name,
            compression: if incompat.contains(Incompat::COMPR_CFGS) {
                Compression::Configured { available: raw.u1.get() }
            } else {
                Compression::Lz4Only { max_distance: raw.u1.get() }
            },
            extra_devices: raw.extra_devices.get(),
            device_table: BytePos::new(
                u64::from(raw.devt_slotoff.get()).saturating_mul(DEVICE_SLOT_SIZE),
            ),
            xattr_prefixes: prefixes.then(|| PrefixTable {
                count: raw.xattr_prefix_count,
                start: BytePos::new(
                    u64::from(raw.xattr_prefix_start.get()).saturating_mul(PREFIX_UNIT),
                ),
            }),
            packed,
            xattr_filter: compat.contains(Compat::XATTR_FILTER) && raw.xattr_filter_reserved == 0,
            ishare_xattr_prefix_id: raw.ishare_xattr_prefix_id,
            metabox,
        })
    }

    /// Bytes of the superblock with its extension slots; compression configurations follow.
    #[must_use]
    pub fn size(&self) -> usize {
        usize::from(self.ext_slots).saturating_mul(EXT_SLOT_SIZE).saturating_add(SIZE)
    }

    /// The position of inode slot 0; `None` if it exceeds 64 bits.
    #[must_use]
    pub const fn inode_base(&self) -> Option<BytePos> {
        self.meta.to_pos(self.block_size)
    }

    /// The number of an inode at `pos`, outside of the metabox; `None` if that is before inode slot
    /// 0.
    #[must_use]
    pub fn nid_at(&self, pos: BytePos) -> Option<Nid> {
        pos.checked_sub(self.inode_base()?).map(|bytes| Nid::new(bytes.wrapping_div(SLOT_SIZE)))
    }

    /// Bytes from [`OFFSET`] on that [`Self::verify_checksum`] needs.
    #[must_use]
    pub const fn checksum_len(&self) -> usize {
        covered_len(self.block_size)
    }

    /// Verifies the checksum over `covered`, [`Self::checksum_len`] bytes that start at [`OFFSET`];
    /// an image without a checksum passes.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Checksum`].
    pub fn verify_checksum(&self, covered: &[u8]) -> Result<()> {
        if !self.compat.contains(Compat::SB_CHKSUM) {
            return Ok(());
        }
        let mut view = View::new(covered, Structure::Superblock);
        let covered = view.take(self.checksum_len())?;
        let stored =
            View::new(covered, Structure::Superblock).read::<RawSuperblock>()?.checksum.get();
        let computed = superblock_checksum(covered);
        if stored == computed { Ok(()) } else { Err(bad(Fault::Checksum { stored, computed })) }
    }

    /// The superblock's bytes, [`Self::size`] of them, with a checksum field of zero: see
    /// [`write_checksum`].
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for an address or a number that its field cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let wide = self.incompat.contains(Incompat::BIT48);
        let (blocks_lo, blocks_hi) = split_u48("blocks", self.blocks)?;
        if blocks_hi != 0 && !wide {
            return Err(out_of_range("blocks", self.blocks, 1 << 32));
        }
        let (rb, rootnid_8b) = if wide {
            (blocks_hi, self.root.get())
        } else {
            (to_u16("root nid", self.root.get())?, 0)
        };
        let prefixes =
            self.xattr_prefixes.unwrap_or(PrefixTable { count: 0, start: BytePos::new(0) });
        let devt_slotoff = self.device_table.get() / DEVICE_SLOT_SIZE;
        let raw = RawSuperblock {
            magic: MAGIC.into(),
            checksum: 0.into(),
            feature_compat: self.compat.bits().into(),
            blkszbits: self.block_size.bits(),
            sb_extslots: self.ext_slots,
            rb: rb.into(),
            inos: self.inodes.into(),
            epoch: self.epoch.cast_unsigned().into(),
            fixed_nsec: self.fixed_nsec.into(),
            blocks_lo: blocks_lo.into(),
            meta_blkaddr: to_u32("meta_blkaddr", self.meta.get())?.into(),
            xattr_blkaddr: to_u32("xattr_blkaddr", self.xattr.get())?.into(),
            uuid: self.uuid,
            volume_name: self.volume_name,
            feature_incompat: self.incompat.bits().into(),
            u1: match self.compression {
                Compression::Lz4Only { max_distance } => max_distance.into(),
                Compression::Configured { available } => available.into(),
            },
            extra_devices: self.extra_devices.into(),
            devt_slotoff: to_u16("devt_slotoff", devt_slotoff)?.into(),
            dirblkbits: 0,
            xattr_prefix_count: prefixes.count,
            xattr_prefix_start: to_u32("xattr_prefix_start", prefixes.start.get() / PREFIX_UNIT)?
                .into(),
            packed_nid: self.packed.map_or(0, Nid::get).into(),
            // The feature may be announced although the filters are not valid.
            xattr_filter_reserved: (self.compat.contains(Compat::XATTR_FILTER)
                && !self.xattr_filter)
                .into(),
            ishare_xattr_prefix_id: self.ishare_xattr_prefix_id,
            reserved: [0; 2],
            build_time: self.build_time.into(),
            rootnid_8b: rootnid_8b.into(),
            reserved2: [0; 8],
        };
        let mut out = raw.as_bytes().to_vec();
        if let Some(metabox) = self.metabox {
            if self.ext_slots == 0 {
                return Err(field("sb_extslots", self.ext_slots));
            }
            out.extend_from_slice(&metabox.get().to_le_bytes());
        }
        out.resize(self.size(), 0);
        Ok(out)
    }
}

/// The number of bytes, from [`OFFSET`] on, that the checksum covers: the rest of the superblock's
/// block.
const fn covered_len(block_size: BlockSize) -> usize {
    match block_size.bytes().checked_sub(OFFSET) {
        Some(len) if len > 0 => len,
        _ => block_size.bytes(),
    }
}

/// Computes the checksum of `covered`, [`Superblock::checksum_len`] bytes from [`OFFSET`] on, and
/// stores it there.
pub fn write_checksum(covered: &mut [u8]) {
    let checksum = superblock_checksum(covered);
    if let Some(field) = covered.get_mut(4..8) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
}

const fn bad(fault: Fault) -> FormatError {
    FormatError::new(Structure::Superblock, fault)
}

fn field(field: &'static str, value: u8) -> FormatError {
    bad(Fault::Field { field, value: value.into() })
}

const fn out_of_range(field: &'static str, value: u64, limit: u64) -> FormatError {
    bad(Fault::OutOfRange { field, value, limit })
}

fn to_u16(field: &'static str, value: u64) -> Result<u16> {
    u16::try_from(value).map_err(|_| out_of_range(field, value, 1 << 16))
}

fn to_u32(field: &'static str, value: u64) -> Result<u32> {
    u32::try_from(value).map_err(|_| out_of_range(field, value, 1 << 32))
}

/// The low 32 and high 16 bits of a 48-bit number.
fn split_u48(field: &'static str, value: u64) -> Result<(u32, u16)> {
    // The mask leaves 32 bits, so the conversion cannot fail.
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    let high = u16::try_from(value >> 32).map_err(|_| out_of_range(field, value, 1 << 48))?;
    Ok((low, high))
}
