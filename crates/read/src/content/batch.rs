//! Reads the encoded bytes of several clusters of a request with one call.
//!
//! The reader does so for small random requests whose clusters are adjacent, and, if the source
//! prefers batches, for all requests that need more than one read.

use ferofs_format::{BytePos, DeviceId, FileOffset, Nid};

use crate::engine::pinned::PinnedRanges;
use crate::engine::request::Request;
use crate::engine::run::MAX_EXTENTS as MAX_RUN_EXTENTS;
use crate::error::Result;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::metadata::map::FileMap;
use ferofs_format::units::to_u64;

/// Encoded bytes at most that are read with one call and then copied, of any source. To copy more
/// takes longer than another call.
const MAX_GATHERED: u64 = 64 << 10;
/// Encoded bytes at most of a batch, which bounds its memory. A request for more takes several
/// batches.
const MAX_BATCH: u64 = 4 << 20;
/// Extents at most of a batch, which bounds its records. A request for more takes several batches.
const MAX_EXTENTS: usize = 4096;

/// A range of a device.
pub(super) type DeviceBytes = (DeviceId, BytePos, u64);

/// The encoded bytes of the extents from `offset` to `end`, if there are several, side by side, and
/// few enough bytes that one read and their copies cost less than a read of each.
pub(super) fn adjacent(
    map: &mut FileMap<'_>,
    offset: FileOffset,
    end: u64,
) -> Option<(DeviceId, BytePos, usize)> {
    let encoded = |extent: &Extent| match extent.data {
        ExtentData::Encoded { at: Location::Device(device, pos), encoded_len, .. } => {
            Some((device, pos, encoded_len))
        }
        _ => None,
    };
    // An error in the map is reported when the range is read.
    let mut extent = map.extent_at(offset).ok()?;
    let (device, start, mut len) = encoded(&extent)?;
    if extent.end() >= end {
        return None;
    }
    while extent.end() < end {
        extent = map.extent_at(FileOffset::new(extent.end())).ok()?;
        let (next_device, pos, more) = encoded(&extent)?;
        if next_device != device || start.checked_add(len) != Some(pos) {
            return None;
        }
        len = len.saturating_add(more);
        if len > MAX_GATHERED {
            return None;
        }
    }
    Some((device, start, usize::try_from(len).ok()?))
}

/// The bytes of a device that a read of a part of `extent` needs, from file offset `at` to `end`.
pub(super) fn needed(
    request: &Request<'_>,
    extent: &Extent,
    at: u64,
    end: u64,
) -> Option<DeviceBytes> {
    let skip = at.saturating_sub(extent.start.get());
    match extent.data {
        ExtentData::Stored { at: Location::Device(device, pos) } => {
            Some((device, pos.checked_add(skip)?, end.saturating_sub(at)))
        }
        ExtentData::Interlaced { at: Location::Device(device, pos) } => {
            Some((device, pos, request.volume.superblock.block_size.bytes64()))
        }
        ExtentData::Encoded {
            at: location @ Location::Device(device, pos), encoded_len, ..
        } => {
            let is_part = skip > 0 || end < extent.end();
            let is_cached = is_part
                && request.has_cluster(
                    location,
                    encoded_len,
                    end.saturating_sub(extent.start.get()),
                );
            (!is_cached).then_some((device, pos, encoded_len))
        }
        _ => None,
    }
}

/// The range of a file that a request wants.
pub(super) struct Wanted<'a> {
    pub nid: Nid,
    /// The first offset.
    pub offset: u64,
    /// The offset after the last one.
    pub stop: u64,
    /// Whether the request ends before an encoded extent, other than its first one, that it wants
    /// in part.
    pub ends_at_clusters: bool,
    pub pinned: Option<&'a PinnedRanges>,
}

/// The bytes of the devices that a request needs.
#[derive(Debug)]
pub(super) struct Batch {
    /// Bytes that are not cached; adjacent ranges are merged.
    ranges: Vec<(DeviceId, BytePos, usize)>,
    /// Encoded bytes of all ranges.
    len: u64,
    extents: usize,
    /// Whether all of each extent is wanted.
    are_whole: bool,
    /// The end of the batch in the file.
    pub end: u64,
    /// Offsets and lengths of fragments in the packed inode.
    fragments: Vec<(u64, u64)>,
}

impl Batch {
    /// Collects the ranges that hold the `wanted` bytes. Ends before an extent with an error, which
    /// is reported when it is read.
    pub(super) fn plan(request: &Request<'_>, map: &mut FileMap<'_>, wanted: &Wanted<'_>) -> Self {
        let (ranges, fragments, end) = (Vec::new(), Vec::new(), wanted.offset);
        let mut batch = Self { ranges, len: 0, extents: 0, are_whole: true, end, fragments };
        while batch.end < wanted.stop && batch.extents < MAX_EXTENTS {
            let offset = FileOffset::new(batch.end);
            if let Some(pinned) = wanted.pinned.and_then(|all| all.get(wanted.nid, offset)) {
                batch.end = batch.end.saturating_add(to_u64(pinned.len()));
                continue;
            }
            let Ok(extent) = map.extent_at(offset) else { break };
            let (at, end) = (batch.end, extent.end().min(wanted.stop));
            let is_whole = at == extent.start.get() && end == extent.end();
            let is_encoded = matches!(extent.data, ExtentData::Encoded { .. });
            if wanted.ends_at_clusters && is_encoded && !is_whole && at > wanted.offset {
                break;
            }
            if let ExtentData::Fragment { offset } = extent.data {
                let skip = at.saturating_sub(extent.start.get());
                batch.fragments.push((offset.get().saturating_add(skip), end.saturating_sub(at)));
            }
            if let Some(bytes) = needed(request, &extent, at, end) {
                if !batch.add(request, bytes) {
                    break;
                }
                batch.are_whole &= is_whole;
            }
            batch.extents = batch.extents.saturating_add(1);
            batch.end = end;
        }
        if batch.end == wanted.offset {
            // The extent does not fit, and is read on its own.
            let extent = map.extent_at(FileOffset::new(wanted.offset));
            batch.end = extent.map_or(wanted.stop, |extent| extent.end());
        }
        batch
    }

    /// Adds a range. Returns false if it does not fit, or no device has it.
    fn add(&mut self, request: &Request<'_>, (device, pos, len): DeviceBytes) -> bool {
        let volume = request.volume;
        let max_len = MAX_BATCH.min(to_u64(volume.memory.limit() / 4));
        let sum = self.len.saturating_add(len);
        let Ok(short) = usize::try_from(len) else { return false };
        if sum > max_len || !volume.has_range(device, pos, len) {
            return false;
        }
        self.len = sum;
        match self.ranges.last_mut() {
            // With several devices, adjacent positions may be on two of them.
            Some((last, start, last_len))
                if *last == device
                    && volume.device_slots.is_empty()
                    && start.checked_add(to_u64(*last_len)) == Some(pos) =>
            {
                *last_len = last_len.saturating_add(short);
            }
            _ => self.ranges.push((device, pos, short)),
        }
        true
    }

    /// Offsets and lengths of the fragments in the packed inode, unless they are all that the
    /// request reads.
    pub(super) fn fragments(&self) -> &[(u64, u64)] {
        if self.ranges.is_empty() && self.fragments.len() < 2 { &[] } else { &self.fragments }
    }

    /// Reads the ranges, unless the request takes only one read anyway.
    pub(super) fn read(&self, request: &mut Request<'_>) -> Result<()> {
        let is_run = self.are_whole && self.extents <= MAX_RUN_EXTENTS;
        if self.ranges.len() > 1 || self.ranges.len() == 1 && self.extents > 1 && !is_run {
            return request.gather_batch(&self.ranges);
        }
        Ok(())
    }
}
