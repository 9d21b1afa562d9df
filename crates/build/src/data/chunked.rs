//! The data stage of images in chunks: every file is cut into chunks of one size, equal ones are stored once,
//! and chunks of zeroes not at all. Source: FORMAT.md 5.
//!
//! Stands where [`crate::data`] stands otherwise. Workers read and hash; the thread that called looks hashes up
//! in the order of the tree, and appends what is new, to the image or to an extra device.

pub mod sparse;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, DeviceId, Incompat};

use crate::data::chunked::sparse::check_table;
use crate::data::order::Order;
use crate::data::{Content, Data};
use crate::options::data::ChunkOptions;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::progress::timings::Activity;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::{Kind, NodeId, Tree};
use crate::{Error, Result};
use crate::{Options, Warning};
use ferofs_threads::{Workers, with_workers};

const CHUNK_MAX: u64 = 64 << 20;
/// Bytes of a file that are read as one, unless a chunk is larger.
const SLICE: u64 = 4 << 20;
/// Slices go to a worker in batches of about this many bytes...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or of this many.
const BATCH_SLICES: usize = 256;
/// Batches under way for each worker.
const AHEAD: usize = 3;

type Hash = [u8; blake3::OUT_LEN];

/// All that the stage works on.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) options: &'a Options,
    pub(crate) chunks: &'a ChunkOptions,
    pub(crate) tree: &'a Tree,
    pub(crate) order: &'a Order,
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) contents: &'a Contents,
}

/// A part of a file, from the start of a chunk on.
#[derive(Clone, Copy, Debug)]
struct Slice {
    node: NodeId,
    offset: u64,
    len: u64,
}

/// A batch of slices, and what a worker found in them.
struct Batch {
    number: usize,
    slices: Vec<Slice>,
    /// The slices' bytes, but for those that failed.
    bytes: Vec<u8>,
    /// Hashes of their chunks; `None` for zeroes.
    hashes: Vec<Option<Hash>>,
    /// Slices that could not be read, by number.
    failures: Vec<(usize, Error)>,
}

/// Stores the content of every regular file, in `output` or in `device`.
pub(crate) fn run(
    room: Room<'_>,
    output: &mut Output,
    device: Option<&mut Output>,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<Data> {
    let block = room.options.image.block_size;
    let entries = match room.chunks.force_indexes || device.is_some() {
        true => EntryFormat::Indexes,
        false => EntryFormat::Addresses,
    };
    let size = room.chunks.size;
    let fits = size.is_power_of_two() && (block.bytes64()..=CHUNK_MAX.max(block.bytes64())).contains(&size);
    let extra = u8::try_from(size.max(1).trailing_zeros()).unwrap_or(0).saturating_sub(block.bits());
    let format = ChunkFormat::new(extra, entries).filter(|_| fits);
    let problem = "not a power of two from a block to 64 MiB";
    let format = format.ok_or(Error::Option { option: "chunk size", problem })?;
    let id = DeviceId::new(u16::from(device.is_some()));
    let store = Store { output: device.unwrap_or(output), id, known: HashMap::new(), bytes_shared: 0 };
    let contents = vec![Content::None; room.tree.nodes.len()];
    let mut hole = Vec::new();
    format.encode(None, &mut hole).map_err(Error::Layout)?;
    let mut stage = Stage { room, format, store, spill, warnings, contents, file: None, hole };
    let peak_works = stage.drive()?;
    let (contents, bytes_shared) = (stage.contents, stage.store.bytes_shared);
    Ok(Data { contents, features: Incompat::CHUNKED_FILE, bytes_shared, peak_works, ..Data::default() })
}

/// Where chunks are kept.
struct Store<'a> {
    output: &'a mut Output,
    id: DeviceId,
    /// Addresses of chunks by hash and length; equal bytes of another length end in other blocks.
    known: HashMap<(Hash, u64), u64>,
    bytes_shared: u64,
}

impl Store<'_> {
    /// Where `chunk` is, which is stored unless it is already.
    fn put(&mut self, chunk: &[u8], hash: Hash, room: Room<'_>) -> Result<ChunkPlace> {
        let block = room.options.image.block_size;
        let place = |addr| ChunkPlace { device: self.id, addr: BlockAddr::new(addr) };
        let key = (hash, chunk.len() as u64);
        if let Some(addr) = self.known.get(&key) {
            self.bytes_shared += chunk.len() as u64;
            return Ok(place(*addr));
        }
        let unit = block.bytes64().saturating_mul(room.options.data.alignment.get().into());
        if unit <= room.chunks.size {
            self.output.pad_to(self.output.position().next_multiple_of(unit))?;
        }
        let addr = self.output.position() >> block.bits();
        self.known.insert(key, addr);
        self.output.append(chunk)?;
        self.output.pad_to(self.output.position().next_multiple_of(block.bytes64()))?;
        Ok(place(addr))
    }
}

/// The ordering side.
struct Stage<'a> {
    room: Room<'a>,
    format: ChunkFormat,
    store: Store<'a>,
    spill: &'a mut Spill,
    warnings: &'a mut Vec<Warning>,
    contents: Vec<Content>,
    /// The file whose slices come, and the entries of its table so far.
    file: Option<(NodeId, Vec<u8>)>,
    /// The entry of a hole.
    hole: Vec<u8>,
}

impl Stage<'_> {
    fn drive(&mut self) -> Result<usize> {
        let room = self.room;
        let workers = room.options.run.worker_count();
        let ahead = workers * AHEAD + 2;
        let reader = || Reader::new(room.contents, room.tree);
        let serve = |reader: &mut Reader<'_>, batch| serve(room, reader, batch);
        with_workers(workers, reader, serve, |workers| self.order(ahead, &workers))
    }

    fn order(&mut self, ahead: usize, workers: &Workers<Batch, Batch>) -> Result<usize> {
        let mut batches = Cutter::new(self.room, self.format.entry_size());
        // Answers by number, from the one that is stored next on.
        let mut waiting: VecDeque<Option<Batch>> = VecDeque::new();
        let (mut sent, mut stored, mut peak) = (0, 0, 0);
        loop {
            while sent - stored < ahead
                && let Some(slices) = batches.next()?
            {
                let batch = Batch {
                    number: sent,
                    slices,
                    bytes: Vec::new(),
                    hashes: Vec::new(),
                    failures: Vec::new(),
                };
                workers.send(batch);
                waiting.push_back(None);
                sent += 1;
            }
            peak = peak.max(sent - stored);
            if sent == stored {
                self.finish_file()?;
                return Ok(peak);
            }
            self.room.options.run.check_cancelled()?;
            let batch = workers.recv()?;
            let place = batch.number - stored;
            waiting[place] = Some(batch);
            while let Some(batch) = waiting.front_mut().and_then(Option::take) {
                waiting.pop_front();
                stored += 1;
                self.store(batch)?;
            }
        }
    }

    fn store(&mut self, batch: Batch) -> Result<()> {
        let progress = &self.room.options.run.progress;
        progress.bytes_done.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
        progress.files_done.fetch_add(batch.slices.len() as u64, Ordering::Relaxed);
        let (mut bytes, mut hashes) = (batch.bytes.as_slice(), batch.hashes.iter());
        let mut failures = batch.failures.into_iter().peekable();
        for (number, slice) in batch.slices.into_iter().enumerate() {
            if self.file.as_ref().is_some_and(|(node, _)| *node != slice.node) {
                self.finish_file()?;
            }
            if let Some((_, error)) = failures.next_if(|(failed, _)| *failed == number) {
                if !self.room.options.source.skip_unreadable || !error.is_unreadable() {
                    return Err(error);
                }
                if !self.is_skipped(slice.node) {
                    self.warnings.push(Warning::Skipped(error));
                }
                self.contents[slice.node.index()] = Content::Skipped;
                self.file = None;
                continue;
            }
            let (content, rest) = bytes.split_at(slice.len as usize);
            bytes = rest;
            let (node, size) = (slice.node, self.room.chunks.size);
            // The rest of a file of which a part could not be read goes the same way.
            let is_skipped = self.is_skipped(node);
            let mut file = self.file.take().filter(|_| !is_skipped).unwrap_or((node, Vec::new()));
            self.add_holes(&mut file.1, slice.offset / size);
            for (chunk, hash) in content.chunks(size as usize).zip(&mut hashes) {
                let hash = hash.filter(|_| !is_skipped);
                let place = hash.map(|hash| self.store.put(chunk, hash, self.room)).transpose()?;
                self.format.encode(place, &mut file.1).map_err(Error::Layout)?;
            }
            self.file = (!is_skipped).then_some(file);
        }
        Ok(())
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        matches!(self.contents[node.index()], Content::Skipped)
    }

    /// Adds holes until there are `count` entries.
    fn add_holes(&self, entries: &mut Vec<u8>, count: u64) {
        let more = (count as usize).saturating_sub(entries.len() / self.hole.len());
        entries.extend(self.hole.iter().cycle().take(more * self.hole.len()));
    }

    /// Writes the table of the file whose slices all came.
    fn finish_file(&mut self) -> Result<()> {
        let Some((node, mut entries)) = self.file.take() else { return Ok(()) };
        self.add_holes(&mut entries, self.room.tree.node(node).size.div_ceil(self.room.chunks.size));
        // Entries are aligned to their size, and nodes begin at multiples of 32.
        let end = self.room.inode_sizes.len(node);
        let padding = end.next_multiple_of(self.format.entry_size()) - end;
        entries.splice(..0, std::iter::repeat_n(0, padding));
        let table = self.spill.push(&entries)?;
        self.contents[node.index()] = Content::Chunked { format: self.format.raw(), table };
        Ok(())
    }
}

/// Cuts the tree's files into batches of slices.
struct Cutter<'a> {
    room: Room<'a>,
    nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
    /// Slices that are cut already.
    ready: VecDeque<Slice>,
    /// Bytes of an entry of a table.
    entry_size: usize,
}

impl<'a> Cutter<'a> {
    fn new(room: Room<'a>, entry_size: usize) -> Self {
        Self { room, nodes: room.order.ids(), ready: VecDeque::new(), entry_size }
    }

    fn next(&mut self) -> Result<Option<Vec<Slice>>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES && batch.len() < BATCH_SLICES {
            match self.ready.pop_front() {
                Some(slice) => {
                    bytes += slice.len;
                    batch.push(slice);
                }
                None => match self.nodes.next() {
                    Some(node) => self.cut(node)?,
                    None => break,
                },
            }
        }
        Ok((!batch.is_empty()).then_some(batch))
    }

    fn cut(&mut self, node: NodeId) -> Result<()> {
        let Room { tree, contents, chunks, .. } = self.room;
        let Kind::Regular { sparse } = tree.node(node).kind else { return Ok(()) };
        let (size, chunk) = (tree.node(node).size, chunks.size);
        if size == 0 {
            return Ok(());
        }
        check_table(size.div_ceil(chunk).saturating_mul(self.entry_size as u64), || {
            contents.path(tree, node)
        })?;
        let ranges = if sparse { contents.data_ranges(tree, node) } else { None };
        let mut at = 0;
        for (start, end) in ranges.unwrap_or_else(|| vec![(0, size)]) {
            // Whole chunks, none of them twice.
            at = at.max(start / chunk * chunk);
            let end = end.next_multiple_of(chunk).min(size);
            while at < end {
                let len = SLICE.max(chunk).min(end - at);
                self.ready.push_back(Slice { node, offset: at, len });
                at += len;
            }
        }
        if self.ready.is_empty() {
            self.ready.push_back(Slice { node, offset: 0, len: 0 });
        }
        Ok(())
    }
}

fn serve(room: Room<'_>, reader: &mut Reader<'_>, mut batch: Batch) -> Batch {
    for number in 0..batch.slices.len() {
        if let Err(error) = read(room, reader, batch.slices[number], &mut batch) {
            batch.failures.push((number, error));
        }
    }
    batch
}

fn read(room: Room<'_>, reader: &mut Reader<'_>, slice: Slice, batch: &mut Batch) -> Result<()> {
    let start = batch.bytes.len();
    batch.bytes.resize(start + slice.len as usize, 0);
    let timings = &room.options.run.progress.timings;
    let read = || reader.read(slice.node, slice.offset, &mut batch.bytes[start..]);
    if let Err(error) = timings.time(Activity::Read, slice.len as usize, read) {
        batch.bytes.truncate(start);
        return Err(error);
    }
    timings.time(Activity::Hash, slice.len as usize, || {
        for chunk in batch.bytes[start..].chunks(room.chunks.size as usize) {
            let is_hole = chunk.iter().all(|byte| *byte == 0);
            batch.hashes.push((!is_hole).then(|| blake3::hash(chunk).into()));
        }
    });
    Ok(())
}
