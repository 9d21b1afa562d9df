//! Pairs the inodes of the new image with old ones, and lists how its metadata follows from theirs.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use ferofs_format::map::Address;
use ferofs_format::{Nid, superblock};
use ferofs_read::Inode;
use ferofs_update::format::prediction::{
    Area, INODES_MAX, Prediction, Relocations, Rules, addresses, stored_size, superblock_bytes,
};

use super::content::ContentFile;
use super::image::DeltaImage;
use crate::error::{Error, Result};
use crate::incremental::relocations::{MovedContent, NewInode, relocations};

/// If one of so many inodes, or more, has another place than a build gives it, places are predicted
/// from those in the old image.
const OTHER_PLACES: usize = 16;

/// How the metadata of the `new` image differs from that of the `old` one, and what is predicted
/// from that; `None` if that cannot be listed.
pub(super) fn find(
    old: &DeltaImage,
    new: &DeltaImage,
) -> Result<Option<(Relocations, Prediction)>> {
    let superblocks = [old, new].map(|image| image.image.superblock());
    if superblocks[0].block_size != superblocks[1].block_size
        || superblocks.iter().any(|superblock| superblock.inodes > INODES_MAX as u64)
    {
        return Ok(None);
    }
    let mut inodes = placed_inodes(old, new)?;
    // What has no valid place or no space in a list is not predicted.
    let list_by = |inodes: &[NewInode], rules| -> Result<Option<Relocations>> {
        let moved = MovedContent::of(&old.image, &new.image, inodes, rules)?;
        match relocations(&old.image, &new.image, inodes, rules, moved) {
            Err(Error::Patch(_)) => Ok(None),
            list => list.map(Some),
        }
    };
    let area = area(new, &inodes)?;
    let is_usual = |list: &Relocations| {
        let others = list.inodes.iter().filter(|inode| inode.nid != 0).count();
        others * OTHER_PLACES <= list.inodes.len()
    };
    let by_area = list_by(&inodes, Rules { area: Some(area), consecutive: false })?;
    let list = match by_area.filter(is_usual) {
        Some(list) => Some(list),
        // Another program built it, or an earlier image had its places.
        None => {
            inodes.sort_by_key(|inode| inode.nid);
            list_by(&inodes, Rules::default())?
        }
    };
    let Some(mut list) = list else { return Ok(None) };
    let size = new.image.superblock().size();
    let superblock = new.read(superblock::OFFSET..superblock::OFFSET + size)?;
    list.superblock = superblock_bytes(&old.image, superblock, u8::wrapping_sub)?;
    if list.inodes.len() > INODES_MAX {
        return Ok(None);
    }
    let prediction = Prediction::of_rebuilt(list.clone(), &old.image).ok();
    Ok(prediction.map(|prediction| (list, prediction)))
}

/// All new inodes in the order in which a build places them, and the old ones that they resemble.
fn placed_inodes(old: &DeltaImage, new: &DeltaImage) -> Result<Vec<NewInode>> {
    let pairs = pairs(old, new)?;
    let mut dirs = vec![new.image.superblock().root];
    let (mut others, mut seen) = (Vec::new(), HashSet::from([dirs[0]]));
    let mut next = 0;
    while let Some(dir) = dirs.get(next) {
        next += 1;
        for entry in new.image.read_dir(&new.image.inode(*dir)?)? {
            let entry = entry?;
            let is_name = entry.name != b"." && entry.name != b"..";
            if is_name && seen.insert(entry.nid) {
                let is_dir = new.image.inode(entry.nid)?.is_dir();
                if is_dir { dirs.push(entry.nid) } else { others.push(entry.nid) }
            }
        }
    }
    let all = dirs.into_iter().chain(others).chain(new.image.superblock().packed);
    let inode = |nid| -> Result<NewInode> {
        let size = stored_size(&new.image, &new.image.inode(nid)?).unwrap_or_default();
        Ok(NewInode { old: pairs.get(&nid).copied(), nid, size })
    };
    all.map(inode).collect()
}

/// Where a build places these inodes.
fn area(new: &DeltaImage, inodes: &[NewInode]) -> Result<Area> {
    let root = new.image.inode(new.image.superblock().root)?.place();
    let mut area = Area { start: root.pos.get(), ..Area::default() };
    if root.in_metabox {
        area.metabox = Some(area.start);
        let mut first = u64::MAX;
        for inode in inodes.iter().filter(|inode| inode.size.blocks > 0) {
            let addresses = addresses(&new.image, &new.image.inode(inode.nid)?)?;
            if let Some(Address::Data(pos)) = addresses.first() {
                first = first.min(pos.get());
            }
        }
        area.start = if first == u64::MAX { 0 } else { first };
    }
    Ok(area)
}

/// The old inode that each new one resembles: the one with the same path, or with a similar one.
/// Each old one is like one new one.
fn pairs(old: &DeltaImage, new: &DeltaImage) -> Result<HashMap<Nid, Nid>> {
    let mut by_path: HashMap<PathBuf, Nid> = HashMap::new();
    for entry in old.image.walk() {
        let entry = entry?;
        by_path.insert(entry.path, entry.inode?.nid());
    }
    let (mut pairs, mut used, mut others) = (HashMap::new(), HashSet::new(), Vec::new());
    let mut pair = |old_nid: Nid, inode: &Inode| -> Result<bool> {
        let is_like = old.image.inode(old_nid)?.file_type() == inode.file_type();
        let fits = is_like && used.insert(old_nid);
        if fits {
            pairs.insert(inode.nid(), old_nid);
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
    let packed = |image: &DeltaImage| image.image.superblock().packed;
    if let (Some(old_packed), Some(new_packed)) = (packed(old), packed(new)) {
        pair(old_packed, &new.image.inode(new_packed)?)?;
    }
    for (path, nid) in others {
        let inode = new.image.inode(nid)?;
        let file = ContentFile::new(nid, &path, inode.size(), inode.is_dir());
        if let Some(like) = old.content.like(&file) {
            pair(old.content.files[like].nid, &inode)?;
        }
    }
    Ok(pairs)
}
