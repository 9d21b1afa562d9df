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
    ChangedInode, Fields, INODES_MAX, RebuiltMetadata, Renumbering, Shifts, addresses, fields,
    old_inodes, superblock_bytes,
};
use ferofs_read::{Image, Inode};

use super::content::{ContentFile, ImageContent};
use crate::error::Result;

/// Bytes that are predicted at once, to see whether that pays.
const PART: usize = 256 << 10;

/// An image, and what it has.
#[derive(Clone, Copy)]
pub(super) struct ImageParts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) image: &'a Image,
    pub(super) content: &'a ImageContent,
}

/// How the numbers of the `new` image follow from those of the `old` one; `None` if that does not
/// predict most of the metadata.
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
    let Ok(all) = old_inodes(old.image) else { return Ok(None) };
    let pairs = pairs(old, new)?;
    let numbers = renumbering(old, new, &all, &pairs)?;
    let is_used = match RebuiltMetadata::new(&numbers, old.image) {
        Ok(prediction) => is_right(&prediction, new)?,
        Err(_) => false,
    };
    Ok(is_used.then_some(numbers))
}

/// The old inodes that new ones resemble: those with the same path, or with a similar one. Each is
/// in one pair.
fn pairs(old: ImageParts<'_>, new: ImageParts<'_>) -> Result<Vec<(Inode, Inode)>> {
    let mut by_path: HashMap<PathBuf, Inode> = HashMap::new();
    for entry in old.image.walk() {
        let entry = entry?;
        by_path.insert(entry.path, entry.inode?);
    }
    let (mut pairs, mut used, mut others) = (Vec::new(), HashSet::new(), Vec::new());
    let mut pair = |old: &Inode, new: &Inode| -> bool {
        let fits = old.file_type() == new.file_type() && used.insert(old.nid());
        if fits {
            pairs.push((old.clone(), new.clone()));
        }
        fits
    };
    for entry in new.image.walk() {
        let entry = entry?;
        let inode = entry.inode?;
        if entry.first && !by_path.get(&entry.path).is_some_and(|old| pair(old, &inode)) {
            others.push((entry.path, inode));
        }
    }
    let packed = |parts: ImageParts<'_>| parts.image.superblock().packed;
    if let (Some(old_packed), Some(new_packed)) = (packed(old), packed(new)) {
        pair(&old.image.inode(old_packed)?, &new.image.inode(new_packed)?);
    }
    for (path, inode) in others {
        let file =
            ContentFile { nid: inode.nid(), path, size: inode.size(), is_dir: inode.is_dir() };
        if let Some(like) = old.content.like(&file) {
            pair(&old.image.inode(old.content.files[like].nid)?, &inode);
        }
    }
    Ok(pairs)
}

fn renumbering(
    old: ImageParts<'_>,
    new: ImageParts<'_>,
    all: &[Nid],
    pairs: &[(Inode, Inode)],
) -> Result<Renumbering> {
    let (mut nids, mut inos, mut data, mut packed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut changes = Vec::new();
    let mut kept = HashSet::new();
    for (old_inode, new_inode) in pairs {
        nids.push((old_inode.nid().get(), new_inode.nid().get()));
        kept.insert(old_inode.nid());
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
        if let Ok(number) = all.binary_search(&old_inode.nid()) {
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

/// Whether most bytes of the new metadata are predicted.
fn is_right(prediction: &RebuiltMetadata<'_>, new: ImageParts<'_>) -> Result<bool> {
    let directories = new.content.extents.iter().filter(|extent| new.content.is_dir(extent));
    let directories = directories.map(|extent| extent.at..extent.at + extent.size);
    let metadata = new.content.metadata(new.bytes.len()).into_iter();
    let metadata = metadata.map(|(start, end)| start as usize..end as usize);
    let (mut right, mut all) = (0usize, 0usize);
    let mut predicted = vec![0; PART];
    for Range { start, end } in directories.chain(metadata) {
        for start in (start..end).step_by(PART) {
            let own = &new.bytes[start..end.min(start + PART)];
            let predicted = &mut predicted[..own.len()];
            prediction.fill(start as u64, predicted)?;
            // Padding says nothing.
            let bytes = own.iter().zip(predicted).filter(|(own, _)| **own != 0);
            let [equal, count] = bytes.fold([0, 0], |[equal, count], (own, predicted)| {
                [equal + usize::from(own == predicted), count + 1]
            });
            (right, all) = (right + equal, all + count);
        }
    }
    Ok(right * 2 > all)
}
