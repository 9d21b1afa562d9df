//! The reader's end of a channel.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::message::{self, Answer, LONGEST, Outcome, Request, to_bytes};
use crate::fetch::{Failure, FetchStats};
use crate::object::later;
use crate::source::Supply;

/// The longest time for the answer to a question about the counters.
const STATS_TIME: Duration = Duration::from_secs(1);
/// The most ranges that are fetched in the background. Readers fetch the bytes of further ones when
/// they need them.
pub const BACKGROUND_MAX: usize = 4096;
/// How long an announcement waits for a fetcher that is busy.
const BACKGROUND_TIME: Duration = Duration::from_secs(10);
/// How long the server may take beyond the time that it was given, because its clock ticks in
/// steps.
const GRACE: Duration = Duration::from_millis(500);

/// Asks a fetcher in another process.
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    socket: OwnedFd,
    state: Mutex<Requests>,
    answered: Condvar,
}

#[derive(Default)]
struct Requests {
    next_id: u64,
    /// Requests that wait, and their answers.
    waiting: HashMap<u64, (Vec<u8>, Option<Outcome>)>,
    /// Ranges to fetch in the background, also by the next fetcher.
    background: Vec<Range<u64>>,
    /// The thread that receives answers runs.
    receives: bool,
    /// Nobody has the other end any more.
    closed: bool,
}

impl Client {
    /// Uses this end of [`super::pair`]. The thread that receives answers starts with the first
    /// request, so that a process can restrict itself before.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            shared: Arc::new(Shared { socket, state: Mutex::default(), answered: Condvar::new() }),
        }
    }

    /// The counters of the fetcher.
    ///
    /// # Errors
    /// [`Failure`] if it does not answer.
    pub fn stats(&self) -> Result<FetchStats, Failure> {
        match self.ask(|id, _| Request::Stats { id }, later(Instant::now(), STATS_TIME))? {
            Outcome::Stats(stats) => Ok(*stats),
            _ => Err(failure("the fetcher gives no counters", false)),
        }
    }

    /// Has `ranges` fetched when no reader wants anything, also by a fetcher that starts later. At
    /// most [`BACKGROUND_MAX`] of all calls together. Does not wait for them.
    ///
    /// # Errors
    /// [`Failure`] if the fetcher takes no requests.
    pub fn background(&self, ranges: &[Range<u64>]) -> Result<(), Failure> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        shared.start_receiving(&mut state)?;
        let room = BACKGROUND_MAX.saturating_sub(state.background.len());
        let ranges = ranges.get(..room).unwrap_or(ranges);
        state.background.extend_from_slice(ranges);
        drop(state);
        let deadline = later(Instant::now(), BACKGROUND_TIME);
        let sent = message::background(ranges).try_for_each(|bytes| shared.send(&bytes, deadline));
        sent.map_err(|error| failure(&error.to_string(), false))
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "deadlines are minutes away, and a time has room for centuries"
    )]
    fn ask(
        &self,
        request: impl FnOnce(u64, u32) -> Request,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        shared.start_receiving(&mut state)?;
        let id = state.next_id;
        state.next_id = state.next_id.wrapping_add(1);
        let left = deadline.saturating_duration_since(Instant::now());
        let time = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let bytes = to_bytes(&request(id, time));
        state.waiting.insert(id, (bytes.clone(), None));
        drop(state);
        let sent = shared.send(&bytes, deadline);
        let mut state = shared.state.lock();
        if sent.is_err() {
            state.waiting.remove(&id);
            return Err(failure("the fetcher does not answer", true));
        }
        loop {
            if let Some(outcome) = state.waiting.get_mut(&id).and_then(|(_, answer)| answer.take())
            {
                state.waiting.remove(&id);
                return match outcome {
                    Outcome::Failed { reason, is_timeout } => Err(failure(&reason, is_timeout)),
                    outcome => Ok(outcome),
                };
            }
            let left = (deadline + GRACE).saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                state.waiting.remove(&id);
                let reason = if state.closed {
                    "the fetcher has ended"
                } else {
                    "the fetcher does not answer"
                };
                return Err(failure(reason, !state.closed));
            }
            shared.answered.wait_for(&mut state, left);
        }
    }
}

impl Supply for Client {
    fn ensure(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure> {
        let want = |id, milliseconds| Request::Want { id, range, milliseconds, repair: false };
        self.ask(want, deadline).map(drop)
    }

    fn repair(&self, range: Range<u64>, deadline: Instant) -> Result<(), Failure> {
        let want = |id, milliseconds| Request::Want { id, range, milliseconds, repair: true };
        self.ask(want, deadline).map(drop)
    }

    fn prefetch(&self, range: Range<u64>) {
        let bytes = to_bytes(&Request::Prefetch(range));
        // A fetcher that has no time for requests has none for announcements.
        let _ = send(&self.shared.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Shared {
    /// Starts the thread that receives answers, once.
    fn start_receiving(self: &Arc<Self>, state: &mut Requests) -> Result<(), Failure> {
        if !state.receives {
            state.receives = true;
            // Answers to another process that used this end before may still arrive.
            state.next_id = u64::from(std::process::id()) << 32;
            let weak = Arc::downgrade(self);
            let started = Builder::new().name("answers".into()).spawn(move || receive(&weak));
            started.map_err(|error| failure(&error.to_string(), false))?;
        }
        Ok(())
    }

    /// Sends a message, and waits for room in the socket.
    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        loop {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            wait_for(&self.socket, PollFlags::OUT, left.min(Duration::from_millis(100)))?;
        }
    }
}

/// Receives answers until the other end, or this one, is closed.
fn receive(shared: &Weak<Shared>) {
    let mut bytes = [0; LONGEST];
    while let Some(shared) = shared.upgrade() {
        // Looks from time to time whether this end is still used.
        match wait_for(&shared.socket, PollFlags::IN, Duration::from_millis(500)) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return shared.close(),
        }
        let len = match recv(&shared.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return shared.close(),
            Ok((_, len)) => len,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(_) => return shared.close(),
        };
        let answer = serde_json::from_slice(bytes.get(..len).unwrap_or_default());
        let Ok(Answer { id, outcome }) = answer else { continue };
        if matches!(outcome, Outcome::Started) {
            shared.send_again();
            continue;
        }
        let mut state = shared.state.lock();
        if let Some((_, place)) = state.waiting.get_mut(&id) {
            *place = Some(outcome);
            shared.answered.notify_all();
        }
    }
}

impl Shared {
    fn close(&self) {
        self.state.lock().closed = true;
        self.answered.notify_all();
    }

    /// Sends all waiting requests to a new fetcher, which does not know them.
    fn send_again(&self) {
        let state = self.state.lock();
        let waiting = state.waiting.values().filter(|(_, answer)| answer.is_none());
        let waiting = waiting.map(|(bytes, _)| bytes.clone());
        let messages: Vec<_> = waiting.chain(message::background(&state.background)).collect();
        drop(state);
        for bytes in messages {
            let _ = self.send(&bytes, later(Instant::now(), STATS_TIME));
        }
    }
}

fn wait_for(socket: &OwnedFd, flags: PollFlags, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, flags)], Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn failure(reason: &str, is_timeout: bool) -> Failure {
    Failure { text: reason.into(), is_timeout }
}
