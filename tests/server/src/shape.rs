//! Latency and bandwidth, and pauses that end when the server ends.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Shape {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    latency: Duration,
    /// Bytes a second, of all connections together; 0 for any.
    bandwidth: u64,
    /// When the bytes that were given out before have left.
    free_at: Option<Instant>,
    is_ended: bool,
}

impl Shape {
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    pub(crate) fn set_bandwidth(&self, bandwidth: u64) {
        let mut state = self.state.lock();
        state.bandwidth = bandwidth;
        state.free_at = None;
    }

    /// Waits for the latency of a request.
    pub(crate) fn latency(&self) {
        let latency = self.state.lock().latency;
        self.pause(latency);
    }

    /// The number of bytes to send at a time: at most 10 ms of the bandwidth.
    pub(crate) fn unit(&self) -> usize {
        let bandwidth = self.state.lock().bandwidth;
        let unit = if bandwidth == 0 { 1 << 20 } else { (bandwidth / 100).clamp(1024, 256 << 10) };
        usize::try_from(unit).unwrap_or(1024)
    }

    /// Waits until `len` bytes may be sent.
    pub(crate) fn bandwidth(&self, len: usize) {
        let until = {
            let mut state = self.state.lock();
            if state.bandwidth == 0 {
                return;
            }
            let now = Instant::now();
            let start = state.free_at.map_or(now, |free| free.max(now));
            let time = Duration::from_secs_f64(len as f64 / state.bandwidth as f64);
            *state.free_at.insert(start + time)
        };
        self.pause(until.saturating_duration_since(Instant::now()));
    }

    /// Waits, unless the server ends.
    pub(crate) fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.ended.wait_while_for(&mut self.state.lock(), |state| !state.is_ended, time);
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.ended.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }
}
