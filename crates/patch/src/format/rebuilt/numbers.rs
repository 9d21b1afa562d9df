//! What differs in the metadata of an image that was built again: the list that a delta stores.
//! Layout: docs/PATCH_FORMAT.md.

use ferofs_format::inode::{self, InodeVersion, Place};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::{to_u64, to_usize};

use super::super::columns::{ColumnReader, Columns};
use super::super::prediction::{fields_of, set_fields};
use super::super::relocation::FIELDS;
use super::old_inodes::{INODES_MAX, MALFORMED, OF_INODE, OF_MAP, malformed};
use super::shifts::Shifts;
use crate::error::Result;

/// Bytes of the list before compression, which `create` makes at most: it is in the header, and in
/// memory.
pub const NUMBERS_MAX: usize = 2 << 20;
/// Bytes in memory for each start of a shift, changed inode and value, as lists grow.
const OF_SHIFT: u64 = 32;
const OF_CHANGE: u64 = 64;
const OF_VALUE: u64 = 32;
/// Bytes of a superblock with its extension slots at most.
const SUPERBLOCK_MAX: usize = 8192;
/// The place of the size among the [fields](Fields), and those of the time.
const SIZE: usize = 4;
const SECONDS: usize = 6;
const NANOSECONDS: usize = 7;
/// The number of fields: those that a patch can change, and the blocks of compressed content.
const ALL_FIELDS: usize = FIELDS + 1;

/// The fields of an inode that can change, besides addresses and its own number. A compact inode
/// has the time since that of its superblock.
pub type Fields = [u64; ALL_FIELDS];

/// An old inode with fields that differ in the new image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedInode {
    /// Its number in the list of [`old_inodes`](super::old_inodes()).
    pub number: u32,
    /// The places of these fields, in their order, and their values.
    pub fields: Vec<(u8, u64)>,
}

/// What differs in the metadata of the new image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renumbering {
    /// The bytes of the new superblock, each minus the one of the old image at its position.
    pub superblock: Vec<u8>,
    /// How many [`old_inodes`](super::old_inodes()) there are.
    pub old_inodes: u32,
    /// The numbers of those that the new image lacks, in their order.
    pub gone: Vec<u32>,
    /// Inode numbers, and so the positions of inodes.
    pub nids: Shifts,
    /// Inode numbers for `stat`.
    pub inos: Shifts,
    /// Positions of content and of directories, in bytes.
    pub data: Shifts,
    /// Offsets in the packed inode.
    pub packed: Shifts,
    /// A bit mask of the fields whose values are what is added to the old ones, modulo 2^64.
    pub relative: u32,
    /// In their order.
    pub changes: Vec<ChangedInode>,
}

impl Renumbering {
    /// The list as stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut columns = Columns::default();
        columns.push(to_u64(self.superblock.len()));
        columns.push_bytes(&self.superblock);
        columns.push(self.old_inodes.into());
        columns.push(to_u64(self.gone.len()));
        columns.push_deltas(self.gone.iter().map(|number| u64::from(*number)));
        for shifts in [&self.nids, &self.inos, &self.data, &self.packed] {
            shifts.encode(&mut columns);
        }
        columns.push(self.relative.into());
        columns.push(to_u64(self.changes.len()));
        columns.push_deltas(self.changes.iter().map(|change| u64::from(change.number)));
        for change in &self.changes {
            columns.push(change.fields.iter().fold(0, |mask, (field, _)| mask | (1u64 << field)));
        }
        for field in 0..ALL_FIELDS {
            let values = self.changes.iter().flat_map(|change| &change.fields);
            columns.push_deltas(
                values.filter(|(of, _)| usize::from(*of) == field).map(|(_, value)| *value),
            );
        }
        columns.into_bytes()
    }

    /// Decodes what [`Self::encode`] made.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut columns = ColumnReader::new(bytes, MALFORMED);
        let superblock = columns.count()?;
        let superblock = columns.bytes(superblock)?.to_vec();
        let old_inodes = columns.next_u32()?;
        let narrow = |values: Vec<u64>| -> Result<Vec<u32>> {
            values.into_iter().map(|value| u32::try_from(value).map_err(|_| malformed())).collect()
        };
        let count = columns.count()?;
        let gone = narrow(columns.deltas(count)?)?;
        let mut shifts = || Shifts::decode(&mut columns);
        let (nids, inos, data, packed) = (shifts()?, shifts()?, shifts()?, shifts()?);
        let relative = columns.next_u32()?;
        let count = columns.count()?;
        let numbers = narrow(columns.deltas(count)?)?;
        let masks = columns.column(count)?;
        let has = |mask: u32, field: u8| mask >> field & 1 != 0;
        let mut values = Vec::with_capacity(ALL_FIELDS);
        for field in (0..).take(ALL_FIELDS) {
            let changed = masks.iter().filter(|mask| has(**mask, field)).count();
            values.push(columns.deltas(changed)?.into_iter());
        }
        columns.finish()?;
        if masks.iter().chain([&relative]).any(|mask| mask >> ALL_FIELDS != 0)
            || superblock.len() > SUPERBLOCK_MAX
            || to_usize(old_inodes) > INODES_MAX
            || !numbers.is_sorted()
            || !gone.is_sorted()
        {
            return Err(malformed());
        }
        let mut changes = Vec::with_capacity(count);
        for (number, mask) in numbers.into_iter().zip(masks) {
            let mut fields = Vec::with_capacity(to_usize(mask.count_ones()));
            for (field, values) in (0..).zip(&mut values).filter(|(field, _)| has(mask, *field)) {
                fields.extend(values.next().map(|value| (field, value)));
            }
            changes.push(ChangedInode { number, fields });
        }
        Ok(Self { superblock, old_inodes, gone, nids, inos, data, packed, relative, changes })
    }

    /// Bytes of memory that predicting takes.
    pub(crate) fn memory(&self) -> u64 {
        let shifts = [&self.nids, &self.inos, &self.data, &self.packed].map(Shifts::count);
        let values = self.changes.iter().map(|change| to_u64(change.fields.len()));
        let parts = [
            (OF_INODE, u64::from(self.old_inodes)),
            (OF_SHIFT, shifts.iter().map(|count| to_u64(*count)).fold(0, u64::saturating_add)),
            (OF_CHANGE, to_u64(self.changes.len().saturating_add(self.gone.len()))),
            (OF_VALUE, values.fold(0, u64::saturating_add)),
            (1, OF_MAP),
        ];
        parts
            .iter()
            .map(|(each, count): &(u64, u64)| each.saturating_mul(*count))
            .fold(0, u64::saturating_add)
    }
}

/// The fields of `inode`, in an image with `superblock`.
#[must_use]
pub fn fields(inode: &inode::Inode, superblock: &Superblock) -> Fields {
    let mut fields = [0; ALL_FIELDS];
    fields.iter_mut().zip(fields_of(inode)).for_each(|(to, from)| *to = from);
    let blocks = if let Place::Compressed { blocks } = inode.place { blocks } else { 0 };
    let [.., last] = &mut fields;
    *last = blocks;
    fields[SIZE] = inode.size;
    if inode.version == InodeVersion::Compact {
        let age = inode.mtime.secs.wrapping_sub(superblock.epoch);
        let nanos = inode.mtime.nanos.wrapping_sub(superblock.fixed_nsec);
        (fields[SECONDS], fields[NANOSECONDS]) = (age.cast_unsigned(), nanos.into());
    }
    fields
}

/// Sets what [`fields`] gives.
pub(super) fn set(inode: &mut inode::Inode, fields: &Fields, superblock: &Superblock) {
    let values: Vec<(u8, u64)> = (0..).zip(*fields).take(FIELDS).collect();
    set_fields(inode, values.iter());
    let [.., blocks] = *fields;
    if let Place::Compressed { blocks: own } = &mut inode.place {
        *own = blocks;
    }
    if inode.version == InodeVersion::Compact {
        inode.mtime.secs = inode.mtime.secs.wrapping_add(superblock.epoch);
        inode.mtime.nanos = inode.mtime.nanos.wrapping_add(superblock.fixed_nsec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes() -> impl Strategy<Value = Vec<ChangedInode>> {
        let fields = proptest::collection::btree_map(0..ALL_FIELDS as u8, any::<u64>(), 0..4);
        let changes = proptest::collection::btree_map(0u32..1 << 19, fields, 0..20);
        changes.prop_map(|changes| {
            let change = |(number, fields): (u32, std::collections::BTreeMap<u8, u64>)| {
                ChangedInode { number, fields: fields.into_iter().collect() }
            };
            changes.into_iter().map(change).collect()
        })
    }

    proptest! {
        #[test]
        fn lists_round_trip(
            superblock: Vec<u8>,
            old_inodes in 0u32..1 << 19,
            gone in proptest::collection::btree_set(any::<u32>(), 0..20),
            pairs: Vec<(u64, u64)>,
            relative in 0u32..1 << ALL_FIELDS,
            changes in changes(),
        ) {
            let numbers = Renumbering {
                superblock,
                old_inodes,
                gone: gone.into_iter().collect(),
                nids: Shifts::of(pairs.clone()),
                data: Shifts::of(pairs),
                relative,
                changes,
                ..Renumbering::default()
            };
            prop_assert_eq!(Renumbering::decode(&numbers.encode()).unwrap(), numbers);
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes: Vec<u8>) {
            let _ = Renumbering::decode(&bytes);
        }
    }
}
