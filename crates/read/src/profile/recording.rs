//! From counted reads to a profile, which names files by their paths.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ferofs_format::Nid;

use super::text::{HotRange, Profile};
use crate::accounting::recorder::{RANGE_BITS, Recorder};
use crate::error::Result;
use crate::image::Image;
use crate::tree::walk::{DirectoryWalk, Step};

/// The counts of an image that was opened to record, which grow while the image is read.
#[derive(Clone, Debug)]
pub struct Recording(Arc<Recorder>);

impl Image {
    /// The reads of each file since the image was opened with [`EngineOptions::record`](crate::EngineOptions::record); empty
    /// without that option.
    ///
    /// # Errors
    /// As [`Recording::profile`].
    pub fn profile(&self) -> Result<Profile> {
        self.recording().map_or_else(|| Ok(Profile::default()), |recording| recording.profile(self))
    }

    /// The counts of this image, which stay usable after it is closed; `None` if it was not opened to record.
    #[must_use]
    pub fn recording(&self) -> Option<Recording> {
        self.content.engine.recorder.clone().map(Recording)
    }
}

impl Recording {
    /// The counts so far, with the files' paths in `image`: the one that was recorded, or the same opened again. Looks
    /// for the files in the whole tree.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the root is damaged; other directories that cannot be listed are left out.
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
