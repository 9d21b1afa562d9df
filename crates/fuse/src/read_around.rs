//! The thread that stores pages around random reads, so that no reader waits for them.
//!
//! [`crate::page_store`] decides which ranges are worth it. The threads of the session answer the
//! read first and pass the range on to this thread. It has their priority: each range that it
//! stores saves them more work than it takes, most of all on a busy machine. It may wait for a page
//! that a read in flight has locked; the threads of the session never wait for it, so that the read
//! is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use ferofs_read::{FileOffset, Image};

use crate::filesystem::Opened;
use crate::page_store::{Around, PageStore, Queue};

/// Ranges that can wait for the thread, mostly of 1 MiB: about 60 ms of its time. With more,
/// readers would read most pages themselves before they are stored.
const QUEUE: usize = 64;
/// After this time without work, the thread frees its buffer, which has the size of a window.
const IDLE: Duration = Duration::from_secs(1);

/// The running thread. Dropping it ends the thread.
pub(crate) struct ReadAround {
    end: SyncSender<Option<Around>>,
    /// Waiting ranges are not stored any more.
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAround {
    /// Starts the thread. Without it (the system may have no memory for it), no pages are stored
    /// around reads.
    pub(crate) fn start(opened: Arc<OnceLock<Opened>>, page_store: Arc<PageStore>) -> Self {
        let (end, ranges) = sync_channel(QUEUE);
        let queue = Queue::new(end.clone());
        let is_ending = Arc::new(AtomicBool::new(false));
        let work = {
            let (page_store, is_ending) = (Arc::clone(&page_store), Arc::clone(&is_ending));
            move || run(&opened, &page_store, &ranges, &is_ending)
        };
        let thread = std::thread::Builder::new().name("read-around".into()).spawn(work).ok();
        if thread.is_some() {
            page_store.set_queue(queue);
        }
        Self { end, is_ending, thread }
    }
}

impl Drop for ReadAround {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.is_ending.store(true, Ordering::Relaxed);
        // It fails if the thread panicked.
        let _ = self.end.send(None);
        let _ = thread.join();
    }
}

fn run(
    opened: &OnceLock<Opened>,
    page_store: &PageStore,
    ranges: &Receiver<Option<Around>>,
    is_ending: &AtomicBool,
) {
    let mut buffer = Vec::new();
    loop {
        let next = match ranges.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => {
                buffer = Vec::new();
                ranges.recv().ok()
            }
            next => next.ok(),
        };
        let Some(Some(Around { ino, range })) = next else { return };
        if is_ending.load(Ordering::Relaxed) {
            return;
        }
        let Some(opened) = opened.get() else { continue };
        let Ok(len) = usize::try_from(range.end.saturating_sub(range.start)) else { continue };
        buffer.resize(len, 0);
        // An error here is an error of a read that wants these pages, and is reported then.
        let read = Image::request(|| {
            let inode = opened.image().inode(opened.nid(ino))?;
            opened.image().reader(&inode).read_at(FileOffset::new(range.start), &mut buffer)
        });
        if read.is_ok_and(|n| n == len) {
            page_store.store(ino, range.start, &buffer);
        }
    }
}
