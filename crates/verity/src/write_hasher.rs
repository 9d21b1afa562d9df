//! Hashes an image while it is written, so that nobody has to read it again for its hash tree.
//!
//! Images are written from start to end, except for a few places. What arrives in order is hashed
//! on threads, a unit (see [`crate::tree`]) at a time. Units that were written out of order or
//! twice are read and hashed at the end.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use ferofs_format::Uuid;
use ferofs_read::Source;
use parking_lot::Mutex;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::seal::uuid_of;
use crate::superblock::Superblock;
use crate::tree::{HashBlock, TreeBuilder};
use ferofs_format::units::{to_u64, to_usize};

/// Units that wait for each thread. More do not make it faster.
const WAITING: usize = 2;

/// Makes the seal of an image that is being written. All memory is one hash block for each unit,
/// less than a hundredth of the image.
pub struct WriteHasher {
    params: Params,
    unit_len: usize,
    arrived: Mutex<ArrivedUnits>,
    pool: Mutex<Option<Pool>>,
    /// The hash block of each unit.
    hashed: Arc<Hashed>,
}

type Hashed = Mutex<Vec<Option<HashBlock>>>;

/// The units that have arrived so far.
#[derive(Debug, Default)]
struct ArrivedUnits {
    /// The unit that arrives now, and its bytes so far.
    unit: u64,
    bytes: Vec<u8>,
    /// Units from here on have not been written.
    unseen: u64,
    /// Units to read at the end: those that did not arrive in order, or were written again.
    changed: BTreeSet<u64>,
}

/// The threads that hash.
struct Pool {
    units: SyncSender<(u64, Vec<u8>)>,
    /// Buffers that were hashed, to be filled again.
    used: Receiver<Vec<u8>>,
    threads: Vec<JoinHandle<()>>,
}

impl Debug for WriteHasher {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteHasher").field("params", &self.params).finish_non_exhaustive()
    }
}

impl WriteHasher {
    /// Starts up to `threads` threads. If none can be started, [`Self::finish`] reads and hashes
    /// all units.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn new(params: Params, threads: usize) -> Result<Self> {
        // The digests of units do not depend on their number.
        let builder = TreeBuilder::new(u64::from(u32::MAX), &params)?;
        let unit_len = to_usize(builder.unit_len());
        let hashed = Arc::<Hashed>::default();
        let pool = Pool::start(threads, &Arc::new(builder), &hashed);
        Ok(Self { params, unit_len, arrived: Mutex::default(), pool: Mutex::new(pool), hashed })
    }

    /// Takes the bytes that are written at `position`.
    #[expect(clippy::arithmetic_side_effects, reason = "a unit is not empty, and `start` is in it")]
    pub fn written(&self, position: u64, bytes: &[u8]) {
        let mut arrived = self.arrived.lock();
        let (mut at, mut remaining) = (position, bytes);
        while !remaining.is_empty() {
            let unit_len = to_u64(self.unit_len);
            let (unit, start) = (at / unit_len, to_usize(at % unit_len));
            let (piece, after) = remaining.split_at(remaining.len().min(self.unit_len - start));
            if let Some(whole) = arrived.take(unit, start, piece, self.unit_len) {
                arrived.bytes = self.hash(unit, whole);
            }
            at = at.saturating_add(to_u64(piece.len()));
            remaining = after;
        }
    }

    /// Has `bytes` hashed, and returns an empty buffer. Without threads the unit is left for the
    /// end.
    fn hash(&self, unit: u64, bytes: Vec<u8>) -> Vec<u8> {
        let pool = self.pool.lock();
        let Some(Pool { units, used, .. }) = &*pool else { return Vec::new() };
        // It fails if all threads have panicked; then the units are hashed at the end.
        let _ = units.send((unit, bytes));
        used.try_recv().unwrap_or_default()
    }

    /// Makes the seal of the `len` bytes of `image`, all of which were passed to [`Self::written`],
    /// or are read now. Passes the bytes of superblock and tree to `append`, in order. Without
    /// `uuid`, the seal gets one that follows from its root. Returns the root.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the image does not consist of whole blocks; [`Error::Io`] when the
    /// image cannot be read or `append` fails.
    pub fn finish(
        &self,
        image: &dyn Source,
        len: u64,
        uuid: Option<Uuid>,
        mut append: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(Superblock, Digest)> {
        if let Some(Pool { units, threads, .. }) = self.pool.lock().take() {
            drop(units);
            for thread in threads {
                // The units that a thread left when it panicked are hashed below.
                let _ = thread.join();
            }
        }
        if !len.is_multiple_of(self.params.data_block_size.into()) {
            let problem = "does not divide the size of the image: choose a smaller one";
            return Err(Error::Parameter { parameter: "data block size", problem });
        }
        let data_blocks = self.params.blocks_of(len);
        let builder = TreeBuilder::new(data_blocks, &self.params)?;
        let mut hashed = std::mem::take(&mut *self.hashed.lock());
        let changed = std::mem::take(&mut self.arrived.lock().changed);
        let mut blocks = Vec::with_capacity(to_usize(builder.units()));
        let mut buffer = Vec::new();
        for unit in 0..builder.units() {
            let range = builder.unit_range(unit);
            let len = to_usize(range.end.saturating_sub(range.start));
            let is_whole = len == self.unit_len;
            let known = hashed.get_mut(to_usize(unit)).and_then(Option::take);
            blocks.push(match known.filter(|_| is_whole && !changed.contains(&unit)) {
                Some(block) => block,
                None => {
                    buffer.resize(len, 0);
                    image
                        .read_exact_at(range.start, &mut buffer)
                        .map_err(Error::io("read image"))?;
                    builder.hash_unit(unit, &buffer)
                }
            });
        }
        let mut above: Vec<(u64, Vec<u8>)> = Vec::new();
        let digests = blocks.iter().map(|block| block.digest).collect();
        let root = builder.finish(digests, |position, bytes| {
            above.push((position, bytes.to_vec()));
            Ok::<(), Error>(())
        })?;
        let root =
            root.ok_or(Error::Parameter { parameter: "number of data blocks", problem: "is 0" })?;
        let uuid = uuid.unwrap_or_else(|| uuid_of(root));
        let superblock = Superblock { data_blocks, params: self.params.clone(), uuid };
        let mut first = superblock.to_bytes()?.to_vec();
        first.resize(to_usize(self.params.hash_block_size), 0);
        // The levels follow each other from the top to the lowest one.
        above.sort_unstable_by_key(|(position, _)| *position);
        let above = above.iter().map(|(_, bytes)| bytes.as_slice());
        let lowest = blocks.iter().map(|block| block.bytes.as_slice());
        for bytes in std::iter::once(first.as_slice()).chain(above).chain(lowest) {
            append(bytes).map_err(Error::io("write hash tree"))?;
        }
        Ok((superblock, root))
    }
}

impl ArrivedUnits {
    /// Takes a part of a unit; returns the whole unit when it is complete.
    fn take(&mut self, unit: u64, start: usize, piece: &[u8], unit_len: usize) -> Option<Vec<u8>> {
        let is_new = unit >= self.unseen && start == 0;
        if is_new {
            if !self.bytes.is_empty() {
                self.changed.insert(self.unit);
                self.bytes.clear();
            }
            self.changed.extend(self.unseen..unit);
            (self.unit, self.unseen) = (unit, unit.saturating_add(1));
        } else if unit != self.unit || start != self.bytes.len() || self.changed.contains(&unit) {
            self.changed.extend(self.unseen..=unit);
            self.changed.insert(unit);
            self.unseen = self.unseen.max(unit.saturating_add(1));
            if unit == self.unit {
                self.bytes.clear();
            }
            return None;
        }
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() < unit_len {
            return None;
        }
        // A later write to this unit is a change.
        self.unit = self.unseen;
        Some(std::mem::take(&mut self.bytes))
    }
}

impl Pool {
    /// `None` if the system starts no thread.
    fn start(threads: usize, builder: &Arc<TreeBuilder>, hashed: &Arc<Hashed>) -> Option<Self> {
        let (units, waiting) = sync_channel::<(u64, Vec<u8>)>(threads.saturating_mul(WAITING));
        let waiting = Arc::new(Mutex::new(waiting));
        let (done, used) = std::sync::mpsc::channel();
        let start = |number| {
            let (waiting, done) = (Arc::clone(&waiting), done.clone());
            let (builder, hashed) = (Arc::clone(builder), Arc::clone(hashed));
            let work = move || {
                loop {
                    // The lock is free again before the unit is hashed.
                    let next = waiting.lock().recv();
                    let Ok((unit, mut bytes)) = next else { return };
                    let block = builder.hash_unit(unit, &bytes);
                    let mut hashed = hashed.lock();
                    let index = to_usize(unit);
                    if hashed.len() <= index {
                        hashed.resize(index.saturating_add(1), None);
                    }
                    if let Some(place) = hashed.get_mut(index) {
                        *place = Some(block);
                    }
                    drop(hashed);
                    bytes.clear();
                    // Nobody takes it when the image is complete.
                    let _ = done.send(bytes);
                }
            };
            std::thread::Builder::new().name(format!("hash-{number}")).spawn(work).ok()
        };
        let threads: Vec<_> = (0..threads).map_while(start).collect();
        (!threads.is_empty()).then_some(Self { units, used, threads })
    }
}
