//! The faults of a tar archive.

use crate::error::entry::EntryFault;
use crate::known_format::KnownFormat;

/// The error in a member of an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarFault {
    /// The header's checksum is wrong.
    #[error("the header's checksum is wrong: the file is not a tar archive, or is damaged")]
    Checksum,
    /// The file has another format.
    #[error("not a tar archive: {0}")]
    OtherFormat(KnownFormat),
    /// The file begins with zeroes, and more than the zeroes of an empty archive follows.
    #[error(
        "not a tar archive: it begins with zeroes. If it is a disk image, mount it, then: ferofs build DIR IMAGE"
    )]
    Zeroes,
    /// A field of the header is not a number, or is out of range.
    #[error("{0} is not a number, or is out of range")]
    Number(&'static str),
    /// A record of an extended header is malformed.
    #[error("a malformed extended header")]
    Pax,
    /// The extended headers of a member, or a long name, are too large.
    #[error(
        "an extended header of {size} bytes: the limit is {limit}, unless the limits for archives are raised"
    )]
    HugeHeader {
        /// The size according to the headers, in bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The global extended headers have too many bytes.
    #[error("global headers of more than {limit} bytes, the limit unless the limits for archives are raised")]
    GlobalHeaders {
        /// The limit.
        limit: u64,
    },
    /// Attributes, sparse maps, replaced members and implied directories need too much memory for the size of the archive.
    #[error(
        "attributes, sparse maps or replaced members need more than {limit} bytes of memory, the limit unless the limits for \
         archives are raised"
    )]
    Memory {
        /// The limit.
        limit: u64,
    },
    /// Holes of sparse files cause too much work for the size of the archive.
    #[error(
        "holes of sparse files cost more than {limit} bytes, the limit unless the limits for archives are raised"
    )]
    Holes {
        /// The limit.
        limit: u64,
    },
    /// A sparse file is too large.
    #[error("a sparse file of {size} bytes: the limit is {limit}, unless the limits for archives are raised")]
    SparseFile {
        /// The size according to the headers, in bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The archive ends within the member.
    #[error("the archive ends within this member")]
    Truncated,
    /// The archive has no bytes, not even an end mark.
    #[error("the archive is empty")]
    Empty,
    /// The map of a sparse file is malformed, or its pieces overlap or are outside the file.
    #[error("a malformed map of a sparse file")]
    Sparse,
    /// The member continues in another volume.
    #[error("a part of an archive of several volumes")]
    Volume,
    /// The member has no name.
    #[error("a member without a name")]
    NoName,
    /// The member cannot be inserted into the tree.
    #[error(transparent)]
    Entry(#[from] EntryFault),
}
