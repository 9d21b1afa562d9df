//! Hashes an image while it is written, so that nobody has to read it again for its hash tree.
//!
//! Images are written from start to end, except for a few places. What arrives in order is hashed on threads, a unit (see
//! [`crate::tree`]) at a time. Units that were written out of order or twice are read and hashed at the end.

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

/// Makes the seal of an image that is being written. All memory is one hash block for each unit, less than a hundredth of the image.
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
    /// Starts up to `threads` threads. If none can be started, [`Self::finish`] reads and hashes all units.
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

    /// Has `bytes` hashed, and returns an empty buffer. Without threads the unit is left for the end.
    fn hash(&self, unit: u64, bytes: Vec<u8>) -> Vec<u8> {
        let pool = self.pool.lock();
        let Some(Pool { units, used, .. }) = &*pool else { return Vec::new() };
        // It fails if all threads have panicked; then the units are hashed at the end.
        let _ = units.send((unit, bytes));
        used.try_recv().unwrap_or_default()
    }

    /// Makes the seal of the `len` bytes of `image`, all of which were passed to [`Self::written`], or are read now. Passes the bytes of
    /// superblock and tree to `append`, in order. Without `uuid`, the seal gets one that follows from its root. Returns the root.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the image does not consist of whole blocks; [`Error::Io`] when the image cannot be read or `append`
    /// fails.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seal::Seal;

    /// Superblock and tree as [`Seal::write`] makes them from the complete image.
    fn expected(image: &dyn Source, params: &Params) -> (Vec<u8>, Digest) {
        use std::io::Read;
        let mut file = tempfile::tempfile().unwrap();
        let (_, root) =
            Seal::write(image, image.size(), params.clone(), None, 2, &file, 0).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (bytes, root)
    }

    fn seal(hasher: &WriteHasher, image: &dyn Source) -> (Vec<u8>, Digest) {
        let mut bytes = Vec::new();
        let append = |more: &[u8]| {
            bytes.extend_from_slice(more);
            Ok(())
        };
        let (_, root) = hasher.finish(image, image.size(), None, append).unwrap();
        (bytes, root)
    }

    /// Fails on each read: nothing may be read again but what was written out of order.
    struct Unreadable(Vec<u8>, std::ops::Range<u64>);

    impl Source for Unreadable {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
            if self.1.contains(&pos) {
                return Err(io::Error::other(format!("read of byte {pos}")));
            }
            self.0.read_exact_at(pos, buf)
        }
    }

    #[test]
    fn a_unit_that_is_written_again_is_read() {
        let (params, unit) = (Params::default(), 512 << 10);
        for len in [4096, unit] {
            let hasher = WriteHasher::new(params.clone(), 2).unwrap();
            let mut image = vec![1; 2 * unit];
            hasher.written(0, &image[..unit]);
            image[..len].fill(2);
            hasher.written(0, &image[..len]);
            hasher.written(unit as u64, &image[unit..]);
            assert!(seal(&hasher, &image) == expected(&image, &params), "{len}");
        }
    }

    #[test]
    fn what_is_written_in_order_is_not_read_again() {
        let params = Params::default();
        let unit = 512 << 10;
        let image: Vec<u8> = (0..unit * 7 + 4096 * 3_usize).map(|n| (n / 9) as u8).collect();
        let hasher = WriteHasher::new(params.clone(), 2).unwrap();
        for (number, piece) in image.chunks(100_000).enumerate() {
            hasher.written(number as u64 * 100_000, piece);
        }
        // The superblock, at last.
        hasher.written(1024, &image[1024..1152]);
        let (bytes, root) = expected(&image, &params);
        let len = image.len() as u64;
        let image = Unreadable(image, unit as u64..unit as u64 * 7);
        let mut sealed = Vec::new();
        let append = |more: &[u8]| {
            sealed.extend_from_slice(more);
            Ok(())
        };
        let (_, found) = hasher.finish(&image, len, None, append).unwrap();
        assert!(found == root && sealed == bytes);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn any_order_of_writes_gives_the_seal_of_the_image(
            blocks in 1..700_usize,
            writes in prop::collection::vec((any::<prop::sample::Index>(), 1..900_000_usize, any::<u8>(), any::<bool>()), 0..25),
            threads in 0..3_usize,
            small: bool,
        ) {
            let mut params = Params::default();
            if small {
                (params.data_block_size, params.hash_block_size) = (1024, 512);
            }
            let mut image = vec![0; blocks * 4096];
            let hasher = WriteHasher::new(params.clone(), threads).unwrap();
            let mut next = 0;
            for (at, len, byte, in_order) in writes {
                let start = if in_order && next < image.len() { next } else { at.index(image.len()) };
                let end = (start + len).min(image.len());
                image[start..end].fill(byte);
                hasher.written(start as u64, &image[start..end]);
                next = end;
            }
            prop_assert!(seal(&hasher, &image) == expected(&image, &params));
        }
    }
}
