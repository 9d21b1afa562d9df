//! What can be wrong with an archive.

use crate::build::sketch::Misplaced;

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
    #[error("an extended header of {0} bytes")]
    HugeHeader(u64),
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
