//! An object whose first bytes came when it was opened, so that they are not fetched again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::{FetchError, FetchErrorKind};
use crate::numbers::{to_u64, to_usize};
use crate::object::{Answer, RemoteObject, Validator};

/// Answers one request for a part of the first bytes from memory: if the bytes are wrong, the server is asked the next time.
pub(super) struct WithFirstBytes {
    object: Arc<dyn RemoteObject>,
    first: Mutex<Option<Vec<u8>>>,
}

impl WithFirstBytes {
    pub(super) fn new(object: Arc<dyn RemoteObject>, first: Vec<u8>) -> Self {
        Self { object, first: Mutex::new(Some(first)) }
    }
}

impl RemoteObject for WithFirstBytes {
    fn size(&self) -> u64 {
        self.object.size()
    }

    fn validator(&self) -> &Validator {
        self.object.validator()
    }

    fn location(&self) -> &str {
        self.object.location()
    }

    fn ask(&self, range: Range<u64>, deadline: Instant) -> Result<Box<dyn Answer + '_>, FetchErrorKind> {
        let mut first = self.first.lock();
        let Some(bytes) = first.take_if(|bytes| range.end <= to_u64(bytes.len())) else {
            drop(first);
            return self.object.ask(range, deadline);
        };
        Ok(Box::new(Memory { bytes, position: to_usize(range.start) }))
    }
}

/// Bytes in memory.
struct Memory {
    bytes: Vec<u8>,
    position: usize,
}

impl Answer for Memory {
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), FetchError> {
        let end = self.position.saturating_add(buf.len());
        let bytes = self.bytes.get(self.position..end).ok_or(FetchErrorKind::Short)?;
        buf.copy_from_slice(bytes);
        self.position = end;
        Ok(())
    }
}
