//! Pinned content: the ranges that are read most, decoded once and kept.

use std::collections::HashMap;

use ferofs_format::{FileOffset, Nid};

use super::super::image::{Image, to_u64};
use super::profile::Profile;
use crate::error::Result;

/// Decoded ranges, by file and place.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    files: HashMap<Nid, Vec<Range>>,
}

#[derive(Debug)]
struct Range {
    start: u64,
    bytes: Box<[u8]>,
}

/// What was pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Ranges kept.
    pub ranges: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Ranges of the profile that this image does not have, or that cannot be read.
    pub missing: u64,
}

impl Pins {
    /// The pinned bytes from `offset` on, as far as they go.
    pub(super) fn get(&self, nid: Nid, offset: FileOffset) -> Option<&[u8]> {
        if self.files.is_empty() {
            return None;
        }
        let ranges = self.files.get(&nid)?;
        let after = ranges.partition_point(|range| range.start <= offset.get());
        let range = ranges.get(after.checked_sub(1)?)?;
        let skip = usize::try_from(offset.get() - range.start).ok()?;
        range.bytes.get(skip..).filter(|rest| !rest.is_empty())
    }
}

impl Image {
    /// Decodes the ranges that `profile` says are read most, and keeps them in at most `memory` bytes: reads of them
    /// then cost a copy. What was pinned before is let go.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when a directory on the way to a range is damaged; ranges that the image does not
    /// have are counted as missing.
    pub fn pin(&mut self, profile: &Profile, memory: usize) -> Result<Pinned> {
        let mut pinned = Pinned::default();
        let mut pins = Pins::default();
        let mut room = memory;
        let mut by_heat: Vec<_> = profile.ranges.iter().filter(|range| range.len > 0).collect();
        // Reads of each byte, as products so that nothing is rounded.
        by_heat.sort_by(|a, b| {
            let heat = |x: &super::HotRange, y: &super::HotRange| u128::from(x.reads) * u128::from(y.len);
            heat(b, a).cmp(&heat(a, b))
        });
        for hot in by_heat {
            let Ok(inode) = self.resolve(&hot.path, false) else {
                pinned.missing += 1;
                continue;
            };
            let have = inode.content_len().saturating_sub(hot.start).min(hot.len);
            let len = usize::try_from(have).unwrap_or(usize::MAX);
            if len > room {
                continue;
            }
            let mut bytes = vec![0; len].into_boxed_slice();
            let start = FileOffset::new(hot.start);
            if len == 0 || self.read_at(&inode, start, &mut bytes).is_err() {
                pinned.missing += 1;
                continue;
            }
            let ranges = pins.files.entry(inode.nid()).or_default();
            let after = ranges.partition_point(|range| range.start <= hot.start);
            ranges.insert(after, Range { start: hot.start, bytes });
            room -= len;
            pinned.ranges += 1;
            pinned.bytes += to_u64(len);
        }
        let size =
            |pins: &Pins| -> usize { pins.files.values().flatten().map(|range| range.bytes.len()).sum() };
        self.engine.memory.give(size(&self.engine.pins));
        self.engine.memory.take(size(&pins));
        self.engine.pins = pins;
        Ok(pinned)
    }
}
