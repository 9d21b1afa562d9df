//! Finds the bytes that a profile lists, for a source that fetches them before they are read.

use std::ops::Range;

use ferofs_format::inode::FileType;
use ferofs_format::{DeviceId, FileOffset};

use super::text::{HotRange, Profile};
use crate::accounting::recorder::RANGE_BITS;
use crate::error::Result;
use crate::image::Image;
use crate::metadata::inode::Inode;

/// Bytes of a file whose extents are looked up at a time, which limits the memory for them.
const PIECE: u64 = 1 << RANGE_BITS;
/// Pieces that are looked up in all: as many as a recording counts, 64 GiB of content.
const MAX_PIECES: u32 = 1 << 20;

/// The bytes of the primary device that hold the ranges of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileRanges {
    /// The bytes, in any order, and some of them perhaps several times.
    pub ranges: Vec<Range<u64>>,
    /// Files of the profile that were not found.
    pub missing: u64,
}

/// The primary device.
const PRIMARY: DeviceId = DeviceId::new(0);

impl Image {
    /// Finds the bytes of the primary device that hold the data of the ranges in `profile`: at most `most` ranges. Reads metadata, and no data.
    /// Stops before a file when `go_on` returns false. The work for each file is limited as that of a [request](Self::request). Damaged files,
    /// and files that the image does not have, are left out.
    #[must_use]
    pub fn profile_ranges(&self, profile: &Profile, most: usize, go_on: impl Fn() -> bool) -> ProfileRanges {
        let mut by_file: Vec<&HotRange> = profile.ranges.iter().filter(|range| range.len > 0).collect();
        by_file.sort_by(|a, b| (&a.path, a.start).cmp(&(&b.path, b.start)));
        let mut found = Finder { image: self, ranges: Vec::new(), max: most, pieces: MAX_PIECES };
        let mut missing = 0u64;
        for file in by_file.chunk_by(|a, b| a.path == b.path) {
            let Some(first) = file.first().filter(|_| found.may_add() && go_on()) else { break };
            let is_found = Self::request(|| {
                let inode = self.resolve(&first.path, false).ok()?;
                (inode.file_type() == FileType::Regular).then_some(())?;
                // The ranges found before an error stay.
                file.iter().try_for_each(|hot| found.add(&inode, hot)).ok()
            });
            missing = missing.saturating_add(is_found.is_none().into());
        }
        ProfileRanges { ranges: found.ranges, missing }
    }
}

/// The ranges that were found.
struct Finder<'a> {
    image: &'a Image,
    ranges: Vec<Range<u64>>,
    max: usize,
    /// Pieces that may still be looked up.
    pieces: u32,
}

impl Finder<'_> {
    fn may_add(&self) -> bool {
        self.ranges.len() < self.max && self.pieces > 0
    }

    /// Adds the bytes that hold a range of a file.
    fn add(&mut self, inode: &Inode, hot: &HotRange) -> Result<()> {
        let end = hot.start.saturating_add(hot.len).min(inode.content_len());
        let mut at = hot.start;
        while at < end && self.may_add() {
            let len = PIECE.min(end.saturating_sub(at));
            self.pieces = self.pieces.saturating_sub(1);
            for range in self.image.data_ranges(inode, FileOffset::new(at), len)? {
                if range.device == PRIMARY && self.may_add() {
                    self.push(range.start.get()..range.end());
                }
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Adds a range, to the last one if it follows that one.
    fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if (last.start..=last.end).contains(&range.start) => {
                last.end = last.end.max(range.end)
            }
            _ => self.ranges.push(range),
        }
    }
}
