//! Where the content of a regular file is in its source. The sources set it, and [`crate::sources::content`] reads by it.

use std::hash::{DefaultHasher, Hash, Hasher};

use ferofs_format::Nid;
use ferofs_format::inode::Timestamp;
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::host::open::mtime;
use crate::tree::node_id::NodeId;

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// Where the content of a regular file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There is no content: the file is empty, or not a regular file.
    #[default]
    None,
    /// In the source directory, under the node's first name, in the file with this identity.
    File(Identity),
    /// In another directory, under the first name of `node` in the tree of that directory: see
    /// [`Contents::add_directory`](crate::sources::content::Contents::add_directory).
    LayerFile { layer: u16, node: NodeId, identity: Identity },
    /// In one piece that starts here.
    At(SourcePosition),
    /// In memory: an index into the pieces of [`Contents`](crate::sources::content::Contents).
    Memory(u32),
    /// In `count` pieces, with holes between them: an index range of
    /// [`Contents::spans`](crate::sources::content::Contents::spans).
    Spans { first: u32, count: u32 },
    /// The content of an inode of a source image, from `start` on: see
    /// [`Contents::image`](crate::sources::content::Contents::image).
    Image { image: u16, nid: Nid, start: u64 },
    /// The file is one hole: all bytes are zero.
    Zeroes,
    /// Reading the file for its digest failed. The data stage leaves the file out or fails: see [`crate::SourceOptions::skip_unreadable`].
    Unreadable(Errno),
}

/// A position in an archive or in the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    /// The index of the file: see [`Contents::file`](crate::sources::content::Contents::file).
    pub file: u16,
    /// Bytes from the start of that file.
    pub at: u64,
}

/// A piece of data in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it starts in the file.
    pub offset: u64,
    pub len: u64,
    pub place: SourcePosition,
}

/// Identifies a source file and its state, to detect a change after the directory walk. The size is in the node. A tree has one for each
/// file, so it is kept small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// A hash of the inode number and of the times of the last changes, which are only compared.
    hash: u64,
    /// When the file or its metadata changed last, in nanoseconds since 1970, or the nearest time that fits.
    ctime: i64,
}

impl Identity {
    pub(crate) fn new(ino: u64, mtime: Timestamp, ctime: Timestamp) -> Self {
        let mut hasher = DefaultHasher::new();
        (ino, mtime.secs, mtime.nanos, ctime.secs, ctime.nanos).hash(&mut hasher);
        let nanos = ctime.secs.saturating_mul(NANOS_PER_SEC).saturating_add(ctime.nanos.into());
        Self { hash: hasher.finish(), ctime: nanos }
    }

    /// The identity of the file that fstat(2) describes.
    pub(crate) fn of_file(stat: &Stat) -> Self {
        let ctime = Timestamp { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 };
        Self::new(stat.st_ino, mtime(stat), ctime)
    }

    /// When the file or its metadata changed last, or the nearest time between the years 1678 and 2262.
    pub(crate) const fn ctime(self) -> Timestamp {
        Timestamp {
            secs: self.ctime.div_euclid(NANOS_PER_SEC),
            nanos: self.ctime.rem_euclid(NANOS_PER_SEC) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_the_time_and_depends_on_everything() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        let known = Identity::new(1, time(2, 3), time(-4, 5));
        assert_eq!(known.ctime(), time(-4, 5));
        for other in
            [(2, time(2, 3), time(-4, 5)), (1, time(2, 4), time(-4, 5)), (1, time(2, 3), time(-4, 6))]
        {
            assert_ne!(Identity::new(other.0, other.1, other.2), known);
        }
        let [far, farther] = [i64::MAX - 1, i64::MAX].map(|secs| Identity::new(1, time(0, 0), time(secs, 0)));
        assert_ne!(far, farther);
        assert!(far.ctime().secs > 9_000_000_000);
    }
}
