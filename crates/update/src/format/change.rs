//! The list of changed files in a patch: information for people, not needed to apply the patch.
//! Layout: docs/PATCH_FORMAT.md.

use super::columns::{ColumnReader, Columns, decompress};
use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of the decoded list at most: it is held in memory. Patches with a longer list are refused.
pub(super) const CHANGES_MAX: u64 = 1 << 30;
/// Zstandard's level for the list: it is short, so size counts more than speed.
const LEVEL: i32 = 19;
/// The numbers that a change has in the list, each of a byte or more.
const NUMBERS: usize = 4;
/// Most files grow an image by whole slots, which are this long.
const SLOT: u64 = ferofs_format::units::SLOT_SIZE;

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
    /// It is a directory with other entries or attributes. One in which only `..` changes is not
    /// listed: see [`NewParents`].
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

/// Directories that get a new inode only because their `..` changes, as their parent has a new
/// inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewParents {
    /// Their number.
    pub directories: u64,
    /// Bytes that the image grows by for them.
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

/// The list as it is stored, and its length before compression. A path is stored without what it
/// has in common with the path before.
pub(super) fn encode(changes: &[Change]) -> Result<(Vec<u8>, u64)> {
    let mut columns = Columns::default();
    columns.push(to_u64(changes.len()));
    for Change { kind, .. } in changes {
        columns.push(to_u64(ChangeKind::ALL.iter().position(|known| known == kind).unwrap_or(0)));
    }
    for Change { bytes, .. } in changes {
        columns.push(match bytes % SLOT {
            0 => (bytes / SLOT) << 1,
            _ => (bytes << 1) | 1,
        });
    }
    let paths = || {
        let before = std::iter::once(&[][..]).chain(changes.iter().map(|change| &change.path[..]));
        before.zip(changes.iter().map(|change| &change.path[..])).map(|(before, path)| {
            let common = before.iter().zip(path).take_while(|(a, b)| a == b).count();
            (common, path.get(common..).unwrap_or_default())
        })
    };
    paths().for_each(|(common, _)| columns.push(to_u64(common)));
    paths().for_each(|(_, rest)| columns.push(to_u64(rest.len())));
    paths().for_each(|(_, rest)| columns.push_bytes(rest));
    Ok((columns.compress(LEVEL)?, to_u64(columns.len())))
}

/// Decodes a list whose length before compression was `decoded_len`.
pub(super) fn decode(stored: &[u8], decoded_len: u64) -> Result<Vec<Change>> {
    const MALFORMED: &str = "its list of changes cannot be decoded";
    let malformed = || Error::Patch(PatchFault::Malformed(MALFORMED));
    let list =
        decompress(stored, usize::try_from(decoded_len).map_err(|_| malformed())?, MALFORMED)?;
    if to_u64(list.len()) != decoded_len {
        return Err(malformed());
    }
    let mut columns = ColumnReader::new(&list, MALFORMED);
    let count = columns.count()?;
    if count > columns.left() / NUMBERS {
        return Err(malformed());
    }
    let kinds = columns.column(count)?;
    let mut bytes = Vec::with_capacity(count);
    for _ in 0..count {
        let value = columns.next()?;
        bytes.push(if value & 1 == 0 { (value >> 1).saturating_mul(SLOT) } else { value >> 1 });
    }
    let (common, rest) = (columns.column(count)?, columns.column(count)?);
    let mut changes: Vec<Change> = Vec::with_capacity(count);
    // Paths are longer than what is stored of them.
    let mut total = 0u64;
    for ((kind, bytes), (common, rest)) in
        kinds.into_iter().zip(bytes).zip(common.into_iter().zip(rest))
    {
        let kind = ChangeKind::ALL.get(to_usize(kind)).copied().ok_or_else(malformed)?;
        let before = changes.last().map_or(&[][..], |change| &change.path[..]);
        let mut path = before.get(..to_usize(common)).ok_or_else(malformed)?.to_vec();
        total = total.saturating_add(u64::from(common)).saturating_add(rest.into());
        if total > CHANGES_MAX {
            return Err(malformed());
        }
        path.extend_from_slice(columns.bytes(to_usize(rest))?);
        changes.push(Change { kind, path, bytes });
    }
    columns.finish()?;
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip(list: Vec<(u8, Vec<u8>, u64)>) {
            let list: Vec<Change> = list
                .into_iter()
                .map(|(kind, path, bytes)| Change {
                    kind: ChangeKind::ALL[usize::from(kind) % 6],
                    path: path.iter().map(|byte| byte % 3).collect(),
                    bytes: bytes >> 1,
                })
                .collect();
            let (stored, len) = encode(&list).unwrap();
            prop_assert_eq!(decode(&stored, len).unwrap(), list);
            prop_assert!(decode(&stored, len + 1).is_err());
        }

        #[test]
        fn garbage_is_refused_without_panic(columns: Vec<u8>) {
            let _ = decode(&columns, columns.len() as u64);
            let _ = decode(&zstd::bulk::compress(&columns, 1).unwrap(), columns.len() as u64);
        }
    }
}
