//! Shows on a terminal how much of an image has been read, for commands that read all of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferofs::read::Source;
use indicatif::HumanBytes;

use super::progress::Display;

/// A source that counts the bytes that are read, with a progress line that exists as long as the source.
pub(crate) struct CountedSource<S> {
    source: S,
    bytes: Arc<AtomicU64>,
    _display: Option<Display>,
}

impl<S: Source> CountedSource<S> {
    /// Counts the reads of `source`; `done` is the word for what happens with the bytes: "hashed".
    pub(crate) fn new(source: S, done: &'static str) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let (read, total) = (Arc::clone(&bytes), source.size());
        let display = Display::on_terminal(move |bar| {
            let read = HumanBytes(read.load(Ordering::Relaxed));
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
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
