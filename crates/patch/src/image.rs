//! The parts of an image that creating and applying a patch both need: the history, digests, patched images in memory, interrupted changes,
//! and in this file the sector with the superblock: the only bytes in use that a patch overwrites, so that one write switches the
//! image from the old state to the new one (FORMAT.md 1).

pub mod digest;
pub mod history;
pub mod journal;
pub mod overlay;

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
/// The field of the root's 64-bit nid. In an image with `48BIT` it may be zero; then the root is in the 16-bit field.
const ROOT_64: std::ops::Range<usize> = 0x70..0x78;

/// The bytes of a sector.
pub type Sector = [u8; SECTOR];

/// The parsed superblock, and the bytes that its checksum covers.
#[derive(Clone, Debug)]
pub struct SuperblockArea {
    sector: Sector,
    /// The bytes behind the sector that the checksum covers. It covers at least the sector.
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

    /// The sector with the superblock `new` and, if they change, `configs` after it. Only fields that differ are written, so
    /// that fields unknown to this program keep their values.
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

    /// Whether `len` bytes of configurations fit after the superblock, where there are `old_len` bytes of them now.
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

/// The end of the superblock's sector and of the bytes that its checksum covers. A patch changes nothing before this position
/// but the sector itself: otherwise the old superblock's checksum would be wrong until the sector is replaced.
pub fn covered_end(superblock: &Superblock) -> u64 {
    SECTOR_POS.saturating_add(to_u64(superblock.checksum_len().max(SECTOR)))
}

fn unreadable(error: std::io::Error) -> Error {
    Error::io_unnamed("read the superblock", error)
}

fn bytes(superblock: &Superblock) -> Result<Vec<u8>> {
    Ok(superblock.to_bytes()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferofs_format::{BlockSize, BytePos, Incompat, Nid};

    /// An image of only a superblock, changed by `change`, with a field of a later version, and bytes after the superblock.
    fn area(change: impl FnOnce(&mut Superblock), after: &[u8]) -> SuperblockArea {
        let mut superblock = Superblock::new(BlockSize::DEFAULT);
        superblock.compat = Compat::SB_CHKSUM;
        superblock.blocks = 1;
        change(&mut superblock);
        let mut image = vec![0; 4096];
        let start = SECTOR_POS as usize;
        image[start..start + superblock.size()].copy_from_slice(&superblock.to_bytes().unwrap());
        image[start + 0x78] = 9;
        image[start + superblock.size()..][..after.len()].copy_from_slice(after);
        superblock::write_checksum(&mut image[start..]);
        SuperblockArea::read(&image).unwrap()
    }

    #[test]
    fn a_new_sector_keeps_unknown_fields_and_has_its_checksum() {
        let area = area(|_| (), &[]);
        let mut new = area.superblock().clone();
        (new.inodes, new.blocks) = (5, 3);
        let configs = [1, 2, 3];
        let sector = area.rewrite(&new, Some(&configs)).unwrap();
        let mut image = vec![0; 4096];
        image[SECTOR_POS as usize..][..SECTOR].copy_from_slice(&sector);
        assert_eq!(SuperblockArea::read(&image).unwrap().superblock(), &new);
        assert_eq!((sector[0x78], &sector[128..131]), (9, &configs[..]));
        assert!(area.rewrite(&new, Some(&[1; SECTOR - 128])).is_ok());
        assert!(area.rewrite(&new, Some(&[1; SECTOR - 127])).is_err());
        let resized = area.resize(&sector, 5 * 4096 + 1).unwrap();
        let resized = Superblock::parse(&resized).unwrap();
        assert_eq!((resized.blocks, resized.inodes), (6, 5));
    }

    /// The root can be in another field than ours; the new sector must not have it in both.
    #[test]
    fn the_root_moves_to_the_field_of_64_bits() {
        let narrow = area(|superblock| superblock.root = Nid::new(77), &[]);
        let mut sector = narrow.sector;
        sector[0x50] = Incompat::BIT48.bits() as u8;
        let superblock = Superblock::parse(&sector).unwrap();
        assert_eq!((superblock.root, superblock.blocks), (Nid::new(77), 1));
        let area = SuperblockArea { sector, superblock: superblock.clone(), ..narrow };
        let sector = area.rewrite(&superblock, None);
        assert_eq!(Superblock::parse(&sector.unwrap()).unwrap(), superblock);
    }

    #[test]
    fn space_for_configurations_is_zero_and_before_all_tables() {
        let has_space = |area: &SuperblockArea, old_len, len| area.has_config_space(old_len, len);
        let empty = area(|_| (), &[]);
        assert!(has_space(&empty, 0, SECTOR - 128) && !has_space(&empty, 0, SECTOR - 127));
        let full = area(|_| (), &[0, 0, 0, 1]);
        assert!(has_space(&full, 0, 3) && !has_space(&full, 0, 4) && has_space(&full, 4, 20));
        let table = |count| {
            area(
                |superblock| {
                    superblock.incompat = Incompat::DEVICE_TABLE;
                    superblock.extra_devices = count;
                    superblock.device_table = BytePos::new(1024 + 256);
                },
                &[],
            )
        };
        assert!(
            has_space(&table(1), 0, 128)
                && !has_space(&table(1), 0, 129)
                && has_space(&table(0), 0, 129)
        );
    }

    #[test]
    fn all_bytes_that_the_checksum_covers_are_checked() {
        let area = area(|_| (), &[5]);
        let mut image = vec![0; SECTOR_POS as usize];
        image.extend(area.covered(&area.sector()));
        assert_eq!(image.len(), 4096);
        // Bytes that a file does not have count as zeroes; others do not matter.
        for len in [1536, 1537, 4096, 5000] {
            let mut other = image.clone();
            other.resize(len, 1);
            let read = SuperblockArea::read(&other).unwrap();
            assert_eq!((read.sector, read.behind), (area.sector, area.behind.clone()), "{len}");
        }
        for at in [1024 + 0x30, 1535, 1536, 4095] {
            let mut other = image.clone();
            other[at] ^= 1;
            assert!(SuperblockArea::read(&other).is_err(), "{at}");
        }
        // The sector is checked with the bytes that follow it in the image.
        let sector = area.resize(&area.sector(), 3 * 4096).unwrap();
        image[1024..1536].fill(0xff);
        assert!(SuperblockArea::read(&image).is_err());
        let with = SuperblockArea::with(&image, &sector).unwrap();
        assert_eq!((with.size(), with.sector()), (3 * 4096, sector));
        image[4095] = 1;
        assert!(SuperblockArea::with(&image, &sector).is_err());
    }

    #[test]
    fn the_checksum_covers_the_rest_of_the_block() {
        let end = |bits| covered_end(&Superblock::new(BlockSize::from_bits(bits).unwrap()));
        assert_eq!([9, 10, 11, 12].map(end), [1536, 2048, 2048, 4096]);
    }
}
