//! Whether memory is short: as an option says, or as Linux's pressure stall information (PSI) says.

use std::fs::File;
#[cfg(unix)]
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The least time between two reads of the PSI file. The kernel updates its averages every two
/// seconds.
const INTERVAL: Duration = Duration::from_millis(500);
/// Percent of the last ten seconds in which some task waited for memory, from which on memory
/// counts as short.
const SHORT: f64 = 10.0;

/// When memory counts as short. Then no data is cached, and buffers are freed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowMemory {
    /// Never.
    #[default]
    Never,
    /// While Linux reports memory pressure (PSI) of this process's cgroup or of the system.
    Auto,
    /// Always.
    Always,
}

/// The state of memory.
#[derive(Debug)]
pub(crate) struct Pressure {
    short: AtomicBool,
    /// The kernel's PSI file, kept open because a sandboxed process can open no files, and when it
    /// was opened.
    file: Option<(PressureFile, Instant)>,
    /// Milliseconds from then to the next read of the file.
    next: AtomicU64,
}

impl Pressure {
    /// Reads `file`, or what this process can open now, if pressure is to be watched.
    pub(crate) fn new(low_memory: LowMemory, file: Option<&PressureFile>) -> Self {
        let auto = low_memory == LowMemory::Auto;
        let file = auto.then(|| file.cloned().or_else(PressureFile::open)).flatten();
        let short = AtomicBool::new(low_memory == LowMemory::Always);
        Self { short, file: file.map(|file| (file, Instant::now())), next: AtomicU64::new(0) }
    }

    /// Whether memory is short.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// Reads the file if [`INTERVAL`] has passed; true when memory has just become short.
    pub(crate) fn became_short(&self) -> bool {
        let Some((file, start)) = &self.file else { return false };
        let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.next.load(Relaxed);
        let later = now.saturating_add(u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX));
        if now < next || self.next.compare_exchange(next, later, Relaxed, Relaxed).is_err() {
            return false;
        }
        let short = file.some_avg10().is_some_and(|share| share >= SHORT);
        !self.short.swap(short, Relaxed) && short
    }
}

/// The kernel's PSI file for memory, open.
#[derive(Clone, Debug)]
pub struct PressureFile(Arc<File>);

impl PressureFile {
    /// Opens that of this process's cgroup (version 2), or of the system; `None` where the kernel
    /// has neither.
    #[must_use]
    pub fn open() -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let cgroup =
            group.map(|group| PathBuf::from("/sys/fs/cgroup").join(group).join("memory.pressure"));
        let files = [cgroup, Some(PathBuf::from("/proc/pressure/memory"))];
        files
            .into_iter()
            .flatten()
            .find_map(|path| File::open(path).ok())
            .map(|file| Self(Arc::new(file)))
    }
}

impl PressureFile {
    /// The share of the last ten seconds that some task waited for memory, in percent.
    #[cfg(unix)]
    fn some_avg10(&self) -> Option<f64> {
        let mut text = [0; 256];
        let len = self.0.read_at(&mut text, 0).ok()?;
        some_avg10(text.get(..len)?)
    }

    /// Only Linux has such files.
    #[cfg(not(unix))]
    fn some_avg10(&self) -> Option<f64> {
        let _ = &self.0;
        None
    }
}

/// The share of the last ten seconds that some task waited for memory, in percent. Source: Linux's
/// psi.rst.
#[cfg(any(unix, test))]
fn some_avg10(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

    #[test]
    fn pressure_is_read_and_comes_and_goes() {
        assert_eq!(some_avg10(TEXT.as_bytes()), Some(12.5));
        assert_eq!(some_avg10(b"full avg10=1.00"), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        let pressure_file = PressureFile(Arc::new(file.reopen().unwrap()));
        let pressure = Pressure::new(LowMemory::Auto, Some(&pressure_file));
        std::fs::write(file.path(), TEXT).unwrap();
        assert!(pressure.became_short() && pressure.is_short());
        assert!(!pressure.became_short(), "the interval has not passed");
        std::fs::write(file.path(), TEXT.replace("12.50", "00.10")).unwrap();
        pressure.next.store(0, Relaxed);
        assert!(!pressure.became_short() && !pressure.is_short());
    }

    #[test]
    fn options_need_no_file() {
        assert!(Pressure::new(LowMemory::Always, None).is_short());
        assert!(!Pressure::new(LowMemory::Never, None).is_short());
    }
}
