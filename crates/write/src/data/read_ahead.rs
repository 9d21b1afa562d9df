//! Asks the kernel for content before workers read it, in the order of reading, so that disks with
//! many requests in progress, or far away, are not asked for one file after another.
//!
//! It works only while workers read content that is not in the page cache: they count such reads in
//! [`Contents`](crate::sources::content::Contents). The kernel reads in the background, into its
//! page cache, up to [`WINDOW`] bytes ahead.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::data::worker::Job;
use crate::data::worker::context::WorkerContext;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId};

/// Bytes that are asked for ahead of the workers: enough for many requests of small files at once,
/// and for a fraction of a second of a fast disk.
const WINDOW: u64 = 32 << 20;
/// The most bytes that are asked for at once.
const PIECE: u64 = 1 << 20;
/// Bytes that a small piece counts in the window: at least a page, and the work for its file.
const LEAST: u64 = 8 << 10;
/// Pieces that a thread takes at once: neighbours, often in one directory.
const BATCH: usize = 16;
/// After this many pieces that the page cache has already, the threads wait for the next read from
/// the disk.
const CACHED: usize = 256;
/// Threads that ask. The kernel answers at once for local disks; for others, opening a file takes
/// as long as a request.
const THREADS: usize = 4;

/// A position in the order of reading: the rank of a file, and bytes from its start.
type Position = (u32, u64);

/// Progress that the threads and the driver of the data stage share.
pub(super) struct ReadAhead<'a> {
    context: WorkerContext<'a>,
    state: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The next piece to ask for.
    next: Position,
    /// The workers have got the jobs before this position.
    reached: Position,
    /// Pieces that were asked for and that the workers have not reached, with their bytes in the
    /// window.
    ahead: VecDeque<(Position, u64)>,
    /// Bytes of `ahead`.
    bytes: u64,
    /// Reads from the disk that the driver knew of.
    disk_reads: u64,
    /// Pieces in succession that the page cache had.
    cached: usize,
    is_active: bool,
    is_ended: bool,
}

struct FilePart {
    node: NodeId,
    offset: u64,
    len: u64,
}

/// Ends the threads when it is dropped.
struct End<'r, 'a>(&'r ReadAhead<'a>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.state.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}

/// Calls `drive` while threads read ahead.
pub(super) fn with_read_ahead<'a, T>(
    context: WorkerContext<'a>,
    drive: impl FnOnce(&ReadAhead<'a>) -> T,
) -> T {
    let read_ahead =
        ReadAhead { context, state: Mutex::new(Progress::default()), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let _end = End(&read_ahead);
        // Without a thread, the workers wait for the disk themselves.
        let _ = ferofs_threads::start(scope, THREADS, || || read_ahead.serve());
        drive(&read_ahead)
    })
}

impl ReadAhead<'_> {
    /// The driver submitted `job`.
    pub(super) fn reached(&self, job: &Job) {
        let rank = |node: &NodeId| self.context.order.rank(*node);
        let position = match job {
            Job::Files(files) => files.last().map(|last| (rank(last) + 1, 0)),
            Job::Part { node, offset, len, .. } => Some((rank(node), offset + *len as u64)),
            Job::Packed(_) => None,
        };
        let disk_reads = self.context.contents.disk_reads();
        let mut state = self.state.lock();
        let Some(position) = position.filter(|position| *position > state.reached) else { return };
        state.reached = position;
        while let Some((_, bytes)) = state.ahead.front().copied().filter(|(at, _)| *at < position) {
            state.ahead.pop_front();
            state.bytes -= bytes;
        }
        if state.disk_reads != disk_reads {
            (state.disk_reads, state.is_active, state.cached) = (disk_reads, true, 0);
        }
        if state.is_active {
            self.changed.notify_all();
        }
    }

    /// Asks for pieces until the end.
    fn serve(&self) {
        let context = self.context;
        let mut reader = Reader::new(context.contents, context.tree);
        let mut pieces = Vec::with_capacity(BATCH);
        while self.take(&mut pieces) {
            let mut all_cached = true;
            let count = pieces.len();
            for FilePart { node, offset, len } in pieces.drain(..) {
                all_cached &= reader.read_ahead(node, offset, len);
            }
            let mut state = self.state.lock();
            state.cached = if all_cached { state.cached + count } else { 0 };
            state.is_active &= state.cached < CACHED;
        }
    }

    /// Waits for pieces to ask for; returns whether there are more.
    fn take(&self, pieces: &mut Vec<FilePart>) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_ended {
                return false;
            }
            if state.is_active && state.bytes < WINDOW {
                self.take_some(&mut state, pieces);
                if !pieces.is_empty() {
                    return true;
                }
                // All files were asked for.
                state.is_active = false;
            }
            self.changed.wait(&mut state);
        }
    }

    fn take_some(&self, state: &mut Progress, pieces: &mut Vec<FilePart>) {
        let (tree, order) = (self.context.tree, self.context.order);
        state.next = state.next.max(state.reached);
        while pieces.len() < BATCH && state.bytes < WINDOW {
            let (rank, offset) = state.next;
            let Some(node) = order.id(rank) else { return };
            let left = match tree.node(node).kind {
                // A file with holes is read in the order of its data, which is not known here.
                Kind::Regular { sparse: false } => tree.node(node).size.saturating_sub(offset),
                _ => 0,
            };
            let len = left.min(PIECE);
            state.next = if len == left { (rank + 1, 0) } else { (rank, offset + len) };
            if len > 0 {
                pieces.push(FilePart { node, offset, len });
                let bytes = len.max(LEAST);
                state.ahead.push_back(((rank, offset), bytes));
                state.bytes += bytes;
            }
        }
    }
}
