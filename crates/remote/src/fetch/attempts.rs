//! Requests with retries: exponential backoff with jitter, and what the server asks for.

use std::time::{Duration, Instant};

use crate::error::{FetchError, FetchErrorKind};
use crate::fetch::stats::{Counters, add};
use crate::object::RemoteObject;

/// How long requests may take, and when they are sent again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryOptions {
    /// The time for one request, without the time that its bytes take on a slow line.
    pub request: Duration,
    /// The slowest line that is served, in bytes a second.
    pub slowest: u64,
    /// The pause before the first retry. Each next pause is twice as long, and a random part of it.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            slowest: 64 << 10,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
        }
    }
}

impl RetryOptions {
    /// The time for a request of `len` bytes.
    fn limit(&self, len: usize) -> Duration {
        self.request + Duration::from_secs_f64(len as f64 / self.slowest.max(1) as f64)
    }

    /// The pause before retry `number`, from 0. `random` is between 0 and 1.
    fn pause(&self, number: u32, random: f64) -> Duration {
        let longest = self.first_pause.saturating_mul(1 << number.min(20)).min(self.longest_pause);
        // At least half, so that several clients do not come at the same time, and none comes at once.
        longest.mul_f64(0.5 + random / 2.0)
    }
}

/// A number between 0 and 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// What decides about a retry.
pub(crate) trait Patience {
    /// When the last reader gives up. `None`: nobody wants the bytes any more.
    fn deadline(&self) -> Option<Instant>;

    /// Waits, unless the fetcher ends.
    fn pause(&self, time: Duration);

    /// Records why a request failed, for the messages of readers that give up.
    fn failed(&self, error: &FetchErrorKind);
}

/// Fills `buf` with the bytes from `start` on, and lets `check` tell whether they are right. Sends the request again as long as the error may be
/// temporary and somebody waits; continues after the bytes that arrived.
pub(crate) fn fetch(
    object: &dyn RemoteObject,
    start: u64,
    buf: &mut [u8],
    options: &RetryOptions,
    patience: &dyn Patience,
    stats: &Counters,
    check: impl Fn(&[u8]) -> Result<bool, FetchErrorKind>,
) -> Result<(), FetchErrorKind> {
    let mut received = 0;
    for number in 0.. {
        let now = Instant::now();
        let Some(deadline) = patience.deadline().filter(|deadline| *deadline > now) else {
            return Err(FetchErrorKind::Timeout);
        };
        let limit = now + options.limit(buf.len() - received);
        let result = object.fetch(start + received as u64, &mut buf[received..], limit.min(deadline));
        let arrived = result
            .as_ref()
            .map_or_else(|error| error.received.min(buf.len() - received), |()| buf.len() - received);
        stats.request(arrived as u64, u64::try_from(now.elapsed().as_micros()).unwrap_or(u64::MAX));
        let kind = match result {
            Ok(()) => {
                if check(buf)? {
                    return Ok(());
                }
                received = 0;
                FetchErrorKind::Digest
            }
            Err(FetchError { kind, .. }) => {
                received += arrived;
                kind
            }
        };
        count(stats, &kind);
        // That a retry had no time left does not tell why the request before it failed.
        if number == 0 || limit <= deadline || !matches!(kind, FetchErrorKind::Timeout) {
            patience.failed(&kind);
        }
        if !kind.is_temporary() || (matches!(kind, FetchErrorKind::Digest) && number >= WRONG_MAX) {
            return Err(kind);
        }
        let pause = options.pause(number, random());
        let pause = kind.retry_after().map_or(pause, |asked| asked.max(pause));
        let left = patience.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left <= pause) {
            return Err(kind);
        }
        patience.pause(pause);
        add(&stats.retries, 1);
    }
    Err(FetchErrorKind::Timeout)
}

/// Retries after bytes with a wrong digest: a server that has other bytes will not change its mind.
const WRONG_MAX: u32 = 3;

fn count(stats: &Counters, kind: &FetchErrorKind) {
    let counter = match kind {
        FetchErrorKind::Timeout => &stats.timeouts,
        FetchErrorKind::Digest => &stats.digest_errors,
        FetchErrorKind::Connection(_)
        | FetchErrorKind::Short
        | FetchErrorKind::Name(_)
        | FetchErrorKind::Tls(_) => &stats.connection_errors,
        _ => &stats.server_errors,
    };
    add(counter, 1);
}
