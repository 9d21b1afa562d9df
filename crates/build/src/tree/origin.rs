//! Where the content of a regular file is in its source. The sources set it, and [`crate::sources::content`] reads by it.

use ferofs_format::Nid;
use ferofs_format::inode::Timestamp;
use rustix::io::Errno;

use crate::tree::node_id::NodeId;

/// Where the content of a regular file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
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
pub struct SourcePosition {
    /// The index of the file: see [`Contents::file`](crate::sources::content::Contents::file).
    pub file: u16,
    /// Bytes from the start of that file.
    pub at: u64,
}

/// A piece of data in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it starts in the file.
    pub offset: u64,
    pub len: u64,
    pub place: SourcePosition,
}

/// Identifies a source file and its state, to detect a change after the directory walk. The size is in the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub ino: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}
