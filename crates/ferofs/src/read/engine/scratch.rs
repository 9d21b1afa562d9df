//! Scratch buffers that requests borrow, so that a warm reader does not allocate.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ferofs_codec::Decoder;

/// What one request needs while it decodes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Encoded bytes of a pcluster.
    pub encoded: Vec<u8>,
    /// Decoded bytes of an extent that the request wants only in part.
    pub decoded: Vec<u8>,
    /// Decoder state.
    pub decoder: Decoder,
    /// Bytes of the buffers when they were last counted.
    counted: usize,
}

/// The scratches that nobody uses at the moment: as many as there were requests at once.
#[derive(Debug)]
pub(crate) struct Scratches {
    idle: Mutex<Vec<Scratch>>,
    held: AtomicUsize,
    low_memory: bool,
}

impl Scratches {
    pub(super) fn new(low_memory: bool) -> Self {
        Self { idle: Mutex::default(), held: AtomicUsize::new(0), low_memory }
    }

    /// Runs `work` with a scratch, and `finish` before any of its memory is given back.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Scratch) -> T, finish: impl FnOnce()) -> T {
        let idle = self.lock().pop();
        let mut scratch = idle.unwrap_or_default();
        let result = work(&mut scratch);
        self.count(&mut scratch);
        finish();
        if self.low_memory {
            scratch.encoded = Vec::new();
            scratch.decoded = Vec::new();
            self.count(&mut scratch);
        }
        self.lock().push(scratch);
        result
    }

    fn count(&self, scratch: &mut Scratch) {
        let now = scratch.encoded.capacity() + scratch.decoded.capacity();
        // Two steps, so that the sum never goes below zero.
        self.held.fetch_add(now, Relaxed);
        self.held.fetch_sub(std::mem::replace(&mut scratch.counted, now), Relaxed);
    }

    /// Bytes of all buffers, as of the end of the requests that used them.
    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        // Pushing and popping cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
