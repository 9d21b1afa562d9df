//! The sector that holds the superblock: the only bytes of an image that a patch overwrites while they are in use.
//! Source: FORMAT.md 1.

use ferofs_format::Compat;
use ferofs_format::superblock::{self, Superblock};

use super::PatchFault;
use crate::{Error, Result};
use ferofs_read::Source;
use ferofs_read::error::Locate;

/// What disks write as a whole, or not at all.
pub(crate) const SECTOR: usize = 512;
/// Where the sector is.
pub(crate) const SECTOR_POS: u64 = superblock::OFFSET as u64;
/// The root's number, when that has 16 bits, and what stands there when it has more.
const ROOT_OR_BLOCKS: std::ops::Range<usize> = 0x0e..0x10;
/// The root's number with more bits. An image with `48BIT` may have zeroes here, and its root in the field of 16 bits.
const WIDE_ROOT: std::ops::Range<usize> = 0x70..0x78;

/// The sector's bytes.
pub(crate) type Sector = [u8; SECTOR];

/// An image's front, as far as the superblock's checksum covers it.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    covered: Vec<u8>,
    superblock: Superblock,
}

impl Front {
    /// Reads and checks the superblock of `source`.
    pub(crate) fn read(source: &dyn Source) -> Result<Self> {
        let mut sector = [0; SECTOR];
        source.read_exact_at(SECTOR_POS, &mut sector).map_err(unreadable)?;
        Self::with(source, &sector)
    }

    /// The front of `source` as if its superblock's sector were `sector`, checked.
    pub(crate) fn with(source: &dyn Source, sector: &Sector) -> Result<Self> {
        let pos = ferofs_format::BytePos::new(SECTOR_POS);
        let superblock = Superblock::parse(sector).located_at(pos)?;
        let mut covered = vec![0; superblock.checksum_len().max(SECTOR)];
        let have = source.size().saturating_sub(SECTOR_POS).min(covered.len() as u64) as usize;
        let (first, rest) = covered.split_at_mut(SECTOR);
        first.copy_from_slice(sector);
        if have > SECTOR {
            source
                .read_exact_at(SECTOR_POS + SECTOR as u64, &mut rest[..have - SECTOR])
                .map_err(unreadable)?;
        }
        superblock.verify_checksum(&covered).located_at(pos)?;
        Ok(Self { covered, superblock })
    }

    /// What it says.
    pub(crate) const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The sector as it is.
    pub(crate) fn sector(&self) -> Sector {
        let mut sector = [0; SECTOR];
        sector.copy_from_slice(&self.covered[..SECTOR]);
        sector
    }

    /// Bytes of the image.
    pub(crate) fn size(&self) -> u64 {
        self.superblock.blocks.saturating_mul(self.superblock.block_size.bytes64())
    }

    /// The sector with a new superblock and, if they change, new `configs` after it. Bytes that this program knows
    /// nothing of stay.
    pub(crate) fn rewrite(&self, new: &Superblock, configs: Option<&[u8]>) -> Result<Sector> {
        let mut sector = self.sector();
        let (before, after) = (bytes(&self.superblock)?, bytes(new)?);
        let is_wide = new.incompat.contains(ferofs_format::Incompat::BIT48);
        for (at, (old, new)) in before.iter().zip(&after).enumerate() {
            if (old != new || is_wide && (ROOT_OR_BLOCKS.contains(&at) || WIDE_ROOT.contains(&at)))
                && let Some(byte) = sector.get_mut(at)
            {
                *byte = *new;
            }
        }
        if let Some(configs) = configs {
            let start = new.size();
            let end = start.checked_add(configs.len()).filter(|end| *end <= SECTOR);
            let place = end.and_then(|end| sector.get_mut(start..end));
            place.ok_or(Error::Patch(PatchFault::NoConfigRoom))?.copy_from_slice(configs);
        }
        Ok(self.seal(sector, new.compat.contains(Compat::SB_CHKSUM)))
    }

    /// `sector`, of this image, for an image of `size` bytes.
    pub(crate) fn resize(&self, sector: &Sector, size: u64) -> Result<Sector> {
        let pos = ferofs_format::BytePos::new(SECTOR_POS);
        let mut covered = self.covered.clone();
        covered[..SECTOR].copy_from_slice(sector);
        let superblock = Superblock::parse(sector).located_at(pos)?;
        let front = Self { covered, superblock };
        let mut new = front.superblock.clone();
        new.blocks = new.block_size.blocks_for(size);
        front.rewrite(&new, None)
    }

    fn seal(&self, mut sector: Sector, checksum: bool) -> Sector {
        if checksum {
            let mut covered = self.covered.clone();
            covered[..SECTOR].copy_from_slice(&sector);
            let len = self.superblock.checksum_len().min(covered.len());
            superblock::write_checksum(&mut covered[..len]);
            sector.copy_from_slice(&covered[..SECTOR]);
        }
        sector
    }

    /// Whether the bytes where new configurations of `len` bytes would stand are free, or old configurations of
    /// `old_len` bytes.
    pub(crate) fn has_config_room(&self, old_len: usize, len: usize) -> bool {
        let start = self.superblock.size();
        let Some(end) = start.checked_add(len).filter(|end| *end <= SECTOR) else { return false };
        let tables = [
            (self.superblock.extra_devices > 0).then_some(self.superblock.device_table),
            self.superblock.xattr_prefixes.map(|table| table.start),
        ];
        let taken = |pos: ferofs_format::BytePos| pos.get() < SECTOR_POS.saturating_add(end as u64);
        let own = start.saturating_add(old_len).min(end);
        !tables.into_iter().flatten().any(taken) && self.covered[own..end].iter().all(|byte| *byte == 0)
    }
}

/// Where the bytes end that the superblock's checksum covers, and its sector. No patch changes others of them: the old
/// image's checksum would be wrong before the sector is replaced.
pub(crate) fn covered_end(superblock: &Superblock) -> u64 {
    SECTOR_POS + superblock.checksum_len().max(SECTOR) as u64
}

fn unreadable(error: std::io::Error) -> Error {
    Error::io_unnamed("read the superblock", error)
}

fn bytes(superblock: &Superblock) -> Result<Vec<u8>> {
    Ok(superblock.to_bytes().map_err(ferofs_build::Error::Layout)?)
}
