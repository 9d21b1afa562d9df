//! The engine: from planned extents to bytes, with few and large reads, little memory and no needless copy.
//!
//! Last in the read flow. A request is cut into *runs* of wholly wanted extents whose encoded bytes are adjacent:
//! one system call reads them into the tail of the very range that they will fill, where LZ4 clusters are decoded
//! in place ([`run`]). A cluster that is wanted in part goes through the cache of encoded blocks ([`partial`]), by one
//! of several strategies ([`decode`]), as far as wanted, or whole where the rest will be asked for next
//! ([`clusters`]). Buffers come from a pool that is set aside ([`pool`], [`scratch`]); all memory is accounted for
//! ([`memory`]) and given back when it is short ([`pressure`]). What is read most can be found out ([`profile`]) and
//! kept decoded ([`pins`]). [`stats`] counts it all. The thread that took a request does all of its work.

mod clusters;
mod decode;
pub(super) mod memory;
mod options;
mod partial;
mod pattern;
mod pins;
mod pool;
mod pressure;
mod profile;
mod run;
mod scratch;
pub(super) mod stats;

use std::cell::Cell;
use std::sync::Arc;

use ferofs_format::{Algorithm, BytePos, DeviceId, Fault, FileOffset, Incompat, Structure};

use super::cache::BlockCache;
use super::extent::{Extent, ExtentData, Location};
use super::image::{Image, to_u64};
use super::inode::Inode;
use super::map::FileMap;
use crate::error::{Corruption, Error, Result};
use clusters::Clusters;
use memory::Memory;
use pattern::{Pattern, Patterns};
use pins::Pins;
use pool::Pool;
use pressure::Pressure;
pub use pressure::PressureFile;
use profile::Recorder;
use run::Run;
use scratch::{Buffer, Scratch};
use stats::{Cause, Counter, Counters};

pub use options::{EngineOptions, LowMemory, Policy, Strategy};
pub use pins::Pinned;
pub use profile::{HotRange, Profile, ProfileError, Recording};
pub use stats::{Io, Stats};

/// A file leads to the packed inode, and that to the metabox; sound images go no deeper.
const MAX_DEPTH: u32 = 4;
/// The smallest buffers of decoded clusters: most of LZ4's clusters of one block fit, so that one serves for the next.
const LEAST_TAIL: usize = 32 << 10;
const LEAST_PACKED: usize = 4 << 10;

/// Bytes of bookkeeping for each extent in flight, and for each request with all that it can gather at once. They are
/// on the stack, and the same however large a cluster is.
pub const BOOKKEEPING: (usize, usize) =
    (run::PIECE_SIZE, size_of::<Run>() + size_of::<Request<'static>>() + size_of::<FileMap<'static>>());

/// What an image's reads share.
#[derive(Debug)]
pub(super) struct Engine {
    pub policy: Policy,
    pub counters: Counters,
    pub memory: Arc<Memory>,
    /// Bytes of the window that LZ4 rolls through.
    lz4_window: usize,
    scratch: Scratch,
    pressure: Pressure,
    patterns: Patterns,
    /// Encoded blocks of clusters that were wanted in part; `None` where memory is short.
    encoded: Option<BlockCache>,
    /// Decoded clusters of which a sequential reader wants the rest next.
    tails: Clusters,
    /// Decoded clusters of the packed inode.
    packed: Clusters,
    pub recorder: Option<Arc<Recorder>>,
    pub pins: Pins,
}

impl Engine {
    /// An engine with budgets that have been fitted to the limit, for an image of such blocks, where LZ4 looks back so far.
    pub(super) fn new(
        options: &EngineOptions,
        block_size: usize,
        max_distance: u16,
        pressure: Option<&PressureFile>,
    ) -> Result<Self> {
        let memory = Arc::new(Memory::new(options.memory_limit));
        let pool = Pool::new(options.pool).map_err(|e| Error::io_unnamed("allocate the page pool", e))?;
        memory.take(pool.len());
        let clusters =
            |budget, least| Clusters::new(budget, least, options.memory_limit.is_none(), Arc::clone(&memory));
        let encoded = options.encoded_cache;
        Ok(Self {
            policy: options.policy,
            counters: Counters::default(),
            lz4_window: ferofs_codec::lz4_window(max_distance),
            scratch: Scratch::new(pool),
            pressure: Pressure::new(options.low_memory, pressure),
            patterns: Patterns::default(),
            encoded: (encoded > 0).then(|| BlockCache::new(block_size, encoded, Arc::clone(&memory))),
            tails: clusters(options.tail_cache, LEAST_TAIL.min(options.tail_cache / 4)),
            packed: clusters(options.packed_cache, LEAST_PACKED),
            recorder: options.record.then(Arc::default),
            pins: Pins::default(),
            memory,
        })
    }

    /// Gives back what is kept in case that it is wanted again.
    fn shrink(&self) {
        self.counters.add(Counter::LowMemoryEntries, 1);
        if let Some(encoded) = &self.encoded {
            encoded.clear();
        }
        self.tails.shrink();
        self.packed.shrink();
        self.scratch.shrink(&self.memory);
    }
}

/// Where a request may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its buffer's end.
    Buffer,
    /// Before an encoded extent that its buffer has no room for.
    Extent,
}

/// Whether a request for the next `room` bytes wants all of `extent`, or loses nothing by taking a part.
fn is_whole(extent: &Extent, room: usize) -> bool {
    !matches!(extent.data, ExtentData::Encoded { .. }) || extent.len <= to_u64(room)
}

/// One request on its way.
struct Request<'a> {
    image: &'a Image,
    pattern: Pattern,
    /// The file is the packed inode or the metabox, of which others will want the same clusters.
    shared: bool,
    /// Bytes that it asks for.
    len: usize,
    /// Bytes of the file after it.
    left: usize,
    /// Whether a read of its clusters had to wait for the medium, as far as is known.
    waited: Cell<bool>,
}

impl Image {
    /// Counters of all reads so far, and the memory held.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = &self.engine;
        let pool = engine.scratch.pool();
        Stats {
            pool_bytes: to_u64(pool.len()),
            pool_peak: to_u64(pool.peak()),
            low_memory: engine.pressure.is_short(),
            held_bytes: to_u64(engine.memory.held()),
            held_peak: to_u64(engine.memory.peak()),
            ..engine.counters.snapshot()
        }
    }

    /// Fills `buf` with the content of `inode` from `offset` on, all of which the file has; says how much it filled.
    pub(super) fn fill(
        &self,
        inode: &Inode,
        mut offset: FileOffset,
        mut buf: &mut [u8],
        end: End,
    ) -> Result<usize> {
        let engine = &self.engine;
        self.budget.charge_bytes(to_u64(buf.len()))?;
        engine.counters.add(Counter::Requests, 1);
        engine.counters.add(Counter::RequestedBytes, to_u64(buf.len()));
        if engine.pressure.became_short() {
            engine.shrink();
        }
        let stop = offset.get().saturating_add(to_u64(buf.len()));
        let request = Request {
            image: self,
            pattern: engine.patterns.note(inode.nid(), offset, to_u64(buf.len())),
            shared: [self.superblock().packed, self.superblock().metabox].contains(&Some(inode.nid())),
            len: buf.len(),
            left: usize::try_from(inode.size().saturating_sub(stop)).unwrap_or(usize::MAX),
            waited: Cell::new(false),
        };
        let work = || {
            let mut map = None;
            let mut filled = 0;
            while !buf.is_empty() {
                if end == End::Extent && filled > 0 {
                    let extent = FileMap::opened(&mut map, self, inode)?.extent_at(offset)?;
                    if !is_whole(&extent, buf.len()) {
                        break;
                    }
                }
                let len = match engine.pins.get(inode.nid(), offset) {
                    Some(pinned) => request.take_pinned(pinned, buf),
                    None => request.step(FileMap::opened(&mut map, self, inode)?, offset, buf)?,
                };
                offset = FileOffset::new(offset.get() + to_u64(len));
                buf = &mut std::mem::take(&mut buf)[len..];
                filled += len;
            }
            if let (Pattern::Strided { next, step, count }, Some(map)) = (request.pattern, &mut map) {
                for number in 0..count {
                    request.hint(map, next.get().saturating_add(step.saturating_mul(number)), inode.size());
                }
                if request.waited.get() {
                    engine.patterns.waited(inode.nid());
                }
            }
            Ok(filled)
        };
        nested(work)
    }
}

impl Request<'_> {
    const fn is_sequential(&self) -> bool {
        matches!(self.pattern, Pattern::Sequential { .. })
    }

    /// Reads data, counted for `cause`.
    fn read_counted(&self, at: Location, skip: u64, buf: &mut [u8], cause: Cause) -> Result<()> {
        let image = self.image;
        match at {
            Location::Metadata(place) => image.read_metadata(place.offset(skip)?, Structure::InlineData, buf),
            Location::Device(device, pos) => {
                let overflow = || Corruption::new(Structure::Extent, Fault::Overflow("position")).at(pos);
                let pos = pos.checked_add(skip).ok_or_else(overflow)?;
                image.engine.counters.io(cause, buf.len());
                let (source, pos) = image.source_of(device, pos, Structure::Extent, buf.len())?;
                let read = match self.pattern {
                    Pattern::Sequential { .. } => source.read_exact_at(pos.get(), buf),
                    Pattern::Strided { .. } if source.read_at_hand(pos.get(), buf) => Ok(()),
                    Pattern::Strided { .. } | Pattern::Random => {
                        self.waited.set(true);
                        source.read_sparse_at(pos.get(), buf)
                    }
                };
                read.map_err(|e| Error::io_unnamed("read image", e))
            }
        }
    }

    /// Counts the work of decoding so many bytes into `len`. LZMA takes about 25 ns for an encoded byte, the others at most
    /// a quarter of that.
    fn charge_decoding(&self, algorithm: Algorithm, encoded_len: usize, len: usize) -> Result<()> {
        let encoded = to_u64(encoded_len) / if algorithm == Algorithm::Lzma { 4 } else { 16 };
        self.image.budget.charge(encoded)?;
        self.image.budget.charge_bytes(to_u64(len))
    }

    /// A buffer to borrow.
    fn buffer(&self, len: usize) -> Buffer<'_> {
        let engine = &self.image.engine;
        engine.scratch.buffer(len, &engine.memory, &engine.counters, !engine.pressure.is_short())
    }

    /// Fills a prefix of `buf` from what is `pinned`; says how long that is.
    fn take_pinned(&self, pinned: &[u8], buf: &mut [u8]) -> usize {
        let len = pinned.len().min(buf.len());
        self.image.engine.counters.add(Counter::PinnedHits, 1);
        self.image.engine.counters.add_len(Counter::PinnedBytes, len);
        self.copy(&pinned[..len], &mut buf[..len]);
        len
    }

    /// Fills a prefix of `buf`; says how long that is, at least 1.
    fn step(&self, map: &mut FileMap<'_>, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        let extent = map.extent_at(offset)?;
        if let Some(mut run) = Run::start(self.image, &extent, offset, buf.len()) {
            while run.wants_more() && run.extend(&map.extent_at(run.end())?) {}
            self.read_run(&run, buf)?;
            return Ok(run.decoded_len());
        }
        let have = usize::try_from(extent.end() - offset.get()).unwrap_or(usize::MAX);
        let len = have.min(buf.len());
        self.read_extent(&extent, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Tells the system what a strided reader's request at `next` will want: just that, so that nothing is read for
    /// nothing but at the stride's end.
    fn hint(&self, map: &mut FileMap<'_>, next: u64, size: u64) {
        let end = next.saturating_add(to_u64(self.len)).min(size);
        let tell = |(device, pos, len): (DeviceId, BytePos, u64)| {
            self.image.engine.counters.io(Cause::Hint, usize::try_from(len).unwrap_or(usize::MAX));
            self.image.will_need(device, pos, len);
        };
        let mut at = next;
        let mut adjacent: Option<(DeviceId, BytePos, u64)> = None;
        while at < end {
            // What cannot be mapped is an error when it is read.
            let Ok(extent) = map.extent_at(FileOffset::new(at)) else { break };
            at = extent.end();
            let ExtentData::Encoded { at: Location::Device(device, pos), encoded_len, .. } = extent.data
            else {
                continue;
            };
            adjacent = match adjacent {
                Some((before, start, len)) if before == device && start.checked_add(len) == Some(pos) => {
                    Some((device, start, len.saturating_add(encoded_len)))
                }
                before => {
                    before.into_iter().for_each(tell);
                    Some((device, pos, encoded_len))
                }
            };
        }
        adjacent.into_iter().for_each(tell);
    }

    /// Fills `buf` with the part of `extent` that starts at `offset`.
    fn read_extent(&self, extent: &Extent, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let skip = offset.get() - extent.start.get();
        match extent.data {
            ExtentData::Hole => {
                buf.fill(0);
                Ok(())
            }
            ExtentData::Stored { at } => self.read_counted(at, skip, buf, Cause::Stored),
            ExtentData::Interlaced { at } => self.read_interlaced(at, offset, buf),
            ExtentData::Fragment { offset } => {
                let overflow = || Corruption::new(Structure::PackedInode, Fault::Overflow("h_fragmentoff"));
                self.image.read_fragment(offset.checked_add(skip).ok_or_else(overflow)?, buf)
            }
            ExtentData::Encoded { .. } => self.read_partial(extent, skip, buf),
        }
    }

    /// Reads from a rotated block: byte `o` of the file is at `o` modulo the block size. An extent of
    /// this kind never leaves its block, see [`FileMap`].
    fn read_interlaced(&self, at: Location, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let block_size = self.image.superblock().block_size;
        let start = offset.get() & block_size.mask();
        let room = usize::try_from(block_size.bytes64() - start).unwrap_or(usize::MAX);
        let (head, wrapped) = buf.split_at_mut(room.min(buf.len()));
        self.read_counted(at, start, head, Cause::Stored)?;
        if wrapped.is_empty() {
            return Ok(());
        }
        self.read_counted(at, 0, wrapped, Cause::Stored)
    }

    /// Whether a cluster that is wanted to its end must end there. Not before Linux 5.4's right alignment, where
    /// what follows the encoded bytes is not told apart from them.
    fn exact(&self, partial: bool) -> bool {
        !partial && self.image.superblock().incompat.contains(Incompat::LZ4_0PADDING)
    }
}

/// Runs a request, unless requests have led to requests for so long that files must lie within each other.
fn nested<T>(request: impl FnOnce() -> Result<T>) -> Result<T> {
    thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    let depth = DEPTH.get();
    if depth == MAX_DEPTH {
        return Err(Corruption::new(Structure::Extent, Fault::Map("content lies within itself")).into());
    }
    DEPTH.set(depth + 1);
    let result = request();
    DEPTH.set(depth);
    result
}

/// The error of a cluster at `at` that does not decode.
fn undecodable(at: Location) -> Error {
    let corruption = Corruption::new(Structure::Extent, Fault::Decode);
    match at {
        Location::Device(_, pos) => corruption.at(pos),
        Location::Metadata(place) => corruption.at(place.pos),
    }
    .into()
}

#[cfg(test)]
mod tests;
