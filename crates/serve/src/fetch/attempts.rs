//! Requests with retries: exponential backoff with jitter, and what the server asks for.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::error::{FetchError, FetchErrorKind};
use crate::fetch::stats::Counters;
use crate::object::{Answer, RemoteObject, later};
use crate::ranges::range_of;
use ferofs_format::units::to_u64;

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
    fn limit(&self, len: u64) -> Duration {
        self.request.saturating_add(self.transfer(len))
    }

    /// The time that `len` bytes take on the slowest line.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the slowest line has at least a byte a second"
    )]
    pub(crate) fn transfer(&self, len: u64) -> Duration {
        Duration::from_micros(len.saturating_mul(1_000_000) / self.slowest.max(1))
    }

    /// The pause before retry `number`, from 0. `random` is between 0 and 1.
    fn pause(&self, number: u32, random: f64) -> Duration {
        let longest = self.first_pause.saturating_mul(1 << number.min(20)).min(self.longest_pause);
        // At least half, so that several clients do not come at the same time, and none comes at
        // once.
        longest.mul_f64(0.5 + random / 2.0)
    }
}

/// A number between 0 and 1.
#[expect(clippy::as_conversions, reason = "the lowest bits do not count")]
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// Decides about retries.
pub(crate) trait Patience {
    /// When the last reader gives up. `None`: nobody wants the bytes any more.
    fn deadline(&self) -> Option<Instant>;

    /// Waits, unless the fetcher ends.
    fn pause(&self, time: Duration);

    /// Records why a request failed, for the messages of readers that give up.
    fn failed(&self, error: &FetchErrorKind);
}

/// Until then, the request is sent again.
impl Patience for Instant {
    fn deadline(&self) -> Option<Instant> {
        Some(*self)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn failed(&self, _: &FetchErrorKind) {}
}

/// Takes the bytes that arrive: parts of a range, in their order.
pub(crate) trait Sink {
    /// The buffer for the part that starts at `start`. Each call with this start returns the same
    /// length.
    fn part(&mut self, start: u64) -> &mut [u8];

    /// Takes the part that starts at `start`, all of whose bytes have arrived. Returns false if
    /// they are wrong.
    fn take(&mut self, start: u64) -> Result<bool, FetchErrorKind>;
}

/// A range in memory that is one part.
struct Whole<'a, C> {
    buf: &'a mut [u8],
    check: C,
}

impl<C: Fn(&[u8]) -> Result<bool, FetchErrorKind>> Sink for Whole<'_, C> {
    fn part(&mut self, _: u64) -> &mut [u8] {
        self.buf
    }

    fn take(&mut self, _: u64) -> Result<bool, FetchErrorKind> {
        (self.check)(self.buf)
    }
}

/// Fills `buf` with the bytes from `start` on, and lets `check` tell whether they are right.
pub(crate) fn fetch(
    object: &dyn RemoteObject,
    start: u64,
    buf: &mut [u8],
    options: &RetryOptions,
    patience: &dyn Patience,
    stats: &Counters,
    check: impl Fn(&[u8]) -> Result<bool, FetchErrorKind>,
) -> Result<(), FetchErrorKind> {
    let range = range_of(start, buf);
    fetch_parts(object, range, options, patience, stats, &mut Whole { buf, check })
}

/// Fetches the bytes of `range` into `sink`. Sends the request again as long as the error may be
/// temporary and somebody waits; continues after the bytes that arrived.
pub(crate) fn fetch_parts(
    object: &dyn RemoteObject,
    range: Range<u64>,
    options: &RetryOptions,
    patience: &dyn Patience,
    stats: &Counters,
    sink: &mut dyn Sink,
) -> Result<(), FetchErrorKind> {
    let mut arrived = Arrived { part: range.start, bytes: 0, received: 0 };
    let mut number = 0;
    while arrived.part < range.end {
        let now = Instant::now();
        let Some(deadline) = patience.deadline().filter(|deadline| *deadline > now) else {
            return Err(FetchErrorKind::Timeout);
        };
        let before = arrived;
        let limit = later(now, options.limit(range.end.saturating_sub(arrived.position())));
        let asked = object.ask(arrived.position()..range.end, limit.min(deadline));
        let result = asked
            .map_err(Stop::Retry)
            .and_then(|mut answer| receive(&mut *answer, range.end, &mut arrived, sink));
        let micros = u64::try_from(now.elapsed().as_micros()).unwrap_or(u64::MAX);
        stats.request(arrived.received.saturating_sub(before.received), micros);
        let kind = match result {
            Ok(()) => return Ok(()),
            Err(Stop::End(kind)) => return Err(kind),
            Err(Stop::Retry(kind)) => kind,
        };
        count(stats, &kind);
        // That a retry had no time left does not tell why the request before it failed.
        if number == 0 || limit <= deadline || !matches!(kind, FetchErrorKind::Timeout) {
            patience.failed(&kind);
        }
        if arrived.part > before.part {
            // The server works, if only for some time.
            number = 0;
        }
        if !kind.is_temporary() || (matches!(kind, FetchErrorKind::Digest) && number >= WRONG_MAX) {
            return Err(kind);
        }
        let pause = options.pause(number, random());
        // A server asks many clients at the same time: they come back one after the other.
        let after =
            |asked: Duration| asked.max(pause).saturating_add(asked.mul_f64(random() / 4.0));
        let pause = kind.retry_after().map_or(pause, after);
        let left =
            patience.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_none_or(|left| left <= pause) {
            return Err(kind);
        }
        patience.pause(pause);
        stats.retries.add(1);
        number = number.saturating_add(1);
    }
    Ok(())
}

/// How much of a range has arrived.
#[derive(Clone, Copy)]
struct Arrived {
    /// The start of the first part that is not complete.
    part: u64,
    /// Bytes of that part that are there.
    bytes: usize,
    /// Bytes of all requests.
    received: u64,
}

impl Arrived {
    fn position(&self) -> u64 {
        self.part.saturating_add(to_u64(self.bytes))
    }
}

/// Why an answer is not used any more.
enum Stop {
    /// Another request may help.
    Retry(FetchErrorKind),
    End(FetchErrorKind),
}

/// Reads the parts of a range up to `end` from `answer`.
fn receive(
    answer: &mut dyn Answer,
    end: u64,
    arrived: &mut Arrived,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    while arrived.part < end {
        let part = sink.part(arrived.part);
        let (start, len) = (arrived.part, part.len());
        let rest = part.get_mut(arrived.bytes..).unwrap_or_default();
        if let Err(FetchError { kind, received }) = answer.fill(rest) {
            let received = received.min(rest.len());
            arrived.bytes = arrived.bytes.saturating_add(received);
            arrived.received = arrived.received.saturating_add(to_u64(received));
            return Err(Stop::Retry(kind));
        }
        arrived.received = arrived.received.saturating_add(to_u64(rest.len()));
        arrived.bytes = 0;
        if !sink.take(start).map_err(Stop::End)? {
            return Err(Stop::Retry(FetchErrorKind::Digest));
        }
        // A part is not empty.
        arrived.part = arrived.part.saturating_add(to_u64(len.max(1)));
    }
    Ok(())
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
    counter.add(1);
}
