//! Pairs the inodes of an image that was built again with old ones, and finds whether predicting
//! its metadata from these makes the delta shorter.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use ferofs_format::map::Address;
use ferofs_format::{FileOffset, Nid, superblock};
use ferofs_patch::format::prediction::{
    Area, INODES_MAX, LIST_MAX, Predict, Prediction, Relocations, Rules, addresses, stored_size,
    superblock_bytes,
};
use ferofs_read::{Image, Inode};

use super::content::{ContentFile, ImageContent};
use crate::error::Result;
use crate::incremental::create::describe::pieces::{LEVELS, shortest};
use crate::incremental::relocations::{MovedContent, NewInode, relocations};

/// Bytes of metadata that are compressed at once, to see whether a prediction pays; before and
/// after the same place of the old metadata are as many to compress them with.
const PART: usize = 256 << 10;
/// Such parts at most, of all metadata: others are like them, and each takes some tenths of a second.
const PARTS_MAX: usize = 4;
/// A prediction must save at least one in so many compressed bytes: it takes memory.
const GAIN: u64 = 16;
/// If one of so many inodes, or more, has another place than a build gives it, places are predicted
/// from those in the old image.
const OTHER_PLACES: usize = 16;

/// An image, and what it has.
#[derive(Clone, Copy)]
pub(super) struct ImageParts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) image: &'a Image,
    pub(super) content: &'a ImageContent,
}

/// How the metadata of the `new` image differs from that of the `old` one, and what is predicted
/// from that; `None` if it does not pay.
pub(super) fn find(
    old: ImageParts<'_>,
    new: ImageParts<'_>,
) -> Result<Option<(Relocations, Prediction)>> {
    let superblocks = [old, new].map(|parts| parts.image.superblock());
    if superblocks[0].block_size != superblocks[1].block_size
        || superblocks.iter().any(|superblock| superblock.inodes > INODES_MAX as u64)
    {
        return Ok(None);
    }
    let mut inodes = placed_inodes(old, new)?;
    let list_by = |inodes: &[NewInode], rules| {
        let moved = MovedContent::of(old.image, new.image, inodes, rules)?;
        relocations(old.image, new.image, inodes, rules, moved)
    };
    let area = area(new, &inodes)?;
    let mut list = list_by(&inodes, Rules { area: Some(area), consecutive: false })?;
    // Another program built it, or an earlier image had its places.
    if list.inodes.iter().filter(|inode| inode.nid != 0).count() * OTHER_PLACES > inodes.len() {
        inodes.sort_by_key(|inode| inode.nid);
        list = list_by(&inodes, Rules::default())?;
    }
    let superblock = &new.bytes[superblock::OFFSET..][..new.image.superblock().size()];
    list.superblock = superblock_bytes(old.image, superblock.to_vec(), u8::wrapping_sub)?;
    let columns = list.columns();
    if list.inodes.len() > INODES_MAX || columns.len() > LIST_MAX {
        return Ok(None);
    }
    let is_used = match Prediction::of_rebuilt(list.clone(), old.image) {
        Ok(prediction) => pays(&prediction, &columns, old, new)?.then_some(prediction),
        Err(_) => None,
    };
    Ok(is_used.map(|prediction| (list, prediction)))
}

/// All new inodes in the order in which a build places them, and the old ones that they resemble.
fn placed_inodes(old: ImageParts<'_>, new: ImageParts<'_>) -> Result<Vec<NewInode>> {
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
        let size = stored_size(new.image, &new.image.inode(nid)?).unwrap_or_default();
        Ok(NewInode { old: pairs.get(&nid).copied(), nid, size })
    };
    all.map(inode).collect()
}

/// Where a build places these inodes.
fn area(new: ImageParts<'_>, inodes: &[NewInode]) -> Result<Area> {
    let root = new.image.inode(new.image.superblock().root)?.place();
    let mut area = Area { start: root.pos.get(), ..Area::default() };
    if root.in_metabox {
        area.metabox = Some(area.start);
        let mut first = u64::MAX;
        for inode in inodes.iter().filter(|inode| inode.size.blocks > 0) {
            let addresses = addresses(new.image, &new.image.inode(inode.nid)?)?;
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
fn pairs(old: ImageParts<'_>, new: ImageParts<'_>) -> Result<HashMap<Nid, Nid>> {
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

/// Whether the new metadata takes fewer bytes with the prediction and its `list` than with the old
/// metadata alone, as parts of it show.
fn pays(
    prediction: &Prediction,
    list: &[u8],
    old: ImageParts<'_>,
    new: ImageParts<'_>,
) -> Result<bool> {
    let compressed = |bytes: &[u8], dictionary: &[u8]| -> Result<u64> {
        let (compressed, _) = shortest(bytes, dictionary, LEVELS[1])?;
        Ok(compressed.map_or(bytes.len(), |compressed| compressed.len()) as u64)
    };
    let in_metabox = new.image.superblock().metabox.is_some();
    let (before, after) = (Metadata::of(old, in_metabox)?, Metadata::of(new, in_metabox)?);
    let all: usize = after.ranges.iter().map(ExactSizeIterator::len).sum();
    let (mut with, mut without, mut tried) = (0, 0, 0);
    let mut predicted = vec![0; PART];
    for part in (0..all.div_ceil(PART)).step_by(all.div_ceil(PART * PARTS_MAX).max(1)) {
        let start = part * PART;
        let own = after.bytes(start..start + PART);
        let mut rest = &mut predicted[..own.len()];
        for range in after.within(start..start + PART) {
            let (part, others) = rest.split_at_mut(range.len());
            match in_metabox {
                true => prediction.fill_metabox(range.start as u64, part)?,
                false => prediction.fill(range.start as u64, part)?,
            }
            rest = others;
        }
        with += compressed(&own, &predicted[..own.len()])?;
        let around = start.saturating_sub(PART)..start + 2 * PART;
        without += compressed(&own, &before.bytes(around))?;
        tried += own.len() as u64;
    }
    let of_all = |len: u64| len * all as u64 / tried.max(1);
    let (with, without) = (of_all(with) + compressed(list, &[])?, of_all(without));
    Ok(with + without / GAIN < without)
}

/// The metadata of an image: nearly all of it is in the metabox, if there is one.
struct Metadata<'a> {
    of: Cow<'a, [u8]>,
    /// Where it is in these bytes.
    ranges: Vec<Range<usize>>,
}

impl<'a> Metadata<'a> {
    /// The content of the metabox if there is one and it is wanted, else directories and inodes.
    fn of(parts: ImageParts<'a>, in_metabox: bool) -> Result<Self> {
        let ImageParts { bytes, image, content } = parts;
        if let Some(nid) = image.superblock().metabox.filter(|_| in_metabox) {
            let inode = image.inode(nid)?;
            let mut of = vec![0; inode.size() as usize];
            image.read_at(&inode, FileOffset::new(0), &mut of)?;
            return Ok(Self { ranges: std::iter::once(0..of.len()).collect(), of: of.into() });
        }
        let directories = content.extents.iter().filter(|extent| content.is_dir(extent));
        let directories = directories.map(|extent| extent.at..extent.at + extent.size);
        let others = content.metadata(bytes.len()).into_iter();
        let others = others.map(|(start, end)| start as usize..end as usize);
        let mut ranges: Vec<Range<usize>> = directories.chain(others).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Ok(Self { of: bytes.into(), ranges })
    }

    /// The ranges that are in this `window` of all, one after the other.
    fn within(&self, window: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut before = 0;
        let parts = self.ranges.iter().map(move |range| {
            let [from, to] =
                [window.start, window.end].map(|at| at.saturating_sub(before).min(range.len()));
            before += range.len();
            range.start + from..range.start + to
        });
        parts.filter(|part| !part.is_empty())
    }

    fn bytes(&self, window: Range<usize>) -> Vec<u8> {
        self.within(window).flat_map(|range| &self.of[range]).copied().collect()
    }
}
