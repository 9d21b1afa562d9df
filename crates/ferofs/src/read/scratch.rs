//! Scratch buffers that requests borrow, so that a warm reader does not allocate.

use std::sync::{Mutex, PoisonError};

use ferofs_codec::Decoder;

/// What one request needs while it decodes.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Encoded bytes of a pcluster.
    pub encoded: Vec<u8>,
    /// Decoded bytes of an extent that the request wants only in part.
    pub decoded: Vec<u8>,
    /// Decoder state.
    pub decoder: Decoder,
}

/// The scratches that nobody uses at the moment: as many as there were requests at once.
#[derive(Debug, Default)]
pub(super) struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    /// Runs `work` with a scratch.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let idle = self.lock().pop();
        let mut scratch = idle.unwrap_or_default();
        let result = work(&mut scratch);
        self.lock().push(scratch);
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        // Pushing and popping cannot leave the list half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
