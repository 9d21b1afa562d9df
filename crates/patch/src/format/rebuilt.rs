//! Predicts the metadata of an image that was built again: it is that of the old image with other
//! numbers in it. What is predicted, and where, is part of the delta's format, as `create` and
//! `apply` must get the same bytes. Layout: docs/PATCH_FORMAT.md.
//!
//! [`Renumbering`] says which numbers change, and is stored; [`RebuiltMetadata`] has the bytes.

mod shifts;

use std::collections::HashSet;

use ferofs_format::dirent::change_nids;
use ferofs_format::inode::{self, DataLayout, InodeVersion, Place};
use ferofs_format::map::{Address, change_addresses};
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_format::{BlockSize, BytePos, DeviceId, FileOffset, Nid, Structure};
use ferofs_read::{Image, Inode};

pub use self::shifts::Shifts;
use super::columns::{ColumnReader, Columns};
use super::prediction::{Predict, at, fields_of, overlay, set_fields};
use super::relocation::FIELDS;
use crate::error::{Error, PatchFault, Result};

/// Inodes that can be predicted. A delta between images with more predicts nothing, and a list of
/// more is malformed.
pub const INODES_MAX: usize = 1 << 19;
/// Bytes of a map and an inline tail up to which the addresses in it are predicted. What follows
/// is not.
const MAP_MAX: u64 = 1 << 20;
/// Bytes of an inode with what follows it, as it is made in memory: with a copy.
const OF_MAP: u64 = 2 * (MAP_MAX + (64 << 10));
/// Bytes in memory for each old inode: its number, up to four times while the list grows, and the
/// list of those that are kept.
const OF_INODE: u64 = 64;
/// Names from which on the list of old inodes is rid of those that it has twice.
const NAMES_MIN: usize = 4096;
/// Bytes in memory for each start of a shift, changed inode and value, as lists grow.
const OF_SHIFT: u64 = 32;
const OF_CHANGE: u64 = 64;
const OF_VALUE: u64 = 32;
/// The work of finding an inode and writing it, in units of about 100 ns.
const INODE_WORK: u64 = 20;
/// Bytes of a superblock with its extension slots at most.
const SUPERBLOCK_MAX: usize = 8192;
/// The place of the size among the [fields](Fields), and those of the time.
const SIZE: usize = 4;
const SECONDS: usize = 6;
const NANOSECONDS: usize = 7;
/// The number of fields: those that a patch can change, and the blocks of compressed content.
const ALL_FIELDS: usize = FIELDS + 1;

const MALFORMED: &str = "the numbers of its new metadata are wrong";

/// The fields of an inode that can change, besides addresses and its own number. A compact inode
/// has the time since that of its superblock.
pub type Fields = [u64; ALL_FIELDS];

/// An old inode with fields that differ in the new image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedInode {
    /// Its number in the list of [`old_inodes`].
    pub number: u32,
    /// The places of these fields, in their order, and their values.
    pub fields: Vec<(u8, u64)>,
}

/// What differs in the metadata of the new image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renumbering {
    /// The bytes of the new superblock, each minus the one of the old image at its position.
    pub superblock: Vec<u8>,
    /// How many [`old_inodes`] there are.
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

fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed(MALFORMED))
}

/// The numbers of all inodes of an image, sorted: those in its tree, and the packed inode.
///
/// # Errors
/// [`Error::Read`]; [`PatchFault::Malformed`] for more than [`INODES_MAX`].
pub fn old_inodes(image: &Image) -> Result<Vec<Nid>> {
    let root = image.superblock().root;
    let mut found: Vec<Nid> = image.superblock().packed.into_iter().chain([root]).collect();
    let (mut directories, mut seen) = (vec![root], HashSet::from([root]));
    let mut most = NAMES_MIN;
    while let Some(directory) = directories.pop() {
        let inode = image.inode(directory)?;
        if !inode.is_dir() {
            continue;
        }
        for entry in image.read_dir(&inode)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            found.push(entry.nid);
            // Names of the same inode take no memory.
            if found.len() >= most {
                found.sort_unstable();
                found.dedup();
                if found.len() > INODES_MAX {
                    return Err(malformed());
                }
                most = found.len().saturating_mul(2).max(NAMES_MIN);
            }
            if entry.file_type == Some(inode::FileType::Directory) && seen.insert(entry.nid) {
                directories.push(entry.nid);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    if found.len() > INODES_MAX { Err(malformed()) } else { Ok(found) }
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
fn set(inode: &mut inode::Inode, fields: &Fields, superblock: &Superblock) {
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

/// Bytes that follow the inode and its attributes, up to [`MAP_MAX`].
fn after(image: &Image, inode: &Inode) -> Result<Vec<u8>> {
    let start = inode.end()?;
    let end = image.extents(inode, FileOffset::new(0))?.metadata_end()?.pos.get();
    let mut bytes = vec![0; to_usize(end.saturating_sub(start.pos.get()).min(MAP_MAX))];
    image.budget().charge_bytes(to_u64(bytes.len()))?;
    image.read_metadata(start, Structure::Inode, &mut bytes)?;
    Ok(bytes)
}

/// The addresses of the content of `inode`, in the order of its map.
///
/// # Errors
/// [`Error::Read`] for an inode or a map that is not valid.
pub fn addresses(image: &Image, inode: &Inode) -> Result<Vec<Address>> {
    let block = image.superblock().block_size;
    let mut found = Vec::new();
    if let Some(first) = first_block(inode, block) {
        found.push(Address::Data(first));
    }
    let mut map = after(image, inode)?;
    // A map that is not valid has the addresses before the fault.
    let _ = change_addresses(inode.on_disk(), inode.end()?.pos, &mut map, block, |address| {
        found.push(address);
        address
    });
    Ok(found)
}

/// The position of content in whole blocks.
fn first_block(inode: &Inode, block: BlockSize) -> Option<BytePos> {
    match inode.on_disk().place {
        Place::Blocks(first) if inode.size() > 0 => first.to_pos(block),
        _ => None,
    }
}

impl Renumbering {
    /// The list as stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
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

/// The `bytes`, each changed by the one of the superblock of `old` at its position: subtracting
/// gives what [`Renumbering`] has of the new superblock, adding the reverse.
///
/// # Errors
/// [`Error::Read`] if the old image is too short.
pub fn superblock_bytes(
    old: &Image,
    mut bytes: Vec<u8>,
    change: fn(u8, u8) -> u8,
) -> Result<Vec<u8>> {
    let mut own = vec![0; bytes.len()];
    let pos = BytePos::new(to_u64(superblock::OFFSET));
    old.read_device(DeviceId::new(0), pos, Structure::Superblock, &mut own)?;
    bytes.iter_mut().zip(own).for_each(|(byte, old)| *byte = change(*byte, old));
    Ok(bytes)
}

/// An old inode that the new image has, too.
#[derive(Clone, Copy, Debug)]
struct KeptInode {
    /// Its new position.
    pos: u64,
    old: Nid,
    number: u32,
}

/// Blocks of a directory that the new image has.
#[derive(Clone, Copy, Debug)]
struct DirBlocks {
    /// Their new position.
    pos: u64,
    len: u64,
    old: Nid,
}

/// The predicted bytes of the new image's metadata.
#[derive(Debug)]
pub struct RebuiltMetadata<'a> {
    image: &'a Image,
    numbers: &'a Renumbering,
    superblock_bytes: Vec<u8>,
    superblock: Superblock,
    /// By position.
    inodes: Vec<KeptInode>,
    /// By position.
    directories: Vec<DirBlocks>,
}

impl<'a> RebuiltMetadata<'a> {
    /// Predicts the metadata of the image that has other `numbers` than the old `image`.
    ///
    /// # Errors
    /// [`Error::Read`] if the old image is not valid; [`PatchFault::Malformed`].
    pub fn new(numbers: &'a Renumbering, image: &'a Image) -> Result<Self> {
        let superblock_bytes =
            superblock_bytes(image, numbers.superblock.clone(), u8::wrapping_add)?;
        let superblock = Superblock::parse(&superblock_bytes).map_err(|_| malformed())?;
        let base = superblock.inode_base().ok_or_else(malformed)?;
        let all = old_inodes(image)?;
        if u32::try_from(all.len()) != Ok(numbers.old_inodes) {
            return Err(malformed());
        }
        let mut inodes = Vec::with_capacity(all.len());
        let mut directories = Vec::new();
        for (number, old) in (0..).zip(all) {
            if numbers.gone.binary_search(&number).is_ok() {
                continue;
            }
            let new = Nid::new(numbers.nids.apply(old.get()));
            let Some(pos) = new.to_pos(base).map(BytePos::get) else { continue };
            inodes.push(KeptInode { pos, old, number });
            image.budget().charge(INODE_WORK)?;
            let inode = image.inode(old)?;
            let block = image.superblock().block_size;
            let whole = match inode.layout() {
                DataLayout::FlatPlain => inode.size(),
                DataLayout::FlatInline => inode.size() & !block.mask(),
                _ => 0,
            };
            if let Some(first) = first_block(&inode, block).filter(|_| inode.is_dir() && whole > 0)
            {
                let pos = numbers.data.apply(first.get());
                directories.push(DirBlocks { pos, len: whole, old });
            }
        }
        inodes.sort_unstable_by_key(|inode| inode.pos);
        directories.sort_unstable_by_key(|blocks| blocks.pos);
        Ok(Self { image, numbers, superblock_bytes, superblock, inodes, directories })
    }

    fn changed(&self, address: Address) -> Address {
        match address {
            Address::Data(pos) => Address::Data(BytePos::new(self.numbers.data.apply(pos.get()))),
            Address::Packed(offset) => Address::Packed(self.numbers.packed.apply(offset)),
        }
    }

    fn change_nids(&self, block: &mut [u8]) {
        change_nids(block, |nid| Nid::new(self.numbers.nids.apply(nid.get())));
    }

    /// The inode `kept` with all that follows it; empty if it cannot be written.
    fn inode(&self, kept: &KeptInode) -> Result<Vec<u8>> {
        let old = self.image.inode(kept.old)?;
        let block = self.image.superblock().block_size;
        let mut new = old.on_disk().clone();
        let mut fields = fields(&new, self.image.superblock());
        let changes = &self.numbers.changes;
        if let Ok(found) = changes.binary_search_by_key(&kept.number, |change| change.number) {
            for (field, value) in changes.get(found).map_or(&[][..], |change| &change.fields) {
                if let Some(own) = fields.get_mut(usize::from(*field)) {
                    let is_relative = self.numbers.relative >> field & 1 != 0;
                    *own = if is_relative { own.wrapping_add(*value) } else { *value };
                }
            }
        }
        set(&mut new, &fields, &self.superblock);
        new.ino = u32::try_from(self.numbers.inos.apply(new.ino.into())).unwrap_or(new.ino);
        if let Place::Blocks(first) = new.place
            && let Some(pos) = first.to_pos(block)
            && let Address::Data(pos) = self.changed(Address::Data(pos))
        {
            new.place = Place::Blocks(pos.block(block));
        }
        let mut bytes = Vec::new();
        if new.write(&self.superblock, &mut bytes).is_err() {
            return Ok(Vec::new());
        }
        let mut xattrs = vec![0; old.xattr_size()];
        let head = at(old.place(), to_u64(old.on_disk().version.size()))?;
        self.image.read_metadata(head, Structure::Xattr, &mut xattrs)?;
        bytes.extend_from_slice(&xattrs);
        let mut after = after(self.image, &old)?;
        match old.is_dir() && old.layout() == DataLayout::FlatInline {
            true => self.change_nids(&mut after),
            // What is not valid stays as it is.
            false => {
                let end = old.end()?.pos;
                let changed = |address| self.changed(address);
                let _ = change_addresses(old.on_disk(), end, &mut after, block, changed);
            }
        }
        bytes.extend_from_slice(&after);
        Ok(bytes)
    }

    /// Puts the part of `blocks` that is within `out`, which starts at `pos`, there.
    fn fill_directory(&self, blocks: &DirBlocks, pos: u64, out: &mut [u8]) -> Result<()> {
        let block = self.image.superblock().block_size;
        let inode = self.image.inode(blocks.old)?;
        let end = pos.saturating_add(to_u64(out.len()));
        let first = pos.saturating_sub(blocks.pos) & !block.mask();
        let last = end.saturating_sub(blocks.pos).min(blocks.len);
        let mut bytes = vec![0; block.bytes()];
        let mut offset = first;
        while offset < last {
            let read = self.image.read_at(&inode, FileOffset::new(offset), &mut bytes)?;
            let own = bytes.get_mut(..read).unwrap_or_default();
            self.change_nids(own);
            overlay(out, pos, blocks.pos.saturating_add(offset), own);
            offset = offset.saturating_add(block.bytes64());
        }
        Ok(())
    }
}

impl Predict for RebuiltMetadata<'_> {
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        let end = pos.saturating_add(to_u64(out.len()));
        overlay(out, pos, to_u64(superblock::OFFSET), &self.superblock_bytes);
        let before = self.inodes.partition_point(|inode| inode.pos <= pos);
        for kept in self.inodes.get(before.saturating_sub(1)..).unwrap_or_default() {
            if kept.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            overlay(out, pos, kept.pos, &self.inode(kept)?);
        }
        let first =
            self.directories.partition_point(|blocks| blocks.pos.saturating_add(blocks.len) <= pos);
        for blocks in self.directories.get(first..).unwrap_or_default() {
            if blocks.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            self.fill_directory(blocks, pos, out)?;
        }
        Ok(())
    }

    fn takes_much_memory(&self) -> bool {
        true
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
