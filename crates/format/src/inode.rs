//! Inodes, compact and extended. Source: FORMAT.md 2.

mod kind;
#[cfg(test)]
mod tests;

pub use kind::{DataLayout, FileType, Rdev};

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::feature::Incompat;
use crate::map::ChunkFormat;
use crate::superblock::Superblock;
use crate::units::{BlockAddr, BlockSize};
use crate::view::View;

/// Bytes of a compact inode.
pub const COMPACT_SIZE: usize = 32;
/// Bytes of an extended inode.
pub const EXTENDED_SIZE: usize = 64;

/// The inode's union `i_u`, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The content is zeroes that are not stored (`FLAT_PLAIN` at the null address).
    Hole,
    /// The content starts at this block.
    Blocks(BlockAddr),
    /// The content is compressed; its map has the positions.
    Compressed {
        /// The number of compressed blocks, used only for `st_blocks`.
        blocks: u64,
    },
    /// The content is in chunks.
    Chunked {
        /// The chunk format: see [`crate::map`].
        format: u16,
    },
    /// A device node.
    Device(Rdev),
    /// A fifo or a socket.
    Nothing,
}

/// Seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Negative before 1970.
    pub secs: i64,
    /// 0 to 999,999,999, added to `secs`, also before 1970.
    pub nanos: u32,
}

/// The on-disk form of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InodeVersion {
    /// 32 bytes: 16-bit ids, 32-bit sizes, times relative to the superblock's.
    Compact,
    /// 64 bytes.
    Extended,
}

impl InodeVersion {
    /// Bytes on disk.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Compact => COMPACT_SIZE,
            Self::Extended => EXTENDED_SIZE,
        }
    }
}

/// How many of the last bytes of content of `size` bytes can follow an inode of `inode_len` bytes
/// with its xattrs: those past the last whole block if they are within one block with the inode, or
/// none.
#[must_use]
pub fn inline_tail(inode_len: u64, size: u64, block_size: BlockSize) -> u64 {
    let tail = size & block_size.mask();
    if inode_len.saturating_add(tail) <= block_size.bytes64() { tail } else { 0 }
}

/// A parsed inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The on-disk form.
    pub version: InodeVersion,
    /// The layout of the content.
    pub layout: DataLayout,
    /// The file type.
    pub file_type: FileType,
    /// The low 12 bits of the mode: permissions, setuid, setgid, sticky.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The size of the decoded content in bytes.
    pub size: u64,
    /// The link count.
    pub nlink: u32,
    /// Modification time.
    pub mtime: Timestamp,
    /// A 32-bit inode number, unique in the image, for the 32-bit `stat`.
    pub ino: u32,
    /// `i_xattr_icount`: see [`crate::xattr`].
    pub xattr_icount: u16,
    /// The position of the content, or the device number.
    pub place: Place,
    /// Whether the directory has no `.` entry.
    pub dot_omitted: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCompact {
    i_format: U16,
    i_xattr_icount: U16,
    i_mode: U16,
    i_nb: U16,
    i_size: U32,
    i_mtime: U32,
    i_u: U32,
    i_ino: U32,
    i_uid: U16,
    i_gid: U16,
    i_reserved: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtended {
    i_format: U16,
    i_xattr_icount: U16,
    i_mode: U16,
    i_nb: U16,
    i_size: U64,
    i_u: U32,
    i_ino: U32,
    i_uid: U32,
    i_gid: U32,
    i_mtime: U64,
    i_mtime_nsec: U32,
    i_nlink: U32,
    i_reserved2: [u8; 16],
}

const _: () = assert!(core::mem::size_of::<RawCompact>() == COMPACT_SIZE);
const _: () = assert!(core::mem::size_of::<RawExtended>() == EXTENDED_SIZE);

const FORMAT_EXTENDED: u16 = 1;
const FORMAT_LAYOUT_SHIFT: u32 = 1;
const FORMAT_LAYOUT_MASK: u16 = 7;
/// `NLINK_1` in compact inodes that are not directories; `DOT_OMITTED` in directories.
const FORMAT_BIT4: u16 = 1 << 4;
const FORMAT_ALL: u16 = 0x1f;
const NULL_LOW: u32 = u32::MAX;
/// The largest file size: Linux stores sizes in a signed 64-bit number. Larger ones are an error.
const MAX_SIZE: u64 = i64::MAX.cast_unsigned();

/// The content of either on-disk form, before the union is resolved.
struct Parts {
    format: u16,
    mode: u16,
    /// The high 16 bits of the address, if the form has them.
    high: Option<u16>,
    union: u32,
    inode: Inode,
}

impl Inode {
    /// Reads an inode at the start of `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// Bytes that are not a valid inode of this image.
    pub fn parse(bytes: &[u8], superblock: &Superblock) -> Result<Self> {
        let mut view = View::new(bytes, Structure::Inode);
        let format = view.clone().read::<U16>()?.get();
        if format & !FORMAT_ALL != 0 {
            return Err(field("i_format", format));
        }
        let parts = if format & FORMAT_EXTENDED != 0 {
            Self::from_extended(view.read::<RawExtended>()?)
        } else {
            Self::from_compact(view.read::<RawCompact>()?, superblock)?
        };
        Self::resolve(parts)
    }

    fn from_compact(raw: &RawCompact, superblock: &Superblock) -> Result<Parts> {
        let format = raw.i_format.get();
        let mode = raw.i_mode.get();
        let is_dir = FileType::from_mode(mode) == Some(FileType::Directory);
        let one_link = !is_dir && format & FORMAT_BIT4 != 0;
        let secs = superblock
            .epoch
            .checked_add(raw.i_mtime.get().into())
            .ok_or_else(|| FormatError::new(Structure::Inode, Fault::Overflow("i_mtime")))?;
        let inode = Self {
            version: InodeVersion::Compact,
            uid: raw.i_uid.get().into(),
            gid: raw.i_gid.get().into(),
            size: raw.i_size.get().into(),
            nlink: if one_link { 1 } else { raw.i_nb.get().into() },
            mtime: Timestamp { secs, nanos: superblock.fixed_nsec },
            ino: raw.i_ino.get(),
            xattr_icount: raw.i_xattr_icount.get(),
            ..Self::unresolved()
        };
        let high = one_link.then(|| raw.i_nb.get());
        Ok(Parts { format, mode, high, union: raw.i_u.get(), inode })
    }

    fn from_extended(raw: &RawExtended) -> Parts {
        let inode = Self {
            version: InodeVersion::Extended,
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            size: raw.i_size.get(),
            nlink: raw.i_nlink.get(),
            mtime: Timestamp {
                secs: raw.i_mtime.get().cast_signed(),
                nanos: raw.i_mtime_nsec.get(),
            },
            ino: raw.i_ino.get(),
            xattr_icount: raw.i_xattr_icount.get(),
            ..Self::unresolved()
        };
        let high = Some(raw.i_nb.get());
        Parts {
            format: raw.i_format.get(),
            mode: raw.i_mode.get(),
            high,
            union: raw.i_u.get(),
            inode,
        }
    }

    const fn unresolved() -> Self {
        Self {
            version: InodeVersion::Compact,
            layout: DataLayout::FlatPlain,
            file_type: FileType::Regular,
            permissions: 0,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 0,
            mtime: Timestamp { secs: 0, nanos: 0 },
            ino: 0,
            xattr_icount: 0,
            place: Place::Nothing,
            dot_omitted: false,
        }
    }

    /// Derives file type, layout and place, which depend on each other.
    fn resolve(parts: Parts) -> Result<Self> {
        let Parts { format, mode, high, union, mut inode } = parts;
        let layout = (format >> FORMAT_LAYOUT_SHIFT) & FORMAT_LAYOUT_MASK;
        inode.layout = DataLayout::from_bits(layout).ok_or_else(|| field("data layout", layout))?;
        inode.file_type = FileType::from_mode(mode).ok_or_else(|| field("i_mode", mode))?;
        inode.permissions = mode & 0o7777;
        inode.dot_omitted = inode.file_type == FileType::Directory && format & FORMAT_BIT4 != 0;
        if inode.size > MAX_SIZE {
            return Err(FormatError::new(
                Structure::Inode,
                Fault::OutOfRange { field: "i_size", value: inode.size, limit: MAX_SIZE },
            ));
        }
        let [low, low_high, _, _] = union.to_le_bytes();
        let chunk_format = u16::from_le_bytes([low, low_high]);
        if inode.layout == DataLayout::ChunkBased {
            // Linux checks it even if the inode is a device, whose number is in the same bytes.
            ChunkFormat::parse(chunk_format)?;
        }
        let address = u64::from(union) | (u64::from(high.unwrap_or(0)) << 32);
        inode.place = match (inode.file_type, inode.layout) {
            (FileType::CharDevice | FileType::BlockDevice, _) => Place::Device(Rdev::decode(union)),
            (FileType::Fifo | FileType::Socket, _) => Place::Nothing,
            (_, DataLayout::FlatPlain)
                if union == NULL_LOW && high.unwrap_or(u16::MAX) == u16::MAX =>
            {
                Place::Hole
            }
            (_, DataLayout::FlatPlain | DataLayout::FlatInline) => {
                Place::Blocks(BlockAddr::new(address))
            }
            (_, DataLayout::CompressedFull | DataLayout::CompressedCompact) => {
                Place::Compressed { blocks: address }
            }
            (_, DataLayout::ChunkBased) => Place::Chunked { format: chunk_format },
        };
        Ok(inode)
    }

    /// The mode with the file type, as in `stat`.
    #[must_use]
    pub const fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }

    /// Whether the compact form can hold this inode in an image with `superblock`. Does not depend
    /// on `version`.
    #[must_use]
    pub fn fits_compact(&self, superblock: &Superblock) -> bool {
        let wide = superblock.incompat.contains(Incompat::BIT48);
        let age = self.mtime.secs.checked_sub(superblock.epoch).map(u32::try_from);
        let time_fits = self.mtime.nanos == superblock.fixed_nsec
            && matches!(age, Some(Ok(age)) if wide || age == 0);
        let links_fit = if self.has_wide_address() {
            wide && self.nlink == 1 && self.file_type != FileType::Directory
        } else {
            u16::try_from(self.nlink).is_ok()
        };
        time_fits
            && links_fit
            && u16::try_from(self.uid).is_ok()
            && u16::try_from(self.gid).is_ok()
            && u32::try_from(self.size).is_ok()
    }

    /// The low 32 and the high 16 bits of the union `i_u` and its extension `i_nb`.
    fn union(&self) -> (u32, u16) {
        let split = |address: u64| {
            let [a, b, c, d, e, f, _, _] = address.to_le_bytes();
            (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]))
        };
        match self.place {
            Place::Hole => (NULL_LOW, u16::MAX),
            Place::Blocks(address) => split(address.get()),
            Place::Compressed { blocks } => split(blocks),
            Place::Chunked { format } => (format.into(), 0),
            Place::Device(rdev) => (rdev.encode(), 0),
            Place::Nothing => (0, 0),
        }
    }

    /// Whether the address needs its high 16 bits. Content in whole blocks needs them for block
    /// 0xffff_ffff, too: 32 bits would mean a hole. (erofs-utils writes that block for inline
    /// content without blocks.)
    fn has_wide_address(&self) -> bool {
        let (low, high) = self.union();
        match self.place {
            Place::Hole => false,
            Place::Blocks(_) => {
                high != 0 || low == NULL_LOW && self.layout == DataLayout::FlatPlain
            }
            _ => high != 0,
        }
    }

    /// Appends the inode's bytes, [`InodeVersion::size`] of them, to `out`.
    ///
    /// # Errors
    /// A compact inode that does not fit (see [`Self::fits_compact`]).
    pub fn write(&self, superblock: &Superblock, out: &mut Vec<u8>) -> Result<()> {
        let layout = self.layout.bits() << FORMAT_LAYOUT_SHIFT;
        let dot = if self.dot_omitted { FORMAT_BIT4 } else { 0 };
        let (low, high) = self.union();
        match self.version {
            InodeVersion::Extended => {
                let raw = RawExtended {
                    i_format: (FORMAT_EXTENDED | layout | dot).into(),
                    i_xattr_icount: self.xattr_icount.into(),
                    i_mode: self.mode().into(),
                    i_nb: high.into(),
                    i_size: self.size.into(),
                    i_u: low.into(),
                    i_ino: self.ino.into(),
                    i_uid: self.uid.into(),
                    i_gid: self.gid.into(),
                    i_mtime: self.mtime.secs.cast_unsigned().into(),
                    i_mtime_nsec: self.mtime.nanos.into(),
                    i_nlink: self.nlink.into(),
                    i_reserved2: [0; 16],
                };
                out.extend_from_slice(raw.as_bytes());
            }
            InodeVersion::Compact => {
                let raw =
                    self.compact(superblock, layout | dot, low, high).ok_or(FormatError::new(
                        Structure::Inode,
                        Fault::Field { field: "compact inode of size", value: self.size },
                    ))?;
                out.extend_from_slice(raw.as_bytes());
            }
        }
        Ok(())
    }

    fn compact(
        &self,
        superblock: &Superblock,
        format: u16,
        low: u32,
        high: u16,
    ) -> Option<RawCompact> {
        if !self.fits_compact(superblock) {
            return None;
        }
        let (one_link, i_nb) = if self.has_wide_address() {
            (FORMAT_BIT4, high)
        } else {
            (0, u16::try_from(self.nlink).ok()?)
        };
        let age = self.mtime.secs.checked_sub(superblock.epoch)?;
        Some(RawCompact {
            i_format: (format | one_link).into(),
            i_xattr_icount: self.xattr_icount.into(),
            i_mode: self.mode().into(),
            i_nb: i_nb.into(),
            i_size: u32::try_from(self.size).ok()?.into(),
            i_mtime: u32::try_from(age).ok()?.into(),
            i_u: low.into(),
            i_ino: self.ino.into(),
            i_uid: u16::try_from(self.uid).ok()?.into(),
            i_gid: u16::try_from(self.gid).ok()?.into(),
            i_reserved: 0.into(),
        })
    }
}

fn field(field: &'static str, value: u16) -> FormatError {
    FormatError::new(Structure::Inode, Fault::Field { field, value: value.into() })
}
