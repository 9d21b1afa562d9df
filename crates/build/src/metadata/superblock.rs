//! What stands before the data: the superblock, the table of extra devices, and long xattr name prefixes.
//!
//! All of it is written last, over the room that was left for it, since most is known last. The tables
//! stand here because the superblock has few bits for their positions. Source: FORMAT.md 1, 4, 5.

use ferofs_format::device::{DEVICE_SLOT_SIZE, DeviceSlot};
use ferofs_format::superblock::{self, PrefixTable, Superblock};
use ferofs_format::xattr::LongPrefix;
use ferofs_format::{BytePos, Compat, Incompat};

use crate::{Error, Result};

/// Room for the algorithms' configurations, after the superblock and its extension slots.
const CONFIGS: u64 = 256;

/// The plan of an image's front.
#[derive(Debug)]
pub(crate) struct Front {
    prefixes: Vec<u8>,
    /// Bytes up to the first block of data.
    len: u64,
}

impl Front {
    /// Plans the front of an image with `devices` extra devices and these long prefixes, and tells the
    /// superblock what is where.
    pub(crate) fn new(superblock: &mut Superblock, devices: u16, prefixes: &[LongPrefix]) -> Result<Self> {
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
        Ok(Self { prefixes: table, len })
    }

    /// Where data starts.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// The front's bytes, when all is known.
    pub(crate) fn bytes(
        &self,
        superblock: &Superblock,
        configs: &[u8],
        devices: &[DeviceSlot],
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; superblock::OFFSET];
        bytes.extend_from_slice(&superblock.to_bytes().map_err(Error::Layout)?);
        bytes.extend_from_slice(configs);
        // The checksum covers whole blocks, and with small ones a bit of what follows.
        let covered = superblock::OFFSET + superblock.checksum_len();
        bytes.resize(covered.max(self.len as usize), 0);
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
