//! Buffers that stay allocated between requests, up to a total size.
//!
//! A warm pool does not allocate: requests ask for a few sizes again and again. Buffers that the
//! pool has no space for come from the heap, see [`super::scratch`].

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

/// Bytes that buffer sizes are a multiple of, so that a buffer fits more than one request.
pub(crate) const PAGE: usize = 4096;

/// A buffer of up to this many times the wanted size is used rather than a new one: larger ones are
/// left for requests that need them, as long as the pool has space for a new buffer.
const MAX_SURPLUS: usize = 4;

#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Bytes that all buffers may have together.
    limit: usize,
    state: Mutex<Buffers>,
}

#[derive(Debug, Default)]
struct Buffers {
    idle: Vec<Box<[u8]>>,
    /// Bytes of idle buffers and of those in use.
    allocated: usize,
    /// Bytes of buffers in use.
    used: usize,
    peak: usize,
}

/// A borrowed buffer, with any content.
#[derive(Debug)]
pub(crate) struct PooledBuffer<'a> {
    pool: &'a BufferPool,
    bytes: Box<[u8]>,
    len: usize,
}

impl BufferPool {
    /// A pool of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: (limit / PAGE).saturating_mul(PAGE), state: Mutex::default() }
    }

    /// Bytes that all buffers may have together.
    pub(crate) const fn len(&self) -> usize {
        self.limit
    }

    /// The most bytes that were in use at once.
    pub(crate) fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// A buffer of `len` bytes, if the pool has space for it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the buffers in use are part of the allocated ones, which stay within the limit"
    )]
    pub(crate) fn take(&self, len: usize) -> Option<PooledBuffer<'_>> {
        let size = len.max(1).checked_next_multiple_of(PAGE)?;
        let mut state = self.state.lock();
        if size > self.limit - state.used {
            return None;
        }
        let bytes = state.take_idle(size, size.saturating_mul(MAX_SURPLUS));
        let bytes = match bytes {
            Some(bytes) => Some(bytes),
            None if size <= self.limit - state.allocated => None,
            None => state.take_idle(size, usize::MAX),
        };
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                while size > self.limit - state.allocated {
                    let idle = state.idle.pop()?;
                    state.allocated -= idle.len();
                }
                state.allocated += size;
                vec![0; size].into_boxed_slice()
            }
        };
        state.used += bytes.len();
        state.peak = state.peak.max(state.used);
        Some(PooledBuffer { pool: self, bytes, len })
    }
}

impl Buffers {
    /// The smallest idle buffer of `min` to `max` bytes.
    fn take_idle(&mut self, min: usize, max: usize) -> Option<Box<[u8]>> {
        let fitting =
            self.idle.iter().enumerate().filter(|(_, bytes)| (min..=max).contains(&bytes.len()));
        let (number, _) = fitting.min_by_key(|(_, bytes)| bytes.len())?;
        Some(self.idle.swap_remove(number))
    }
}

impl Deref for PooledBuffer<'_> {
    type Target = [u8];

    #[expect(
        clippy::indexing_slicing,
        reason = "`BufferPool::take` chose a buffer of at least `len` bytes"
    )]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for PooledBuffer<'_> {
    #[expect(clippy::indexing_slicing, reason = "as above")]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for PooledBuffer<'_> {
    #[expect(clippy::arithmetic_side_effects, reason = "`BufferPool::take` added these bytes")]
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.pool.state.lock();
        state.used -= bytes.len();
        state.idle.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_within_the_limit() {
        let pool = BufferPool::new(8 * PAGE + 100);
        assert_eq!(pool.len(), 8 * PAGE);
        let (mut first, mut second) = (pool.take(PAGE - 1).unwrap(), pool.take(3 * PAGE).unwrap());
        first.fill(1);
        second.fill(2);
        assert!(first.len() == PAGE - 1 && first.iter().all(|byte| *byte == 1));
        assert!(pool.take(5 * PAGE).is_none(), "four pages are left");
        drop((first, second));
        assert_eq!(pool.peak(), 4 * PAGE);
        assert_eq!(pool.take(PAGE).unwrap()[0], 1, "the buffer of that size");
        assert_eq!(pool.take(3 * PAGE).unwrap()[0], 2);
        let all = pool.take(8 * PAGE).unwrap();
        assert!(all.iter().all(|byte| *byte == 0), "a new buffer, in place of the others");
        drop(all);
        assert_eq!(
            (pool.take(1).unwrap().len(), pool.state.lock().allocated),
            (1, 8 * PAGE),
            "rather than one more"
        );
    }

    #[test]
    fn an_empty_pool_has_no_buffers() {
        let pool = BufferPool::new(10);
        assert!(pool.take(1).is_none() && pool.len() == 0);
    }
}
