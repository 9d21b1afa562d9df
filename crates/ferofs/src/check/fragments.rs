//! Finds the files that have a part in damaged clusters of the packed inode: a second walk, only of images with such damage.

use std::path::PathBuf;

use ferofs_format::FileOffset;

use super::checker::{Checker, PACKED};
use super::report::Finding;
use ferofs_read::ExtentData;

impl Checker<'_> {
    /// Adds a finding for each fragment that a damaged part of the packed inode concerns.
    pub(super) fn report_fragments(&self) {
        let damaged = self.findings.damaged_parts(PACKED.as_ref());
        if damaged.is_empty() {
            return;
        }
        // Each fragment is compared with all parts.
        let work = u64::try_from(damaged.len() / 64).unwrap_or(u64::MAX);
        for file in self.names().filter(|file| file.first) {
            let Some(inode) = self.unless_ended(file.inode) else { continue };
            let extents = self.unless_ended(self.image.extents(&inode, FileOffset::new(0)));
            for extent in extents.into_iter().flatten().map_while(|extent| self.unless_ended(extent)) {
                let ExtentData::Fragment { offset } = extent.data else { continue };
                if self.unless_ended(self.image.budget().charge(work)).is_none() {
                    return;
                }
                let (start, end) = (offset.get(), offset.get().saturating_add(extent.len));
                let found = damaged.iter().find(|(part, _)| part.start < end && start < part.end);
                if let Some((_, corruption)) = found {
                    self.findings.push(Finding {
                        path: file.path.clone(),
                        corruption: corruption.clone(),
                        content: Some(extent.start.get()..extent.end()),
                        also: Some(PathBuf::from(PACKED)),
                    });
                }
            }
        }
    }
}
