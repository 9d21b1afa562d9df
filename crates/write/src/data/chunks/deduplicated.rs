//! The data stage of images in chunks: every file is split into chunks of one size. Equal chunks
//! are stored once, and chunks of zeroes not at all. Source: FORMAT.md 5.
//!
//! Workers read and hash. The calling thread looks up the hashes in the order of reading, and
//! appends new chunks to the image or to an extra device.

use std::collections::{HashMap, VecDeque};

use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, DeviceId, Incompat};

use crate::data::chunks::check_table_size;
use crate::data::stored::{StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result, Warning};
use crate::options::data::ChunkOptions;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::progress::Activity;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId};
use ferofs_threads::{Pipeline, with_pipeline};

/// The largest chunk in bytes: workers hold whole chunks in memory.
const CHUNK_MAX: u64 = 64 << 20;
/// The most bytes of a slice, unless a chunk is larger: a worker holds a batch in memory.
const SLICE_MAX: u64 = 4 << 20;
/// A batch ends when its slices have this many bytes: enough work to make the cost of a job
/// small...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or when it has this many slices.
const BATCH_SLICES: usize = 256;
/// Batches under way for each worker. With fewer, workers wait while one slow batch holds up the
/// results of others; more take more memory.
const BATCHES_PER_WORKER: usize = 3;

type Hash = [u8; blake3::OUT_LEN];

/// What the workers and the writer share.
#[derive(Clone, Copy)]
struct ChunkContext<'a> {
    worker: WorkerContext<'a>,
    /// Bytes of a chunk.
    size: u64,
}

/// A part of a file that starts with a chunk.
#[derive(Clone, Copy, Debug)]
struct Slice {
    node: NodeId,
    offset: u64,
    len: u64,
}

/// A batch of slices that a worker has read.
struct Batch {
    slices: Vec<Slice>,
    /// The bytes of all slices except for those that failed.
    bytes: Vec<u8>,
    /// The hashes of their chunks; `None` for a chunk of zeroes.
    hashes: Vec<Option<Hash>>,
    /// Slices that cannot be read, by index in `slices`.
    failures: Vec<(usize, Error)>,
}

/// Stores the content of every regular file, in `output` or in `device`. With `is_wide`, addresses
/// can need more than 32 bits.
pub(crate) fn run(
    worker: WorkerContext<'_>,
    chunks: &ChunkOptions,
    is_wide: bool,
    output: &mut Output,
    device: Option<&mut Output>,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<StoredData> {
    let block = worker.block_size;
    let entries = match chunks.force_indexes || device.is_some() {
        _ if is_wide => EntryFormat::Indexes48,
        true => EntryFormat::Indexes,
        false => EntryFormat::Addresses,
    };
    let size = chunks.size;
    let context = ChunkContext { worker, size };
    let fits = size.is_power_of_two()
        && (block.bytes64()..=CHUNK_MAX.max(block.bytes64())).contains(&size);
    let extra =
        u8::try_from(size.max(1).trailing_zeros()).unwrap_or(0).saturating_sub(block.bits());
    let format = ChunkFormat::new(extra, entries).filter(|_| fits);
    let problem = "not a power of two from a block to 64 MiB";
    let format = format.ok_or(Error::Option { option: "chunk size", problem })?;
    let id = DeviceId::new(u16::from(device.is_some()));
    let store = ChunkStore {
        output: device.unwrap_or(output),
        id,
        addresses: HashMap::new(),
        bytes_shared: 0,
    };
    let contents = vec![StoredContent::None; worker.tree.nodes.len()];
    let mut writer = ChunkWriter {
        context,
        format,
        store,
        spill,
        warnings,
        contents,
        file: None,
        hole: Vec::new(),
    };
    let peak_jobs = writer.run()?;
    let (contents, bytes_shared) = (writer.contents, writer.store.bytes_shared);
    Ok(StoredData {
        contents,
        features: Incompat::CHUNKED_FILE,
        bytes_shared,
        peak_jobs,
        ..StoredData::default()
    })
}

/// Stores chunks, equal ones once.
struct ChunkStore<'a> {
    output: &'a mut Output,
    id: DeviceId,
    /// Addresses of chunks by hash and length: the last chunk of a file is shorter.
    addresses: HashMap<(Hash, u64), u64>,
    bytes_shared: u64,
}

impl ChunkStore<'_> {
    /// Stores `chunk` unless an equal one is stored already. Returns its place.
    fn put(&mut self, chunk: &[u8], hash: Hash, context: ChunkContext<'_>) -> Result<ChunkPlace> {
        let block = context.worker.block_size;
        let place = |addr| ChunkPlace { device: self.id, addr: BlockAddr::new(addr) };
        let key = (hash, chunk.len() as u64);
        if let Some(addr) = self.addresses.get(&key) {
            self.bytes_shared += chunk.len() as u64;
            return Ok(place(*addr));
        }
        let unit =
            block.bytes64().saturating_mul(context.worker.options.data.alignment.get().into());
        if unit <= context.size {
            self.output.pad_to(self.output.position().next_multiple_of(unit))?;
        }
        let addr = self.output.position() >> block.bits();
        self.addresses.insert(key, addr);
        self.output.append(chunk)?;
        self.output.pad_to(self.output.position().next_multiple_of(block.bytes64()))?;
        Ok(place(addr))
    }
}

/// Writes chunks, and the tables of files.
struct ChunkWriter<'a> {
    context: ChunkContext<'a>,
    format: ChunkFormat,
    store: ChunkStore<'a>,
    spill: &'a mut Spill,
    warnings: &'a mut Vec<Warning>,
    contents: Vec<StoredContent>,
    /// The current file, and the entries of its table so far.
    file: Option<(NodeId, Vec<u8>)>,
    /// The table entry of a chunk of zeroes; empty before the first one.
    hole: Vec<u8>,
}

impl ChunkWriter<'_> {
    /// Stores all files; returns the most batches that were under way at the same time.
    fn run(&mut self) -> Result<usize> {
        let context = self.context;
        let workers = context.worker.options.run.worker_count();
        let limit = workers * BATCHES_PER_WORKER + 2;
        let reader = || Reader::new(context.worker.contents, context.worker.tree);
        let work = |reader: &mut Reader<'_>, slices| read_batch(context, reader, slices);
        with_pipeline(workers, limit, reader, work, |pipeline| self.drive(pipeline))
    }

    fn drive(&mut self, pipeline: &mut Pipeline<Vec<Slice>, Batch>) -> Result<usize> {
        let mut batches = BatchScheduler::new(self.context, self.format.entry_size());
        loop {
            while pipeline.has_capacity()
                && let Some(slices) = batches.next()?
            {
                pipeline.submit(slices);
            }
            self.context.worker.options.run.cancel.check()?;
            match pipeline.next_result()? {
                Some(batch) => self.store(batch)?,
                None => {
                    self.finish_file()?;
                    return Ok(pipeline.peak());
                }
            }
        }
    }

    fn store(&mut self, batch: Batch) -> Result<()> {
        let progress = &self.context.worker.options.run.progress;
        progress.bytes_done.add(batch.bytes.len() as u64);
        progress.files_done.add(batch.slices.len() as u64);
        self.context.worker.options.check_size(self.store.output.position())?;
        let (mut bytes, mut hashes) = (batch.bytes.as_slice(), batch.hashes.iter());
        let mut failures = batch.failures.into_iter().peekable();
        for (number, slice) in batch.slices.into_iter().enumerate() {
            if self.file.as_ref().is_some_and(|(node, _)| *node != slice.node) {
                self.finish_file()?;
            }
            if let Some((_, error)) = failures.next_if(|(failed, _)| *failed == number) {
                if !self.context.worker.options.source.skip_unreadable || !error.is_unreadable() {
                    return Err(error);
                }
                if !self.is_skipped(slice.node) {
                    self.warnings.push(Warning::Skipped(error));
                }
                self.contents[slice.node.index()] = StoredContent::Skipped;
                self.file = None;
                continue;
            }
            let (content, rest) = bytes.split_at(slice.len as usize);
            bytes = rest;
            let (node, size) = (slice.node, self.context.size);
            // If a slice of a file cannot be read, its later slices are left out, too.
            let is_skipped = self.is_skipped(node);
            let mut file = self.file.take().filter(|_| !is_skipped).unwrap_or((node, Vec::new()));
            self.add_holes(&mut file.1, slice.offset / size)?;
            for (chunk, hash) in content.chunks(size as usize).zip(&mut hashes) {
                match hash.filter(|_| !is_skipped) {
                    Some(hash) => {
                        let place = self.store.put(chunk, hash, self.context)?;
                        self.format.encode(Some(place), &mut file.1).map_err(Error::Layout)?;
                    }
                    None => {
                        let count = file.1.len() / self.format.entry_size() + 1;
                        self.add_holes(&mut file.1, count as u64)?;
                    }
                }
            }
            self.file = (!is_skipped).then_some(file);
        }
        Ok(())
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        matches!(self.contents[node.index()], StoredContent::Skipped)
    }

    /// Adds holes until there are `count` entries.
    fn add_holes(&mut self, entries: &mut Vec<u8>, count: u64) -> Result<()> {
        let more = (count as usize).saturating_sub(entries.len() / self.format.entry_size());
        if more > 0 && self.hole.is_empty() {
            let place = match self.context.worker.options.has_chunk_holes() {
                true => None,
                false => {
                    let zeroes = vec![0; self.context.size as usize];
                    Some(self.store.put(&zeroes, blake3::hash(&zeroes).into(), self.context)?)
                }
            };
            self.format.encode(place, &mut self.hole).map_err(Error::Layout)?;
        }
        entries.extend(self.hole.iter().cycle().take(more * self.hole.len()));
        Ok(())
    }

    /// Writes the table of the current file, whose last slice is stored.
    fn finish_file(&mut self) -> Result<()> {
        let Some((node, mut entries)) = self.file.take() else { return Ok(()) };
        self.add_holes(
            &mut entries,
            self.context.worker.tree.node(node).size.div_ceil(self.context.size),
        )?;
        // Entries are aligned to their size, and inodes start at multiples of 32.
        let end = self.context.worker.inode_sizes.len(node);
        let padding = end.next_multiple_of(self.format.entry_size()) - end;
        entries.splice(..0, std::iter::repeat_n(0, padding));
        let table = self.spill.push(&entries)?;
        self.contents[node.index()] = StoredContent::Chunked { format: self.format.raw(), table };
        Ok(())
    }
}

/// Splits the files of the tree into batches of slices.
struct BatchScheduler<'a> {
    context: ChunkContext<'a>,
    nodes: std::iter::Copied<std::slice::Iter<'a, NodeId>>,
    /// Slices of the current file that are in no batch yet.
    ready: VecDeque<Slice>,
    /// Bytes of a table entry.
    entry_size: usize,
}

impl<'a> BatchScheduler<'a> {
    fn new(context: ChunkContext<'a>, entry_size: usize) -> Self {
        Self { context, nodes: context.worker.order.ids(), ready: VecDeque::new(), entry_size }
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
                    Some(node) => self.split(node)?,
                    None => break,
                },
            }
        }
        Ok((!batch.is_empty()).then_some(batch))
    }

    fn split(&mut self, node: NodeId) -> Result<()> {
        let ChunkContext { worker: WorkerContext { tree, contents, .. }, size: chunk } =
            self.context;
        let Kind::Regular { sparse } = tree.node(node).kind else { return Ok(()) };
        let size = tree.node(node).size;
        if size == 0 {
            return Ok(());
        }
        check_table_size(size.div_ceil(chunk).saturating_mul(self.entry_size as u64), || {
            contents.path(tree, node)
        })?;
        let ranges = if sparse { contents.data_ranges(tree, node) } else { None };
        let mut at = 0;
        for (start, end) in ranges.unwrap_or_else(|| vec![(0, size)]) {
            // Whole chunks; two ranges in one chunk make one slice.
            at = at.max(start / chunk * chunk);
            let end = end.next_multiple_of(chunk).min(size);
            while at < end {
                let len = SLICE_MAX.max(chunk).min(end - at);
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

fn read_batch(context: ChunkContext<'_>, reader: &mut Reader<'_>, slices: Vec<Slice>) -> Batch {
    let mut batch = Batch { slices, bytes: Vec::new(), hashes: Vec::new(), failures: Vec::new() };
    for number in 0..batch.slices.len() {
        if let Err(error) = read(context, reader, batch.slices[number], &mut batch) {
            batch.failures.push((number, error));
        }
    }
    batch
}

fn read(
    context: ChunkContext<'_>,
    reader: &mut Reader<'_>,
    slice: Slice,
    batch: &mut Batch,
) -> Result<()> {
    let start = batch.bytes.len();
    batch.bytes.resize(start + slice.len as usize, 0);
    let timings = context.worker.timings();
    let read = || reader.read(slice.node, slice.offset, &mut batch.bytes[start..]);
    if let Err(error) = timings.time(Activity::Read, slice.len as usize, read) {
        batch.bytes.truncate(start);
        return Err(error);
    }
    timings.time(Activity::Hash, slice.len as usize, || {
        for chunk in batch.bytes[start..].chunks(context.size as usize) {
            let is_hole = chunk.iter().all(|byte| *byte == 0);
            batch.hashes.push((!is_hole).then(|| blake3::hash(chunk).into()));
        }
    });
    Ok(())
}
