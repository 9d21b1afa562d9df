//! Access profiles: the ranges that were read most, as text, kept decoded, and found in the image.

pub(crate) mod text;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ferofs_format::inode::FileType;
use ferofs_format::{DeviceId, FileOffset, Nid};

use self::text::{HotRange, Profile};
use crate::accounting::recorder::{RANGE_BITS, Recorder};
use crate::engine::pinned::PinnedRanges;
use crate::error::Result;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::walk::{DirectoryWalk, Step};
use ferofs_format::units::to_u64;

/// The counts of an image that was opened to record, which grow while the image is read.
#[derive(Clone, Debug)]
pub struct Recording(Arc<Recorder>);

impl Image {
    /// The reads of each file since the image was opened with
    /// [`EngineOptions::record`](crate::EngineOptions::record); empty without that option.
    ///
    /// # Errors
    /// As [`Recording::profile`].
    pub fn profile(&self) -> Result<Profile> {
        self.recording().map_or_else(|| Ok(Profile::default()), |recording| recording.profile(self))
    }

    /// The counts of this image, which stay usable after it is closed; `None` if it was not opened
    /// to record.
    #[must_use]
    pub fn recording(&self) -> Option<Recording> {
        self.content.engine.recorder.clone().map(Recording)
    }
}

impl Recording {
    /// The counts so far, with the files' paths in `image`: the one that was recorded, or the same
    /// opened again. Looks for the files in the whole tree.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the root is damaged; other directories that cannot be listed
    /// are left out.
    pub fn profile(&self, image: &Image) -> Result<Profile> {
        let reads = self.0.lock().clone();
        let mut wanted: HashMap<Nid, Vec<(u64, u64)>> = HashMap::new();
        for ((nid, range), count) in reads {
            wanted.entry(nid).or_default().push((range, count));
        }
        let mut profile = Profile::default();
        let mut walk = DirectoryWalk::new(image, image.root()?.nid());
        while let Some(step) = walk.next().filter(|_| !wanted.is_empty()) {
            // Damaged parts are left out.
            let Step::Entry(entry) = step else { continue };
            let ranges = wanted.remove(&entry.nid).unwrap_or_default();
            let Ok(inode) = image.inode(entry.nid) else { continue };
            if inode.is_dir() {
                walk.enter(&entry.name, entry.nid);
            } else if !ranges.is_empty() {
                let path = Path::new("/").join(walk.entry_path(&entry.name));
                profile.ranges.extend(ranges.into_iter().map(|(range, reads)| {
                    let start = range << RANGE_BITS;
                    let len = inode.size().saturating_sub(start).min(1 << RANGE_BITS);
                    HotRange { reads, start, len, path: path.clone() }
                }));
            }
        }
        profile.sort();
        Ok(profile)
    }
}

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
    /// Decodes the ranges that `profile` says are read most, and keeps them in at most `memory`
    /// bytes: reads of them then only copy. They replace those pinned before.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when a directory on the way to a range is damaged; ranges that the
    /// image does not have are counted as missing.
    pub fn pin(&self, profile: &Profile, memory: usize) -> Result<Pinned> {
        let mut pinned = Pinned::default();
        let mut pins = PinnedRanges::default();
        let mut left = memory;
        let mut by_heat: Vec<_> = profile.ranges.iter().filter(|range| range.len > 0).collect();
        // Reads of each byte, as products so that nothing is rounded.
        by_heat.sort_by(|a, b| {
            let heat =
                |x: &HotRange, y: &HotRange| u128::from(x.reads).saturating_mul(y.len.into());
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
    /// Files of the profile that the image does not have, or that are damaged.
    pub missing: u64,
}

/// The primary device.
const PRIMARY: DeviceId = DeviceId::new(0);

impl Image {
    /// Finds the bytes of the primary device that hold the data of the ranges in `profile`: at most
    /// `most` ranges. Reads metadata, and no data. Stops before a file when `go_on` returns false.
    /// The work for each file is limited as that of a [request](Self::request). Damaged files, and
    /// files that the image does not have, are left out.
    #[must_use]
    pub fn profile_ranges(
        &self,
        profile: &Profile,
        most: usize,
        go_on: impl Fn() -> bool,
    ) -> ProfileRanges {
        let mut by_file: Vec<&HotRange> =
            profile.ranges.iter().filter(|range| range.len > 0).collect();
        by_file.sort_by(|a, b| (&a.path, a.start).cmp(&(&b.path, b.start)));
        let mut found = Finder { image: self, ranges: Vec::new(), max: most, pieces: MAX_PIECES };
        let mut missing = 0u64;
        for file in by_file.chunk_by(|a, b| a.path == b.path) {
            let Some(first) = file.first().filter(|_| found.may_add() && go_on()) else { break };
            let is_found = Self::request(|| {
                let inode = self.resolve(&first.path, false).ok()?;
                // The recording counts the targets of links, too.
                matches!(inode.file_type(), FileType::Regular | FileType::Symlink).then_some(())?;
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
