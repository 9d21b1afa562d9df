//! The interface of a client for a protocol to the fetcher: ranges of one object.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::error::{FetchError, FetchErrorKind};
use crate::ranges::range_of;

/// Tells whether two answers are about the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validator {
    /// The SHA-256 digest of the complete object, in hexadecimal: a registry promises it.
    Sha256(String),
    /// A strong ETag of HTTP, with its quotes.
    ETag(String),
    /// The time of the last change, as the server writes it: one second is its resolution.
    LastModified(String),
    /// The server gives nothing that tells a changed object.
    None,
}

/// An object on a server: an image, or a layer. Its size and its validator are fixed when it is
/// opened.
///
/// Several threads fetch at the same time; each fetch uses a connection of its own.
pub trait RemoteObject: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// The identity of the bytes. A fetch from an object that changed since then fails with
    /// [`FetchErrorKind::Changed`].
    fn validator(&self) -> &Validator;

    /// The location without passwords and signatures, for messages.
    fn location(&self) -> &str;

    /// Asks for the bytes of `range`, which is not empty, by one request. Does not retry, except
    /// once with new credentials if the server does not accept those that it was given. The answer
    /// must be complete at `deadline`.
    ///
    /// # Errors
    /// The reason why no bytes come.
    fn ask(
        &self,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Box<dyn Answer + '_>, FetchErrorKind>;

    /// Fills `buf` with the bytes from `start` on, by one request.
    ///
    /// # Errors
    /// [`FetchError`] tells the reason and how many bytes at the start of `buf` are right: a retry
    /// can continue after them.
    fn fetch(&self, start: u64, buf: &mut [u8], deadline: Instant) -> Result<(), FetchError> {
        if buf.is_empty() {
            return Ok(());
        }
        self.ask(range_of(start, buf), deadline)?.fill(buf)
    }
}

/// The time `time` after `start`; a century after it if the system does not count so far.
pub(crate) fn later(start: Instant, time: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    start.checked_add(time).or_else(|| start.checked_add(CENTURY)).unwrap_or(start)
}

/// The bytes that a server sends, in their order.
pub trait Answer {
    /// Fills `buf` with the next bytes. The requested range must have that many.
    ///
    /// # Errors
    /// [`FetchError`] tells the reason and how many bytes at the start of `buf` arrived.
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), FetchError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_without_end_is_a_deadline() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(5)) - now, Duration::from_secs(5));
        assert!(later(now, Duration::MAX) - now > Duration::from_secs(1 << 31));
    }
}
