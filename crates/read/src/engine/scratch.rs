//! Buffers and decoders that requests borrow while they decode. Buffers come from the pool, or else
//! from the heap.

use std::ops::{Deref, DerefMut};

use ferofs_codec::Decoder;
use parking_lot::Mutex;

#[cfg(not(feature = "comparison"))]
use super::buffer_pool::{BufferPool as Pool, PooledBuffer as PoolBuffer};
#[cfg(feature = "comparison")]
use super::comparison::{Pool, PoolBuffer};
use crate::accounting::memory::Memory;
use crate::accounting::stats::{Counter, Counters};

/// Bytes of idle heap buffers that are kept for later requests, at most; the largest ones, and an
/// eighth of the memory limit. A new one costs as much for each byte as a quarter of decoding it:
/// the kernel clears its pages, and then this process.
const SPARE: usize = 4 << 20;

/// The sources of buffers and decoders.
#[derive(Debug)]
pub(crate) struct Scratch {
    pool: Pool,
    spare: Mutex<Vec<Vec<u8>>>,
    decoders: Mutex<Vec<Decoder>>,
}

/// Memory that a request uses for a while, with any content.
#[derive(Debug)]
pub(crate) enum Buffer<'a> {
    Pool(PoolBuffer<'a>),
    Heap { bytes: Vec<u8>, len: usize, scratch: &'a Scratch, memory: &'a Memory, keep: bool },
}

impl Scratch {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, spare: Mutex::default(), decoders: Mutex::default() }
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A buffer of `len` bytes; a heap buffer is kept for later requests if `keep`.
    pub(crate) fn buffer<'a>(
        &'a self,
        len: usize,
        memory: &'a Memory,
        counters: &Counters,
        keep: bool,
    ) -> Buffer<'a> {
        if let Some(buffer) = self.pool.take(len) {
            return Buffer::Pool(buffer);
        }
        counters.add(Counter::PoolMisses, 1);
        let spare = {
            let mut spare = self.spare.lock();
            let fitting = spare.iter().position(|bytes| bytes.len() >= len);
            fitting.map(|number| spare.remove(number))
        };
        let bytes = spare.unwrap_or_else(|| {
            // With few sizes, more buffers can be used again.
            let capacity = len.next_multiple_of(64 << 10);
            memory.take_or_wait(capacity, counters);
            vec![0; capacity]
        });
        Buffer::Heap { bytes, len, scratch: self, memory, keep }
    }

    /// Keeps an idle heap buffer, and frees the smallest ones beyond [`SPARE`].
    fn keep(&self, bytes: Vec<u8>, memory: &Memory) {
        let mut spare = self.spare.lock();
        let at = spare.partition_point(|other| other.len() < bytes.len());
        spare.insert(at, bytes);
        let mut kept: usize = spare.iter().map(Vec::len).sum();
        while kept > SPARE.min(memory.limit() / 8) {
            let freed = spare.remove(0).len();
            memory.release(freed);
            kept = kept.saturating_sub(freed);
        }
    }

    pub(crate) fn with_decoder<T>(&self, work: impl FnOnce(&mut Decoder) -> T) -> T {
        let idle = self.decoders.lock().pop();
        let mut decoder = idle.unwrap_or_default();
        let result = work(&mut decoder);
        self.decoders.lock().push(decoder);
        result
    }

    /// Frees idle buffers and decoders.
    pub(crate) fn shrink(&self, memory: &Memory) {
        for bytes in self.spare.lock().drain(..) {
            memory.release(bytes.len());
        }
        self.decoders.lock().clear();
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pool(buffer) => buffer,
            Self::Heap { bytes, len, .. } => bytes.split_at(*len).0,
        }
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pool(buffer) => buffer,
            Self::Heap { bytes, len, .. } => bytes.split_at_mut(*len).0,
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let Self::Heap { bytes, scratch, memory, keep, .. } = self else { return };
        let bytes = std::mem::take(bytes);
        if *keep && bytes.len() <= SPARE {
            scratch.keep(bytes, memory);
        } else {
            memory.release(bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer_pool::{BufferPool, PAGE};
    use super::*;

    #[test]
    fn heap_buffers_are_used_again() {
        let pool = BufferPool::new(PAGE);
        #[cfg(feature = "comparison")]
        let pool = Pool::Buffers(pool);
        let (scratch, memory) = (Scratch::new(pool), Memory::new(None));
        let counters = Counters::default();
        let first = scratch.buffer(100, &memory, &counters, true);
        assert!(matches!(first, Buffer::Pool(_)));
        let second = scratch.buffer(100_000, &memory, &counters, true);
        assert!(matches!(second, Buffer::Heap { .. }) && second.len() == 100_000);
        drop(second);
        let held = memory.held();
        assert!(held >= 100_000);
        drop(scratch.buffer(90_000, &memory, &counters, true));
        assert_eq!(memory.held(), held, "the same buffer again");
        drop(scratch.buffer(100_000, &memory, &counters, false));
        assert_eq!((memory.held(), counters.snapshot().pool_misses), (0, 3));
    }
}
