//! The progress of a transfer, on a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::HumanBytes;

use crate::print::progress::Display;

/// The progress of a transfer. The line is removed when this is dropped.
pub(super) struct Transfer {
    counters: Arc<[AtomicU64; 2]>,
    _display: Option<Display>,
}

impl Transfer {
    /// Starts to show how many bytes are `verb`: "sent".
    pub(super) fn start(verb: &'static str) -> Self {
        let counters = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let shown = Arc::clone(&counters);
        let display = Display::on_terminal(move |bar| {
            let [done, size] = &*shown;
            let (done, size) = (done.load(Ordering::Relaxed), size.load(Ordering::Relaxed));
            bar.set_message(format!("{} of {} {verb}", HumanBytes(done), HumanBytes(size)));
        });
        Self { counters, _display: display }
    }

    pub(super) fn set(&self, done: u64, size: u64) {
        let [known_done, known_size] = &*self.counters;
        known_done.store(done, Ordering::Relaxed);
        known_size.store(size, Ordering::Relaxed);
    }
}
