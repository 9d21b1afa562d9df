//! Access patterns: which files are being read from front to back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ferofs_format::{FileOffset, Nid};

const FILES: usize = 64;

/// Where the last request on each file ended; files share places, which costs a guess at worst.
#[derive(Debug)]
pub(super) struct Patterns([AtomicU64; FILES]);

impl Default for Patterns {
    fn default() -> Self {
        // Nothing ends at 0, so that a file's first request is no sequel unless it starts the file.
        Self([const { AtomicU64::new(0) }; FILES])
    }
}

impl Patterns {
    /// Notes a request; says whether it goes on where the last one ended, or starts the file.
    pub(super) fn note(&self, nid: Nid, offset: FileOffset, len: u64) -> bool {
        let place = usize::try_from(nid.get() % 64).unwrap_or(0);
        // The number tells files apart that share a place.
        let tag = nid.get().rotate_left(40);
        let ended = self.0[place].swap(offset.get().saturating_add(len) ^ tag, Relaxed);
        offset.get() == 0 || ended == offset.get() ^ tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequels_are_told_from_jumps() {
        let patterns = Patterns::default();
        let note = |nid, offset| patterns.note(Nid::new(nid), FileOffset::new(offset), 10);
        assert!(note(7, 0) && note(7, 10) && note(7, 20));
        assert!(!note(7, 50) && note(7, 60));
        assert!(!note(71, 70), "another file at the same place");
    }
}
