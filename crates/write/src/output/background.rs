//! Writes buffers to the image in a thread of its own, in their order, so that the thread that
//! orders them does not wait for the kernel.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

use crate::options::image::Sealer;

/// Bytes after which the system is asked to write them to the disk.
const WRITE_BACK: u64 = 8 << 20;
/// Buffers under way at most: one is written, and the others even out that content comes in jobs of
/// different sizes.
const DEPTH: usize = 4;

/// Writes bytes of the image to its file.
#[derive(Debug)]
pub(super) struct ImageWriter {
    file: Arc<File>,
    /// Where the image starts in the file, in bytes.
    offset: u64,
    /// Whether the system shall write early what is written.
    writes_back: bool,
    state: Mutex<WriteState>,
}

#[derive(Debug, Default)]
struct WriteState {
    sealer: Option<Arc<dyn Sealer>>,
    /// The time that writing took so far.
    time: Duration,
    /// Bytes of the image that the system was asked to write to the disk.
    written_back: u64,
}

impl ImageWriter {
    pub(super) fn new(file: Arc<File>, offset: u64, writes_back: bool) -> Self {
        Self { file, offset, writes_back, state: Mutex::default() }
    }

    /// Shows what is written from now on to `sealer`.
    pub(super) fn seal_with(&self, sealer: Option<Arc<dyn Sealer>>) {
        self.state.lock().sealer = sealer;
    }

    /// Writes `bytes` at position `at` of the image.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let start = Instant::now();
        self.file.write_all_at(bytes, self.offset + at)?;
        let mut state = self.state.lock();
        self.write_back(&mut state.written_back, at + bytes.len() as u64);
        state.time += start.elapsed();
        let sealer = state.sealer.clone();
        drop(state);
        if let Some(sealer) = sealer {
            sealer.written(at, bytes);
        }
        Ok(())
    }

    /// Has the system write what was written to the disk, if that is much: so the sync at the end
    /// is short. Does not wait.
    fn write_back(&self, written_back: &mut u64, end: u64) {
        let start = *written_back;
        let Some(len) = end.checked_sub(start).filter(|len| *len >= WRITE_BACK) else { return };
        if self.writes_back {
            // Linux starts to write changed pages of the range, and keeps them in memory. It is
            // only advice, so errors do not count.
            let _ =
                fadvise(&self.file, self.offset + start, NonZeroU64::new(len), Advice::DontNeed);
        }
        *written_back = end;
    }

    /// Adds to the time that writing took.
    pub(super) fn add_time(&self, time: Duration) {
        self.state.lock().time += time;
    }

    /// How long writing took so far.
    pub(super) fn time(&self) -> Duration {
        self.state.lock().time
    }
}

/// A thread that writes buffers.
#[derive(Debug)]
pub(super) struct Background {
    /// Buffers with their positions in the image; `None` when the thread shall end.
    buffers: Option<Sender<(Vec<u8>, u64)>>,
    /// Buffers that were written, or the error.
    written: Receiver<io::Result<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    under_way: usize,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
}

impl Background {
    pub(super) fn start(writer: Arc<ImageWriter>) -> io::Result<Self> {
        let (buffers, queue) = channel::<(Vec<u8>, u64)>();
        let (done, written) = channel();
        let thread = Builder::new().name("write".into()).spawn(move || {
            for (mut buffer, at) in queue {
                let result = writer.write(&buffer, at);
                buffer.clear();
                // After an error nothing more is written, so that errors come in the order of the
                // buffers.
                let failed = result.is_err();
                if done.send(result.map(|()| buffer)).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(Self {
            buffers: Some(buffers),
            written,
            thread: Some(thread),
            under_way: 0,
            spare: Vec::new(),
        })
    }

    /// Has the bytes of `buffer` written at position `at`, and leaves it empty. Waits while too
    /// many are under way.
    ///
    /// # Errors
    /// Errors of this write and of earlier ones. Later calls fail, too.
    pub(super) fn write(&mut self, buffer: &mut Vec<u8>, at: u64) -> io::Result<()> {
        while self.under_way >= DEPTH {
            self.take_one()?;
        }
        let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(buffer.capacity()));
        let full = std::mem::replace(buffer, next);
        let buffers = self.buffers.as_ref().ok_or_else(ended)?;
        self.under_way += 1;
        if buffers.send((full, at)).is_err() {
            // The thread ended after an error, which waits to be taken.
            while self.under_way > 0 {
                self.take_one()?;
            }
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        while self.under_way > 0 {
            self.take_one()?;
        }
        Ok(())
    }

    fn take_one(&mut self) -> io::Result<()> {
        let written = self.written.recv().unwrap_or_else(|_| Err(ended()))?;
        self.under_way -= 1;
        self.spare.push(written);
        Ok(())
    }
}

fn ended() -> io::Error {
    io::Error::other("an earlier write failed")
}

impl Drop for Background {
    fn drop(&mut self) {
        self.buffers = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the missing buffer.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_written_in_order_and_errors_come_back() {
        let file = tempfile::tempfile().unwrap();
        let reader = file.try_clone().unwrap();
        let mut background =
            Background::start(Arc::new(ImageWriter::new(Arc::new(file), 10, false))).unwrap();
        for n in 0..50u8 {
            let mut buffer = vec![n; 1000];
            // Each buffer overwrites the second half of the one before.
            background.write(&mut buffer, u64::from(n) * 500).unwrap();
            assert!(buffer.is_empty());
        }
        background.wait().unwrap();
        let mut all = vec![0; 500 * 51];
        reader.read_exact_at(&mut all, 10).unwrap();
        assert!(all[..500 * 50].chunks(500).zip(0u8..).all(|(half, n)| half == vec![n; 500]));

        let read_only = File::open("/dev/null").unwrap();
        let mut background =
            Background::start(Arc::new(ImageWriter::new(Arc::new(read_only), 0, false))).unwrap();
        let failed = (0..10).map(|n| background.write(&mut vec![1], n)).find(Result::is_err);
        assert!(failed.is_some() || background.wait().is_err());
        assert!(background.write(&mut vec![1], 0).and_then(|()| background.wait()).is_err());
    }
}
