//! The limit on the memory of a build: measures the process, and removes mapped pages of tables.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::mappings::Mappings;

/// How often the memory is measured, which takes about 3 µs. Between two measurements a thread can read some megabytes of mapped pages.
const INTERVAL: Duration = Duration::from_millis(4);

/// A limit on the memory of the process that builds. Its copies are the same limit.
#[derive(Clone, Debug)]
pub struct MemoryLimit(Arc<State>);

#[derive(Debug)]
struct State {
    /// Bytes.
    limit: u64,
    dir: PathBuf,
    statm: Option<File>,
    mappings: Mappings,
    /// Bytes of memory after mapped pages were removed last.
    rest: AtomicU64,
    /// The most bytes of memory that were left after that.
    most_left: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl MemoryLimit {
    /// A limit of `bytes` on the resident memory of this process. Beyond it, a build moves tables to temporary files in `dir`.
    #[must_use]
    pub fn new(bytes: u64, dir: &Path) -> Self {
        Self(Arc::new(State {
            limit: bytes,
            dir: dir.to_owned(),
            statm: File::open("/proc/self/statm").ok(),
            mappings: Mappings::default(),
            rest: AtomicU64::new(0),
            most_left: AtomicU64::new(0),
            failure: Mutex::new(None),
        }))
    }

    /// The limit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.limit
    }

    /// Where temporary files go.
    pub(crate) fn dir(&self) -> &Path {
        &self.0.dir
    }

    pub(super) fn mappings(&self) -> &Mappings {
        &self.0.mappings
    }

    /// Whether `more` bytes of tables do not fit into the half of the limit that is for tables.
    pub(super) fn is_near(&self, more: u64) -> bool {
        self.resident().saturating_add(more) > self.0.limit / 2
    }

    /// Runs `work`, and keeps the memory below the limit meanwhile.
    pub(crate) fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, is_done) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = move || {
                while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.relieve();
                }
            };
            // Without the thread, the build only takes more memory.
            let _ = std::thread::Builder::new().name("memory".into()).spawn_scoped(scope, watch);
            let result = work();
            drop(done);
            result
        })
    }

    /// Removes the mapped pages of all tables if the process has three quarters of the limit.
    pub(super) fn relieve(&self) {
        let State { limit, rest, most_left, mappings, .. } = &*self.0;
        // If little can be removed, it is not tried again at once.
        let enough = (limit / 4 * 3).max(rest.load(Ordering::Relaxed) + limit / 8);
        if self.resident() <= enough {
            return;
        }
        mappings.remove_pages();
        let left = self.resident();
        rest.store(left, Ordering::Relaxed);
        most_left.fetch_max(left, Ordering::Relaxed);
    }

    /// The most bytes that the process had although no table had mapped pages, if they are more than the limit.
    pub(crate) fn excess(&self) -> Option<u64> {
        Some(self.0.most_left.load(Ordering::Relaxed)).filter(|left| *left > self.0.limit)
    }

    /// Keeps the first error of a temporary file.
    pub(super) fn note_failure(&self, error: io::Error) {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The first error of a temporary file, after which tables stayed in memory.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Bytes of memory that the process has; 0 if Linux does not say.
    fn resident(&self) -> u64 {
        let mut text = [0; 64];
        let len = self.0.statm.as_ref().and_then(|statm| statm.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = text.get(..len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
        pages * rustix::param::page_size() as u64
    }
}
