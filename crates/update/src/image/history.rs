//! An image's history: each patch and each rollback ends with a record of what it changed.
//!
//! The superblock has the image's size, and the last bytes of the image are the newest record,
//! which has the position of the one before. The kernel ignores records. A record holds the
//! superblock's sector before and after the change, so that each state can be restored. Records are
//! never removed: a rollback appends one, too. Layout: docs/PATCH_FORMAT.md.

#[cfg(test)]
mod tests;

use ferofs_format::superblock::Superblock;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::digest::Digest;
use super::{SECTOR, Sector, SuperblockArea};
use crate::error::{Error, Result};
use ferofs_read::Source;

/// Bytes of a record.
pub const RECORD: u64 = 2048;
/// The same, for buffers.
pub(crate) const RECORD_LEN: usize = 2048;
const MAGIC: [u8; 8] = *b"ferohist";
const VERSION: u32 = 1;
const KIND_PATCH: u32 = 1;
const KIND_ROLLBACK: u32 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    version: U32,
    kind: U32,
    number: U64,
    time: U64,
    start: U64,
    end: U64,
    previous: U64,
    target: U64,
    before: [u8; SECTOR],
    after: [u8; SECTOR],
    root_pos: U64,
    root_len: U32,
    reserved: [u8; 916],
    checksum: [u8; 32],
}

const _: () = assert!(core::mem::size_of::<RawRecord>() == RECORD_LEN);

/// The operation that made a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The image was built.
    Built,
    /// A patch was applied.
    Patch,
    /// A rollback to the state of this number.
    Rollback(u64),
}

/// The current state of an image, or an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// 0 for the image as built.
    pub number: u64,
    /// The operation that made it.
    pub origin: Origin,
    /// When the patch was made or the rollback done, in seconds since 1970. `None` for the image as
    /// built.
    pub time: Option<i64>,
    /// The position of the first byte that was appended for it.
    pub start: u64,
    /// Bytes of the image in this state.
    pub end: u64,
    /// Inodes of its tree.
    pub inodes: u64,
    /// Whether the image is in this state now.
    pub current: bool,
}

/// A checked record.
#[derive(Clone, Debug)]
pub struct Record {
    /// The operation that made the state.
    pub origin: Origin,
    /// The number of the state.
    pub number: u64,
    /// When the patch was made or the rollback done, in seconds since 1970.
    pub time: i64,
    /// The position of the first appended byte.
    pub start: u64,
    /// The end of the appended bytes, the record included.
    pub end: u64,
    /// The end of the record before this one; 0: there is none.
    pub previous: u64,
    /// The sector with the superblock before the change.
    pub before: Sector,
    /// The sector after it.
    pub after: Sector,
    /// Position and length of the root's inode, if that went into free slots; otherwise zeroes.
    pub root: (u64, u32),
}

impl Record {
    /// Whether `bytes` can be the start of a record.
    pub(crate) fn may_start(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The record's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, target) = match self.origin {
            Origin::Rollback(target) => (KIND_ROLLBACK, target),
            Origin::Patch | Origin::Built => (KIND_PATCH, 0),
        };
        let mut raw = RawRecord {
            magic: MAGIC,
            version: VERSION.into(),
            kind: kind.into(),
            number: self.number.into(),
            time: self.time.cast_unsigned().into(),
            start: self.start.into(),
            end: self.end.into(),
            previous: self.previous.into(),
            target: target.into(),
            before: self.before,
            after: self.after,
            root_pos: self.root.0.into(),
            root_len: self.root.1.into(),
            reserved: [0; 916],
            checksum: [0; 32],
        };
        raw.checksum = checksum(&raw);
        raw.as_bytes().to_vec()
    }

    /// The record that ends at `end`, if one does.
    pub(crate) fn read(source: &dyn Source, end: u64) -> Result<Option<Self>> {
        let Some(pos) = end.checked_sub(RECORD).filter(|_| end <= source.size()) else {
            return Ok(None);
        };
        let mut bytes = [0; RECORD_LEN];
        source
            .read_exact_at(pos, &mut bytes)
            .map_err(|e| Error::io_unnamed("read the history", e))?;
        let Ok(raw) = RawRecord::read_from_bytes(&bytes) else { return Ok(None) };
        let is_record =
            raw.magic == MAGIC && raw.version.get() == VERSION && raw.checksum == checksum(&raw);
        let (start, previous) = (raw.start.get(), raw.previous.get());
        if !is_record || raw.end.get() != end || start > pos || previous > start {
            return Ok(None);
        }
        // No state could follow it.
        if raw.number.get() == u64::MAX {
            return Ok(None);
        }
        let origin = match raw.kind.get() {
            KIND_PATCH => Origin::Patch,
            KIND_ROLLBACK => Origin::Rollback(raw.target.get()),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            origin,
            number: raw.number.get(),
            time: raw.time.get().cast_signed(),
            start,
            end,
            previous,
            before: raw.before,
            after: raw.after,
            root: (raw.root_pos.get(), raw.root_len.get()),
        }))
    }
}

fn checksum(raw: &RawRecord) -> Digest {
    let bytes = raw.as_bytes();
    let (checked, _) = bytes.split_at(bytes.len().saturating_sub(size_of::<Digest>()));
    *blake3::hash(checked).as_bytes()
}

/// All records of an image, the first one first.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) records: Vec<Record>,
}

impl History {
    /// Reads the records of the image whose superblock is `area`.
    pub fn read(source: &dyn Source, area: &SuperblockArea) -> Result<Self> {
        let mut records: Vec<Record> = Vec::new();
        let mut end = area.size();
        while let Some(record) = Record::read(source, end)? {
            // Positions decrease, so the loop ends.
            if records
                .last()
                .is_some_and(|later| record.number.checked_add(1) != Some(later.number))
            {
                break;
            }
            end = record.previous;
            records.push(record);
            if end == 0 {
                break;
            }
        }
        records.reverse();
        Ok(Self { records })
    }

    /// The number of the current state.
    pub fn current(&self) -> u64 {
        self.records.last().map_or(0, |record| record.number)
    }

    /// The number of the state that the next change makes.
    pub fn next(&self) -> u64 {
        // Exact: no record has the largest number.
        self.current().saturating_add(1)
    }

    /// The end of the last record; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.records.last().map_or(0, |record| record.end)
    }

    /// The superblock's sector in state `number`.
    pub(crate) fn sector(&self, number: u64) -> Option<&Sector> {
        let first = self.records.first()?;
        if number.checked_add(1) == Some(first.number) {
            return Some(&first.before);
        }
        self.records.iter().find(|record| record.number == number).map(|record| &record.after)
    }

    /// The state whose tree state `number` shows: after a rollback, an earlier one.
    pub(crate) fn shown(&self, mut number: u64) -> u64 {
        let first = self.records.first().map_or(0, |record| record.number);
        let origin = |number: u64| {
            let index = usize::try_from(number.checked_sub(first)?).ok()?;
            self.records.get(index).map(|record| record.origin)
        };
        // Numbers decrease, so the loop ends.
        while let Some(Origin::Rollback(to)) = origin(number)
            && to < number
        {
            number = to;
        }
        number
    }

    /// Whether the tree of the current state has the change that made state `made`, a patch's.
    pub(crate) fn includes(&self, made: u64) -> bool {
        let mut state = self.shown(self.current());
        while state > made {
            state = self.shown(state.saturating_sub(1));
        }
        state == made
    }

    /// The superblock's sectors of all states but the current one.
    pub fn earlier_sectors(&self) -> impl Iterator<Item = &Sector> {
        self.records.iter().map(|record| &record.before)
    }

    /// All states, the first one first.
    pub(crate) fn states(&self, area: &SuperblockArea) -> Vec<State> {
        let inodes =
            |sector: &Sector| Superblock::parse(sector).map_or(0, |superblock| superblock.inodes);
        let mut states = Vec::new();
        match self.records.first() {
            None => states.push(State {
                number: 0,
                origin: Origin::Built,
                time: None,
                start: 0,
                end: area.size(),
                inodes: area.superblock().inodes,
                current: true,
            }),
            Some(first) => states.push(State {
                number: first.number.saturating_sub(1),
                origin: Origin::Built,
                time: None,
                start: 0,
                end: first.start,
                inodes: inodes(&first.before),
                current: false,
            }),
        }
        let current = self.current();
        states.extend(self.records.iter().map(|record| State {
            number: record.number,
            origin: record.origin,
            time: Some(record.time),
            start: record.start,
            end: record.end,
            inodes: inodes(&record.after),
            current: record.number == current,
        }));
        states
    }
}

/// The states of the image in `source`, the first one first.
///
/// # Errors
/// [`Error::Read`] if this is not an image, [`Error::Io`].
pub fn log(source: &dyn Source) -> Result<Vec<State>> {
    let area = SuperblockArea::read(source)?;
    Ok(History::read(source, &area)?.states(&area))
}
