//! The blocks that are stored on this machine, by their digests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use ferofs_read::Source;
use ferofs_verity::{Digest, Params};
use parking_lot::RwLock;

use super::base::{Base, SEGMENT, Segment, prefix};
use ferofs_format::units::to_u64;

/// Blocks in the index at most: 8 GiB of blocks of 4096 bytes, 24 MiB of memory. What follows is
/// not found.
const BLOCKS_MAX: usize = 1 << 21;
/// Blocks of the cache that are hashed at most, because no tree tells their digests: 2 GiB, a few
/// seconds of one processor. What follows is not found.
const HASHED_MAX: usize = 1 << 19;

/// Finds blocks by their digests. A thread fills it; until it ends, not all blocks are found.
pub(crate) struct KnownBlocks {
    params: Params,
    index: RwLock<Index>,
    stop: AtomicBool,
    is_complete: AtomicBool,
}

#[derive(Default)]
struct Index {
    bases: Vec<Arc<Base>>,
    segments: Vec<Segment>,
}

impl KnownBlocks {
    /// Starts to read the digests of what `bases` finds, which is called in another thread. The
    /// digests are those of trees with `params`.
    pub(crate) fn start(
        params: Params,
        bases: impl FnOnce() -> Vec<Base> + Send + 'static,
    ) -> Arc<Self> {
        let known = Arc::new(Self {
            params,
            index: RwLock::default(),
            stop: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
        });
        let filled = Arc::clone(&known);
        let started = Builder::new().name("index".into()).spawn(move || {
            filled.fill(bases());
            filled.is_complete.store(true, Ordering::Release);
        });
        if started.is_err() {
            // All is fetched, as without other images.
            known.is_complete.store(true, Ordering::Release);
        }
        known
    }

    /// Ends the thread. What was found stays.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all digests are in the index.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    fn fill(&self, bases: Vec<Base>) {
        let (mut left, mut left_to_hash) = (BLOCKS_MAX, HASHED_MAX);
        for (number, base) in bases.into_iter().enumerate() {
            let base = Arc::new(base);
            let is_hashed = base.is_entry() && base.leaves(&self.params).is_none();
            let most = if is_hashed { left.min(left_to_hash) } else { left };
            // Segments refer to it by its number.
            self.change(|index| index.bases.push(Arc::clone(&base)));
            let (mut pairs, mut found) = (Vec::new(), 0usize);
            let mut add = |prefix, block| {
                // Blocks after 16 TiB are not found.
                pairs.extend(u32::try_from(block).map(|block| (prefix, block)));
                found = found.saturating_add(1);
                if pairs.len() >= SEGMENT {
                    let segment = Segment::new(number, std::mem::take(&mut pairs));
                    self.change(|index| index.segments.push(segment));
                }
                found < most && !self.is_stopped()
            };
            if most > 0 {
                base.blocks(&self.params, &mut add);
            }
            if !pairs.is_empty() {
                let segment = Segment::new(number, pairs);
                self.change(|index| index.segments.push(segment));
            }
            left = left.saturating_sub(found);
            left_to_hash = left_to_hash.saturating_sub(if is_hashed { found } else { 0 });
            if left == 0 || self.is_stopped() {
                return;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index.write());
    }

    /// Whether no block is known (yet).
    pub(crate) fn is_empty(&self) -> bool {
        self.index.read().segments.is_empty()
    }

    /// Whether a block with this digest is probably stored.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.place(digest, 0).is_some()
    }

    /// The base and the number of the block where a block with this digest may be: the first place,
    /// the second one and so on.
    fn place(&self, digest: &Digest, number: usize) -> Option<(usize, u64)> {
        let prefix = prefix(digest.as_bytes());
        let index = self.index.read();
        let mut places =
            index.segments.iter().filter_map(|segment| Some((segment.base, segment.find(prefix)?)));
        places.nth(number)
    }

    fn base(&self, number: usize) -> Option<Arc<Base>> {
        self.index.read().bases.get(number).map(Arc::clone)
    }

    /// The best bases that have trees whose digests can be compared: their bytes, and where the
    /// digests of their blocks are.
    pub(super) fn trees(&self) -> Vec<(Arc<dyn Source>, Range<u64>)> {
        /// Each of them is read for each part of a tree.
        const TREES: usize = 4;
        let bases = self.index.read().bases.clone();
        let trees =
            bases.iter().filter_map(|base| Some((base, base.leaves(&self.params)?))).take(TREES);
        trees.filter_map(|(base, leaves)| Some((base.open()?, leaves))).collect()
    }
}

/// Reads known blocks. It keeps bases open, so it is for the time of one copy.
pub(super) struct Reader<'a> {
    known: &'a KnownBlocks,
    /// The bases that were opened, by number; `None`: it cannot be opened any more.
    opened: Vec<(usize, Option<Arc<dyn Source>>)>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(known: &'a KnownBlocks) -> Self {
        Self { known, opened: Vec::new() }
    }

    /// Fills `buf` with a block that probably has this digest, from the place with this number.
    pub(super) fn read(&mut self, digest: &Digest, number: usize, buf: &mut [u8]) -> bool {
        let Some((base, block)) = self.known.place(digest, number) else { return false };
        let source = match self.opened.iter().find(|(number, _)| *number == base) {
            Some((_, source)) => source.clone(),
            None => {
                let source = self.known.base(base).and_then(|base| base.open());
                self.opened.push((base, source.clone()));
                source
            }
        };
        let pos = block.checked_mul(to_u64(buf.len()));
        pos.zip(source).is_some_and(|(pos, source)| source.read_exact_at(pos, buf).is_ok())
    }
}
