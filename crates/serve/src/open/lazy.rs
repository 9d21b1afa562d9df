//! Objects that are connected to when they are first needed, and bytes that came with the first
//! answers.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant;

use ferofs_read::Source;
use parking_lot::Mutex;

use super::known::Known;
use super::options::Connected;
use crate::error::{Error, FetchErrorKind, Result};
use crate::fetch::{Counters, RetryOptions, fetch};
use crate::object::{Answer, RemoteObject, Validator};
use crate::ranges::{len_of, range_of};
use ferofs_format::units::to_usize;

/// Connects to the server of an image.
pub type Connect = Box<dyn Fn() -> Result<Connected> + Send + Sync>;

/// An object that is known, and whose server is asked when the first part is fetched.
pub(super) struct LazyObject {
    location: String,
    known: Known,
    /// `None`: offline.
    connect: Option<Connect>,
    object: OnceLock<Arc<dyn RemoteObject>>,
    /// Other threads wait for the same connection.
    connecting: Mutex<()>,
}

impl LazyObject {
    /// Without `connect`, an object without a server.
    pub(super) fn new(location: &str, known: Known, connect: Option<Connect>) -> Self {
        let (object, connecting) = (OnceLock::new(), Mutex::default());
        Self { location: location.into(), known, connect, object, connecting }
    }

    fn object(&self) -> Result<&dyn RemoteObject, FetchErrorKind> {
        if let Some(object) = self.object.get() {
            return Ok(&**object);
        }
        let Some(connect) = &self.connect else {
            return Err(FetchErrorKind::Offline);
        };
        let _lock = self.connecting.lock();
        if let Some(object) = self.object.get() {
            return Ok(&**object);
        }
        let connected = connect().map_err(|error| match error {
            Error::Fetch { error, .. } => error.kind,
            other => FetchErrorKind::Protocol(other.to_string()),
        })?;
        if !self.known.can_be(&self.location, &*connected.object) {
            return Err(FetchErrorKind::Changed);
        }
        Ok(&**self.object.get_or_init(|| connected.object))
    }
}

impl RemoteObject for LazyObject {
    fn size(&self) -> u64 {
        self.known.size
    }

    fn validator(&self) -> &Validator {
        &Validator::None
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn ask(
        &self,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Box<dyn Answer + '_>, FetchErrorKind> {
        self.object()?.ask(range, deadline)
    }
}

/// An object while it is opened: bytes of it that are in memory.
pub(super) struct Preloaded {
    object: Arc<dyn RemoteObject>,
    pieces: Vec<Piece>,
}

/// Bytes of an object that nobody has verified.
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

impl Preloaded {
    /// An object whose first bytes are known.
    pub(super) fn new(object: Arc<dyn RemoteObject>, first_bytes: Vec<u8>) -> Self {
        Self { object, pieces: vec![Piece { start: 0, bytes: first_bytes }] }
    }

    /// Fetches `range`, as far as the object goes, if it is not in memory. Sends requests again until
    /// `deadline`.
    pub(super) fn load(&mut self, range: Range<u64>, deadline: Instant) -> Result<()> {
        let range = range.start..range.end.min(self.object.size());
        if range.is_empty() || self.piece(&range).is_some() {
            return Ok(());
        }
        let mut bytes = vec![0; to_usize(len_of(&range))];
        let (object, counters) = (&*self.object, Counters::default());
        let retry = RetryOptions::default();
        fetch(object, range.start, &mut bytes, &retry, &deadline, &counters, |_| Ok(true))
            .map_err(|kind| Error::fetch(object.location(), kind))?;
        self.pieces.push(Piece { start: range.start, bytes });
        Ok(())
    }

    /// The longest piece in memory that starts the object.
    pub(super) fn first_bytes(&self) -> &[u8] {
        let pieces = self.pieces.iter().filter(|piece| piece.start == 0).map(|piece| &*piece.bytes);
        pieces.max_by_key(|bytes| bytes.len()).unwrap_or_default()
    }

    /// The object, and what was fetched of it.
    pub(super) fn into_parts(self) -> (Arc<dyn RemoteObject>, Vec<Piece>) {
        (self.object, self.pieces)
    }

    /// The bytes of `range`, if they are in memory.
    fn piece(&self, range: &Range<u64>) -> Option<&[u8]> {
        self.pieces.iter().find_map(|piece| {
            let from = range.start.checked_sub(piece.start)?;
            let to = range.end.checked_sub(piece.start)?;
            piece.bytes.get(to_usize(from)..to_usize(to))
        })
    }
}

/// Only what is in memory.
impl Source for Preloaded {
    fn size(&self) -> u64 {
        self.object.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let piece = self.piece(&range_of(pos, buf));
        buf.copy_from_slice(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
