//! The metadata stage: places inodes and directories, and writes them, shared xattrs and the
//! superblock. Source: FORMAT.md 1 to 4.
//!
//! | module | what it does |
//! |---|---|
//! | [`compressed`] | encodes directories and the metabox |
//! | [`earlier`] | finds the places that an earlier image has for inodes |
//! | [`inodes`] | counts and writes inodes and directories, of images and of patches |
//! | [`places`] | holds the places of all inodes and blocks |
//! | [`self_check`] | parses each inode again before it is written |
//! | [`write`] | plans all places, and writes everything after the data |
//!
//! This file has the area before the data: the superblock, the table of extra devices, and long
//! xattr name prefixes (FORMAT.md 1, 4, 5). The build reserves the area first and writes it last,
//! when all fields are known. The tables are here because the superblock has few bits for their
//! positions.

pub(crate) mod compressed;
mod earlier;
pub(crate) mod inodes;
pub(crate) mod places;
pub(crate) mod self_check;
pub(crate) mod write;

use ferofs_format::algorithm::CompressionConfigs;
use ferofs_format::device::{DEVICE_SLOT_SIZE, DeviceSlot};
use ferofs_format::superblock::{self, PrefixTable, Superblock};
use ferofs_format::xattr::LongPrefix;
use ferofs_format::{BytePos, Compat, Incompat};

use crate::error::{Error, Result};

/// Bytes reserved for the configurations of the algorithms, after the superblock and its extension
/// slots. All algorithms together need less.
const CONFIGS: u64 = 256;
const _: () = assert!(CompressionConfigs::LEN_MAX as u64 <= CONFIGS);

/// The plan of the area.
#[derive(Debug)]
pub(crate) struct SuperblockArea {
    /// The encoded table of long xattr name prefixes.
    prefixes: Vec<u8>,
    /// The end of the superblock and the tables after it, without the configurations of the
    /// algorithms if they are last.
    end: u64,
    /// Bytes before the first block of data.
    len: u64,
}

impl SuperblockArea {
    /// Plans the area of an image with `devices` extra devices and these long prefixes, and sets
    /// the positions of the tables in the superblock.
    pub(crate) fn new(
        superblock: &mut Superblock,
        devices: u16,
        prefixes: &[LongPrefix],
    ) -> Result<Self> {
        let mut end = (superblock::OFFSET + superblock.size()) as u64;
        if devices > 0 || !prefixes.is_empty() {
            end += CONFIGS;
        }
        if devices > 0 {
            end = end.next_multiple_of(DEVICE_SLOT_SIZE as u64);
            superblock.extra_devices = devices;
            superblock.device_table = BytePos::new(end);
            superblock.incompat |= Incompat::DEVICE_TABLE;
            end += u64::from(devices) * DEVICE_SLOT_SIZE as u64;
        }
        let mut table = Vec::new();
        if !prefixes.is_empty() {
            LongPrefix::write_table(prefixes, &mut table).map_err(Error::Layout)?;
            let start = BytePos::new(end);
            superblock.xattr_prefixes = Some(PrefixTable { count: prefixes.len() as u8, start });
            superblock.incompat |= Incompat::XATTR_PREFIXES;
            superblock.compat |= Compat::PLAIN_XATTR_PFX;
            end += table.len() as u64;
        }
        let len = end.next_multiple_of(superblock.block_size.bytes64());
        Ok(Self { prefixes: table, end, len })
    }

    /// The position where data starts.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Where metadata can begin in the last block of the area: after the configurations of all
    /// algorithms, which a patch may add.
    pub(crate) fn end(&self, superblock: &Superblock) -> u64 {
        self.end.max((superblock::OFFSET + superblock.size() + CompressionConfigs::LEN_MAX) as u64)
    }

    /// The number of bytes that [`Self::bytes`] has. The checksum covers whole blocks, which can
    /// end after this area if they are small.
    pub(crate) fn written_len(&self, superblock: &Superblock) -> usize {
        (superblock::OFFSET + superblock.checksum_len()).max(self.len as usize)
    }

    /// The bytes of the area, with the completed superblock. `bytes` are those that the image has
    /// there: metadata after the superblock.
    pub(crate) fn bytes(
        &self,
        mut bytes: Vec<u8>,
        superblock: &Superblock,
        configs: &[u8],
        devices: &[DeviceSlot],
    ) -> Result<Vec<u8>> {
        let covered = superblock::OFFSET + superblock.checksum_len();
        bytes.resize(self.written_len(superblock), 0);
        let encoded = superblock.to_bytes().map_err(Error::Layout)?;
        for (to, from) in
            bytes.iter_mut().skip(superblock::OFFSET).zip(encoded.iter().chain(configs))
        {
            *to = *from;
        }
        for (slot, at) in
            devices.iter().zip((superblock.device_table.get() as usize..).step_by(DEVICE_SLOT_SIZE))
        {
            let slot = slot.to_bytes(superblock.incompat).map_err(Error::Layout)?;
            bytes[at..at + slot.len()].copy_from_slice(&slot);
        }
        if let Some(table) = superblock.xattr_prefixes {
            let at = table.start.get() as usize;
            bytes[at..at + self.prefixes.len()].copy_from_slice(&self.prefixes);
        }
        if superblock.compat.contains(Compat::SB_CHKSUM)
            && let Some(covered) = bytes.get_mut(superblock::OFFSET..covered)
        {
            superblock::write_checksum(covered);
        }
        Ok(bytes)
    }
}
