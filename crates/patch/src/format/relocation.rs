//! Which old inode each new inode resembles, and how it differs: from this the bytes of new
//! metadata are [predicted](super::prediction). Layout: docs/PATCH_FORMAT.md.

use ferofs_format::inode::FileType;

use super::columns::{ColumnReader, Columns, decompress};
use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::{to_u64, to_usize};

/// Inodes that can be predicted. `apply` has up to 150 bytes for each in memory before it decodes
/// pieces. A patch with more new inodes predicts none; a list of more is malformed.
pub const INODES_MAX: usize = 1 << 19;
/// Bytes of the decoded columns at most: some 6 for each inode, and the names of new files. A patch
/// that needs more predicts nothing.
pub(crate) const COLUMNS_MAX: usize = 8 << 20;
/// Zstandard's level: the columns are short, so size counts more than speed.
const LEVEL: i32 = 19;

/// The fields of an inode that a patch can change.
pub(crate) const FIELDS: usize = 8;

/// How the source of a new inode is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceCode {
    /// It resembles no old inode.
    None,
    /// The inode with this number.
    Nid(u64),
    /// The next entry of old directories that new ones resemble, after so many that are passed
    /// over; directories and other files apart.
    Next {
        /// Whether it is a directory.
        is_dir: bool,
        /// The entries that are passed over.
        skip: u32,
    },
}

/// A name that a new directory has, and its old one has not, or the other way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The entry with this number of the old directory, as stored, is gone.
    Removed(u32),
    /// A new entry.
    Added {
        /// The name.
        name: Vec<u8>,
        /// The type in the entry.
        file_type: FileType,
        /// The inode that it leads to.
        target: Target,
    },
}

/// The inode of a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The number of a new inode in this list.
    New(u32),
    /// An old inode.
    Old(u64),
}

/// A new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// The old inode that it resembles.
    pub source: SourceCode,
    /// The numbers of the fields that differ from the source, in their order, and their values.
    pub fields: Vec<(u8, u64)>,
    /// Whether a large directory keeps old blocks as chunks.
    pub in_chunks: bool,
    /// Bytes of the inode with all that follows it, without those that the source leads to.
    pub len: i64,
    /// Blocks of its own, without those that the source leads to.
    pub blocks: i64,
    /// The last bytes of it that are content.
    pub inline: u32,
    /// For a directory.
    pub edits: Vec<Edit>,
}

/// All new inodes, in the order of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocations {
    /// Bytes between the end of the base and the new metadata.
    pub start: u64,
    /// The inode number for `stat` of the first new inode; the others follow it.
    pub first_ino: u32,
    /// Whether the root's inode is in the first appended block.
    pub root_is_first: bool,
    /// Whether the new inodes are in the metabox, after its old content.
    pub in_metabox: bool,
    /// The inodes.
    pub inodes: Vec<Relocated>,
}

/// Bits of the number that says where the inodes are.
const ROOT_IS_FIRST: u64 = 1;
const IN_METABOX: u64 = 2;
/// The bit of the mask for [`Relocated::in_chunks`]; lower bits are for fields.
const IN_CHUNKS: u32 = 1 << FIELDS;
const FIELDS_MASK: u32 = IN_CHUNKS - 1;
/// The bit of an added name's type for [`Target::Old`]; lower bits are the file type. An inode
/// number needs all 64 bits of its column: the highest one says that the inode is in the metabox.
const OLD: u32 = 1 << 4;

const MALFORMED: &str = "its list of relocated inodes is wrong";

fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed(MALFORMED))
}

/// The columns of a stored list.
pub(super) fn decoded(stored: &[u8]) -> Result<Vec<u8>> {
    decompress(stored, COLUMNS_MAX, MALFORMED)
}

impl SourceCode {
    fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Nid(_) => 1,
            Self::Next { is_dir, skip } => {
                ((u64::from(skip) << 1) | u64::from(is_dir)).saturating_add(2)
            }
        }
    }
}

impl Relocations {
    /// The list as stored; `None` if it is too long.
    pub fn encode(&self) -> Result<Option<Vec<u8>>> {
        let mut columns = Columns::default();
        let inodes = &self.inodes;
        columns.push(self.start);
        columns.push(self.first_ino.into());
        let flags = [(self.root_is_first, ROOT_IS_FIRST), (self.in_metabox, IN_METABOX)];
        columns
            .push(flags.iter().filter(|(is_set, _)| *is_set).fold(0, |bits, (_, bit)| bits | bit));
        columns.push(to_u64(inodes.len()));
        inodes.iter().for_each(|inode| columns.push(inode.source.number()));
        columns.push_deltas(inodes.iter().filter_map(|inode| match inode.source {
            SourceCode::Nid(nid) => Some(nid),
            SourceCode::None | SourceCode::Next { .. } => None,
        }));
        for inode in inodes {
            let mask = inode.fields.iter().fold(0, |mask, (field, _)| mask | (1u32 << field));
            columns.push((mask | if inode.in_chunks { IN_CHUNKS } else { 0 }).into());
        }
        for field in 0..FIELDS {
            let values = inodes.iter().flat_map(|inode| &inode.fields);
            columns.push_deltas(
                values.filter(|(of, _)| usize::from(*of) == field).map(|(_, value)| *value),
            );
        }
        inodes.iter().for_each(|inode| columns.push_signed(inode.len));
        inodes.iter().for_each(|inode| columns.push_signed(inode.blocks));
        inodes.iter().for_each(|inode| columns.push(inode.inline.into()));
        inodes.iter().for_each(|inode| columns.push(to_u64(inode.edits.len())));
        let edits = || inodes.iter().flat_map(|inode| &inode.edits);
        edits().for_each(|edit| {
            let kind = match edit {
                Edit::Removed(_) => 0,
                Edit::Added { file_type, target, .. } => {
                    let kind = u32::from(file_type.mode_bits() >> 12);
                    kind | if matches!(target, Target::Old(_)) { OLD } else { 0 }
                }
            };
            columns.push(kind.into());
        });
        columns.push_deltas(edits().map(|edit| match edit {
            Edit::Removed(number) | Edit::Added { target: Target::New(number), .. } => {
                u64::from(*number)
            }
            Edit::Added { target: Target::Old(nid), .. } => *nid,
        }));
        let names = || {
            edits().filter_map(|edit| match edit {
                Edit::Removed(_) => None,
                Edit::Added { name, .. } => Some(name),
            })
        };
        names().for_each(|name| columns.push(to_u64(name.len())));
        names().for_each(|name| columns.push_bytes(name));
        if columns.len() > COLUMNS_MAX { Ok(None) } else { columns.compress(LEVEL).map(Some) }
    }

    /// Decodes what [`Self::encode`] made.
    pub fn decode(stored: &[u8]) -> Result<Self> {
        let bytes = decoded(stored)?;
        let mut columns = ColumnReader::new(&bytes, MALFORMED);
        let (start, first_ino, flags) = (columns.next()?, columns.next_u32()?, columns.next()?);
        let (root_is_first, in_metabox) = (flags & ROOT_IS_FIRST != 0, flags & IN_METABOX != 0);
        if flags & !(ROOT_IS_FIRST | IN_METABOX) != 0 {
            return Err(malformed());
        }
        let count = columns.count()?;
        if count > INODES_MAX {
            return Err(malformed());
        }
        let sources = columns.column(count)?;
        let explicit = sources.iter().filter(|source| **source == 1).count();
        let mut nids = columns.deltas(explicit)?.into_iter();
        let masks = columns.column(count)?;
        let has = |mask: u32, field: u8| mask >> field & 1 != 0;
        let mut fields = Vec::with_capacity(FIELDS);
        for field in (0..).take(FIELDS) {
            let changed = masks.iter().filter(|mask| has(**mask, field)).count();
            fields.push(columns.deltas(changed)?.into_iter());
        }
        let (lens, blocks) = (columns.signed_column(count)?, columns.signed_column(count)?);
        let (inlines, counts) = (columns.column(count)?, columns.column(count)?);
        let total =
            counts.iter().try_fold(0usize, |total, count| total.checked_add(to_usize(*count)));
        let total = total.filter(|total| *total <= columns.left()).ok_or_else(malformed)?;
        let kinds = columns.column(total)?;
        let values = columns.deltas(total)?;
        let added = kinds.iter().filter(|kind| **kind > 0).count();
        let mut name_lens = columns.column(added)?.into_iter();
        let mut edits = Vec::with_capacity(total);
        for (kind, value) in kinds.into_iter().zip(values) {
            let number = || u32::try_from(value).map_err(|_| malformed());
            edits.push(if kind == 0 {
                Edit::Removed(number()?)
            } else {
                let mode =
                    u16::try_from(kind & !OLD).ok().and_then(|kind| kind.checked_mul(1 << 12));
                let file_type = mode.and_then(FileType::from_mode).ok_or_else(malformed)?;
                let target = match kind & OLD {
                    0 => Target::New(number()?),
                    _ => Target::Old(value),
                };
                let name = columns.bytes(to_usize(name_lens.next().unwrap_or(0)))?.to_vec();
                Edit::Added { name, file_type, target }
            });
        }
        columns.finish()?;
        let mut edits = edits.into_iter();
        let mut inodes = Vec::with_capacity(count);
        for (number, (source, mask)) in sources.into_iter().zip(masks).enumerate() {
            let source = match source.checked_sub(2) {
                None if source == 0 => SourceCode::None,
                None => SourceCode::Nid(nids.next().ok_or_else(malformed)?),
                Some(code) => SourceCode::Next { is_dir: code & 1 != 0, skip: code >> 1 },
            };
            let mut own = Vec::with_capacity(to_usize((mask & FIELDS_MASK).count_ones()));
            for (field, values) in (0..).zip(&mut fields).filter(|(field, _)| has(mask, *field)) {
                own.extend(values.next().map(|value| (field, value)));
            }
            let of = |column: &[u32]| column.get(number).copied().unwrap_or(0);
            let signed = |column: &[i64]| column.get(number).copied().unwrap_or(0);
            inodes.push(Relocated {
                source,
                fields: own,
                in_chunks: mask & IN_CHUNKS != 0,
                len: signed(&lens),
                blocks: signed(&blocks),
                inline: of(&inlines),
                edits: edits.by_ref().take(to_usize(of(&counts))).collect(),
            });
        }
        Ok(Self { start, first_ino, root_is_first, in_metabox, inodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inode() -> impl Strategy<Value = Relocated> {
        let source = prop_oneof![
            Just(SourceCode::None),
            any::<u64>().prop_map(SourceCode::Nid),
            (any::<bool>(), 0u32..1 << 30)
                .prop_map(|(is_dir, skip)| SourceCode::Next { is_dir, skip }),
        ];
        let target =
            prop_oneof![any::<u32>().prop_map(Target::New), any::<u64>().prop_map(Target::Old)];
        let added = (any::<Vec<u8>>(), target).prop_map(|(name, target)| Edit::Added {
            name,
            file_type: FileType::Symlink,
            target,
        });
        let edit = prop_oneof![any::<u32>().prop_map(Edit::Removed), added];
        let fields = proptest::collection::btree_map(0..FIELDS as u8, any::<u64>(), 0..FIELDS);
        let fields = fields.prop_map(|fields| fields.into_iter().collect());
        let edits = proptest::collection::vec(edit, 0..4);
        (source, fields, any::<bool>(), any::<(i64, i64, u32)>(), edits).prop_map(
            |(source, fields, in_chunks, (len, blocks, inline), edits)| Relocated {
                source,
                fields,
                in_chunks,
                len,
                blocks,
                inline,
                edits,
            },
        )
    }

    proptest! {
        #[test]
        fn lists_round_trip(
            inodes in proptest::collection::vec(inode(), 0..20),
            start: u64,
            first_ino: u32,
            root_is_first: bool,
            in_metabox: bool,
        ) {
            let list = Relocations { start, first_ino, root_is_first, in_metabox, inodes };
            prop_assert_eq!(Relocations::decode(&list.encode().unwrap().unwrap()).unwrap(), list);
        }

        #[test]
        fn garbage_is_refused_without_panic(columns: Vec<u8>) {
            let _ = Relocations::decode(&columns);
            let _ = Relocations::decode(&zstd::bulk::compress(&columns, 1).unwrap());
        }
    }
}
