//! The parts of an image that creating and applying a patch both need: the history, digests,
//! patched images in memory, interrupted changes, and in this file the sector with the superblock:
//! the only bytes in use that a patch overwrites, so that one write switches the image from the old
//! state to the new one (FORMAT.md 1).

pub mod digest;
pub mod history;
pub mod journal;
pub mod overlay;
#[cfg(test)]
mod tests;

use ferofs_format::Compat;
use ferofs_format::superblock::{self, Superblock};
use ferofs_read::Source;
use ferofs_read::error::Locate;

use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes that disks write as a whole or not at all.
pub(crate) const SECTOR: usize = 512;
/// The same, for positions.
pub(crate) const SECTOR_LEN: u64 = 512;
/// The position of the superblock's sector.
#[expect(clippy::as_conversions, reason = "`From` is not usable in a constant")]
pub const SECTOR_POS: u64 = superblock::OFFSET as u64;
/// Its end.
pub(crate) const SECTOR_END: u64 = SECTOR_POS + SECTOR_LEN;
/// Bytes of a root inode with its attributes at most, if it goes into free slots of the base.
pub(crate) const ROOT_MAX: usize = 4096;
/// The field of the root's 16-bit nid; with `48BIT` it holds the upper bits of the block count.
const ROOT_16: std::ops::Range<usize> = 0x0e..0x10;
/// The field of the root's 64-bit nid. In an image with `48BIT` it may be zero; then the root is in
/// the 16-bit field.
const ROOT_64: std::ops::Range<usize> = 0x70..0x78;

/// The bytes of a sector.
pub type Sector = [u8; SECTOR];

/// The parsed superblock, and the bytes that its checksum covers.
#[derive(Clone, Debug)]
pub struct SuperblockArea {
    sector: Sector,
    /// The bytes after the sector that the checksum covers. It covers at least the sector.
    behind: Vec<u8>,
    superblock: Superblock,
}

impl SuperblockArea {
    /// Reads and checks the superblock of `source`.
    pub fn read(source: &dyn Source) -> Result<Self> {
        let mut sector = [0; SECTOR];
        source.read_exact_at(SECTOR_POS, &mut sector).map_err(unreadable)?;
        Self::with(source, &sector)
    }

    /// Checks `source` with `sector` in place of its superblock's sector.
    pub(crate) fn with(source: &dyn Source, sector: &Sector) -> Result<Self> {
        let pos = ferofs_format::BytePos::new(SECTOR_POS);
        let superblock = Superblock::parse(sector).located_at(pos)?;
        let mut behind = vec![0; superblock.checksum_len().saturating_sub(SECTOR)];
        let have = to_usize(source.size().saturating_sub(SECTOR_END)).min(behind.len());
        let (present, _) = behind.split_at_mut(have);
        if !present.is_empty() {
            source.read_exact_at(SECTOR_END, present).map_err(unreadable)?;
        }
        let area = Self { sector: *sector, behind, superblock };
        area.superblock.verify_checksum(&area.covered(sector)).located_at(pos)?;
        Ok(area)
    }

    /// The bytes that the checksum covers, with `sector` as the first ones.
    fn covered(&self, sector: &Sector) -> Vec<u8> {
        [&sector[..], &self.behind].concat()
    }

    /// The parsed superblock.
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The superblock's sector.
    pub const fn sector(&self) -> Sector {
        self.sector
    }

    /// Bytes of the image, by the superblock's block count.
    pub fn size(&self) -> u64 {
        self.superblock.blocks.saturating_mul(self.superblock.block_size.bytes64())
    }

    /// The sector with the superblock `new` and, if they change, `configs` after it. Only fields
    /// that differ are written, so that fields unknown to this program keep their values.
    pub fn rewrite(&self, new: &Superblock, configs: Option<&[u8]>) -> Result<Sector> {
        let mut sector = self.sector;
        let (before, after) = (bytes(&self.superblock)?, bytes(new)?);
        let is_48bit = new.incompat.contains(ferofs_format::Incompat::BIT48);
        for (at, (old, new)) in before.iter().zip(&after).enumerate() {
            if (old != new || is_48bit && (ROOT_16.contains(&at) || ROOT_64.contains(&at)))
                && let Some(byte) = sector.get_mut(at)
            {
                *byte = *new;
            }
        }
        if let Some(configs) = configs {
            let start = new.size();
            let end = start.checked_add(configs.len()).filter(|end| *end <= SECTOR);
            let space = end.and_then(|end| sector.get_mut(start..end));
            space.ok_or(Error::Patch(PatchFault::NoConfigSpace))?.copy_from_slice(configs);
        }
        Ok(self.with_checksum(sector, new.compat.contains(Compat::SB_CHKSUM)))
    }

    /// `sector`, one of this image, with the block count for `size` bytes.
    pub(crate) fn resize(&self, sector: &Sector, size: u64) -> Result<Sector> {
        let pos = ferofs_format::BytePos::new(SECTOR_POS);
        let superblock = Superblock::parse(sector).located_at(pos)?;
        let area = Self { sector: *sector, behind: self.behind.clone(), superblock };
        let mut new = area.superblock.clone();
        new.blocks = new.block_size.blocks_for(size);
        area.rewrite(&new, None)
    }

    /// Writes the checksum into `sector`, if the image has one.
    fn with_checksum(&self, mut sector: Sector, checksum: bool) -> Sector {
        if checksum {
            let mut covered = self.covered(&sector);
            superblock::write_checksum(&mut covered);
            if let Some(first) = covered.first_chunk() {
                sector = *first;
            }
        }
        sector
    }

    /// Whether `len` bytes of configurations fit after the superblock, where there are `old_len`
    /// bytes of them now.
    pub fn has_config_space(&self, old_len: usize, len: usize) -> bool {
        let start = self.superblock.size();
        let Some(end) = start.checked_add(len).filter(|end| *end <= SECTOR) else { return false };
        let tables = [
            (self.superblock.extra_devices > 0).then_some(self.superblock.device_table),
            self.superblock.xattr_prefixes.map(|table| table.start),
        ];
        let is_within =
            |pos: ferofs_format::BytePos| pos.get() < SECTOR_POS.saturating_add(to_u64(end));
        let old_end = start.saturating_add(old_len).min(end);
        let space = self.sector.get(old_end..end).unwrap_or_default();
        !tables.into_iter().flatten().any(is_within) && space.iter().all(|byte| *byte == 0)
    }
}

/// The end of the superblock's sector and of the bytes that its checksum covers. A patch changes
/// nothing before this position but the sector itself: otherwise the old superblock's checksum
/// would be wrong until the sector is replaced.
pub fn covered_end(superblock: &Superblock) -> u64 {
    SECTOR_POS.saturating_add(to_u64(superblock.checksum_len().max(SECTOR)))
}

fn unreadable(error: std::io::Error) -> Error {
    Error::io_unnamed("read the superblock", error)
}

fn bytes(superblock: &Superblock) -> Result<Vec<u8>> {
    Ok(superblock.to_bytes()?)
}
