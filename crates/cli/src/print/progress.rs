//! A line on the terminal that says how far a long work is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;

/// The line, and the thread that draws it. Dropped, it is wiped away.
pub(crate) struct Display {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Lets `show` set up the bar before each drawing.
    pub(crate) fn start(show: impl Fn(&ProgressBar) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let draw = move || {
            let bar = ProgressBar::new_spinner();
            while !stopped.load(Ordering::Relaxed) {
                show(&bar);
                bar.tick();
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        };
        // Without a thread nothing is drawn.
        let thread = std::thread::Builder::new().spawn(draw).ok();
        Self { stop, thread }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing that could panic but the drawing, which is no reason to fail.
            let _ = thread.join();
        }
    }
}
