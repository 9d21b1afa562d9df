//! The list of changed files in a patch: information for people, not needed to apply the patch. Layout: docs/PATCH.md.

use std::io::Read;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, PatchFault, Result};

/// Bytes of the decoded list at most: it is held in memory. Patches with a longer list are refused.
pub(super) const CHANGES_MAX: u64 = 1 << 30;
/// Zstandard's level for the list: it is short, so size counts more than speed.
const LEVEL: i32 = 15;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChange {
    kind: U32,
    path_len: U32,
    bytes: U64,
}

/// How a file differs from the old image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It is new, in path and content.
    Added,
    /// Its content differs.
    Content,
    /// Its attributes or its link count differ.
    Attributes,
    /// It has the content of an old file of another path.
    Moved,
    /// It is a directory with a new inode.
    Directory,
    /// It was removed.
    Removed,
}

/// A file that a patch changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// How it differs.
    pub kind: ChangeKind,
    /// Its path from the root, in the new tree; in the old tree if it was removed.
    pub path: Vec<u8>,
    /// Bytes that the image grows by for it.
    pub bytes: u64,
}

impl ChangeKind {
    const ALL: [Self; 6] =
        [Self::Added, Self::Content, Self::Attributes, Self::Moved, Self::Directory, Self::Removed];

    /// The kind as one word, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Content => "content",
            Self::Attributes => "attributes",
            Self::Moved => "moved",
            Self::Directory => "directory",
            Self::Removed => "removed",
        }
    }
}

/// The list as it is stored, and its length before compression.
pub(super) fn encode(changes: &[Change]) -> Result<(Vec<u8>, u64)> {
    let mut list = Vec::new();
    for Change { kind, path, bytes } in changes {
        let kind = ChangeKind::ALL.iter().position(|known| known == kind).unwrap_or(0) as u32;
        let path_len = (path.len() as u32).into();
        list.extend_from_slice(RawChange { kind: kind.into(), path_len, bytes: (*bytes).into() }.as_bytes());
        list.extend_from_slice(path);
    }
    let stored = zstd::bulk::compress(&list, LEVEL).map_err(|e| Error::io_unnamed("compress", e))?;
    Ok((stored, list.len() as u64))
}

/// Decodes a list whose length before compression was `decoded_len`.
pub(super) fn decode(stored: &[u8], decoded_len: u64) -> Result<Vec<Change>> {
    let malformed = || Error::Patch(PatchFault::Malformed("its list of changes cannot be decoded"));
    let mut list = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(stored).map_err(|_| malformed())?;
    decoder.take(decoded_len.saturating_add(1)).read_to_end(&mut list).map_err(|_| malformed())?;
    if list.len() as u64 != decoded_len {
        return Err(malformed());
    }
    let mut changes = Vec::new();
    let mut rest = &list[..];
    while !rest.is_empty() {
        let (raw, after) = RawChange::ref_from_prefix(rest).map_err(|_| malformed())?;
        let (path, after) = after.split_at_checked(raw.path_len.get() as usize).ok_or_else(malformed)?;
        let kind = ChangeKind::ALL.get(raw.kind.get() as usize).copied().ok_or_else(malformed)?;
        changes.push(Change { kind, path: path.to_vec(), bytes: raw.bytes.get() });
        rest = after;
    }
    Ok(changes)
}
