//! The journal of a change, by which an interrupted change is found.
//!
//! A change first writes one sector at the image's end, the journal: the ranges that the change
//! will write, which are the appended bytes and perhaps a root inode in free slots. When all other
//! bytes are durable, the change replaces the journal by the bytes that belong there, and then
//! writes the superblock's sector. So until the change is complete, either the journal or the
//! complete record (see [`super::history`]) shows which bytes it wrote. Layout:
//! docs/PATCH_FORMAT.md.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::history::{RECORD, RECORD_LEN, Record};
use super::{ROOT_MAX, SECTOR, SECTOR_END, SECTOR_LEN, Sector, SuperblockArea};
use crate::error::{Error, Result};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{Access, ReadRange, Source};

const MAGIC: [u8; 8] = *b"ferobegn";
const VERSION: u32 = 1;
/// Bytes that are read at once when the bytes after an image are searched.
const BUFFER: usize = 1 << 20;
/// Bytes after an image that are searched for a complete record if there is no journal. A longer
/// interrupted change is not recognised then: the next change needs `--grow-over`.
const SEARCH_MAX: u64 = 4 << 30;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJournal {
    magic: [u8; 8],
    version: U32,
    root_len: U32,
    root_pos: U64,
    start: U64,
    end: U64,
    size: U64,
    /// BLAKE3 of the superblock's sector.
    sector_digest: [u8; 32],
    reserved: [u8; 400],
    checksum: [u8; 32],
}

const _: () = assert!(size_of::<RawJournal>() == SECTOR);

/// The ranges that a change writes besides the superblock's sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenRanges {
    /// The appended bytes, from the image's end on.
    pub(crate) appended: Range<u64>,
    /// The root's inode, if it goes into free slots. These were zero before.
    pub(crate) root: Option<Range<u64>>,
    /// Bytes of the medium before the change.
    pub(crate) medium_size: u64,
}

impl WrittenRanges {
    /// The journal for an image whose superblock is in `sector`.
    pub(crate) fn to_journal(&self, sector: &Sector) -> Sector {
        let root = self.root.clone().unwrap_or_default();
        let mut raw = RawJournal {
            magic: MAGIC,
            version: VERSION.into(),
            root_len: u32::try_from(root.end.saturating_sub(root.start)).unwrap_or(0).into(),
            root_pos: root.start.into(),
            start: self.appended.start.into(),
            end: self.appended.end.into(),
            size: self.medium_size.into(),
            sector_digest: *blake3::hash(sector).as_bytes(),
            reserved: [0; 400],
            checksum: [0; 32],
        };
        raw.checksum = checksum(&raw);
        zerocopy::transmute!(raw)
    }

    /// The journal at `start`, if it is one for the image whose superblock is in `sector`.
    pub(crate) fn read_journal(
        source: &dyn Source,
        start: u64,
        sector: &Sector,
    ) -> Result<Option<Self>> {
        if source.size() < start.saturating_add(SECTOR_LEN) {
            return Ok(None);
        }
        let mut bytes = [0; SECTOR];
        source.read_exact_at(start, &mut bytes).map_err(unreadable)?;
        let raw: RawJournal = zerocopy::transmute!(bytes);
        let is_journal =
            raw.magic == MAGIC && raw.version.get() == VERSION && raw.checksum == checksum(&raw);
        if !is_journal
            || raw.start.get() != start
            || raw.sector_digest != *blake3::hash(sector).as_bytes()
        {
            return Ok(None);
        }
        let end = raw.end.get().max(start);
        let root = root_range(raw.root_pos.get(), raw.root_len.get(), start);
        Ok(Some(Self { appended: start..end, root, medium_size: raw.size.get() }))
    }

    /// The ranges that an interrupted change of the image in `source` may have written, if there
    /// was one.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "positions end with the source, and `len` is at most that of `buffer`"
    )]
    pub(crate) fn find_interrupted(
        source: &dyn Source,
        area: &SuperblockArea,
    ) -> Result<Option<Self>> {
        let (start, sector) = (area.size(), area.sector());
        if let Some(ranges) = Self::read_journal(source, start, &sector)? {
            return Ok(Some(ranges));
        }
        let size = source.size();
        // No change begins with this many zeroes. So a device that is zero after the image is not
        // read to its end.
        if first_nonzero(source, start..start.saturating_add(to_u64(BUFFER)))?.is_none() {
            return Ok(None);
        }
        let block = area.superblock().block_size.bytes64();
        let searched = start..size.min(start.saturating_add(SEARCH_MAX));
        let mut at = start;
        let mut buffer = vec![0; BUFFER + RECORD_LEN];
        while at < searched.end {
            let len = to_usize(searched.end - at).min(buffer.len());
            source.read_exact_at(at, &mut buffer[..len]).map_err(unreadable)?;
            for place in (0..len.min(BUFFER)).step_by(SECTOR) {
                let end = at + to_u64(place) + RECORD;
                if !Record::may_start(&buffer[place..len]) || !end.is_multiple_of(block) {
                    continue;
                }
                let Some(record) = Record::read(source, end)? else { continue };
                if record.start == start && record.before == sector {
                    let root = root_range(record.root.0, record.root.1, start);
                    // A file that ends with the record was grown by the change; a longer one was
                    // not.
                    let size = if size == end { start } else { size };
                    return Ok(Some(Self { appended: start..end, root, medium_size: size }));
                }
            }
            at += to_u64(BUFFER);
        }
        Ok(None)
    }
}

/// The range of a root inode in free slots, if it is within the image.
fn root_range(pos: u64, len: u32, image_end: u64) -> Option<Range<u64>> {
    let end = pos.checked_add(len.into()).filter(|end| *end <= image_end)?;
    let is_inode = len > 0 && to_usize(len) <= ROOT_MAX;
    (is_inode && pos >= SECTOR_END).then_some(pos..end)
}

fn checksum(raw: &RawJournal) -> [u8; 32] {
    let bytes = raw.as_bytes();
    let (checked, _) = bytes.split_at(bytes.len().saturating_sub(raw.checksum.len()));
    *blake3::hash(checked).as_bytes()
}

fn unreadable(error: io::Error) -> Error {
    Error::io_unnamed("read the image", error)
}

/// The position of the first byte in `range` that is not zero; bytes past the end of `source` count
/// as zero.
pub(crate) fn first_nonzero(source: &dyn Source, range: Range<u64>) -> Result<Option<u64>> {
    let end = range.end.min(source.size());
    let mut buffer = vec![0; to_usize(end.saturating_sub(range.start)).min(BUFFER)];
    let mut at = range.start;
    while at < end {
        buffer.truncate(to_usize(end.saturating_sub(at)));
        source.read_exact_at(at, &mut buffer).map_err(unreadable)?;
        if let Some(used) = buffer.iter().position(|byte| *byte != 0) {
            return Ok(Some(at.saturating_add(to_u64(used))));
        }
        at = at.saturating_add(to_u64(buffer.len()));
    }
    Ok(None)
}

/// An image as it was before an interrupted change: the slots that the change may have written read
/// as zeroes.
pub struct MaskedSource<S> {
    source: S,
    zeroes: Vec<Range<u64>>,
}

impl<S: Source> MaskedSource<S> {
    /// The image in `source`, whose superblock is `area`.
    pub fn new(source: S, area: &SuperblockArea) -> Result<Self> {
        let interrupted = WrittenRanges::find_interrupted(&source, area)?;
        Ok(Self {
            source,
            zeroes: interrupted.and_then(|ranges| ranges.root).into_iter().collect(),
        })
    }

    /// Also reads zeroes at `range`.
    #[must_use]
    pub(crate) fn and_zeroes(mut self, range: Range<u64>) -> Self {
        self.zeroes.push(range);
        self
    }

    /// Puts zeroes into `buf`, which was read at `pos`.
    fn mask(&self, pos: u64, buf: &mut [u8]) {
        for range in &self.zeroes {
            let within = |at: u64| to_usize(at.saturating_sub(pos)).min(buf.len());
            let (from, to) = (within(range.start), within(range.end));
            buf.get_mut(from..to).unwrap_or_default().fill(0);
        }
    }
}

impl<S: Source> Source for MaskedSource<S> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn stored(&self) -> u64 {
        self.source.stored()
    }

    fn next_stored(&self, pos: u64) -> u64 {
        self.source.next_stored(pos)
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_exact_at(pos, buf)?;
        self.mask(pos, buf);
        Ok(())
    }

    fn read_sparse_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_sparse_at(pos, buf)?;
        self.mask(pos, buf);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        self.source.read_ranges(ranges, access)?;
        for range in ranges {
            self.mask(range.pos, range.buf);
        }
        Ok(())
    }

    fn prefers_batches(&self) -> bool {
        self.source.prefers_batches()
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        let is_read = self.source.read_if_cached(pos, buf);
        self.mask(pos, buf);
        is_read
    }

    fn identity(&self) -> Option<(u64, u64, u64)> {
        if self.zeroes.is_empty() { self.source.identity() } else { None }
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.source.will_need(pos, len);
    }
}
