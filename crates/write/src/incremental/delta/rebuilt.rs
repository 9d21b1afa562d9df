//! Finds how the numbers in the metadata of the new image follow from those of the old one, so that
//! `apply` can predict it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use ferofs_format::Nid;
use ferofs_format::map::Address;
use ferofs_format::superblock;
use ferofs_patch::format::prediction::Predict;
use ferofs_patch::format::rebuilt::{
    ChangedInode, Fields, INODES_MAX, NUMBERS_MAX, RebuiltMetadata, Renumbering, Shifts, addresses,
    fields, old_inodes, superblock_bytes,
};
use ferofs_read::{Image, Inode};

use super::content::{ContentFile, ImageContent};
use crate::error::Result;
use crate::incremental::create::describe::pieces::{LEVELS, shortest};

/// Bytes of metadata that are compressed at once, to see whether a prediction pays; before and
/// after the same place of the old metadata are as many to compress them with.
const PART: usize = 256 << 10;
/// Such parts at most, of all metadata: others are like them, and each takes some tenths of a second.
const PARTS_MAX: usize = 4;
/// A prediction must save at least one in so many compressed bytes: it takes memory.
const GAIN: u64 = 16;

/// An image, and what it has.
#[derive(Clone, Copy)]
pub(super) struct ImageParts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) image: &'a Image,
    pub(super) content: &'a ImageContent,
}

/// How the numbers of the `new` image follow from those of the `old` one; `None` if predicting
/// metadata from that does not pay.
pub(super) fn find(old: ImageParts<'_>, new: ImageParts<'_>) -> Result<Option<Renumbering>> {
    let superblocks = [old, new].map(|parts| parts.image.superblock());
    // Inodes in a metabox are compressed with it.
    if superblocks.iter().any(|superblock| superblock.metabox.is_some()) {
        return Ok(None);
    }
    if superblocks[0].block_size != superblocks[1].block_size
        || u64::try_from(INODES_MAX).is_ok_and(|most| superblocks[0].inodes > most)
    {
        return Ok(None);
    }
    let Ok(all) = old_inodes(old.image, INODES_MAX) else { return Ok(None) };
    let numbers = renumbering(old, new, &all, &pairs(old, new)?)?;
    let list = numbers.encode();
    if list.len() > NUMBERS_MAX {
        return Ok(None);
    }
    let is_used = match RebuiltMetadata::new(&numbers, old.image) {
        Ok(prediction) => pays(&prediction, &list, old, new)?,
        Err(_) => false,
    };
    Ok(is_used.then_some(numbers))
}

/// The old inodes that new ones resemble: those with the same path, or with a similar one. Each is
/// in one pair.
fn pairs(old: ImageParts<'_>, new: ImageParts<'_>) -> Result<Vec<(Nid, Nid)>> {
    let mut by_path: HashMap<PathBuf, Nid> = HashMap::new();
    for entry in old.image.walk() {
        let entry = entry?;
        by_path.insert(entry.path, entry.inode?.nid());
    }
    let (mut pairs, mut used, mut others) = (Vec::new(), HashSet::new(), Vec::new());
    let mut pair = |old_nid: Nid, inode: &Inode| -> Result<bool> {
        let is_like = old.image.inode(old_nid)?.file_type() == inode.file_type();
        let fits = is_like && used.insert(old_nid);
        if fits {
            pairs.push((old_nid, inode.nid()));
        }
        Ok(fits)
    };
    for entry in new.image.walk() {
        let entry = entry?;
        let inode = entry.inode?;
        if !entry.first {
            continue;
        }
        let is_paired = match by_path.get(&entry.path) {
            Some(old) => pair(*old, &inode)?,
            None => false,
        };
        if !is_paired {
            others.push((entry.path, inode.nid()));
        }
    }
    drop(by_path);
    let packed = |parts: ImageParts<'_>| parts.image.superblock().packed;
    if let (Some(old_packed), Some(new_packed)) = (packed(old), packed(new)) {
        pair(old_packed, &new.image.inode(new_packed)?)?;
    }
    for (path, nid) in others {
        let inode = new.image.inode(nid)?;
        let file = ContentFile { nid, path, size: inode.size(), is_dir: inode.is_dir() };
        if let Some(like) = old.content.like(&file) {
            pair(old.content.files[like].nid, &inode)?;
        }
    }
    Ok(pairs)
}

fn renumbering(
    old: ImageParts<'_>,
    new: ImageParts<'_>,
    all: &[Nid],
    pairs: &[(Nid, Nid)],
) -> Result<Renumbering> {
    let (mut nids, mut inos, mut data, mut packed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut changes = Vec::new();
    let mut kept = HashSet::new();
    for (old_nid, new_nid) in pairs {
        nids.push((old_nid.get(), new_nid.get()));
        kept.insert(*old_nid);
        let (old_inode, new_inode) = (&old.image.inode(*old_nid)?, &new.image.inode(*new_nid)?);
        let [old_disk, new_disk] = [old_inode, new_inode].map(Inode::on_disk);
        inos.push((u64::from(old_disk.ino), u64::from(new_disk.ino)));
        // Without a valid map, nothing of it is predicted.
        let of = |image, inode| addresses(image, inode).unwrap_or_default();
        for both in of(old.image, old_inode).into_iter().zip(of(new.image, new_inode)) {
            match both {
                (Address::Data(old), Address::Data(new)) => data.push((old.get(), new.get())),
                (Address::Packed(old), Address::Packed(new)) => packed.push((old, new)),
                _ => {}
            }
        }
        if let Ok(number) = all.binary_search(old_nid) {
            let before = fields(old_disk, old.image.superblock());
            changes.push((number as u32, before, fields(new_disk, new.image.superblock())));
        }
    }
    changes.sort_unstable_by_key(|(number, ..)| *number);
    let (relative, changes) = changed_fields(&changes);
    let gone = (0..).zip(all).filter(|(_, nid)| !kept.contains(nid)).map(|(number, _)| number);
    let superblock = &new.bytes[superblock::OFFSET..][..new.image.superblock().size()];
    Ok(Renumbering {
        superblock: superblock_bytes(old.image, superblock.to_vec(), u8::wrapping_sub)?,
        old_inodes: all.len() as u32,
        gone: gone.collect(),
        nids: Shifts::of(nids),
        inos: Shifts::of(inos),
        data: Shifts::of(data),
        packed: Shifts::of(packed),
        relative,
        changes,
    })
}

/// The fields that differ of inodes with these numbers, and old and new fields; also which of them
/// are stored as what is added to the old ones: those for which that gives fewer different values.
fn changed_fields(inodes: &[(u32, Fields, Fields)]) -> (u32, Vec<ChangedInode>) {
    let mut relative = 0;
    for field in 0..Fields::default().len() {
        let pairs = inodes.iter().map(|(_, old, new)| (old[field], new[field]));
        let differ = pairs.filter(|(old, new)| old != new);
        let (mut last, mut changes) = ((0, 0), [0; 2]);
        for (old, new) in differ {
            let (value, added) = (new, new.wrapping_sub(old));
            changes[0] += usize::from(value != last.0);
            changes[1] += usize::from(added != last.1);
            last = (value, added);
        }
        relative |= u32::from(changes[1] < changes[0]) << field;
    }
    let changed = inodes.iter().filter_map(|(number, old, new)| {
        let differ = (0..).zip(old.iter().zip(new)).filter(|(_, (old, new))| old != new);
        let fields = differ.map(|(field, (old, new))| match relative >> field & 1 {
            0 => (field, *new),
            _ => (field, new.wrapping_sub(*old)),
        });
        let fields: Vec<(u8, u64)> = fields.collect();
        (!fields.is_empty()).then_some(ChangedInode { number: *number, fields })
    });
    (relative, changed.collect())
}

/// Whether the new metadata takes fewer bytes with the prediction and its `list` than with the old
/// metadata alone, as parts of it show.
fn pays(
    prediction: &RebuiltMetadata<'_>,
    list: &[u8],
    old: ImageParts<'_>,
    new: ImageParts<'_>,
) -> Result<bool> {
    let compressed = |bytes: &[u8], dictionary: &[u8]| -> Result<u64> {
        let (compressed, _) = shortest(bytes, dictionary, LEVELS[1])?;
        Ok(compressed.map_or(bytes.len(), |compressed| compressed.len()) as u64)
    };
    let [old_bytes, new_bytes] = [old, new].map(ImageParts::metadata);
    let (mut parts, mut all) = (Vec::new(), 0);
    for range in &new_bytes {
        for start in range.clone().step_by(PART) {
            let part = start..range.end.min(start + PART);
            parts.push((all, part.clone()));
            all += part.len();
        }
    }
    let (mut with, mut without, mut tried) = (0, 0, 0);
    let mut predicted = vec![0; PART];
    for (at, part) in parts.iter().step_by(parts.len().div_ceil(PARTS_MAX).max(1)) {
        let own = &new.bytes[part.clone()];
        let predicted = &mut predicted[..own.len()];
        prediction.fill(part.start as u64, predicted)?;
        with += compressed(own, predicted)?;
        without += compressed(own, &around(old.bytes, &old_bytes, *at))?;
        tried += own.len() as u64;
    }
    let of_all = |len: u64| len * all as u64 / tried.max(1);
    let (with, without) = (of_all(with) + compressed(list, &[])?, of_all(without));
    Ok(with + without / GAIN < without)
}

/// The bytes of these `ranges` around the place that is `at` bytes after the start of the first
/// one.
fn around(bytes: &[u8], ranges: &[Range<usize>], at: usize) -> Vec<u8> {
    let (from, to) = (at.saturating_sub(PART), at + 2 * PART);
    let (mut found, mut before) = (Vec::new(), 0);
    for range in ranges {
        let [first, last] = [from, to].map(|at| at.saturating_sub(before).min(range.len()));
        found.extend_from_slice(&bytes[range.start + first..range.start + last]);
        before += range.len();
    }
    found
}

impl ImageParts<'_> {
    /// Where directories and other metadata are.
    fn metadata(self) -> Vec<Range<usize>> {
        let directories = self.content.extents.iter().filter(|extent| self.content.is_dir(extent));
        let directories = directories.map(|extent| extent.at..extent.at + extent.size);
        let metadata = self.content.metadata(self.bytes.len()).into_iter();
        let metadata = metadata.map(|(start, end)| start as usize..end as usize);
        directories.chain(metadata).collect()
    }
}
