//! One request for a range of a file, and the reads that it makes of the medium.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use ferofs_format::{Algorithm, BytePos, DeviceId, Fault, Incompat, Structure};

use ferofs_codec::strip_padding;

use super::scratch::Buffer;
use super::state::Engine;
use crate::access::requests::Pattern;
use crate::accounting::stats::{Cause, Counter};
use crate::error::{Corruption, Error, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::Location;
use crate::volume::Volume;
use crate::volume::block_cache::Key;
use crate::volume::source::Access;
use ferofs_format::units::to_u64;

/// One request, while it is served.
pub(crate) struct Request<'a> {
    pub volume: &'a Volume,
    pub engine: &'a Engine,
    /// For data that is stored among the metadata.
    pub metadata: &'a dyn ReadMetadata,
    pub pattern: Pattern,
    /// The file is the packed inode or the metabox: other files will want the same clusters.
    pub shared: bool,
    /// Bytes that it asks for.
    pub len: usize,
    /// Bytes of the file after it.
    pub left: usize,
    /// Whether a read of its clusters had to wait for the medium.
    pub waited: Cell<bool>,
    /// The encoded bytes of its next clusters, if one call read them all.
    pub gathered: OnceCell<Gathered<'a>>,
}

/// Encoded bytes of one or more ranges of the devices, one after the other.
pub(crate) struct Gathered<'a> {
    first: (DeviceId, BytePos, usize),
    /// The other ranges, by position.
    more: Vec<PlacedRange>,
    bytes: Buffer<'a>,
}

/// A range of a device, and where among the gathered bytes it starts.
struct PlacedRange {
    device: DeviceId,
    pos: BytePos,
    len: usize,
    start: usize,
}

impl Request<'_> {
    /// Encoded bytes without their padding. LZ4 data has none unless the image announces it: Linux
    /// decodes the zeroes to other bytes.
    pub(crate) fn without_padding<'b>(
        &self,
        algorithm: Algorithm,
        at: Location,
        encoded: &'b [u8],
    ) -> Result<&'b [u8]> {
        let stream = strip_padding(encoded);
        let is_padded = stream.len() < encoded.len() && algorithm == Algorithm::Lz4;
        match is_padded && !self.volume.superblock.incompat.contains(Incompat::LZ4_0PADDING) {
            true => Err(undecodable(at)),
            false => Ok(stream),
        }
    }
}

impl Gathered<'_> {
    /// The `len` bytes at `pos`, if they are here.
    fn get(&self, device: DeviceId, pos: BytePos, len: usize) -> Option<&[u8]> {
        let (first_device, first_pos, first_len) = self.first;
        if device == first_device
            && let Some(range) = within(first_pos, first_len, pos, len)
        {
            return self.bytes.get(range);
        }
        let after = self
            .more
            .partition_point(|range| (range.device.get(), range.pos) <= (device.get(), pos));
        let range = self.more.get(after.checked_sub(1)?).filter(|range| range.device == device)?;
        let at = within(range.pos, range.len, pos, len)?;
        self.bytes.get(range.start..)?.get(at)
    }
}

/// The range of the `len` bytes at `pos` in the `outer_len` bytes at `outer`.
fn within(outer: BytePos, outer_len: usize, pos: BytePos, len: usize) -> Option<Range<usize>> {
    let start = usize::try_from(pos.get().checked_sub(outer.get())?).ok()?;
    let end = start.checked_add(len).filter(|end| *end <= outer_len)?;
    Some(start..end)
}

impl<'a> Request<'a> {
    pub(crate) const fn is_sequential(&self) -> bool {
        matches!(self.pattern, Pattern::Sequential { .. })
    }

    /// Reads data, counted for `cause`.
    pub(crate) fn read_counted(
        &self,
        at: Location,
        skip: u64,
        buf: &mut [u8],
        cause: Cause,
    ) -> Result<()> {
        match at {
            Location::Metadata(place) => {
                self.metadata.read_metadata(place.offset(skip)?, Structure::InlineData, buf)
            }
            Location::Device(device, pos) => {
                let overflow =
                    || Corruption::new(Structure::Extent, Fault::Overflow("position")).at(pos);
                let pos = pos.checked_add(skip).ok_or_else(overflow)?;
                if let Some(bytes) =
                    self.gathered.get().and_then(|all| all.get(device, pos, buf.len()))
                {
                    buf.copy_from_slice(bytes);
                    return Ok(());
                }
                self.volume.counters.io(cause, buf.len());
                let (source, pos) =
                    self.volume.source_of(device, pos, Structure::Extent, buf.len())?;
                let read = match self.pattern {
                    Pattern::Sequential { .. } => source.read_exact_at(pos.get(), buf),
                    Pattern::Strided { .. } if source.read_if_cached(pos.get(), buf) => Ok(()),
                    Pattern::Strided { .. } | Pattern::Random => {
                        self.waited.set(true);
                        source.read_sparse_at(pos.get(), buf)
                    }
                };
                read.map_err(Error::unreadable)
            }
        }
    }

    /// Reads `len` encoded bytes with one call; later reads of parts of them copy from memory.
    pub(crate) fn gather(&self, device: DeviceId, pos: BytePos, len: usize) -> Result<()> {
        let mut bytes = self.buffer(len);
        self.read_counted(Location::Device(device, pos), 0, &mut bytes, Cause::Partial)?;
        // A request gathers once.
        let _ = self.gathered.set(Gathered { first: (device, pos, len), more: Vec::new(), bytes });
        Ok(())
    }

    /// Reads encoded bytes of several ranges with one call; later reads of parts of one of them
    /// copy from memory.
    pub(crate) fn gather_batch(&mut self, ranges: &[(DeviceId, BytePos, usize)]) -> Result<()> {
        let Some(&first) = ranges.first() else { return Ok(()) };
        let total = ranges.iter().map(|(.., len)| len).sum();
        let mut bytes = self.buffer(total);
        let (mut unused, mut start, mut more) =
            (&mut bytes[..], 0usize, Vec::with_capacity(ranges.len()));
        let buffers = ranges.iter().map(|&(device, pos, len)| {
            let (buf, tail) = std::mem::take(&mut unused).split_at_mut(len);
            unused = tail;
            more.push(PlacedRange { device, pos, len, start });
            start = start.saturating_add(len);
            (device, pos, buf)
        });
        let access = if self.is_sequential() { Access::Sequential } else { Access::Sparse };
        self.volume.counters.io(Cause::Batch, total);
        self.volume.read_ranges(buffers, access)?;
        more.sort_by_key(|range| (range.device.get(), range.pos));
        self.gathered = Gathered { first, more, bytes }.into();
        Ok(())
    }

    /// Whether the first `used` bytes of the cluster at `at` can be decoded, or are decoded,
    /// without a read.
    pub(crate) fn has_cluster(&self, at: Location, encoded_len: u64, used: u64) -> bool {
        let engine = self.engine;
        let clusters = if self.shared { &engine.packed } else { &engine.tails };
        if clusters.contains(at, usize::try_from(used).unwrap_or(usize::MAX)) {
            return true;
        }
        let block_size = self.volume.superblock.block_size;
        let (Some(cache), Location::Device(device, pos)) = (&engine.encoded, at) else {
            return false;
        };
        if pos.in_block(block_size) != 0 || encoded_len & block_size.mask() != 0 {
            return false;
        }
        let first = Key { device: device.get(), block: pos.block(block_size).get() };
        let blocks = usize::try_from(encoded_len >> block_size.bits()).unwrap_or(usize::MAX);
        (0..blocks).all(|number| cache.contains(first.after(number)))
    }

    /// Whether these bytes were gathered.
    pub(crate) fn has_gathered(&self, at: Location, len: usize) -> bool {
        let Location::Device(device, pos) = at else { return false };
        self.gathered.get().is_some_and(|all| all.get(device, pos, len).is_some())
    }

    /// A request for the packed inode, to look at its extents only.
    pub(crate) fn of_packed(&self) -> Self {
        let (waited, gathered) = (Cell::new(false), OnceCell::new());
        Self { shared: true, waited, gathered, ..*self }
    }

    /// Counts the work of decoding `encoded_len` bytes into `len`. LZMA takes about 25 ns for an
    /// encoded byte, the others at most a quarter of that.
    pub(crate) fn charge_decoding(
        &self,
        algorithm: Algorithm,
        encoded_len: usize,
        len: usize,
    ) -> Result<()> {
        let encoded = to_u64(encoded_len);
        self.volume.budget.charge(if algorithm == Algorithm::Lzma {
            encoded / 4
        } else {
            encoded / 16
        })?;
        self.volume.budget.charge_bytes(to_u64(len))
    }

    pub(crate) fn buffer(&self, len: usize) -> Buffer<'a> {
        let engine = self.engine;
        engine.scratch.buffer(
            len,
            &self.volume.memory,
            &self.volume.counters,
            !engine.pressure.is_short(),
        )
    }

    /// Copies decoded bytes, and counts them.
    pub(crate) fn copy(&self, from: &[u8], to: &mut [u8]) {
        self.volume.counters.add_len(Counter::CopiedBytes, to.len());
        to.copy_from_slice(from);
    }

    /// Counts a cluster of which `len` bytes are decoded.
    pub(crate) fn count(&self, strategy: Counter, len: usize) {
        let counters = &self.volume.counters;
        counters.add(strategy, 1);
        counters.add_len(Counter::DecodedBytes, len);
        if self.shared {
            counters.add_len(Counter::PackedDecodedBytes, len);
        }
    }

    /// Whether the encoded bytes end where the cluster ends, so that they must decode to exactly
    /// the extent. Without LZ4_0PADDING (before Linux 5.4), unused bytes follow them.
    pub(crate) fn exact(&self, partial: bool) -> bool {
        !partial && self.volume.superblock.incompat.contains(Incompat::LZ4_0PADDING)
    }
}

/// The error of a cluster at `at` that does not decode.
pub(crate) fn undecodable(at: Location) -> Error {
    corruption(at, Fault::Decode).into()
}

/// The error of a cluster at `at` for which there is no decoder.
pub(crate) fn not_built(at: Location, algorithm: Algorithm) -> Error {
    Error::Unsupported(corruption(at, Fault::NotBuilt(algorithm.name())))
}

fn corruption(at: Location, fault: Fault) -> Corruption {
    let corruption = Corruption::new(Structure::Extent, fault);
    match at {
        Location::Device(_, pos) => corruption.at(pos),
        Location::Metadata(place) => corruption.at(place.pos),
    }
}
