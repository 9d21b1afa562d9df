//! The progress bar of `ferofs build`, with rate and remaining time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ferofs::build::{Progress, Stage};
use indicatif::{ProgressBar, ProgressStyle};

/// The progress bar, and the thread that draws it.
pub(super) struct Display {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub(super) fn start(progress: &Arc<Progress>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (progress, stopped) = (Arc::clone(progress), Arc::clone(&stop));
        let draw = move || {
            let bar = ProgressBar::new_spinner();
            while !stopped.load(Ordering::Relaxed) {
                show(&bar, &progress);
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        };
        // If no thread can be started, nothing is drawn: progress is not worth an error.
        let thread = std::thread::Builder::new().spawn(draw).ok();
        Self { stop, thread }
    }

    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            // A panic of the drawing code must not make the command fail.
            let _ = thread.join();
        }
    }
}

fn show(bar: &ProgressBar, progress: &Progress) {
    match progress.stage() {
        Stage::Walk => bar.set_message(format!("{} files found", progress.found.load(Ordering::Relaxed))),
        Stage::Data => {
            if bar.length().is_none() {
                let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
                bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| {
                    // Cannot happen: the template is a valid constant.
                    ProgressStyle::default_bar()
                }));
                bar.set_length(progress.bytes_total.load(Ordering::Relaxed));
            }
            bar.set_position(progress.bytes_done.load(Ordering::Relaxed));
        }
        Stage::Metadata => bar.set_message("writing metadata"),
        Stage::Verify => {
            bar.set_style(ProgressStyle::default_spinner());
            bar.set_message("comparing with the source");
        }
    }
    bar.tick();
}
