//! A progress line on the terminal, and a source whose reads it shows.

use std::io;
use std::io::IsTerminal;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ferofs::read::{Cancel, Count, Source};
use indicatif::{HumanBytes, ProgressBar};

use super::output::shows_progress;

/// The progress line, and the thread that draws it. Dropping this value removes the line.
pub(crate) struct Display {
    stop: Cancel,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Like [`start`](Self::start) if standard error is a terminal and `--quiet` is not given;
    /// otherwise nothing is drawn.
    pub(crate) fn on_terminal(show: impl Fn(&ProgressBar) + Send + 'static) -> Option<Self> {
        (shows_progress() && std::io::stderr().is_terminal()).then(|| Self::start(show))
    }

    /// Starts the thread. It draws the line ten times a second and calls `show` before each time.
    pub(crate) fn start(show: impl Fn(&ProgressBar) + Send + 'static) -> Self {
        let stop = Cancel::default();
        let stopped = stop.clone();
        let draw = move || {
            let bar = ProgressBar::new_spinner();
            while !stopped.is_cancelled() {
                show(&bar);
                bar.tick();
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        };
        // If no thread can be started, nothing is drawn: progress is not worth an error.
        let thread = std::thread::Builder::new().spawn(draw).ok();
        Self { stop, thread }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the drawing code must not make the command fail.
            let _ = thread.join();
        }
    }
}

/// A source that counts the bytes that are read, with a progress line that exists as long as the
/// source.
pub(crate) struct CountedSource<S> {
    source: S,
    bytes: Arc<Count>,
    _display: Option<Display>,
}

impl<S: Source> CountedSource<S> {
    /// Counts the reads of `source`; `done` is the word for what happens with the bytes: "hashed".
    pub(crate) fn new(source: S, done: &'static str) -> Self {
        let bytes = Arc::new(Count::default());
        let (read, total) = (Arc::clone(&bytes), source.size());
        let display = Display::on_terminal(move |bar| {
            let read = HumanBytes(read.get());
            bar.set_message(format!("{read} of {} {done}", HumanBytes(total)));
        });
        Self { source, bytes, _display: display }
    }
}

impl<S: Source> Source for CountedSource<S> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.source.read_exact_at(pos, buf)?;
        self.bytes.add(buf.len() as u64);
        Ok(())
    }
}
