//! Runs: adjacent, wholly wanted extents, read with one call into the end of the range that they
//! will fill.
//!
//! Each extent of a run is at least as long as its encoded bytes. So what is decoded never reaches
//! the encoded bytes of a later extent: before extent `i + 1`, as much output remains as encoded
//! bytes do, or more. A decoder's output must trail its input by a few bytes more: if the request
//! also wants the bytes after the run, the encoded bytes end there. Else the last ones lack that
//! margin, and are moved to a buffer first.

use ferofs_codec::{decode_lz4_in_place, lz4_in_place_margin};
use ferofs_format::{Algorithm, BytePos, DeviceId, FileOffset};

use super::decode::{Cluster, Wanted};
use super::request::{Request, undecodable};
use crate::accounting::stats::{Cause, Counter};
use crate::error::Result;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::volume::Volume;
use ferofs_format::units::to_u64;

/// Extents of a run at most, which bounds the memory for their records. A longer sequence takes
/// several runs.
pub(crate) const MAX_EXTENTS: usize = 128;
/// Encoded bytes at most of a cluster in a run with another algorithm than LZ4: it is moved to a
/// buffer before decoding. A larger one is read on its own.
const MAX_MOVED: usize = 64 << 10;

/// Bytes of the record of an extent in a run.
pub(crate) const RUN_EXTENT_SIZE: usize = size_of::<Option<RunExtent>>();

#[derive(Clone, Copy, Debug)]
struct RunExtent {
    len: u32,
    encoded_len: u32,
    /// `None` for a stored extent.
    algorithm: Option<Algorithm>,
    partial: bool,
}

/// A run to which extents are added.
#[derive(Debug)]
pub(crate) struct Run {
    extents: [Option<RunExtent>; MAX_EXTENTS],
    count: usize,
    start: FileOffset,
    device: DeviceId,
    pos: BytePos,
    decoded_len: usize,
    encoded_len: usize,
    /// Bytes that the request wants.
    wanted: usize,
    /// With several devices, adjacent positions may be on two of them.
    joins: bool,
}

impl Run {
    /// The run that starts with `extent`, if the request of `wanted` bytes from `offset` on wants
    /// all of it.
    pub(crate) fn start(
        volume: &Volume,
        extent: &Extent,
        offset: FileOffset,
        wanted: usize,
    ) -> Option<Self> {
        let (device, pos, part) = run_extent(extent)?;
        if extent.start != offset || to_usize(part.len) > wanted {
            return None;
        }
        let joins = volume.device_slots.is_empty();
        let mut run = Self {
            extents: [None; MAX_EXTENTS],
            count: 0,
            start: offset,
            device,
            pos,
            decoded_len: 0,
            encoded_len: 0,
            wanted,
            joins,
        };
        run.push(part);
        Some(run)
    }

    /// Whether another extent may be added.
    pub(crate) fn wants_more(&self) -> bool {
        self.joins && self.count < MAX_EXTENTS && self.decoded_len < self.wanted
    }

    /// Adds `extent`, which follows, if it is adjacent and wholly wanted.
    pub(crate) fn extend(&mut self, extent: &Extent) -> bool {
        let Some((device, pos, part)) = run_extent(extent) else { return false };
        let fits = to_usize(part.len) <= self.wanted.saturating_sub(self.decoded_len);
        let adjacent =
            device == self.device && self.pos.checked_add(to_u64(self.encoded_len)) == Some(pos);
        if fits && adjacent && extent.start == self.end() {
            self.push(part);
            return true;
        }
        false
    }

    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`wants_more` limits `count`, and the lengths stay within the buffer's"
    )]
    fn push(&mut self, part: RunExtent) {
        self.extents[self.count] = Some(part);
        self.count += 1;
        self.decoded_len += to_usize(part.len);
        self.encoded_len += to_usize(part.encoded_len);
    }

    pub(crate) fn end(&self) -> FileOffset {
        FileOffset::new(self.start.get().saturating_add(to_u64(self.decoded_len)))
    }

    /// Bytes that the run decodes to.
    pub(crate) const fn decoded_len(&self) -> usize {
        self.decoded_len
    }
}

/// The record of `extent` for a run, and its place; `None` if it cannot be in a run.
fn run_extent(extent: &Extent) -> Option<(DeviceId, BytePos, RunExtent)> {
    let (at, encoded_len, algorithm, partial) = match extent.data {
        ExtentData::Stored { at } => (at, extent.len, None, false),
        ExtentData::Encoded { algorithm, at, encoded_len, partial } => {
            (at, encoded_len, Some(algorithm), partial)
        }
        _ => return None,
    };
    let Location::Device(device, pos) = at else { return None };
    let len = u32::try_from(extent.len).ok()?;
    let encoded_len = u32::try_from(encoded_len).ok()?;
    let moved = algorithm.is_some_and(|algorithm| algorithm != Algorithm::Lz4);
    if encoded_len > len || moved && to_usize(encoded_len) > MAX_MOVED {
        return None;
    }
    Some((device, pos, RunExtent { len, encoded_len, algorithm, partial }))
}

impl Request<'_> {
    /// Reads and decodes `run` into the start of `buf`, which may be longer.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "no extent of a run is longer encoded than decoded, and all fit `buf`"
    )]
    pub(crate) fn read_run(&self, run: &Run, buf: &mut [u8]) -> Result<()> {
        let last = run.extents.iter().take(run.count).next_back().copied().flatten();
        let margin = last.map_or(0, |part| lz4_in_place_margin(to_usize(part.encoded_len)));
        let end = buf.len().min(run.decoded_len + margin);
        let buf = &mut buf[..end];
        let mut encoded = buf.len() - run.encoded_len;
        let at = Location::Device(run.device, run.pos);
        self.read_counted(at, 0, &mut buf[encoded..], Cause::Run)?;
        let first = encoded;
        let mut out = 0;
        for part in run.extents.iter().take(run.count).flatten() {
            let encoded_end = encoded + to_usize(part.encoded_len);
            let len = to_usize(part.len);
            // Holds as no extent of a run is longer encoded than decoded.
            debug_assert!(out + len <= encoded_end);
            let at = run.pos.checked_add(to_u64(encoded - first)).unwrap_or(run.pos);
            let at = Location::Device(run.device, at);
            self.decode_extent(part, &mut buf[out..encoded_end], len, at)?;
            encoded = encoded_end;
            out += len;
        }
        Ok(())
    }

    /// Decodes the encoded bytes at the end of `buf` into its first `len` bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`buf` has at least `len` bytes, and `len` is at least `encoded_len`"
    )]
    fn decode_extent(
        &self,
        part: &RunExtent,
        buf: &mut [u8],
        len: usize,
        at: Location,
    ) -> Result<()> {
        let encoded_len = to_usize(part.encoded_len);
        let start = buf.len() - encoded_len;
        let counters = &self.volume.counters;
        let Some(algorithm) = part.algorithm else {
            if start > 0 {
                counters.add_len(Counter::CopiedBytes, len);
                buf.copy_within(start..start + len, 0);
            }
            return Ok(());
        };
        self.charge_decoding(algorithm, encoded_len, len)?;
        let exact = self.exact(part.partial);
        let encoded =
            buf.len() - self.without_padding(algorithm, at, &buf[start..])?.len()..buf.len();
        let has_margin = exact && buf.len() - len >= lz4_in_place_margin(encoded.len());
        if algorithm == Algorithm::Lz4 && has_margin && self.engine.in_place(len) {
            self.count(Counter::InPlace, len);
            return decode_lz4_in_place(buf, encoded, len).map(drop).map_err(|_| undecodable(at));
        }
        let mut moved = self.buffer(encoded.len());
        counters.add(Counter::Moved, 1);
        self.copy(&buf[encoded], &mut moved);
        let cluster = Cluster { algorithm, at, encoded_len, exact };
        self.decode(&cluster, &moved, Wanted::WHOLE, &mut buf[..len])
    }
}

fn to_usize(len: u32) -> usize {
    // Linux, where this runs, has no narrower lengths.
    usize::try_from(len).unwrap_or(usize::MAX)
}
