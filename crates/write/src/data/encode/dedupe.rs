//! Deduplication: finds extents that the image has already, at any offset of later content.
//!
//! Content has anchors: positions where a rolling hash of the last 64 bytes is zero in ten bits, on
//! average once per KiB. An anchor depends on these bytes only, not on the position. The index
//! finds an extent by its first anchor and confirms it by a digest of all its bytes. When an anchor
//! of new content is the first anchor of an indexed extent and the digest of the bytes around it is
//! the same, the new content refers to that extent.
//!
//! Job n finds the extents of the jobs up to n - [`DISTANCE`], and no later ones, however fast the
//! threads are: so images do not depend on the number of threads. The appending thread finds equal
//! extents that are nearer.
//!
//! An extent takes 10 to 21 bytes of memory, in a table of hashes, and a record in a temporary file
//! ([`records`]), which is read only when an anchor of new content is that of an extent.

mod extent;
mod records;

use std::path::Path;

use ferofs_format::BytePos;
use parking_lot::RwLock;

pub(crate) use crate::data::encode::dedupe::extent::{ExtentFingerprint, StoredExtent};
use crate::data::encode::dedupe::extent::{anchors, digest};
use crate::data::encode::dedupe::records::{Record, Records, Table};
use crate::error::Result;

/// In jobs: each job finds the extents of the jobs at least this far before it. More jobs than this
/// must not be under way at the same time. A larger value allows more parallel jobs but finds fewer
/// extents. The image depends on it.
pub(crate) const DISTANCE: usize = 32;

/// A part of new content that equals an extent of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub start: usize,
    pub len: usize,
    pub stored: StoredExtent,
    /// The base image has the extent at the same offset of the same file: see
    /// [`ExtentLog::push_without_dedupe`].
    ///
    /// [`ExtentLog::push_without_dedupe`]: crate::data::extents::ExtentLog::push_without_dedupe
    pub same_offset: bool,
}

impl Match {
    /// Zeroes that are not stored: an extent without bytes.
    pub(crate) const fn hole(start: usize, len: usize) -> Self {
        let stored = StoredExtent {
            at: BytePos::new(0),
            size: 0,
            encoded: false,
            method: 0,
            partial: false,
        };
        Self { start, len, stored, same_offset: true }
    }

    pub(crate) const fn is_hole(&self) -> bool {
        self.stored.size == 0
    }
}

/// The extents that the image has, by the hash of their first anchor. Of two extents with the same
/// hash, the first stays.
#[derive(Debug)]
pub(crate) struct ExtentIndex(RwLock<Extents>);

#[derive(Debug)]
struct Extents {
    table: Table,
    records: Records,
}

impl Extents {
    /// The extent whose first anchor has this hash.
    fn get(&self, anchor: u64) -> Result<Option<Record>> {
        for number in self.table.get(anchor) {
            let record = self.records.get(number)?;
            if record.fingerprint.anchor == anchor {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

impl ExtentIndex {
    /// An empty index, which may create a temporary file in `dir`.
    #[must_use]
    pub(crate) fn new(dir: &Path) -> Self {
        Self(RwLock::new(Extents { table: Table::default(), records: Records::new(dir) }))
    }

    /// Finds extents in `src` for job number `job`, which encodes with `method`. The matches ascend
    /// and do not overlap.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the temporary file cannot be read.
    pub(crate) fn find(&self, src: &[u8], job: usize, method: usize) -> Result<Vec<Match>> {
        let mut matches: Vec<Match> = Vec::new();
        let mut end = 0;
        for (at, hash) in anchors(src) {
            let Some(Record { job: before, fingerprint, stored }) = self.0.read().get(hash)? else {
                continue;
            };
            let Some(start) =
                at.checked_sub(fingerprint.offset as usize).filter(|start| *start >= end)
            else {
                continue;
            };
            let is_before = before.is_none_or(|before| before as usize + DISTANCE <= job);
            if !is_before || stored.method != method {
                continue;
            }
            let Some(bytes) = src.get(start..start + fingerprint.len as usize) else { continue };
            if digest(bytes) == fingerprint.digest {
                end = start + bytes.len();
                matches.push(Match { start, len: bytes.len(), stored, same_offset: false });
            }
        }
        Ok(matches)
    }

    /// Finds an extent with this content.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the temporary file cannot be read.
    pub(crate) fn get(&self, fingerprint: &ExtentFingerprint) -> Result<Option<StoredExtent>> {
        let found = self.0.read().get(fingerprint.anchor)?;
        Ok(found.filter(|record| record.fingerprint == *fingerprint).map(|record| record.stored))
    }

    /// Job number `job` stored an extent.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the temporary file cannot be read or written.
    pub(crate) fn insert(
        &self,
        job: usize,
        fingerprint: ExtentFingerprint,
        stored: StoredExtent,
    ) -> Result<()> {
        // A job beyond the numbers of records would be found too early, which the image could
        // depend on.
        match u32::try_from(job) {
            Ok(job) if job < u32::MAX => self.add(Record { job: Some(job), fingerprint, stored }),
            _ => Ok(()),
        }
    }

    /// Adds an extent of the base image: all jobs find it.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the temporary file cannot be read or written.
    pub(crate) fn insert_before(
        &self,
        fingerprint: ExtentFingerprint,
        stored: StoredExtent,
    ) -> Result<()> {
        self.add(Record { job: None, fingerprint, stored })
    }

    fn add(&self, record: Record) -> Result<()> {
        let mut extents = self.0.write();
        if extents.get(record.fingerprint.anchor)?.is_none()
            && let Some(number) = extents.records.push(&record)?
        {
            extents.table.insert(record.fingerprint.anchor, number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::encode::dedupe::extent::tests::noise;

    fn stored(at: u64) -> StoredExtent {
        StoredExtent { at: BytePos::new(at), size: 4096, encoded: true, method: 0, partial: false }
    }

    #[test]
    fn finds_extents_at_any_offset() {
        let (a, b) = (noise(20_000, 1), noise(9000, 2));
        let dir = tempfile::tempdir().unwrap();
        let index = ExtentIndex::new(dir.path());
        index.insert(0, ExtentFingerprint::of(&a).unwrap(), stored(1)).unwrap();
        index.insert(0, ExtentFingerprint::of(&b).unwrap(), stored(2)).unwrap();
        let src = [noise(77, 3), b.clone(), a.clone(), b[..8000].to_vec(), a].concat();
        let found = index.find(&src, DISTANCE, 0).unwrap();
        let at = |found: &[Match]| {
            found.iter().map(|m| (m.start, m.stored.at.get())).collect::<Vec<_>>()
        };
        assert_eq!(at(&found), [(77, 2), (9077, 1), (37_077, 1)]);
        assert!(index.find(&src, DISTANCE - 1, 0).unwrap().is_empty());
        assert!(index.find(&src, DISTANCE, 1).unwrap().is_empty());
    }

    #[test]
    fn the_first_of_equal_extents_is_found() {
        let (content, other) = (noise(20_000, 1), noise(20_000, 2));
        let fingerprint = ExtentFingerprint::of(&content).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let index = ExtentIndex::new(dir.path());
        // A later job would be found by this one.
        index.insert(u32::MAX as usize, fingerprint, stored(9)).unwrap();
        assert_eq!(index.get(&fingerprint).unwrap(), None);
        index.insert_before(fingerprint, stored(1)).unwrap();
        index.insert(0, fingerprint, stored(2)).unwrap();
        assert_eq!(index.get(&fingerprint).unwrap(), Some(stored(1)));
        assert_eq!(index.find(&content, 0, 0).unwrap().len(), 1);
        // The same anchor, and then other bytes.
        let same_start = [&content[..fingerprint.offset as usize], &other].concat();
        let longer = ExtentFingerprint::of(&same_start[..content.len()]).unwrap();
        assert_eq!(longer.anchor, fingerprint.anchor);
        assert_eq!(index.get(&longer).unwrap(), None);
        assert!(index.find(&same_start, 0, 0).unwrap().is_empty());
        let last = ExtentFingerprint::of(&other).unwrap();
        index.insert(u32::MAX as usize - 1, last, stored(3)).unwrap();
        assert_eq!(index.get(&last).unwrap(), Some(stored(3)));
    }
}
