//! What the daemon says about damage: a line for each file concerned, but never so many that they fill a log.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferofs_read::Error;
use ferofs_read::escape::Escaped;

/// A file is complained about again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Files remembered.
const FILES: usize = 1024;
/// Lines at once; after them, one each [`REFILL`].
const BURST: u32 = 32;
const REFILL: Duration = Duration::from_secs(1);

/// The damage_log about one image.
#[derive(Debug)]
pub(crate) struct DamageLog {
    image: String,
    limits: Mutex<Limits>,
}

#[derive(Debug)]
struct Limits {
    /// When each file was last complained about, by inode number.
    told: HashMap<u64, Instant>,
    lines: u32,
    refilled: Instant,
    /// Since the last line.
    kept_back: u64,
}

impl DamageLog {
    pub(crate) fn new(image: String) -> Self {
        Self { image, limits: Mutex::new(Limits::new(Instant::now())) }
    }

    /// Says that reading `ino` failed, unless that was said a short while ago.
    pub(crate) fn complain(&self, ino: u64, error: &Error) {
        // Nothing panics while it is locked.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept_back) = limits.allow(ino, Instant::now()) else { return };
        drop(limits);
        let more = if kept_back > 0 { format!(" ({kept_back} others kept back)") } else { String::new() };
        let line = format!("ferofs: {}: inode {ino}: {error}{more}\n", Escaped(self.image.as_bytes()));
        // One write, as standard error may be a socket of syslog, where each write is a message. If nobody can hear,
        // nobody can be told.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Limits {
    fn new(now: Instant) -> Self {
        Self { told: HashMap::new(), lines: BURST, refilled: now, kept_back: 0 }
    }

    /// Whether a line may be said now: then, how many were not since the last one.
    fn allow(&mut self, ino: u64, now: Instant) -> Option<u64> {
        if self.told.get(&ino).is_some_and(|told| now.duration_since(*told) < AGAIN) {
            return None;
        }
        let elapsed = now.duration_since(self.refilled).as_secs() / REFILL.as_secs();
        if elapsed > 0 {
            self.lines = self.lines.saturating_add(u32::try_from(elapsed).unwrap_or(BURST)).min(BURST);
            self.refilled = now;
        }
        let Some(left) = self.lines.checked_sub(1) else {
            self.kept_back += 1;
            return None;
        };
        self.lines = left;
        if self.told.len() >= FILES {
            self.told.retain(|_, told| now.duration_since(*told) < AGAIN);
        }
        if self.told.len() < FILES {
            self.told.insert(ino, now);
        }
        Some(std::mem::take(&mut self.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_once_in_a_while() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
        assert_eq!(limits.allow(1, start), Some(0));
        assert_eq!(limits.allow(1, start), None);
        assert_eq!(limits.allow(2, start), Some(0));
        assert_eq!(limits.allow(1, start + AGAIN), Some(0));
    }

    #[test]
    fn never_a_flood() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
        let said = (0..10_000).filter(|ino| limits.allow(*ino, start).is_some()).count();
        assert_eq!(said, 32);
        assert_eq!(limits.allow(20_000, start + REFILL), Some(10_000 - 32));
        assert_eq!(limits.allow(20_001, start + REFILL), None);
        for ino in 0..3 * FILES as u64 {
            limits.allow(ino, start + REFILL * u32::try_from(ino).unwrap());
        }
        assert!(limits.told.len() <= FILES);
    }
}
