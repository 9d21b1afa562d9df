//! Objects that are connected to when they are first needed, and bytes that came with the first answers.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ferofs_read::Source;

use super::options::Connected;
use crate::cache::to_usize;
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::object::{RemoteObject, Validator};

/// Connects to the server of an image.
pub type Connect = Box<dyn Fn() -> Result<Connected> + Send + Sync>;

/// An object whose size is known, and whose server is asked when the first part is fetched.
pub(super) struct LazyObject {
    location: String,
    size: u64,
    validator: Validator,
    /// `None`: offline.
    connect: Option<Connect>,
    object: Mutex<Option<Arc<dyn RemoteObject>>>,
}

impl LazyObject {
    pub(super) fn new(location: &str, size: u64, validator: Validator, connect: Connect) -> Self {
        let connect = Some(connect);
        Self { location: location.into(), size, validator, connect, object: Mutex::default() }
    }

    /// An object without a server.
    pub(super) fn offline(location: &str, size: u64) -> Self {
        let validator = Validator::None;
        Self { location: location.into(), size, validator, connect: None, object: Mutex::default() }
    }

    fn object(&self) -> Result<Arc<dyn RemoteObject>, FetchErrorKind> {
        let Some(connect) = &self.connect else {
            return Err(FetchErrorKind::Offline);
        };
        // Other threads wait for the same connection.
        let mut object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = &*object {
            return Ok(Arc::clone(object));
        }
        let connected = connect().map_err(|error| match error {
            Error::Fetch { error, .. } => error.kind,
            other => FetchErrorKind::Protocol(other.to_string()),
        })?;
        if connected.object.size() != self.size || !is_same(connected.object.validator(), &self.validator) {
            return Err(FetchErrorKind::Changed);
        }
        Ok(Arc::clone(object.insert(connected.object)))
    }
}

impl RemoteObject for LazyObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn validator(&self) -> &Validator {
        &self.validator
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn fetch(&self, start: u64, buf: &mut [u8], deadline: Instant) -> Result<(), FetchError> {
        self.object()?.fetch(start, buf, deadline)
    }
}

/// An object, some of whose bytes are in memory.
pub(super) struct Preloaded {
    object: Arc<dyn RemoteObject>,
    pieces: Mutex<Vec<Piece>>,
}

struct Piece {
    start: u64,
    bytes: Vec<u8>,
    /// Where the fetches started that it has answered.
    answered: Vec<u64>,
}

impl Preloaded {
    pub(super) fn new(object: Arc<dyn RemoteObject>) -> Self {
        Self { object, pieces: Mutex::default() }
    }

    /// Keeps bytes that start at `start`.
    pub(super) fn insert(&self, start: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.pieces().push(Piece { start, bytes, answered: Vec::new() });
        }
    }

    /// Fetches `range`, as far as the object goes, if it is not in memory.
    pub(super) fn load(&self, range: Range<u64>, deadline: Instant) -> Result<()> {
        let range = range.start..range.end.min(self.object.size());
        if range.is_empty()
            || self.pieces().iter().any(|piece| within(piece.start, &piece.bytes, &range).is_some())
        {
            return Ok(());
        }
        let mut bytes = vec![0; to_usize(range.end - range.start)];
        let location = || self.object.location().to_owned();
        self.object
            .fetch(range.start, &mut bytes, deadline)
            .map_err(|error| Error::Fetch { location: location(), error })?;
        self.insert(range.start, bytes);
        Ok(())
    }

    /// Copies bytes that are in memory.
    fn copy(&self, start: u64, buf: &mut [u8]) -> bool {
        let range = start..start.saturating_add(buf.len() as u64);
        for piece in self.pieces().iter() {
            if let Some(bytes) =
                within(piece.start, &piece.bytes, &range).and_then(|range| piece.bytes.get(range))
            {
                buf.copy_from_slice(bytes);
                return true;
            }
        }
        false
    }

    /// Forgets pieces that have answered a fetch from `start` on before: the caller did not like the bytes. Marks others.
    fn answer_once(&self, start: u64) {
        self.pieces().retain_mut(|piece| {
            let is_new = !piece.answered.contains(&start);
            piece.answered.push(start);
            is_new
        });
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteObject for Preloaded {
    fn size(&self) -> u64 {
        self.object.size()
    }

    fn validator(&self) -> &Validator {
        self.object.validator()
    }

    fn location(&self) -> &str {
        self.object.location()
    }

    fn fetch(&self, start: u64, buf: &mut [u8], deadline: Instant) -> Result<(), FetchError> {
        self.answer_once(start);
        if self.copy(start, buf) {
            return Ok(());
        }
        self.object.fetch(start, buf, deadline)
    }
}

/// Only what is in memory.
impl Source for Preloaded {
    fn size(&self) -> u64 {
        self.object.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.copy(pos, buf) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Whether two answers were about the same object.
fn is_same(a: &Validator, b: &Validator) -> bool {
    matches!(a, Validator::None) || matches!(b, Validator::None) || a == b
}

/// The bytes of a range that are in memory already.
fn within(start: u64, bytes: &[u8], range: &Range<u64>) -> Option<Range<usize>> {
    let from = range.start.checked_sub(start)?;
    let to = range.end.checked_sub(start).filter(|end| *end <= bytes.len() as u64)?;
    Some(to_usize(from)..to_usize(to))
}
