//! Logs damage: a line for each damaged file, limited in number so that a damaged image cannot fill the log.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferofs_read::Error;
use ferofs_read::escape::Escaped;

/// The time after which a file is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// Files whose last line is remembered. With more within [`AGAIN`], further ones are logged each time, as far as [`BURST`]
/// allows.
const FILES: usize = 1024;
/// Lines that may be logged at once; after them, one each [`REFILL`]. Further lines are counted, not logged.
const BURST: u32 = 32;
const REFILL: Duration = Duration::from_secs(1);

/// The log of one image.
#[derive(Debug)]
pub(crate) struct DamageLog {
    image: String,
    limits: Mutex<Limits>,
}

#[derive(Debug)]
struct Limits {
    /// When each file was last logged, by inode number.
    logged: HashMap<u64, Instant>,
    lines: u32,
    refilled: Instant,
    /// Lines that were not logged since the last one.
    kept_back: u64,
}

impl DamageLog {
    pub(crate) fn new(image: String) -> Self {
        Self { image, limits: Mutex::new(Limits::new(Instant::now())) }
    }

    /// Logs that reading `ino` failed, unless that was logged lately.
    pub(crate) fn log(&self, ino: u64, error: &Error) {
        // Nothing panics while it is locked.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept_back) = limits.allow(ino, Instant::now()) else { return };
        drop(limits);
        let more = if kept_back > 0 { format!(" ({kept_back} others kept back)") } else { String::new() };
        let line = format!("ferofs: {}: inode {ino}: {error}{more}\n", Escaped(self.image.as_bytes()));
        // One write, as standard error may be a socket of syslog, where each write is a message. A failure to
        // write cannot be reported anywhere.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Limits {
    fn new(now: Instant) -> Self {
        Self { logged: HashMap::new(), lines: BURST, refilled: now, kept_back: 0 }
    }

    /// If a line may be logged now, the number of lines that were not logged since the last one.
    fn allow(&mut self, ino: u64, now: Instant) -> Option<u64> {
        if self.logged.get(&ino).is_some_and(|logged| now.duration_since(*logged) < AGAIN) {
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
        if self.logged.len() >= FILES {
            self.logged.retain(|_, logged| now.duration_since(*logged) < AGAIN);
        }
        if self.logged.len() < FILES {
            self.logged.insert(ino, now);
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
        assert!(limits.logged.len() <= FILES);
    }
}
