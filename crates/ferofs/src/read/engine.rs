//! The engine: from planned extents to bytes, with few and large reads, little memory and no needless copy.
//!
//! Last in the read flow. A request is cut into *runs* of wholly wanted extents whose encoded bytes are adjacent:
//! one system call reads them into the tail of the very range that they will fill, where LZ4 clusters are decoded
//! in place ([`run`]). A cluster that is wanted in part goes through the cache of encoded blocks, and is decoded as
//! far as wanted, or whole where the rest will be asked for next ([`partial`], [`clusters`]). [`stats`] counts it
//! all. The thread that took a request does all of its work.

pub(super) mod clusters;
mod options;
mod partial;
mod pattern;
mod run;
pub(super) mod scratch;
pub(super) mod stats;

use std::cell::Cell;

use ferofs_format::{Fault, FileOffset, Incompat, Structure};

use super::cache::BlockCache;
use super::extent::{Extent, ExtentData, Location};
use super::image::{Image, to_u64};
use super::inode::Inode;
use super::map::FileMap;
use crate::error::{Corruption, Error, Result};
use clusters::Clusters;
use pattern::Patterns;
use run::Run;
use scratch::{Scratch, Scratches};
use stats::{Counter, Counters};

pub use options::{EngineOptions, Strategy};
pub use stats::{Io, Stats};

/// A file leads to the packed inode, and that to the metabox; sound images go no deeper.
const MAX_DEPTH: u32 = 4;

/// What an image's reads share.
#[derive(Debug)]
pub(super) struct Engine {
    pub strategy: Strategy,
    pub counters: Counters,
    pub scratches: Scratches,
    patterns: Patterns,
    /// Encoded blocks of clusters that were wanted in part; `None` where memory is short.
    encoded: Option<BlockCache>,
    /// Decoded clusters of which a sequential reader wants the rest next.
    tails: Clusters,
    /// Decoded clusters of the packed inode.
    packed: Clusters,
}

impl Engine {
    pub(super) fn new(options: &EngineOptions, block_size: usize) -> Self {
        let keep = |budget: usize| if options.low_memory { 0 } else { budget };
        let encoded = keep(options.encoded_cache);
        Self {
            strategy: options.strategy,
            counters: Counters::default(),
            scratches: Scratches::new(options.low_memory),
            patterns: Patterns::default(),
            encoded: (encoded > 0).then(|| BlockCache::new(block_size, encoded)),
            tails: Clusters::new(keep(options.tail_cache)),
            packed: Clusters::new(options.packed_cache),
        }
    }

    /// Bytes of memory that the engine holds now.
    pub(super) fn held(&self) -> u64 {
        let encoded = self.encoded.as_ref().map_or(0, BlockCache::held);
        to_u64(encoded + self.tails.held() + self.packed.held() + self.scratches.held())
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
    /// The file goes on being read where this request ends, as far as one can tell.
    sequential: bool,
    /// The file is the packed inode, of which others will want the same clusters.
    shared: bool,
    scratch: &'a mut Scratch,
}

impl Image {
    /// Counters of all reads so far, and the memory held.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.counters.snapshot(self.engine.held())
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
        engine.counters.add(Counter::Requests, 1);
        engine.counters.add(Counter::RequestedBytes, to_u64(buf.len()));
        let sequential = engine.patterns.note(inode.nid(), offset, to_u64(buf.len()));
        let shared = self.superblock().packed == Some(inode.nid());
        let work = |scratch: &mut Scratch| {
            let mut map = FileMap::open(self, inode)?;
            let mut request = Request { image: self, sequential, shared, scratch };
            let mut filled = 0;
            while !buf.is_empty() {
                if end == End::Extent && filled > 0 && !is_whole(&map.extent_at(offset)?, buf.len()) {
                    break;
                }
                let len = request.step(&mut map, offset, buf)?;
                offset = FileOffset::new(offset.get() + to_u64(len));
                buf = &mut std::mem::take(&mut buf)[len..];
                filled += len;
            }
            Ok(filled)
        };
        nested(|| engine.scratches.with(work, || engine.counters.peak(engine.held())))
    }

    /// Reads data, counted for `cause`.
    fn read_counted(&self, at: Location, skip: u64, buf: &mut [u8], cause: stats::Cause) -> Result<()> {
        match at {
            Location::Metadata(place) => self.read_metadata(place.offset(skip)?, Structure::InlineData, buf),
            Location::Device(device, pos) => {
                let overflow = || Corruption::new(Structure::Extent, Fault::Overflow("position")).at(pos);
                let pos = pos.checked_add(skip).ok_or_else(overflow)?;
                self.engine.counters.io(cause, buf.len());
                self.read_device(device, pos, Structure::Extent, buf)
            }
        }
    }
}

impl Request<'_> {
    /// Fills a prefix of `buf`; says how long that is, at least 1.
    fn step(&mut self, map: &mut FileMap<'_>, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        let extent = map.extent_at(offset)?;
        if let Some(mut run) = Run::start(self.image, &extent, offset, buf.len()) {
            while run.wants_more() && run.extend(&map.extent_at(run.end())?) {}
            let len = run.decoded_len();
            self.read_run(&run, &mut buf[..len])?;
            return Ok(len);
        }
        let have = usize::try_from(extent.end() - offset.get()).unwrap_or(usize::MAX);
        let len = have.min(buf.len());
        self.read_extent(&extent, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Fills `buf` with the part of `extent` that starts at `offset`.
    fn read_extent(&mut self, extent: &Extent, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let skip = offset.get() - extent.start.get();
        match extent.data {
            ExtentData::Hole => {
                buf.fill(0);
                Ok(())
            }
            ExtentData::Stored { at } => self.image.read_counted(at, skip, buf, stats::Cause::Stored),
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
        self.image.read_counted(at, start, head, stats::Cause::Stored)?;
        if wrapped.is_empty() {
            return Ok(());
        }
        self.image.read_counted(at, 0, wrapped, stats::Cause::Stored)
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
