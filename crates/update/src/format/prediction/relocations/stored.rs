//! How a list of relocated inodes is stored: as numbers in columns. Layout: docs/PATCH_FORMAT.md.

use ferofs_format::inode::FileType;
use ferofs_format::units::{to_u64, to_usize};

use super::{
    Area, DirForm, Edit, INODES_MAX, LIST_MAX, MALFORMED, Relocated, Relocations, Rules,
    SourceCode, Target, malformed,
};
use crate::error::Result;
use crate::format::columns::{ColumnReader, Columns, compress, decompress};
use crate::format::prediction::fields::FIELDS;
use crate::format::prediction::shifts::Shifts;

/// Zstandard's level: the columns are short, so size counts more than speed.
const LEVEL: i32 = 19;
/// Bytes of a superblock with its extension slots at most.
const SUPERBLOCK_MAX: usize = 8192;

/// The part of a bit mask that is for fields; two higher bits are for [`DirForm`].
const FIELDS_MASK: u32 = (1 << FIELDS) - 1;
/// The bit of a new name's type for [`Target::Old`]; lower bits are the file type. An inode number
/// needs all 64 bits of its column: the highest one says that the inode is in the metabox.
const OLD: u32 = 1 << 4;
/// The signed columns, in their order.
const SIGNED: [fn(&mut Relocated) -> &mut i64; 4] = [
    |inode| &mut inode.nid,
    |inode| &mut inode.ino,
    |inode| &mut inode.len,
    |inode| &mut inode.blocks,
];

impl SourceCode {
    /// The number in the column; the slots of [`Self::After`] are in one of their own.
    fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::After(_) => 1,
            Self::Next { is_dir, skip } => {
                ((u64::from(skip) << 1) | u64::from(is_dir)).saturating_add(2)
            }
        }
    }

    fn of_number(number: u32) -> Self {
        match number.checked_sub(2) {
            None if number == 0 => Self::None,
            None => Self::After(0),
            Some(code) => Self::Next { is_dir: code & 1 != 0, skip: code >> 1 },
        }
    }
}

/// Bits of the number that says which rules hold.
const CONSECUTIVE: u64 = 1;
const IN_AREA: u64 = 2;
const IN_METABOX: u64 = 4;
const FIRST_IS_APART: u64 = 8;

impl Rules {
    fn encode(self, columns: &mut Columns) {
        let is_area = |holds: fn(Area) -> bool| self.area.is_some_and(holds);
        let bits = [
            (self.consecutive, CONSECUTIVE),
            (self.area.is_some(), IN_AREA),
            (is_area(|area| area.metabox.is_some()), IN_METABOX),
            (is_area(|area| area.first_is_apart), FIRST_IS_APART),
        ];
        let set = bits.iter().filter(|(is_set, _)| *is_set);
        columns.push(set.fold(0, |bits, (_, bit)| bits | bit));
        if let Some(area) = self.area {
            columns.push(area.start);
            area.metabox.into_iter().for_each(|pos| columns.push(pos));
        }
    }

    fn decode(columns: &mut ColumnReader<'_>) -> Result<Self> {
        let bits = columns.next()?;
        let has = |bit: u64| bits & bit != 0;
        if bits & !(CONSECUTIVE | IN_AREA | IN_METABOX | FIRST_IS_APART) != 0
            || (has(IN_METABOX) || has(FIRST_IS_APART)) && !has(IN_AREA)
        {
            return Err(malformed());
        }
        let mut area = None;
        if has(IN_AREA) {
            let start = columns.next()?;
            let metabox = if has(IN_METABOX) { Some(columns.next()?) } else { None };
            area = Some(Area { start, metabox, first_is_apart: has(FIRST_IS_APART) });
        }
        Ok(Self { area, consecutive: has(CONSECUTIVE) })
    }
}

impl Relocations {
    /// The list as stored, before compression.
    #[must_use]
    pub fn columns(&self) -> Vec<u8> {
        let mut columns = Columns::default();
        columns.push(to_u64(self.superblock.len()));
        columns.push_bytes(&self.superblock);
        self.rules.encode(&mut columns);
        let inodes = &self.inodes;
        columns.push(to_u64(inodes.len()));
        inodes.iter().for_each(|inode| columns.push(inode.source.number()));
        for inode in inodes {
            if let SourceCode::After(slots) = inode.source {
                columns.push_signed(slots);
            }
        }
        for get in SIGNED {
            inodes.iter().for_each(|inode| columns.push_signed(*get(&mut inode.clone())));
        }
        inodes.iter().for_each(|inode| columns.push(inode.inline.into()));
        columns.push(self.relative.into());
        let mut values = self.values.iter();
        for inode in inodes {
            let own = values.by_ref().take(inode.values.into());
            let mask = own.fold(0u64, |mask, (field, _)| mask | 1 << field);
            let form = DirForm::ALL.iter().zip(0u64..).find(|(form, _)| **form == inode.form);
            columns.push(mask | form.map_or(0, |(_, form)| form << FIELDS));
        }
        for field in 0..FIELDS {
            let own = self.values.iter().filter(|(of, _)| usize::from(*of) == field);
            columns.push_deltas(own.map(|(_, value)| *value));
        }
        self.data.encode(&mut columns);
        self.packed.encode(&mut columns);
        let rebuilt = (0u32..).zip(inodes).filter(|(_, inode)| inode.form != DirForm::AsStored);
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (number, _) in rebuilt {
            let edits = self.edits_of(number);
            let gone = edits.partition_point(|(_, edit)| matches!(edit, Edit::Removed(_)));
            removed.push(to_u64(gone));
            added.push(to_u64(edits.len().saturating_sub(gone)));
        }
        removed.iter().chain(&added).for_each(|count| columns.push(*count));
        columns.push_deltas(self.edits.iter().filter_map(|(_, edit)| match edit {
            Edit::Removed(entry) => Some(u64::from(*entry)),
            Edit::Added { .. } => None,
        }));
        let added = || {
            self.edits.iter().filter_map(|(_, edit)| match edit {
                Edit::Removed(_) => None,
                Edit::Added { name, file_type, target } => Some((name, file_type, target)),
            })
        };
        added().for_each(|(_, file_type, target)| {
            let old = if matches!(target, Target::Old(_)) { OLD } else { 0 };
            columns.push((u32::from(file_type.mode_bits() >> 12) | old).into());
        });
        columns.push_deltas(added().map(|(.., target)| match target {
            Target::New(number) => (*number).into(),
            Target::Old(nid) => *nid,
        }));
        added().for_each(|(name, ..)| columns.push(to_u64(name.len())));
        added().for_each(|(name, ..)| columns.push_bytes(name));
        columns.into_bytes()
    }

    /// The list as a Zstandard frame; `None` if it is too long.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if compressing fails.
    pub fn encode(&self) -> Result<Option<Vec<u8>>> {
        let columns = self.columns();
        if columns.len() > LIST_MAX { Ok(None) } else { compress(&columns, LEVEL).map(Some) }
    }

    /// Decodes what [`Self::encode`] made.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`](crate::PatchFault::Malformed).
    pub fn decode(stored: &[u8]) -> Result<Self> {
        Self::of_columns(&decompress(stored, LIST_MAX, MALFORMED)?)
    }

    /// Decodes what [`Self::columns`] made.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`](crate::PatchFault::Malformed).
    pub fn of_columns(bytes: &[u8]) -> Result<Self> {
        let mut columns = ColumnReader::new(bytes, MALFORMED);
        let superblock = columns.count()?;
        let superblock = columns.bytes(superblock)?.to_vec();
        let rules = Rules::decode(&mut columns)?;
        let count = columns.count()?;
        if count > INODES_MAX || superblock.len() > SUPERBLOCK_MAX {
            return Err(malformed());
        }
        let mut inodes = vec![Relocated::default(); count];
        for (inode, number) in inodes.iter_mut().zip(columns.column(count)?) {
            inode.source = SourceCode::of_number(number);
        }
        for inode in &mut inodes {
            if let SourceCode::After(slots) = &mut inode.source {
                *slots = columns.next_signed()?;
            }
        }
        for get in SIGNED {
            for inode in &mut inodes {
                *get(inode) = columns.next_signed()?;
            }
        }
        for (inode, inline) in inodes.iter_mut().zip(columns.column(count)?) {
            inode.inline = inline;
        }
        let relative = columns.next_u32()?;
        let masks = columns.column(count)?;
        let has = |mask: u32, field: u8| mask >> field & 1 != 0;
        let mut by_field = Vec::with_capacity(FIELDS);
        for field in (0..).take(FIELDS) {
            let changed = masks.iter().filter(|mask| has(**mask, field)).count();
            by_field.push(columns.deltas(changed)?.into_iter());
        }
        let total = masks.iter().map(|mask| to_usize((mask & FIELDS_MASK).count_ones())).sum();
        let mut values = Vec::with_capacity(total);
        for (inode, mask) in inodes.iter_mut().zip(&masks) {
            let form = DirForm::ALL.get(to_usize(mask >> FIELDS));
            inode.form = *form.ok_or_else(malformed)?;
            let before = values.len();
            for (field, own) in (0..).zip(&mut by_field).filter(|(field, _)| has(*mask, *field)) {
                values.extend(own.next().map(|value| (field, value)));
            }
            inode.values = u8::try_from(values.len().saturating_sub(before)).unwrap_or(u8::MAX);
        }
        drop((masks, by_field));
        if relative & !FIELDS_MASK != 0 {
            return Err(malformed());
        }
        let (data, packed) = (Shifts::decode(&mut columns)?, Shifts::decode(&mut columns)?);
        let edits = decode_edits(&mut columns, &inodes)?;
        columns.finish()?;
        Ok(Self { superblock, rules, inodes, values, relative, edits, data, packed })
    }
}

/// The edits of the `inodes` whose entries are packed again.
fn decode_edits(columns: &mut ColumnReader<'_>, inodes: &[Relocated]) -> Result<Vec<(u32, Edit)>> {
    let rebuilt = (0..).zip(inodes).filter(|(_, inode)| inode.form != DirForm::AsStored);
    let rebuilt: Vec<u32> = rebuilt.map(|(number, _)| number).collect();
    let counts = [columns.column(rebuilt.len())?, columns.column(rebuilt.len())?];
    let totals = counts.each_ref().map(|counts| {
        let total = counts.iter().map(|count| to_usize(*count)).fold(0, usize::saturating_add);
        if total > columns.left() { Err(malformed()) } else { Ok(total) }
    });
    let [removed, added] = totals;
    let (removed, added) = (columns.deltas(removed?)?, added?);
    let (kinds, values, lens) =
        (columns.column(added)?, columns.deltas(added)?, columns.column(added)?);
    let (mut gone, mut names) = (removed.into_iter(), kinds.into_iter().zip(values).zip(lens));
    let [removed, added] = counts;
    let mut edits = Vec::with_capacity(gone.len().saturating_add(names.len()));
    for (number, (removed, added)) in rebuilt.into_iter().zip(removed.into_iter().zip(added)) {
        for entry in gone.by_ref().take(to_usize(removed)) {
            let entry = u32::try_from(entry).map_err(|_| malformed())?;
            edits.push((number, Edit::Removed(entry)));
        }
        for ((kind, value), len) in names.by_ref().take(to_usize(added)) {
            let bits = u16::try_from(kind & !OLD).ok().and_then(|bits| bits.checked_mul(1 << 12));
            let file_type = bits.and_then(FileType::from_mode).ok_or_else(malformed)?;
            let target = match kind & OLD {
                0 => Target::New(u32::try_from(value).map_err(|_| malformed())?),
                _ => Target::Old(value),
            };
            let name = columns.bytes(to_usize(len))?.to_vec();
            edits.push((number, Edit::Added { name, file_type, target }));
        }
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parts = (Relocated, Vec<(u8, u64)>, Vec<u32>, Vec<(Vec<u8>, Target)>);

    fn inode() -> impl Strategy<Value = Parts> {
        let source = prop_oneof![
            Just(SourceCode::None),
            any::<i64>().prop_map(SourceCode::After),
            (any::<bool>(), 0u32..1 << 30)
                .prop_map(|(is_dir, skip)| SourceCode::Next { is_dir, skip }),
        ];
        let form = (0..4usize).prop_map(|form| DirForm::ALL[form]);
        let inode = (source, any::<(i64, i64, i64, i64, u32)>(), form).prop_map(
            |(source, (nid, ino, len, blocks, inline), form)| Relocated {
                source,
                nid,
                ino,
                len,
                blocks,
                inline,
                values: 0,
                form,
            },
        );
        let fields = proptest::collection::btree_map(0..FIELDS as u8, any::<u64>(), 0..FIELDS);
        let fields = fields.prop_map(|fields| fields.into_iter().collect());
        let target =
            prop_oneof![any::<u32>().prop_map(Target::New), any::<u64>().prop_map(Target::Old)];
        let removed = proptest::collection::vec(any::<u32>(), 0..3);
        let added = proptest::collection::vec((any::<Vec<u8>>(), target), 0..3);
        (inode, fields, removed, added)
    }

    fn list(inodes: Vec<Parts>) -> Relocations {
        let mut list = Relocations::default();
        for (number, (inode, fields, removed, added)) in (0..).zip(inodes) {
            list.inodes.push(Relocated { values: fields.len() as u8, ..inode });
            list.values.extend(fields);
            if inode.form != DirForm::AsStored {
                list.edits.extend(removed.into_iter().map(|entry| (number, Edit::Removed(entry))));
                list.edits.extend(added.into_iter().map(|(name, target)| {
                    (number, Edit::Added { name, file_type: FileType::Symlink, target })
                }));
            }
        }
        list
    }

    fn rules() -> impl Strategy<Value = Rules> {
        let area = any::<(u64, bool)>();
        let area = (area, proptest::option::of(0..u64::MAX))
            .prop_map(|((start, first_is_apart), metabox)| Area { start, metabox, first_is_apart });
        (proptest::option::of(area), any::<bool>())
            .prop_map(|(area, consecutive)| Rules { area, consecutive })
    }

    proptest! {
        #[test]
        fn lists_round_trip(
            superblock: Vec<u8>,
            inodes in proptest::collection::vec(inode(), 0..20),
            pairs: Vec<(u64, u64)>,
            relative in 0u32..1 << FIELDS,
            rules in rules(),
        ) {
            let (data, packed) = (Shifts::of(pairs.clone()), Shifts::of(pairs));
            let list = Relocations { superblock, rules, relative, data, packed, ..list(inodes) };
            prop_assert_eq!(Relocations::decode(&list.encode().unwrap().unwrap()).unwrap(), list);
        }

        #[test]
        fn garbage_is_refused_without_panic(columns: Vec<u8>) {
            let _ = Relocations::decode(&columns);
            let _ = Relocations::of_columns(&columns);
        }
    }
}
