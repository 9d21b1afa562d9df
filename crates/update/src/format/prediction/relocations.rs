//! Which old inode each new inode resembles, and how it differs: from this the bytes of new
//! metadata are [predicted](super). Layout: docs/PATCH_FORMAT.md.

mod stored;

use ferofs_format::inode::FileType;
use ferofs_format::units::to_u64;

use super::addresses::MAP_MAX;
use super::shifts::Shifts;
use crate::error::{Error, PatchFault};

/// Inodes that can be predicted. For more, `create` predicts nothing, and a list of more is
/// malformed.
pub const INODES_MAX: usize = 1 << 19;
/// Bytes of the list before compression at most. A longer one is malformed.
pub const LIST_MAX: usize = 8 << 20;
/// Bytes in memory for each inode: its columns as they are decoded, its place, and its numbers.
const OF_INODE: u64 = 192;
/// Bytes for each old inode that waits for a new one that resembles it, and the most that wait.
const OF_WAITING: u64 = 32;
const WAITING_MAX: u64 = 1 << 20;
/// Bytes in memory for each value, shift and edit, as lists grow, and for each byte of a name.
const OF_VALUE: u64 = 32;
const OF_SHIFT: u64 = 32;
const OF_EDIT: u64 = 128;
/// Bytes of an inode with its attributes, as it is made in memory, with a copy; and of what follows
/// them if numbers in it change.
const OF_ATTRIBUTES: u64 = 2 << 18;
const OF_MAP: u64 = 2 * MAP_MAX;

const MALFORMED: &str = "its list of relocated inodes is wrong";

pub(super) fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed(MALFORMED))
}

/// How the old inode that a new one resembles is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCode {
    /// It resembles no old inode.
    #[default]
    None,
    /// So many slots after the end of the one before, modulo 2^64.
    After(i64),
    /// The next entry of old directories that new ones resemble, after so many that are passed
    /// over; directories and other files apart.
    Next {
        /// Whether it is a directory.
        is_dir: bool,
        /// The entries that are passed over.
        skip: u32,
    },
}

/// How places are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Where new inodes and blocks are allocated, as a build allocates them; `None` if each inode
    /// moves as far as the one before.
    pub area: Option<Area>,
    /// Whether numbers for `stat` follow one another; else each moves as far as the one before.
    pub consecutive: bool,
}

/// Where new metadata is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The position of the first inode, or of the first block if the inodes are in the metabox.
    pub start: u64,
    /// The position in the metabox of the first inode, if it is there.
    pub metabox: Option<u64>,
    /// Whether the first inode of the list is apart, so that only its blocks are in the area.
    pub first_is_apart: bool,
}

/// How the content of a directory is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirForm {
    /// Its blocks are the old ones, with other inode numbers. Also for other files.
    #[default]
    AsStored,
    /// Its entries are packed again, all in blocks.
    Blocks,
    /// Its entries are packed again, the last ones after the inode.
    Tail,
    /// It keeps old blocks as chunks.
    Chunks,
}

impl DirForm {
    const ALL: [Self; 4] = [Self::AsStored, Self::Blocks, Self::Tail, Self::Chunks];
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

/// The inode of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The number of a new inode in the list.
    New(u32),
    /// An old inode: it has the place of the new inode that resembles it, or stays.
    Old(u64),
}

/// A new inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// The old inode that it resembles.
    pub source: SourceCode,
    /// What differs from the predicted inode number, modulo 2^64.
    pub nid: i64,
    /// What differs from the predicted number for `stat`, modulo 2^32.
    pub ino: i64,
    /// Bytes of the inode with all that follows it, without those that the source leads to.
    pub len: i64,
    /// Blocks of its own, without those that the source leads to.
    pub blocks: i64,
    /// The last bytes of it that are content, if they decide about its place.
    pub inline: u32,
    /// How many [values](Relocations::values) it has.
    pub values: u8,
    /// The form of a directory.
    pub form: DirForm,
}

/// What differs in the metadata of the new image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocations {
    /// The bytes of the new superblock, each minus the one of the old image at its position; empty
    /// if the file has it elsewhere.
    pub superblock: Vec<u8>,
    /// How places are predicted.
    pub rules: Rules,
    /// In the order in which they are placed.
    pub inodes: Vec<Relocated>,
    /// The fields that differ, inode after inode, and their values.
    pub values: Vec<(u8, u64)>,
    /// A bit mask of the fields whose values are what is added to the old ones, modulo 2^64.
    pub relative: u32,
    /// Of the directories whose entries are packed again: the number of the inode in this list,
    /// and an edit; in the order of the inodes, for each the entries that are gone first.
    pub edits: Vec<(u32, Edit)>,
    /// Positions of content and of directories, in bytes.
    pub data: Shifts,
    /// Offsets in the packed inode.
    pub packed: Shifts,
}

impl Relocations {
    /// The edits of the inode `number`.
    pub(super) fn edits_of(&self, number: u32) -> &[(u32, Edit)] {
        let first = self.edits.partition_point(|(of, _)| *of < number);
        let end = self.edits.partition_point(|(of, _)| *of <= number);
        self.edits.get(first..end).unwrap_or_default()
    }

    /// Bytes of memory that predicting takes, besides reading the old image, which has so many
    /// inodes.
    pub(crate) fn memory(&self, old_inodes: u64) -> u64 {
        let waiting = if self.rules.area.is_some() { old_inodes.min(WAITING_MAX) } else { 0 };
        let names = self.edits.iter().map(|(_, edit)| match edit {
            Edit::Removed(_) => 0,
            Edit::Added { name, .. } => to_u64(name.len()),
        });
        let parts = [
            (OF_INODE, to_u64(self.inodes.len())),
            (OF_VALUE, to_u64(self.values.len())),
            (OF_SHIFT, to_u64(self.data.count().saturating_add(self.packed.count()))),
            (OF_EDIT, to_u64(self.edits.len())),
            (OF_WAITING, waiting),
            (2, names.fold(0, u64::saturating_add)),
            (1, OF_ATTRIBUTES),
            (1, if self.data.is_empty() && self.packed.is_empty() { 0 } else { OF_MAP }),
        ];
        parts
            .iter()
            .map(|(each, count): &(u64, u64)| each.saturating_mul(*count))
            .fold(0, u64::saturating_add)
    }
}
