//! Announces the bytes that a reader will want next to the source, which prefetches them.

use std::ops::Range;

use ferofs_format::FileOffset;

use super::batch::{DeviceBytes, needed};
use crate::accounting::stats::Cause;
use crate::engine::request::Request;
use crate::metadata::extent::{ExtentData, Location};
use crate::metadata::map::FileMap;
use crate::volume::Volume;
use ferofs_format::units::to_u64;

/// Extents at most that are announced at a time, which bounds the work for an image with tiny ones.
/// The rest is read without an announcement.
const MAX_EXTENTS: usize = 1 << 14;
/// Work of finding an extent, in the budget's units of 100 ns.
const EXTENT_WORK: u64 = 2;

/// Announces the clusters that a strided reader's request at `next` needs, and no others: unneeded
/// bytes are read only after the stride's end.
pub(super) fn announce_step(request: &Request<'_>, map: &mut FileMap<'_>, next: u64, size: u64) {
    let end = next.saturating_add(to_u64(request.len)).min(size);
    let mut ranges = Ranges { volume: request.volume, last: None };
    let mut at = next;
    while at < end {
        // An error in the map is reported when the range is read.
        let Ok(extent) = map.extent_at(FileOffset::new(at)) else { break };
        at = extent.end();
        if let ExtentData::Encoded { at: Location::Device(device, pos), encoded_len, .. } =
            extent.data
        {
            ranges.add((device, pos, encoded_len));
        }
    }
    ranges.announce();
}

/// Announces all bytes of the devices that a range of the file needs. Returns the offsets and
/// lengths of its fragments in the packed inode.
pub(super) fn announce_range(
    request: &Request<'_>,
    map: &mut FileMap<'_>,
    range: Range<u64>,
) -> Vec<(u64, u64)> {
    let mut ranges = Ranges { volume: request.volume, last: None };
    let mut fragments = Vec::new();
    let mut at = range.start;
    for _ in 0..MAX_EXTENTS {
        if at >= range.end || request.volume.budget.charge(EXTENT_WORK).is_err() {
            break;
        }
        let Ok(extent) = map.extent_at(FileOffset::new(at)) else { break };
        let end = extent.end().min(range.end);
        if let ExtentData::Fragment { offset } = extent.data {
            let skip = at.saturating_sub(extent.start.get());
            fragments.push((offset.get().saturating_add(skip), end.saturating_sub(at)));
        } else if let Some(place) = needed(request, &extent, at, end) {
            ranges.add(place);
        }
        at = end;
    }
    ranges.announce();
    fragments
}

/// Merges adjacent ranges, and announces them.
struct Ranges<'a> {
    volume: &'a Volume,
    last: Option<DeviceBytes>,
}

impl Ranges<'_> {
    fn add(&mut self, (device, pos, len): DeviceBytes) {
        match &mut self.last {
            Some((before, start, sum))
                if *before == device && start.checked_add(*sum) == Some(pos) =>
            {
                *sum = sum.saturating_add(len);
            }
            _ => {
                self.announce();
                self.last = Some((device, pos, len));
            }
        }
    }

    fn announce(&mut self) {
        if let Some((device, pos, len)) = self.last.take() {
            self.volume.counters.io(Cause::Hint, usize::try_from(len).unwrap_or(usize::MAX));
            self.volume.will_need(device, pos, len);
        }
    }
}
