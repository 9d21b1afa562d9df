//! A bounded cache of decoded clusters, each decoded by one thread at a time.
//!
//! Who finds nothing claims the cluster and decodes it; who comes meanwhile waits for that result instead of decoding
//! the same bytes again (cohort decompression). Buffers pass from evicted clusters to new ones.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::extent::Location;

/// The least capacity of a buffer.
const MIN_BUFFER: usize = 4096;

/// The cache. Keeps one cluster however large; more within its budget.
#[derive(Debug)]
pub(crate) struct Clusters {
    state: Mutex<State>,
    decoded: Condvar,
    budget: usize,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    clock: u64,
    /// Capacity of all buffers, with those of claims under way.
    held: usize,
}

#[derive(Debug)]
struct Slot {
    at: Location,
    /// Two extents of a deduplicated image may use one cluster to different lengths.
    len: usize,
    used: u64,
    /// `None` while a thread decodes it.
    bytes: Option<Arc<Vec<u8>>>,
}

/// What a look-up gave.
pub(crate) enum Found<'a> {
    /// The decoded cluster; `waited` if another thread was decoding it.
    Decoded { bytes: Arc<Vec<u8>>, waited: bool },
    /// The caller is to decode it.
    Claimed(Claim<'a>),
    /// Nobody has it, and the caller did not want to claim it.
    Nothing,
}

/// The right and duty to decode a cluster. Dropped unpublished, it leaves the cluster to the next who asks.
pub(crate) struct Claim<'a> {
    cache: &'a Clusters,
    at: Location,
    len: usize,
    bytes: Arc<Vec<u8>>,
    published: bool,
}

impl Clusters {
    pub(crate) fn new(budget: usize) -> Self {
        Self { state: Mutex::default(), decoded: Condvar::new(), budget }
    }

    pub(crate) const fn is_enabled(&self) -> bool {
        self.budget > 0
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        if self.is_enabled() { self.lock().held } else { 0 }
    }

    /// Looks for the cluster at `at`, of which `len` bytes are used, and waits for it if it is being decoded.
    pub(crate) fn find(&self, at: Location, len: usize, claim: bool) -> Found<'_> {
        let mut waited = false;
        let mut state = self.lock();
        loop {
            state.clock += 1;
            let now = state.clock;
            match state.slots.iter_mut().find(|slot| slot.at == at && slot.len >= len) {
                Some(Slot { bytes: Some(bytes), used, .. }) => {
                    *used = now;
                    return Found::Decoded { bytes: Arc::clone(bytes), waited };
                }
                Some(_) => {
                    waited = true;
                    state = self.decoded.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None if claim => {
                    let bytes = state.make_room(len, self.budget);
                    state.held += bytes.capacity();
                    state.slots.push(Slot { at, len, used: now, bytes: None });
                    return Found::Claimed(Claim { cache: self, at, len, bytes, published: false });
                }
                None => return Found::Nothing,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can leave the state half changed: see `Claim::drop`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A buffer for `len` bytes: a new one, or from clusters that are evicted to stay within `budget`.
    fn make_room(&mut self, len: usize, budget: usize) -> Arc<Vec<u8>> {
        let capacity = class(len);
        while self.held.saturating_add(capacity) > budget {
            // A buffer of the same size passes on as it is, so that a warm cache does not allocate.
            let Some(oldest) = self.oldest(Some(capacity)).or_else(|| self.oldest(None)) else { break };
            let Some(bytes) = self.slots.swap_remove(oldest).bytes else { break };
            self.held -= bytes.capacity();
            if bytes.capacity() == capacity {
                return bytes;
            }
        }
        Arc::new(Vec::with_capacity(capacity))
    }

    /// The least recently used cluster, of a certain capacity if one is given.
    fn oldest(&self, capacity: Option<usize>) -> Option<usize> {
        // What others still copy from, or are decoding, stays.
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| {
            slot.bytes.as_ref().is_some_and(|bytes| {
                Arc::strong_count(bytes) == 1 && capacity.is_none_or(|capacity| bytes.capacity() == capacity)
            })
        });
        idle.min_by_key(|(_, slot)| slot.used).map(|(number, _)| number)
    }
}

/// Buffers come in few sizes, so that they can serve again: a half power of two, or more.
fn class(len: usize) -> usize {
    let power = len.next_power_of_two().max(MIN_BUFFER);
    // Three quarters of it spare a quarter of the memory.
    if len <= power / 4 * 3 { power / 4 * 3 } else { power }
}

impl Claim<'_> {
    /// The buffer to decode into.
    pub(crate) fn buffer(&mut self, len: usize) -> &mut [u8] {
        // Only this claim has the buffer, which has room for `len` bytes.
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.resize(len, 0);
        bytes
    }

    /// Gives the decoded cluster to everyone.
    pub(crate) fn publish(mut self) {
        self.published = true;
        let mut state = self.cache.lock();
        let (at, len) = (self.at, self.len);
        if let Some(slot) = state.slots.iter_mut().find(|s| s.at == at && s.len == len && s.bytes.is_none()) {
            slot.bytes = Some(Arc::clone(&self.bytes));
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.published {
            let mut state = self.cache.lock();
            let (at, len) = (self.at, self.len);
            state.slots.retain(|slot| slot.at != at || slot.len != len || slot.bytes.is_some());
            state.held -= self.bytes.capacity();
        }
        self.cache.decoded.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use ferofs_format::{BytePos, DeviceId};

    use super::*;

    fn at(pos: u64) -> Location {
        Location::Device(DeviceId::new(0), BytePos::new(pos))
    }

    fn decode(cache: &Clusters, pos: u64, len: usize) -> bool {
        match cache.find(at(pos), len, true) {
            Found::Claimed(mut claim) => {
                claim.buffer(len).fill(7);
                claim.publish();
                true
            }
            _ => false,
        }
    }

    #[test]
    fn keeps_the_recent_within_its_budget() {
        const BUDGET: usize = 10_000;
        let cache = Clusters::new(BUDGET);
        assert!(decode(&cache, 0, 4000) && decode(&cache, 1, 4000));
        assert!(!decode(&cache, 0, 4000), "still there");
        assert!(decode(&cache, 2, 4000));
        assert!(cache.held() <= BUDGET);
        assert!(!decode(&cache, 0, 4000) && decode(&cache, 1, 4000), "1 was the older");
        assert!(decode(&cache, 3, 1 << 20) && cache.held() == 1 << 20, "one stays however large");
        assert!(decode(&cache, 4, 10) && cache.held() <= BUDGET);
    }

    #[test]
    fn one_decodes_and_the_others_wait() {
        let cache = Clusters::new(100);
        let Found::Claimed(mut claim) = cache.find(at(0), 10, true) else { panic!("nobody has it yet") };
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| matches!(cache.find(at(0), 10, true), Found::Decoded { .. })))
                .collect();
            claim.buffer(10).fill(1);
            claim.publish();
            assert!(others.into_iter().all(|other| other.join().unwrap()));
        });
    }

    #[test]
    fn a_failed_claim_passes_on() {
        let cache = Clusters::new(100);
        let Found::Claimed(mut claim) = cache.find(at(0), 10, true) else { panic!("nobody has it yet") };
        claim.buffer(10);
        drop(claim);
        assert_eq!(cache.held(), 0);
        assert!(decode(&cache, 0, 10));
    }
}
