//! One request for a range of a file, and the reads that it makes of the medium.

use std::cell::{Cell, OnceCell};

use ferofs_format::{Algorithm, BytePos, DeviceId, Fault, Incompat, Structure};

use super::scratch::Buffer;
use super::state::Engine;
use crate::access::requests::Pattern;
use crate::accounting::stats::{Cause, Counter};
use crate::error::{Corruption, Error, Result};
use crate::metadata::extent::Location;
use crate::metadata::reader::ReadMetadata;
use crate::numbers::to_u64;
use crate::volume::Volume;

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
    /// The encoded bytes of its clusters, if one call read them all.
    pub gathered: OnceCell<Gathered<'a>>,
}

/// Adjacent encoded bytes.
pub(crate) struct Gathered<'a> {
    device: DeviceId,
    pos: BytePos,
    bytes: Buffer<'a>,
}

impl Gathered<'_> {
    /// The `len` bytes at `pos`, if they are here.
    fn get(&self, device: DeviceId, pos: BytePos, len: usize) -> Option<&[u8]> {
        let start = pos.get().checked_sub(self.pos.get()).filter(|_| device == self.device)?;
        let start = usize::try_from(start).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

impl<'a> Request<'a> {
    pub(crate) const fn is_sequential(&self) -> bool {
        matches!(self.pattern, Pattern::Sequential { .. })
    }

    /// Reads data, counted for `cause`.
    pub(crate) fn read_counted(&self, at: Location, skip: u64, buf: &mut [u8], cause: Cause) -> Result<()> {
        match at {
            Location::Metadata(place) => {
                self.metadata.read_metadata(place.offset(skip)?, Structure::InlineData, buf)
            }
            Location::Device(device, pos) => {
                let overflow = || Corruption::new(Structure::Extent, Fault::Overflow("position")).at(pos);
                let pos = pos.checked_add(skip).ok_or_else(overflow)?;
                if let Some(bytes) = self.gathered.get().and_then(|all| all.get(device, pos, buf.len())) {
                    buf.copy_from_slice(bytes);
                    return Ok(());
                }
                self.volume.counters.io(cause, buf.len());
                let (source, pos) = self.volume.source_of(device, pos, Structure::Extent, buf.len())?;
                let read = match self.pattern {
                    Pattern::Sequential { .. } => source.read_exact_at(pos.get(), buf),
                    Pattern::Strided { .. } if source.read_if_cached(pos.get(), buf) => Ok(()),
                    Pattern::Strided { .. } | Pattern::Random => {
                        self.waited.set(true);
                        source.read_sparse_at(pos.get(), buf)
                    }
                };
                read.map_err(|e| Error::io_unnamed("read image", e))
            }
        }
    }

    /// Reads `len` encoded bytes with one call; later reads of parts of them copy from memory.
    pub(crate) fn gather(&self, device: DeviceId, pos: BytePos, len: usize) -> Result<()> {
        let mut bytes = self.buffer(len);
        self.read_counted(Location::Device(device, pos), 0, &mut bytes, Cause::Partial)?;
        // A request gathers once.
        let _ = self.gathered.set(Gathered { device, pos, bytes });
        Ok(())
    }

    /// Counts the work of decoding `encoded_len` bytes into `len`. LZMA takes about 25 ns for an encoded byte, the others at most
    /// a quarter of that.
    pub(crate) fn charge_decoding(&self, algorithm: Algorithm, encoded_len: usize, len: usize) -> Result<()> {
        let encoded = to_u64(encoded_len) / if algorithm == Algorithm::Lzma { 4 } else { 16 };
        self.volume.budget.charge(encoded)?;
        self.volume.budget.charge_bytes(to_u64(len))
    }

    /// Borrows a buffer.
    pub(crate) fn buffer(&self, len: usize) -> Buffer<'a> {
        let engine = self.engine;
        engine.scratch.buffer(len, &self.volume.memory, &self.volume.counters, !engine.pressure.is_short())
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

    /// Whether the encoded bytes end where the cluster ends, so that they must decode to exactly the extent. Without
    /// LZ4_0PADDING (before Linux 5.4), unused bytes follow them.
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
