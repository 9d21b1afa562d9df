//! The data stage: files go out to workers as [`Work`], come back as [`Done`] in any order, and are
//! appended to the image in the order of reading by the thread that called.
//!
//! At most a few works a worker are under way, so memory is bounded whatever the tree holds. What becomes a
//! fragment is known when its file is appended; the packed inode's parts go out beside the files.

pub mod base_image;
pub mod chunked;
pub mod encode;
pub mod extents;
pub mod external;
pub mod fragments;
pub mod identical;
pub mod order;
pub mod schedule;
pub mod worker;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::{Algorithm, BlockAddr, BytePos, Incompat};

use crate::data::chunked::sparse::{ChunkPlan, check_table};
use crate::data::encode::dedupe::{self, Stored};
use crate::data::encode::deflate_pages::{PageRule, Placed};
use crate::data::encode::{Encoded, End};
use crate::data::extents::index::{FileEnd, Indexed};
use crate::data::extents::list::{Extent, ExtentLog, ExtentPlace};
use crate::data::fragments::Packed;
use crate::data::identical::large::{self, Clones};
use crate::data::identical::small::Print;
use crate::data::schedule::{Cut, Feed, Feeder};
use crate::data::worker::{Done, Piece, PieceKind, Shop, Work, Worker};
use crate::options::compression::Index;
use crate::output::Output;
use crate::output::spill::{Payload, Spill};
use crate::tree::NodeId;
use crate::tree::origin;
use crate::{Error, Result};
use crate::{Options, Warning};
use ferofs_threads::{Workers, with_workers};

/// Works under way for each worker, and some more.
const AHEAD: usize = 3;

/// Where a node's content is.
#[derive(Clone, Debug, Default)]
pub enum Content {
    /// It has none, or none yet.
    #[default]
    None,
    /// In consecutive blocks; the tail follows the inode.
    Flat { start: BlockAddr, tail: Option<Payload> },
    /// Compressed, with what follows the inode: the index, and at its end `inline` bytes of content.
    Compressed { layout: DataLayout, blocks: u64, index: Payload, inline: u64 },
    /// In chunks, with the table that follows the inode.
    Chunked { format: u16, table: Payload },
    /// The source cannot be read: every name of this node is left out.
    Skipped,
}

impl Content {
    /// Bytes that follow the inode and its xattrs.
    pub fn len_after(&self) -> usize {
        match self {
            Self::Flat { tail, .. } => tail.map_or(0, Payload::len),
            Self::Compressed { index, .. } => index.len(),
            Self::Chunked { table, .. } => table.len(),
            Self::None | Self::Skipped => 0,
        }
    }

    /// How many of the last bytes that follow the inode are content, which must be within one block.
    pub fn inline_len(&self) -> u64 {
        match self {
            Self::Flat { tail, .. } => tail.map_or(0, |tail| tail.len() as u64),
            Self::Compressed { inline, .. } => *inline,
            Self::None | Self::Skipped | Self::Chunked { .. } => 0,
        }
    }

    /// Tells `inode` where its content is, and returns what follows it.
    pub fn settle(&self, inode: &mut Inode) -> Option<Payload> {
        match *self {
            Self::None | Self::Skipped => None,
            Self::Flat { start, tail } => {
                inode.place = Place::Blocks(start);
                if tail.is_some() {
                    inode.layout = DataLayout::FlatInline;
                }
                tail
            }
            Self::Compressed { layout, blocks, index, .. } => {
                inode.layout = layout;
                inode.place = Place::Compressed { blocks };
                Some(index)
            }
            Self::Chunked { format, table } => {
                inode.layout = DataLayout::ChunkBased;
                inode.place = Place::Chunked { format };
                Some(table)
            }
        }
    }
}

/// The packed inode.
#[derive(Clone, Debug)]
pub struct PackedInode {
    pub size: u64,
    pub content: Content,
}

/// What the data stage leaves behind.
#[derive(Debug, Default)]
pub struct Data {
    /// By node.
    pub contents: Vec<Content>,
    pub packed: Option<PackedInode>,
    pub features: Incompat,
    pub bytes_read: u64,
    /// Bytes of files that are stored with another file's.
    pub bytes_shared: u64,
    pub peak_works: usize,
}

/// Which queue a work came from, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ticket {
    Files(usize),
    Packed(usize),
}

type Job = (Ticket, Work, Done);
type Answer = (Ticket, Result<()>, Done);

/// Appends the content of every regular file to `output`.
pub fn run(
    options: &Options,
    shop: Shop<'_>,
    output: &mut Output,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<Data> {
    let workers = options.run.worker_count();
    let data = Data { contents: vec![Content::None; shop.tree.nodes.len()], ..Data::default() };
    let packed = Packed::new(spill.dir(), shop.block.bytes64(), shop.page_rule(0));
    let mut clones = large::find(options, shop)?;
    let mut stage = Stage {
        options,
        shop,
        output,
        spill,
        warnings,
        larges: VecDeque::new(),
        originals: HashMap::new(),
        firsts: HashMap::new(),
        packed,
        pages: PageRule::new(shop.block),
        appending: 0,
        next_work: 0,
        data,
    };
    with_workers(
        workers,
        || Worker::new(shop),
        serve,
        |workers| {
            let ahead = options.run.worker_count() * AHEAD + 2;
            // What a deduplicating work sees must be appended before it begins.
            let ahead = if shop.known.is_some() { ahead.min(dedupe::DISTANCE) } else { ahead };
            stage.drive(ahead, Feeder::new(shop, shop.order.ids(), &clones), &workers)?;
            let mut orphans;
            // A file whose original could not be read after all is read itself.
            while {
                (orphans, clones) = stage.take_clones(&clones);
                !orphans.is_empty()
            } {
                stage.drive(ahead, Feeder::new(shop, orphans.iter().copied(), &clones), &workers)?;
            }
            // Workers end with the queue.
            drop(workers);
            stage.finish_packed()
        },
    )?;
    Ok(stage.data)
}

fn serve(worker: &mut Worker<'_>, (ticket, work, mut done): Job) -> Answer {
    let number = match ticket {
        Ticket::Files(number) | Ticket::Packed(number) => number,
    };
    let result = worker.run(number, &work, &mut done);
    (ticket, result, done)
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
    /// What was stored of contents that other files can have.
    originals: HashMap<Print, Content>,
    /// Where the extents of files start whose ends others may not share, and what they are.
    firsts: HashMap<Print, (BytePos, Option<ExtentLog>)>,
    packed: Packed,
    pages: PageRule,
    /// The number of the work that is being appended.
    appending: usize,
    /// The number of the next work on files.
    next_work: usize,
    data: Data,
}

/// A file in parts.
struct Large {
    node: NodeId,
    /// Bytes that are still to come.
    left: u64,
    start: Option<BytePos>,
    log: ExtentLog,
    /// The method of its encoded parts.
    method: usize,
    plan: Option<ChunkPlan>,
}

impl Stage<'_> {
    fn drive(&mut self, ahead: usize, mut feeder: Feeder<'_>, workers: &Workers<Job, Answer>) -> Result<()> {
        let mut spare: Vec<Done> = Vec::new();
        // Answers by number, from the one that is appended next on.
        let mut waiting: VecDeque<Option<(Result<()>, Done)>> = VecDeque::new();
        let (mut sent, mut appended, mut packing) = (self.next_work, self.next_work, 0);
        let mut more = true;
        loop {
            // Fragments first: they hold memory.
            while packing < ahead
                && let Some((number, part)) = self.packed.take()
            {
                let done = spare.pop().unwrap_or_default();
                workers.send((Ticket::Packed(number), Work::Packed(part), done));
                packing += 1;
            }
            while more && sent - appended < ahead && !self.packed.has_parts() {
                match self.feed(&mut feeder)? {
                    Some(work) => {
                        workers.send((Ticket::Files(sent), work, spare.pop().unwrap_or_default()));
                        waiting.push_back(None);
                        sent += 1;
                    }
                    None => more = false,
                }
            }
            self.data.peak_works = self.data.peak_works.max(sent - appended + packing);
            if sent == appended && packing == 0 && !self.packed.has_parts() {
                if self.packed.close() {
                    continue;
                }
                self.next_work = sent;
                return Ok(());
            }
            self.options.run.check_cancelled()?;
            let (ticket, result, mut done) = workers.recv()?;
            match ticket {
                Ticket::Files(number) => waiting[number - appended] = Some((result, done)),
                Ticket::Packed(number) => {
                    packing -= 1;
                    result?;
                    if let Some(Piece { kind: PieceKind::Encoded(encoded, _), .. }) = done.pieces.pop() {
                        self.packed.put(number, &encoded, &mut done.extents)?;
                    }
                    done.clear();
                    spare.push(done);
                }
            }
            while let Some((result, mut done)) = waiting.front_mut().and_then(Option::take) {
                waiting.pop_front();
                appended += 1;
                result?;
                self.append(appended - 1, &mut done)?;
                done.clear();
                spare.push(done);
            }
        }
    }

    /// The next work on files.
    fn feed(&mut self, feeder: &mut Feeder<'_>) -> Result<Option<Work>> {
        // The rest of a file that cannot be read need not be tried.
        if let Some(large) = self.larges.back_mut()
            && matches!(self.data.contents[large.node.index()], Content::Skipped)
        {
            large.left -= feeder.drop_rest(large.node);
            if large.left == 0 {
                self.larges.pop_back();
            }
        }
        loop {
            let Cut { node, bytes, plan } = match feeder.next() {
                None => return Ok(None),
                Some(Feed::Work(work)) => return Ok(Some(work)),
                Some(Feed::Large(cut)) => cut,
            };
            if let (Some(plan), 0) = (&plan, bytes) {
                self.data.contents[node.index()] = self.chunked(node, plan, BlockAddr::new(0))?;
                feeder.drop_rest(node);
                continue;
            }
            let log = ExtentLog::new(self.shop.block.bytes64());
            self.larges.push_back(Large { node, left: bytes, start: None, log, method: 0, plan });
        }
    }

    /// Appends what work `number` made.
    fn append(&mut self, number: usize, done: &mut Done) -> Result<()> {
        self.appending = number;
        self.data.bytes_read += done.bytes_read;
        let progress = &self.options.run.progress;
        progress.bytes_done.fetch_add(done.bytes_read, Ordering::Relaxed);
        progress.files_done.fetch_add(done.pieces.len() as u64, Ordering::Relaxed);
        let (mut extents, mut tails) = (done.extents.as_slice(), done.tails.as_slice());
        for piece in std::mem::take(&mut done.pieces) {
            let (bytes, tail);
            (bytes, extents) = extents.split_at(piece.extents);
            (tail, tails) = tails.split_at(piece.tails);
            let node = piece.node;
            if self.larges.front().is_some_and(|large| large.node == node) {
                self.part(piece.kind, bytes, tail, done.bytes_read)?;
                continue;
            }
            let print = piece.print;
            let content = match print.and_then(|print| self.originals.get(&print)) {
                Some(original) => {
                    self.data.bytes_shared += self.shop.tree.node(node).size;
                    original.clone()
                }
                None => self.content(piece, bytes, tail)?,
            };
            if let Some(print) = print {
                self.originals.entry(print).or_insert_with(|| content.clone());
            }
            self.data.contents[node.index()] = content;
        }
        Ok(())
    }

    /// Appends what was made of a whole file.
    fn content(&mut self, piece: Piece, bytes: &[u8], tail: &[u8]) -> Result<Content> {
        let node = piece.node;
        match piece.kind {
            PieceKind::Stored => {
                self.align()?;
                let start = self.address();
                self.output.append(bytes)?;
                let tail = if tail.is_empty() { None } else { Some(self.spill.push(tail)?) };
                Ok(Content::Flat { start, tail })
            }
            PieceKind::Encoded(encoded, method) => {
                let next = BytePos::new(self.output.position());
                let same = piece.extents_print.filter(|_| self.shop.known.is_none());
                let known = same.and_then(|print| self.firsts.get(&print));
                let (first, log) = match known {
                    Some((first, log)) => {
                        self.data.bytes_shared += encoded.log.len();
                        (*first, log.clone().unwrap_or(encoded.log))
                    }
                    None => {
                        let log = self.append_extents(&encoded, method, bytes)?;
                        if let Some(print) = same {
                            let changed = log.size() != encoded.log.size();
                            self.firsts.insert(print, (next, changed.then(|| log.clone())));
                        }
                        (next, log)
                    }
                };
                let end = self.end(encoded.end, tail);
                self.compressed(node, &log, &end, first, method)
            }
            PieceKind::Unreadable(error) => {
                self.warnings.push(Warning::Skipped(error));
                Ok(Content::Skipped)
            }
            // A file is an original when all of it was read, and is appended before the files that share it; whole files are
            // not copied.
            PieceKind::Twin | PieceKind::Copied(_) => {
                Err(Error::SourceChanged(self.shop.contents.path(self.shop.tree, node)))
            }
        }
    }

    fn end(&mut self, end: End, tail: &[u8]) -> FileEnd {
        match end {
            End::None => FileEnd::None,
            End::Inline { encoded, .. } => FileEnd::Inline { bytes: tail.to_vec(), encoded },
            End::Fragment { .. } => FileEnd::Fragment { offset: self.packed.push(tail) },
        }
    }

    /// Takes the next part of the first large file; a part comes alone.
    fn part(&mut self, kind: PieceKind, bytes: &[u8], tail: &[u8], read: u64) -> Result<()> {
        let Some(mut large) = self.larges.pop_front() else { return Ok(()) };
        large.left -= read;
        let (node, block, last) = (large.node, self.shop.block, large.left == 0);
        let kind = match kind {
            PieceKind::Unreadable(error) => {
                self.leave_out(&large, error)?;
                None
            }
            kind => Some(kind).filter(|_| !self.is_skipped(node)),
        };
        let Some(kind) = kind else {
            if !last {
                self.larges.push_front(large);
            }
            return Ok(());
        };
        let start = match large.start {
            Some(start) => start,
            None => {
                self.align()?;
                *large.start.insert(BytePos::new(self.output.position()))
            }
        };
        let mut end = FileEnd::None;
        match kind {
            PieceKind::Encoded(encoded, method) if !large.log.is_flat() || !encoded.log.is_flat() => {
                let log = self.append_extents(&encoded, method, bytes)?;
                large.log.extend(&log);
                large.method = method;
                end = self.end(encoded.end, tail);
            }
            PieceKind::Copied(place) => {
                let size = self.shop.tree.node(node).size;
                let tail = if last { self.shop.inline_tail(node, size) } else { 0 };
                let source = self.shop.contents.file(place.file);
                let fallback = |buf: &mut [u8], at| source.read(buf, at);
                self.output.copy(source.file(), place.at, read - tail as u64, fallback)?;
                if tail > 0 {
                    let mut bytes = vec![0; tail];
                    let at = place.at + read - tail as u64;
                    self.shop.contents.read_at(origin::SourcePosition { at, ..place }, &mut bytes)?;
                    let tail = Some(self.spill.push(&bytes)?);
                    self.data.contents[node.index()] = Content::Flat { start: start.block(block), tail };
                    return Ok(());
                }
                self.align()?;
                if last {
                    self.data.contents[node.index()] =
                        Content::Flat { start: start.block(block), tail: None };
                    return Ok(());
                }
            }
            // Up to here the file is stored as it is, and may stay so.
            kind => {
                if let PieceKind::Encoded(encoded, _) = kind {
                    large.log.extend(&encoded.log);
                }
                let size = self.shop.tree.node(node).size;
                let tail = if last && large.plan.is_none() { self.shop.inline_tail(node, size) } else { 0 };
                // The last block starts here.
                let whole =
                    if tail > 0 { (bytes.len() - 1) / block.bytes() * block.bytes() } else { bytes.len() };
                self.output.append(&bytes[..whole])?;
                if last && large.plan.is_none() {
                    let tail =
                        if tail > 0 { Some(self.spill.push(&bytes[whole..whole + tail])?) } else { None };
                    self.data.contents[node.index()] = Content::Flat { start: start.block(block), tail };
                    return Ok(());
                }
            }
        }
        if !last {
            self.larges.push_front(large);
            return Ok(());
        }
        self.data.contents[node.index()] = match &large.plan {
            Some(plan) => self.chunked(node, plan, start.block(block))?,
            None => self.compressed(node, &large.log, &end, start, large.method)?,
        };
        Ok(())
    }

    /// Leaves out a large file of which a part cannot be read.
    fn leave_out(&mut self, large: &Large, error: Error) -> Result<()> {
        if self.is_skipped(large.node) {
            return Ok(());
        }
        self.warnings.push(Warning::Skipped(error));
        self.data.contents[large.node.index()] = Content::Skipped;
        match large.start {
            // When deduplicating, other files may share what was stored of it.
            Some(start) if self.shop.known.is_none() => self.output.rewind(start.get()),
            _ => Ok(()),
        }
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        matches!(self.data.contents[node.index()], Content::Skipped)
    }

    /// Appends the bytes of extents, but for those that equal ones in the image already.
    fn append_extents(&mut self, encoded: &Encoded, method: usize, mut bytes: &[u8]) -> Result<ExtentLog> {
        let by_page = self.shop.page_rule(method).is_some();
        let Some(known) = self.shop.known else {
            let position = self.output.position();
            let placed = match by_page {
                true => self.pages.place_all(&encoded.log, bytes, position)?,
                false => None,
            };
            let (log, bytes) = match &placed {
                Some((log, bytes)) => (log, bytes.as_slice()),
                None => (&encoded.log, bytes),
            };
            self.output.append(bytes)?;
            return Ok(log.clone());
        };
        let mut log = ExtentLog::new(self.shop.block.bytes64());
        log.move_as(&encoded.log);
        let mut stamps = encoded.stamps.iter();
        for extent in encoded.log.iter() {
            if extent.place != ExtentPlace::Next {
                self.data.bytes_shared += extent.len;
                log.push_kept(extent);
                continue;
            }
            let (own, later) = bytes.split_at(extent.size as usize);
            bytes = later;
            let stamp = stamps.next().copied().flatten();
            let same = |stored: &Stored| stored.encoded == extent.encoded && stored.method == method;
            if let Some(stored) = stamp.and_then(|stamp| known.get(&stamp)).filter(same) {
                self.data.bytes_shared += extent.len;
                let place = ExtentPlace::Shared { at: stored.at, partial: stored.partial };
                log.push(Extent { size: stored.size, place, ..extent });
                continue;
            }
            let at = BytePos::new(self.output.position());
            let placed = match by_page && extent.encoded {
                true => self.pages.place(extent, own, at.get())?,
                false => Placed::AsIs,
            };
            let extent = placed.extent(extent);
            if let Some(stamp) = stamp {
                let Extent { size, encoded, .. } = extent;
                known.insert(self.appending, stamp, Stored { at, size, encoded, method, partial: false });
            }
            let mut bytes = Vec::new();
            placed.write(own, &mut bytes);
            self.output.append(&bytes)?;
            log.push(extent);
        }
        Ok(log)
    }

    fn compressed(
        &mut self,
        node: NodeId,
        log: &ExtentLog,
        end: &FileEnd,
        first: BytePos,
        method: usize,
    ) -> Result<Content> {
        let size = self.shop.tree.node(node).size;
        self.indexed(
            Indexed { log, end, size, first, algorithm: self.algorithm(method) },
            self.shop.inode_sizes.len(node),
        )
    }

    fn algorithm(&self, method: usize) -> Algorithm {
        let method = self.shop.compression.and_then(|compression| compression.methods.get(method));
        // Encoded content has a method.
        method.map_or(Algorithm::Lz4, |method| method.algorithm())
    }

    fn indexed(&mut self, file: Indexed<'_>, head_len: usize) -> Result<Content> {
        let form = self.shop.form();
        let (layout, index) = form.encode(file, head_len).map_err(Error::Layout)?;
        self.data.features |= Incompat::LZ4_0PADDING;
        self.data.features |= match file.end {
            FileEnd::None => Incompat::empty(),
            FileEnd::Inline { .. } => Incompat::ZTAILPACKING,
            FileEnd::Fragment { .. } => Incompat::FRAGMENTS,
        };
        if file.log.moves() {
            self.data.features |= Incompat::DEDUPE;
        }
        if form.index == Index::Extents {
            self.data.features |= Incompat::BIT48;
        }
        let blocks = self.shop.block.blocks_for(file.log.size_with_shared());
        let inline = match file.end {
            FileEnd::Inline { bytes, .. } => bytes.len() as u64,
            FileEnd::None | FileEnd::Fragment { .. } => 0,
        };
        Ok(Content::Compressed { layout, blocks, index: self.spill.push(&index)?, inline })
    }

    fn chunked(&mut self, node: NodeId, plan: &ChunkPlan, start: BlockAddr) -> Result<Content> {
        check_table(plan.table_size(), || self.shop.contents.path(self.shop.tree, node))?;
        let (format, table) = plan.encode(start).map_err(Error::Layout)?;
        self.data.features |= Incompat::CHUNKED_FILE;
        Ok(Content::Chunked { format, table: self.spill.push(&table)? })
    }

    /// Gives clones what their originals have. Of those whose original was left out, returns the first ones, which are to be
    /// stored, and the others as clones of them.
    fn take_clones(&mut self, clones: &Clones) -> (Vec<NodeId>, Clones) {
        let mut firsts: HashMap<NodeId, NodeId> = HashMap::new();
        let (mut orphans, mut others) = (Vec::new(), Clones::new());
        for (id, original) in clones {
            if self.is_skipped(*original) {
                match firsts.entry(*original) {
                    Entry::Occupied(first) => drop(others.insert(*id, *first.get())),
                    Entry::Vacant(first) => {
                        first.insert(*id);
                        orphans.push(*id);
                    }
                }
                continue;
            }
            self.data.contents[id.index()] = self.data.contents[original.index()].clone();
            let size = self.shop.tree.node(*id).size;
            self.data.bytes_shared += size;
            self.options.run.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
            self.options.run.progress.files_done.fetch_add(1, Ordering::Relaxed);
        }
        (orphans, others)
    }

    /// Appends what was made of all fragments.
    fn finish_packed(&mut self) -> Result<()> {
        if self.packed.size() == 0 {
            return Ok(());
        }
        self.align()?;
        let first = BytePos::new(self.output.position());
        self.packed.append_to(self.output)?;
        let (log, size) = (self.packed.log().clone(), self.packed.size());
        let file = Indexed { log: &log, end: &FileEnd::None, size, first, algorithm: self.algorithm(0) };
        let content = self.indexed(file, crate::tree::inode_sizes::PACKED_LEN)?;
        self.data.packed = Some(PackedInode { size, content });
        Ok(())
    }

    /// Goes on at a block's start.
    fn align(&mut self) -> Result<()> {
        let position = self.output.position().next_multiple_of(self.shop.block.bytes64());
        self.output.pad_to(position)
    }

    fn address(&self) -> BlockAddr {
        BytePos::new(self.output.position()).block(self.shop.block)
    }
}
