//! Where the content of a regular file is in its source. The sources set it, and [`crate::sources::content`] reads by it.

use ferofs_format::Nid;
use ferofs_format::inode::Timestamp;
use rustix::io::Errno;

/// Where the content of a regular file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// It has none: an empty file, or no regular one.
    #[default]
    None,
    /// In the source directory, under its first name, as long as that is still this file.
    File(Identity),
    /// In one piece, from there on.
    Place(Place),
    /// In pieces with holes between them: so many of [`Contents::spans`], from the first on.
    Spans { first: u32, count: u32 },
    /// That of an inode of one of [`Contents::images`].
    Image { image: u16, nid: Nid },
    /// Nowhere: it is all zeroes.
    Zeroes,
    /// In a file that could not be read when its digest was made: see [`crate::SourceOptions::skip_unreadable`].
    Unreadable(Errno),
}

/// A position in a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub medium: u16,
    pub at: u64,
}

/// A piece of a file with holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it starts in the file.
    pub offset: u64,
    pub len: u64,
    pub place: Place,
}

/// What tells whether a source file is still the one that was walked; its size is the node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub ino: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}
