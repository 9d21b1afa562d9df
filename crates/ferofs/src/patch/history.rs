//! An image's history: a record at the end of everything that was appended.
//!
//! The superblock says how large the image is, so its last bytes are the newest record's, which tells where the one
//! before it is. The kernel looks at none of them. A record holds the superblock's sector as it was and as it became, so
//! that each state can be made current again. Records are only ever added: going back is a state of its own.

use ferofs_format::superblock::Superblock;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::digest::Digest;
use super::sector::{Front, SECTOR, Sector};
use crate::{Error, Result};
use ferofs_read::Source;

/// Bytes of a record.
pub(crate) const RECORD: u64 = 2048;
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

const _: () = assert!(core::mem::size_of::<RawRecord>() == RECORD as usize);

/// How a state came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is what was built.
    Built,
    /// By a patch.
    Patch,
    /// By going back to the state of this number.
    Rollback(u64),
}

/// A state that an image is in, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// 0 for what was built.
    pub number: u64,
    /// How it came about.
    pub origin: Origin,
    /// When, in seconds since 1970: of a patch, when that was made. `None` for what was built.
    pub time: Option<i64>,
    /// Where the bytes that were appended for it start.
    pub start: u64,
    /// Bytes of the image.
    pub end: u64,
    /// Inodes of its tree.
    pub inodes: u64,
    /// The state that the image is in.
    pub current: bool,
}

/// A record, checked.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    pub(crate) number: u64,
    pub(crate) time: i64,
    /// Where what was appended starts.
    pub(crate) start: u64,
    /// Where it ends, with the record.
    pub(crate) end: u64,
    /// The end of the record before; 0: there is none.
    pub(crate) previous: u64,
    pub(crate) before: Sector,
    pub(crate) after: Sector,
    /// Where the root's inode went if that was in free slots, and its bytes.
    pub(crate) root: (u64, u32),
}

impl Record {
    /// Whether `bytes` may be the start of a record.
    pub(crate) fn may_start(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The record's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
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
        let Some(pos) = end.checked_sub(RECORD).filter(|_| end <= source.size()) else { return Ok(None) };
        let mut bytes = [0; RECORD as usize];
        source.read_exact_at(pos, &mut bytes).map_err(|e| Error::io_unnamed("read the history", e))?;
        let Ok(raw) = RawRecord::read_from_bytes(&bytes) else { return Ok(None) };
        let is_record = raw.magic == MAGIC && raw.version.get() == VERSION && raw.checksum == checksum(&raw);
        let (start, previous) = (raw.start.get(), raw.previous.get());
        if !is_record || raw.end.get() != end || start > pos || previous > start {
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
    *blake3::hash(&bytes[..bytes.len() - 32]).as_bytes()
}

/// All records of an image, the first one first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
}

impl History {
    /// Reads the history of the image whose front is `front`.
    pub(crate) fn read(source: &dyn Source, front: &Front) -> Result<Self> {
        let mut records: Vec<Record> = Vec::new();
        let mut end = front.size();
        while let Some(record) = Record::read(source, end)? {
            // Ends descend, so there is one.
            if records.last().is_some_and(|later| record.number.checked_add(1) != Some(later.number)) {
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

    /// The number of the state that the image is in.
    pub(crate) fn current(&self) -> u64 {
        self.records.last().map_or(0, |record| record.number)
    }

    /// Where the last record ends; 0 without any.
    pub(crate) fn end(&self) -> u64 {
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

    /// Every state's sector, the current one's left out.
    pub(crate) fn earlier_sectors(&self) -> impl Iterator<Item = &Sector> {
        self.records.iter().map(|record| &record.before)
    }

    /// What a person wants to know of it.
    pub(crate) fn states(&self, front: &Front) -> Vec<State> {
        let inodes = |sector: &Sector| Superblock::parse(sector).map_or(0, |superblock| superblock.inodes);
        let mut states = Vec::new();
        match self.records.first() {
            None => states.push(State {
                number: 0,
                origin: Origin::Built,
                time: None,
                start: 0,
                end: front.size(),
                inodes: front.superblock().inodes,
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
