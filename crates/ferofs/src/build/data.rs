//! The data stage: files go out to workers as [`Work`], come back as [`Done`] in any order, and are
//! appended to the image in the order of the tree by the thread that called.
//!
//! At most a few works a worker are under way, so memory is bounded whatever the tree holds.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use ferofs_format::inode::DataLayout;
use ferofs_format::{BlockAddr, Incompat};

use super::chunk::{ChunkPlan, Ranges};
use super::index::{self, ExtentLog};
use super::output::Output;
use super::segment::{Done, Piece, PieceKind, SEGMENT, Shop, Work, Worker};
use super::spill::{Payload, Spill};
use super::tree::{Kind, NodeId};
use super::{Options, Warning};
use crate::{Error, Result};

/// Small files go to a worker in batches of about this many bytes...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or of this many files.
const BATCH_FILES: usize = 256;
/// Works under way for each worker, and some more.
const AHEAD: usize = 3;

/// Where a node's content is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    /// It has none, or none yet.
    #[default]
    None,
    /// In consecutive blocks; the tail follows the inode.
    Flat { start: BlockAddr, tail: Option<Payload> },
    /// Compressed, with what follows the inode.
    Compressed { layout: DataLayout, blocks: u64, index: Payload },
    /// In chunks, with the table that follows the inode.
    Chunked { format: u16, table: Payload },
    /// The source cannot be read: every name of this node is left out.
    Skipped,
}

/// What the data stage leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// By node.
    pub(crate) contents: Vec<Content>,
    pub(crate) features: Incompat,
    pub(crate) bytes_read: u64,
    /// Bytes of files that are stored with another file's.
    pub(crate) bytes_shared: u64,
    pub(crate) peak_works: usize,
}

type Job = (usize, Work, Done);
type Answer = (usize, Result<(), Error>, Done);

/// Appends the content of every regular file to `output`.
pub(crate) fn run(
    options: &Options,
    shop: Shop<'_>,
    output: &mut Output,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<Data> {
    let workers = options.worker_count();
    let ahead = workers * AHEAD + 2;
    let (job_tx, job_rx) = bounded::<Job>(ahead);
    let (answer_tx, answer_rx) = bounded::<Answer>(ahead);
    let data = Data { contents: vec![Content::None; shop.tree.nodes.len()], ..Data::default() };
    let larges = VecDeque::new();
    let mut stage = Stage { options, shop, output, spill, warnings, larges, data };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let worker = Worker::new(shop, options.compressor()?);
            let (jobs, answers) = (job_rx.clone(), answer_tx.clone());
            scope.spawn(move || serve(worker, &jobs, &answers));
        }
        drop(answer_tx);
        stage.drive(ahead, job_tx, &answer_rx)
    })?;
    Ok(stage.data)
}

fn serve(mut worker: Worker<'_>, jobs: &Receiver<Job>, answers: &Sender<Answer>) {
    for (number, work, mut done) in jobs {
        let result = worker.run(&work, &mut done);
        if answers.send((number, result, done)).is_err() {
            return;
        }
    }
}

/// The ordering side.
struct Stage<'a> {
    options: &'a Options,
    shop: Shop<'a>,
    output: &'a mut Output,
    spill: &'a mut Spill,
    warnings: &'a mut Vec<Warning>,
    /// Files in parts, from the one whose parts are awaited on.
    larges: VecDeque<Large>,
    data: Data,
}

/// A file in parts.
struct Large {
    node: NodeId,
    /// Bytes that are still to come.
    left: u64,
    start: Option<BlockAddr>,
    log: ExtentLog,
    plan: Option<ChunkPlan>,
}

impl Stage<'_> {
    fn drive(&mut self, ahead: usize, jobs: Sender<Job>, answers: &Receiver<Answer>) -> Result<()> {
        let mut feeder = Feeder::new(self.shop, self.options);
        let mut spare: Vec<Done> = Vec::new();
        // Answers by number, from the one that is appended next on.
        let mut waiting: VecDeque<Option<(Result<()>, Done)>> = VecDeque::new();
        let (mut sent, mut appended) = (0, 0);
        let mut more = true;
        loop {
            while more && sent - appended < ahead {
                match feeder.next(self)? {
                    Some(work) => {
                        let done = spare.pop().unwrap_or_default();
                        if jobs.send((sent, work, done)).is_err() {
                            return Err(Error::Interrupted);
                        }
                        waiting.push_back(None);
                        sent += 1;
                    }
                    None => more = false,
                }
            }
            self.data.peak_works = self.data.peak_works.max(sent - appended);
            if sent == appended {
                return Ok(());
            }
            self.options.check_cancelled()?;
            let Ok((number, result, done)) = answers.recv() else { return Err(Error::Interrupted) };
            waiting[number - appended] = Some((result, done));
            while let Some((result, mut done)) = waiting.front_mut().and_then(Option::take) {
                waiting.pop_front();
                appended += 1;
                result?;
                self.append(&mut done)?;
                done.clear();
                spare.push(done);
            }
        }
    }

    fn address(&self) -> BlockAddr {
        BlockAddr::new(self.output.position() >> self.shop.block.bits())
    }

    fn append(&mut self, done: &mut Done) -> Result<()> {
        self.data.bytes_read += done.bytes_read;
        let progress = &self.options.progress;
        progress.bytes_done.fetch_add(done.bytes_read, Ordering::Relaxed);
        progress.files_done.fetch_add(done.pieces.len() as u64, Ordering::Relaxed);
        let mut addr = self.address().get();
        let mut tails = 0;
        for Piece { node, blocks, kind } in std::mem::take(&mut done.pieces) {
            let start = BlockAddr::new(addr);
            addr += blocks;
            if self.larges.front().is_some_and(|large| large.node == node) {
                self.part(start, kind, done)?;
                continue;
            }
            let content = match kind {
                PieceKind::Stored { tail } => {
                    let bytes = &done.tails[tails..tails + tail];
                    tails += tail;
                    let tail = if tail > 0 { Some(self.spill.push(bytes)?) } else { None };
                    Content::Flat { start, tail }
                }
                PieceKind::Encoded(log) => self.compressed(node, &log, start)?,
                PieceKind::Unreadable(error) => {
                    self.warnings.push(Warning::Skipped(error));
                    Content::Skipped
                }
            };
            self.data.contents[node.index()] = content;
        }
        self.output.append(&done.blocks)
    }

    /// Takes the next part of the first large file; a part comes alone.
    fn part(&mut self, start: BlockAddr, kind: PieceKind, done: &mut Done) -> Result<()> {
        let Some(mut large) = self.larges.pop_front() else { return Ok(()) };
        let start = *large.start.get_or_insert(start);
        if let PieceKind::Encoded(log) = &kind {
            large.log.extend(log);
        }
        large.left -= done.bytes_read;
        if large.left > 0 {
            self.larges.push_front(large);
            return Ok(());
        }
        let (node, block) = (large.node, self.shop.block);
        let content = if let Some(plan) = &large.plan {
            self.chunked(plan, start)?
        } else if large.log.is_flat() {
            let size = self.shop.tree.node(node).size;
            let tail = self.shop.heads.inline_tail(node, size, block);
            let mut payload = None;
            if tail > 0 {
                let whole = done.blocks.len() - block.bytes();
                payload = Some(self.spill.push(&done.blocks[whole..whole + tail])?);
                done.blocks.truncate(whole);
            }
            Content::Flat { start, tail: payload }
        } else {
            self.compressed(node, &large.log, start)?
        };
        self.data.contents[node.index()] = content;
        Ok(())
    }

    fn compressed(&mut self, node: NodeId, log: &ExtentLog, start: BlockAddr) -> Result<Content> {
        let size = self.shop.tree.node(node).size;
        let head = self.shop.heads.len(node);
        let (layout, index) =
            index::encode(log, size, start, head, self.shop.block).map_err(Error::Layout)?;
        self.data.features |= Incompat::LZ4_0PADDING;
        Ok(Content::Compressed { layout, blocks: log.count(), index: self.spill.push(&index)? })
    }

    fn chunked(&mut self, plan: &ChunkPlan, start: BlockAddr) -> Result<Content> {
        let (format, table) = plan.encode(start).map_err(Error::Layout)?;
        self.data.features |= Incompat::CHUNKED_FILE;
        Ok(Content::Chunked { format, table: self.spill.push(&table)? })
    }
}

/// Cuts the tree's files into works, one at a time.
struct Feeder<'a> {
    shop: Shop<'a>,
    compressing: bool,
    nodes: std::ops::Range<u32>,
    batch: Vec<NodeId>,
    batch_bytes: u64,
    /// Ranges of the large file that is being cut, from its last one on.
    cutting: Option<(NodeId, Ranges, bool)>,
}

impl<'a> Feeder<'a> {
    fn new(shop: Shop<'a>, options: &Options) -> Self {
        Self {
            shop,
            compressing: options.compresses(),
            nodes: 0..shop.tree.nodes.len() as u32,
            batch: Vec::new(),
            batch_bytes: 0,
            cutting: None,
        }
    }

    fn next(&mut self, stage: &mut Stage<'_>) -> Result<Option<Work>> {
        loop {
            // A large file waits until the small ones before it are on their way.
            if self.cutting.is_some() && !self.batch.is_empty() {
                return Ok(Some(self.flush()));
            }
            if let Some(work) = self.cut() {
                return Ok(Some(work));
            }
            if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
                return Ok(Some(self.flush()));
            }
            let Some(id) = self.nodes.next().map(NodeId) else {
                return Ok((!self.batch.is_empty()).then(|| self.flush()));
            };
            let node = self.shop.tree.node(id);
            let Kind::Regular { sparse } = node.kind else { continue };
            let plan = if sparse { self.chunk_plan(id) } else { None };
            if node.size == 0 {
                continue;
            } else if plan.is_none() && node.size <= SEGMENT {
                self.batch.push(id);
                self.batch_bytes += node.size;
                continue;
            }
            if stage.options.skip_unreadable
                && let Err(error) = self.shop.contents.probe(self.shop.tree, id)
            {
                stage.warnings.push(Warning::Skipped(error));
                stage.data.contents[id.index()] = Content::Skipped;
                continue;
            }
            let ranges = plan.as_ref().map_or_else(|| vec![(0, node.size)], |plan| plan.runs.clone());
            let left = ranges.iter().map(|(start, end)| end - start).sum();
            if let (Some(plan), 0) = (&plan, left) {
                stage.data.contents[id.index()] = stage.chunked(plan, BlockAddr::new(0))?;
                continue;
            }
            let store = plan.is_some() || !self.compressing;
            stage.larges.push_back(Large { node: id, left, start: None, log: ExtentLog::new(), plan });
            self.cutting = Some((id, ranges.into_iter().rev().collect(), store));
        }
    }

    fn flush(&mut self) -> Work {
        self.batch_bytes = 0;
        Work::Files(std::mem::take(&mut self.batch))
    }

    fn cut(&mut self) -> Option<Work> {
        let (node, ranges, store) = self.cutting.as_mut()?;
        let Some((start, end)) = ranges.last_mut() else {
            self.cutting = None;
            return None;
        };
        let (offset, len) = (*start, (*end - *start).min(SEGMENT));
        *start += len;
        let work = Work::Part { node: *node, offset, len: len as usize, store: *store };
        if start == end {
            ranges.pop();
        }
        Some(work)
    }

    /// How to store a file with holes; `None` as if it had none, also if it cannot be opened: the worker
    /// says why.
    fn chunk_plan(&self, id: NodeId) -> Option<ChunkPlan> {
        let size = self.shop.tree.node(id).size;
        let ranges = self.shop.contents.data_ranges(self.shop.tree, id)?;
        ChunkPlan::new(size, &ranges, self.shop.block, self.compressing)
    }
}
