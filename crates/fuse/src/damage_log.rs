//! Logs damaged files. The number of lines is limited, so that a damaged image cannot fill the log.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use ferofs_read::Error;
use ferofs_read::escape::Escaped;
use parking_lot::Mutex;

/// The shortest time between two lines about one file.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// The number of files whose last line is remembered; it limits the memory. If more files fail
/// within [`REPEAT_AFTER`], each failure of the further files is logged, as far as [`BURST`]
/// allows.
const REMEMBERED_FILES: usize = 1024;
/// The number of lines that may be logged at once; after them, one line each second. Further lines
/// are only counted.
const BURST: u32 = 32;

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
    /// Lines that were suppressed since the last logged line.
    suppressed: u64,
}

impl DamageLog {
    pub(crate) fn new(image: String) -> Self {
        Self { image, limits: Mutex::new(Limits::new(Instant::now())) }
    }

    /// Logs that reading `ino` failed, unless a limit suppresses the line.
    pub(crate) fn log(&self, ino: u64, error: &Error) {
        let mut limits = self.limits.lock();
        let Some(suppressed) = limits.allow(ino, Instant::now()) else { return };
        drop(limits);
        let more = if suppressed > 0 {
            format!(" ({suppressed} other messages suppressed)")
        } else {
            String::new()
        };
        let line =
            format!("ferofs: {}: inode {ino}: {error}{more}\n", Escaped(self.image.as_bytes()));
        // A single write: standard error may be a socket of syslog, where each write is a message.
        // An error here cannot be reported.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Limits {
    fn new(now: Instant) -> Self {
        Self { logged: HashMap::new(), lines: BURST, refilled: now, suppressed: 0 }
    }

    /// Whether a line may be logged now: the number of lines that were suppressed before it, or
    /// `None`.
    fn allow(&mut self, ino: u64, now: Instant) -> Option<u64> {
        if self.logged.get(&ino).is_some_and(|logged| now.duration_since(*logged) < REPEAT_AFTER) {
            return None;
        }
        let elapsed = now.duration_since(self.refilled).as_secs();
        if elapsed > 0 {
            self.lines =
                self.lines.saturating_add(u32::try_from(elapsed).unwrap_or(BURST)).min(BURST);
            self.refilled = now;
        }
        let Some(left) = self.lines.checked_sub(1) else {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        };
        self.lines = left;
        if self.logged.len() >= REMEMBERED_FILES {
            self.logged.retain(|_, logged| now.duration_since(*logged) < REPEAT_AFTER);
        }
        if self.logged.len() < REMEMBERED_FILES {
            self.logged.insert(ino, now);
        }
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_logged_at_most_once_a_minute() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
        assert_eq!(limits.allow(1, start), Some(0));
        assert_eq!(limits.allow(1, start), None);
        assert_eq!(limits.allow(2, start), Some(0));
        assert_eq!(limits.allow(1, start + REPEAT_AFTER), Some(0));
    }

    #[test]
    fn a_burst_of_failures_is_limited() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
        let logged = (0..10_000).filter(|ino| limits.allow(*ino, start).is_some()).count();
        assert_eq!(logged, 32);
        assert_eq!(limits.allow(20_000, start + Duration::from_secs(1)), Some(10_000 - 32));
        assert_eq!(limits.allow(20_001, start + Duration::from_secs(1)), None);
        for ino in 0..3 * REMEMBERED_FILES as u64 {
            limits.allow(ino, start + Duration::from_secs(1) * u32::try_from(ino).unwrap());
        }
        assert!(limits.logged.len() <= REMEMBERED_FILES);
    }
}
