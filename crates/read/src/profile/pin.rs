//! Pins content: decodes the ranges that a profile lists, and keeps them in memory.

use ferofs_format::FileOffset;

use super::text::{HotRange, Profile};
use crate::engine::pinned::PinnedRanges;
use crate::error::Result;
use crate::image::Image;
use crate::numbers::to_u64;

/// The result of pinning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pinned {
    /// Ranges kept.
    pub ranges: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Ranges of the profile that this image does not have, or that cannot be read.
    pub missing: u64,
}

impl Image {
    /// Decodes the ranges that `profile` says are read most, and keeps them in at most `memory` bytes: reads of them
    /// then only copy. They replace those pinned before.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when a directory on the way to a range is damaged; ranges that the image does not
    /// have are counted as missing.
    pub fn pin(&self, profile: &Profile, memory: usize) -> Result<Pinned> {
        let mut pinned = Pinned::default();
        let mut pins = PinnedRanges::default();
        let mut left = memory;
        let mut by_heat: Vec<_> = profile.ranges.iter().filter(|range| range.len > 0).collect();
        // Reads of each byte, as products so that nothing is rounded.
        by_heat.sort_by(|a, b| {
            let heat = |x: &HotRange, y: &HotRange| u128::from(x.reads).saturating_mul(y.len.into());
            heat(b, a).cmp(&heat(a, b))
        });
        for hot in by_heat {
            let Ok(inode) = self.resolve(&hot.path, false) else {
                pinned.missing = pinned.missing.saturating_add(1);
                continue;
            };
            let have = inode.content_len().saturating_sub(hot.start).min(hot.len);
            let len = usize::try_from(have).unwrap_or(usize::MAX);
            if len > left {
                continue;
            }
            let mut bytes = vec![0; len].into_boxed_slice();
            let start = FileOffset::new(hot.start);
            if len == 0 || self.read_at(&inode, start, &mut bytes).is_err() {
                pinned.missing = pinned.missing.saturating_add(1);
                continue;
            }
            pins.insert(inode.nid(), hot.start, bytes);
            left = left.saturating_sub(len);
            pinned.ranges = pinned.ranges.saturating_add(1);
            pinned.bytes = pinned.bytes.saturating_add(to_u64(len));
        }
        let memory = &self.content.volume.memory;
        memory.take(pins.len());
        memory.release(self.content.engine.pinned_ranges.replace(pins).len());
        Ok(pinned)
    }
}
