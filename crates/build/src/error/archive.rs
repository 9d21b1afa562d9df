//! What can be wrong with an archive.

use crate::error::entry::Misplaced;

/// What is wrong with an archive's member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveFault {
    /// The header's sum is another.
    #[error("the header's checksum is wrong: this is no tar archive, or a damaged one")]
    Checksum,
    /// A field of the header is no number, or one out of range.
    #[error("{0} is no number that it could be")]
    Number(&'static str),
    /// A record of an extended header is malformed.
    #[error("a malformed extended header")]
    Pax,
    /// An extended header's or a long name's size is beyond reason.
    #[error(
        "an extended header of {size} bytes: the limit is {limit}, unless the limits for archives are raised"
    )]
    HugeHeader {
        /// What it claims, or all headers of the member do.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// Global extended headers say more than any need to say.
    #[error("global headers of more than {limit} bytes, the limit unless the limits for archives are raised")]
    Globals {
        /// The limit.
        limit: u64,
    },
    /// Attributes, sparse maps, replaced members and implied directories take more memory than the archive's size explains.
    #[error(
        "attributes, sparse maps or replaced members need more than {limit} bytes of memory, the limit unless the limits for \
         archives are raised"
    )]
    Memory {
        /// The limit.
        limit: u64,
    },
    /// Holes of sparse files cost more than the archive's size explains.
    #[error(
        "holes of sparse files cost more than {limit} bytes, the limit unless the limits for archives are raised"
    )]
    Holes {
        /// The limit.
        limit: u64,
    },
    /// A sparse file is larger than any.
    #[error("a sparse file of {size} bytes: the limit is {limit}, unless the limits for archives are raised")]
    SparseFile {
        /// What it claims.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The archive ends within the member.
    #[error("the archive ends within it")]
    Truncated,
    /// The archive has no members, not even an end.
    #[error("empty")]
    Empty,
    /// The map of a sparse file is malformed, overlaps itself, or leaves the file.
    #[error("a malformed map of a sparse file")]
    Sparse,
    /// The member goes on in another volume.
    #[error("a part of an archive of several volumes")]
    Volume,
    /// The member has no name.
    #[error("no name")]
    Nameless,
    /// The member cannot be where it says.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
}
