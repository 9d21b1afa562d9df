//! A bounded cache of decoded clusters, each decoded by one thread at a time.
//!
//! The first thread that misses a cluster gets a [`Decoding`]; threads that want it meanwhile wait
//! for the result instead of decoding the same bytes again (single-flight). The result need not go
//! to the cache: see [`Decoding::is_wanted`]. Buffers of evicted clusters are used again for new
//! ones.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::accounting::memory::Memory;
use crate::accounting::stats::{Counter, Counters};
use crate::metadata::extent::Location;

/// Clusters whose first partial read is remembered although they were not kept. With more of them
/// at once, a second read of the oldest counts as its first.
const PARTIAL_READS: usize = 32;

/// The cache. Its clusters stay within the budget, but without a memory limit one cluster may be
/// larger.
#[derive(Debug)]
pub(crate) struct Clusters {
    state: Mutex<Slots>,
    decoded: Condvar,
    budget: usize,
    /// Bytes of the smallest buffers: with few sizes, more evicted buffers fit new clusters.
    least: usize,
    /// Whether one cluster may be larger than the budget.
    keeps_one: bool,
    memory: Arc<Memory>,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Slot>,
    clock: u64,
    /// Bytes of all buffers, with those being decoded to.
    held: usize,
    /// Clusters that were [read in part](Clusters::is_first_partial_read) lately, and the index of
    /// the next one.
    partial_reads: [Option<Location>; PARTIAL_READS],
    next_partial_read: usize,
}

#[derive(Debug)]
struct Slot {
    at: Location,
    /// Two extents of a deduplicated image may use one cluster to different lengths.
    len: usize,
    used: u64,
    /// Threads that wait until it is decoded.
    waiting: u32,
    /// `None` while a thread decodes it.
    bytes: Option<Arc<Vec<u8>>>,
}

/// The result of a look-up.
pub(crate) enum Found<'a> {
    /// The decoded cluster.
    Decoded(Arc<Vec<u8>>),
    /// The caller must decode it.
    Missing(Decoding<'a>),
}

/// A cluster that this thread decodes, for which others may wait. Dropped without
/// [`Self::publish`], it lets one of them decode the cluster.
pub(crate) struct Decoding<'a> {
    cache: &'a Clusters,
    at: Location,
    /// `None` before [`Self::buffer`], and after [`Self::publish`].
    bytes: Option<Arc<Vec<u8>>>,
    published: bool,
}

impl Clusters {
    pub(crate) fn new(budget: usize, least: usize, keeps_one: bool, memory: Arc<Memory>) -> Self {
        Self { state: Mutex::default(), decoded: Condvar::new(), budget, least, keeps_one, memory }
    }

    /// Whether a cluster of `len` bytes may be kept.
    pub(crate) const fn takes(&self, len: usize) -> bool {
        self.budget > 0 && (self.keeps_one || self.class(len) <= self.budget)
    }

    /// Looks for the cluster at `at`, of which `len` bytes are used; waits for a thread that is
    /// decoding it.
    pub(crate) fn find(&self, at: Location, len: usize, counters: &Counters) -> Found<'_> {
        let mut waited = false;
        let mut state = self.state.lock();
        loop {
            state.clock = state.clock.saturating_add(1);
            let now = state.clock;
            let found = state
                .slots
                .iter_mut()
                .find(|slot| slot.at == at && (slot.bytes.is_none() || slot.len >= len));
            match found {
                Some(Slot { bytes: Some(bytes), used, .. }) => {
                    *used = now;
                    counters.add(Counter::ClusterHits, 1);
                    counters.add(Counter::CohortHits, waited.into());
                    return Found::Decoded(Arc::clone(bytes));
                }
                Some(slot) => {
                    slot.waiting = slot.waiting.saturating_add(1);
                    waited = true;
                    let start = Instant::now();
                    self.decoded.wait(&mut state);
                    counters.stalled(start);
                }
                None => {
                    state.slots.push(Slot { at, len, used: now, waiting: 0, bytes: None });
                    return Found::Missing(Decoding {
                        cache: self,
                        at,
                        bytes: None,
                        published: false,
                    });
                }
            }
        }
    }

    /// Whether `len` bytes of the cluster at `at` are decoded, or being decoded.
    pub(crate) fn contains(&self, at: Location, len: usize) -> bool {
        let state = self.state.lock();
        state.slots.iter().any(|slot| slot.at == at && (slot.bytes.is_none() || slot.len >= len))
    }

    /// Records a read of a part of the cluster at `at`; returns whether it is the first one lately,
    /// so that the rest need not be kept.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "a remainder by `PARTIAL_READS` is below it"
    )]
    pub(crate) fn is_first_partial_read(&self, at: Location) -> bool {
        let mut state = self.state.lock();
        if state.partial_reads.contains(&Some(at)) {
            return false;
        }
        let next = state.next_partial_read % PARTIAL_READS;
        state.partial_reads[next] = Some(at);
        state.next_partial_read = next + 1;
        true
    }

    /// Evicts all clusters that no thread uses, except one.
    pub(crate) fn shrink(&self) {
        let mut state = self.state.lock();
        while state.slots.len() > 1 {
            let Some(oldest) = state.oldest(0..=usize::MAX) else { break };
            self.drop_slot(&mut state, oldest);
        }
    }

    /// A buffer for `len` bytes: a new one, or from clusters that are evicted to stay within the
    /// budget.
    fn take_buffer(&self, len: usize) -> Arc<Vec<u8>> {
        let capacity = self.class(len);
        let mut state = self.state.lock();
        while state.held.saturating_add(capacity) > self.budget {
            // A buffer of about this size is used again, so that a warm cache does not allocate.
            if let Some(fitting) = state.oldest(capacity..=capacity.saturating_mul(4)) {
                // An idle buffer has no other owner.
                return state.slots.swap_remove(fitting).bytes.unwrap_or_default();
            }
            let Some(oldest) = state.oldest(0..=usize::MAX) else { break };
            self.drop_slot(&mut state, oldest);
        }
        state.held = state.held.saturating_add(capacity);
        self.memory.take(capacity);
        Arc::new(Vec::with_capacity(capacity))
    }

    fn drop_slot(&self, state: &mut Slots, number: usize) {
        let capacity = state.slots.swap_remove(number).bytes.map_or(0, |bytes| bytes.capacity());
        self.release(state, capacity);
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`take_buffer` added the capacity, which no buffer changes"
    )]
    fn release(&self, state: &mut Slots, capacity: usize) {
        state.held -= capacity;
        self.memory.release(capacity);
    }

    /// The capacity for `len` bytes: a power of two, or three quarters of one.
    const fn class(&self, len: usize) -> usize {
        let least = if len > self.least { len } else { self.least };
        let power = least.next_power_of_two();
        // Three quarters, where they suffice, save a quarter of the memory.
        let three_quarters = (power / 4).saturating_mul(3);
        if least <= three_quarters { three_quarters } else { power }
    }
}

impl Slots {
    /// The least recently used cluster of those whose buffers have a certain capacity.
    fn oldest(&self, capacity: RangeInclusive<usize>) -> Option<usize> {
        // Not those that other threads copy from, or decode to.
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| {
            slot.bytes.as_ref().is_some_and(|bytes| {
                Arc::strong_count(bytes) == 1 && capacity.contains(&bytes.capacity())
            })
        });
        idle.min_by_key(|(_, slot)| slot.used).map(|(number, _)| number)
    }
}

impl Decoding<'_> {
    /// Whether another thread waits for this cluster.
    pub(crate) fn is_wanted(&self) -> bool {
        self.cache.state.lock().slots.iter().any(|slot| slot.at == self.at && slot.waiting > 0)
    }

    /// The buffer to decode into.
    pub(crate) fn buffer(&mut self, len: usize) -> &mut [u8] {
        let bytes = self.bytes.get_or_insert_with(|| self.cache.take_buffer(len));
        // No other thread has the buffer yet; its capacity suffices, as callers ask once.
        let bytes = Arc::make_mut(bytes);
        bytes.resize(len, 0);
        bytes
    }

    /// Stores the first `len` decoded bytes in the cache, and wakes the threads that wait for them.
    pub(crate) fn publish(mut self, len: usize) {
        let mut state = self.cache.state.lock();
        self.published = true;
        state.clock = state.clock.saturating_add(1);
        let now = state.clock;
        if let Some(slot) = state.slots.iter_mut().find(|s| s.at == self.at && s.bytes.is_none()) {
            (slot.len, slot.used) = (len, now);
            slot.bytes = self.bytes.take();
            if std::mem::take(&mut slot.waiting) > 0 {
                self.cache.decoded.notify_all();
            }
        }
        // Clusters that were decoded at the same time can exceed the budget. This one is the
        // newest, and stays.
        while state.held > self.cache.budget {
            let Some(oldest) = state.oldest(0..=usize::MAX) else { break };
            if state.slots.get(oldest).is_none_or(|slot| slot.used == now) {
                break;
            }
            self.cache.drop_slot(&mut state, oldest);
        }
    }
}

impl Drop for Decoding<'_> {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        let mut state = self.cache.state.lock();
        if let Some(bytes) = self.bytes.take() {
            self.cache.release(&mut state, bytes.capacity());
        }
        let Some(number) = state.slots.iter().position(|s| s.at == self.at && s.bytes.is_none())
        else {
            return;
        };
        if state.slots.swap_remove(number).waiting > 0 {
            self.cache.decoded.notify_all();
        }
    }
}
