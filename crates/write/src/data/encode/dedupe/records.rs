//! The extents of an index, one record of fixed size for each, in a temporary file: they are read
//! only when content is probably equal. A hash table finds the numbers of records: it has 32 bits
//! of each hash, and the number of its shard is another 8 bits; the record holds the full hash. It
//! takes 10 to 21 bytes for each record.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferofs_format::BytePos;
use hashbrown::HashTable;

use crate::data::encode::dedupe::extent::{ExtentFingerprint, StoredExtent};
use crate::error::{Error, Result};
use crate::output::spill::tempfile;

/// Bytes of a record.
const LEN: usize = 49;
/// The most bytes that wait for being written.
const PENDING: usize = 4 << 20;
/// The job of an extent that was there before all jobs.
const BEFORE_ALL: u32 = u32::MAX;

const ENCODED: u8 = 1;
const PARTIAL: u8 = 2;
const METHOD_SHIFT: u8 = 2;

/// An extent of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The job that stored it; `None`: it was in the base image before all jobs.
    pub(super) job: Option<u32>,
    pub(super) fingerprint: ExtentFingerprint,
    pub(super) stored: StoredExtent,
}

impl Record {
    /// The bytes of the record; `None` if it has a size or a number of a method that it cannot
    /// hold.
    fn encode(&self) -> Option<[u8; LEN]> {
        let Self { job, fingerprint, stored } = self;
        let size = u32::try_from(stored.size).ok()?;
        let method =
            u8::try_from(stored.method).ok().filter(|method| *method < 1 << (8 - METHOD_SHIFT))?;
        let job = job.unwrap_or(BEFORE_ALL);
        let flags = (u8::from(stored.encoded) * ENCODED)
            | (u8::from(stored.partial) * PARTIAL)
            | (method << METHOD_SHIFT);
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&fingerprint.anchor.to_le_bytes());
        bytes[8..16].copy_from_slice(&stored.at.get().to_le_bytes());
        bytes[16..20].copy_from_slice(&fingerprint.offset.to_le_bytes());
        bytes[20..24].copy_from_slice(&fingerprint.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&size.to_le_bytes());
        bytes[28..32].copy_from_slice(&job.to_le_bytes());
        bytes[32] = flags;
        bytes[33..49].copy_from_slice(&fingerprint.digest);
        Some(bytes)
    }

    fn decode(bytes: &[u8; LEN]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
        let mut digest = [0; 16];
        digest.copy_from_slice(&bytes[33..49]);
        let flags = bytes[32];
        Self {
            job: Some(word(28)).filter(|job| *job != BEFORE_ALL),
            fingerprint: ExtentFingerprint {
                anchor: long(0),
                offset: word(16),
                len: word(20),
                digest,
            },
            stored: StoredExtent {
                at: BytePos::new(long(8)),
                size: word(24).into(),
                encoded: flags & ENCODED != 0,
                method: (flags >> METHOD_SHIFT).into(),
                partial: flags & PARTIAL != 0,
            },
        }
    }
}

/// Records by number.
#[derive(Debug)]
pub(super) struct Records {
    /// Where the temporary file is created.
    dir: PathBuf,
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// The records after those in the file.
    pending: Vec<u8>,
}

impl Records {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), file: None, written: 0, pending: Vec::new() }
    }

    /// Adds a record and returns its number; `None` if it has values that a record cannot hold, or
    /// there are too many records.
    pub(super) fn push(&mut self, record: &Record) -> Result<Option<u32>> {
        let number = (self.written + self.pending.len() as u64) / LEN as u64;
        let number = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
        let (Some(number), Some(bytes)) = (number, record.encode()) else { return Ok(None) };
        self.pending.extend_from_slice(&bytes);
        if self.pending.len() >= PENDING {
            let io = |e| Error::io("write a temporary file in", &self.dir, e);
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(tempfile(&self.dir).map_err(io)?),
            };
            file.write_all_at(&self.pending, self.written).map_err(io)?;
            self.written += self.pending.len() as u64;
            self.pending.clear();
        }
        Ok(Some(number))
    }

    /// Record `number`, which [`Self::push`] returned.
    pub(super) fn get(&self, number: u32) -> Result<Record> {
        let mut bytes = [0; LEN];
        let at = u64::from(number) * LEN as u64;
        match (at.checked_sub(self.written), &self.file) {
            (Some(at), _) => bytes.copy_from_slice(&self.pending[at as usize..at as usize + LEN]),
            (None, Some(file)) => file
                .read_exact_at(&mut bytes, at)
                .map_err(|e| Error::io("read a temporary file in", &self.dir, e))?,
            // Written records are in a file.
            (None, None) => {}
        }
        Ok(Record::decode(&bytes))
    }
}

/// Shards: each grows for itself, so that only a small part of the table is in memory twice at
/// once.
const SHARDS: usize = 256;

/// A part of a hash, and a record with that hash. With this part, the table grows without looking
/// the records up, of which most may be in a file.
type Slot = (u32, u32);

/// Records by hash. One hash may have several records, in any order.
#[derive(Debug)]
pub(super) struct Table(Vec<HashTable<Slot>>);

impl Default for Table {
    fn default() -> Self {
        Self(std::iter::repeat_with(HashTable::new).take(SHARDS).collect())
    }
}

/// The shard and the tag of a hash.
fn split(hash: u64) -> (usize, u32) {
    // Hashes of anchors have bits that are always zero; both halves of the product depend on all
    // bits.
    let product = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    let mixed = (product >> 64) as u64 ^ product as u64;
    (mixed as usize % SHARDS, (mixed >> 32) as u32)
}

/// The hash of a slot: a table uses its high and its low bits.
fn spread(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}

impl Table {
    /// The records that may have this hash.
    pub(super) fn get(&self, hash: u64) -> impl Iterator<Item = u32> {
        let (shard, tag) = split(hash);
        let found = self.0[shard].iter_hash(spread(tag));
        found.filter(move |(other, _)| *other == tag).map(|(_, record)| *record)
    }

    pub(super) fn insert(&mut self, hash: u64, record: u32) {
        let (shard, tag) = split(hash);
        self.0[shard].insert_unique(spread(tag), (tag, record), |(tag, _)| spread(*tag));
    }
}
