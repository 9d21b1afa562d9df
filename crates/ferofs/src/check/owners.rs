//! Finds the files that use the same bytes, and those with fragments in damaged clusters: second
//! walks, only of images with overlaps or such damage.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_format::{BytePos, Fault, FileOffset, Nid, Structure};

use super::checker::{Checker, METABOX, PACKED};
use super::report::Finding;
use super::used_space::{AddressSpace, Overlap, space_of};
use ferofs_format::units::to_u64;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::error::Corruption;
use ferofs_read::{ExtentData, Inode};

/// Owners of an overlap that are reported at most: a hostile image can have any number.
const MAX_OWNERS: usize = 64;

/// An inode or extent that uses the bytes of an overlap.
struct Owner {
    path: Arc<Path>,
    nid: Nid,
    metadata: bool,
    /// The extent's range in the file; `None` for the inode itself.
    content: Option<std::ops::Range<u64>>,
}

impl Checker<'_> {
    /// Adds a finding for each owner of each overlap.
    pub(super) fn report_owners(&self, overlaps: &[Overlap]) {
        let mut owners: BTreeMap<usize, Vec<Owner>> = BTreeMap::new();
        let superblock = self.image.superblock();
        let mut specials = Vec::new();
        for (name, nid) in [(PACKED, superblock.packed), (METABOX, superblock.metabox)] {
            if let Some(Ok(inode)) = nid.map(|nid| self.image.inode(nid)) {
                specials.push((PathBuf::from(name), inode));
            }
        }
        let known: HashSet<Nid> = specials.iter().map(|(_, inode)| inode.nid()).collect();
        let files = self.names().filter(|file| file.first);
        let files = files.filter_map(|file| Some((file.path, self.unless_ended(file.inode)?)));
        for (path, inode) in
            specials.into_iter().chain(files.filter(|(_, inode)| !known.contains(&inode.nid())))
        {
            self.add_owners(&path.into(), &inode, overlaps, &mut owners);
        }
        for (number, owners) in &owners {
            let Some((_, range)) = overlaps.get(*number) else { continue };
            for (at, owner) in owners.iter().enumerate() {
                let other = owners
                    .iter()
                    .enumerate()
                    .find(|(other, _)| *other != at)
                    .map(|(_, other)| other);
                let what = match other {
                    Some(other) if other.metadata => "metadata",
                    Some(_) => "data",
                    None => "a structure of the superblock",
                };
                let structure = if owner.metadata { Structure::Inode } else { Structure::Extent };
                let corruption = Corruption::new(structure, Fault::Overlap(what));
                self.findings.push(Finding {
                    path: owner.path.to_path_buf(),
                    corruption: corruption.at(BytePos::new(range.start)).of(owner.nid),
                    content: owner.content.clone(),
                    also: other.map(|other| other.path.to_path_buf()),
                });
            }
        }
    }

    /// Adds a finding for each fragment that a damaged part of the packed inode concerns.
    pub(super) fn report_fragments(&self) {
        let damaged = self.findings.damaged_parts(PACKED.as_ref());
        if damaged.is_empty() {
            return;
        }
        // Each fragment is compared with all parts.
        let work = to_u64(damaged.len() / 64);
        for file in self.names().filter(|file| file.first) {
            let Some(inode) = self.unless_ended(file.inode) else { continue };
            let extents = self.unless_ended(self.image.extents(&inode, FileOffset::new(0)));
            for extent in
                extents.into_iter().flatten().map_while(|extent| self.unless_ended(extent))
            {
                let ExtentData::Fragment { offset } = extent.data else { continue };
                if self.unless_ended(self.image.budget().charge(work)).is_none() {
                    return;
                }
                let (start, end) = (offset.get(), offset.get().saturating_add(extent.len));
                let found = damaged.iter().find(|(part, _)| part.start < end && start < part.end);
                if let Some((_, corruption)) = found {
                    self.findings.push(Finding {
                        path: file.path.clone(),
                        corruption: corruption.clone(),
                        content: Some(extent.start.get()..extent.end()),
                        also: Some(PathBuf::from(PACKED)),
                    });
                }
            }
        }
    }

    fn add_owners(
        &self,
        path: &Arc<Path>,
        inode: &Inode,
        overlaps: &[Overlap],
        owners: &mut BTreeMap<usize, Vec<Owner>>,
    ) {
        let budget = &self.image.budget();
        let mut add =
            |space, range: std::ops::Range<u64>, content: Option<std::ops::Range<u64>>| {
                let numbers = touched(overlaps, space, &range);
                // The number of extents times the number of overlaps can be large.
                budget.charge(to_u64(numbers.len()).saturating_mul(2))?;
                for number in numbers {
                    let owners = owners.entry(number).or_default();
                    let metadata = content.is_none();
                    let known = owners
                        .iter()
                        .any(|owner| owner.nid == inode.nid() && owner.metadata == metadata);
                    // A file that overlaps with itself is reported twice.
                    if owners.len() < MAX_OWNERS && (!known || owners.len() < 2) {
                        let content = content.clone();
                        owners.push(Owner {
                            path: Arc::clone(path),
                            nid: inode.nid(),
                            metadata,
                            content,
                        });
                    }
                }
                Ok(())
            };
        let extents = self.image.extents(inode, FileOffset::new(0));
        let end = match &extents {
            Ok(extents) => extents.metadata_end(),
            Err(_) => inode.end(),
        };
        if let Ok(end) = end {
            let range = inode.place().pos.get()..end.pos.get();
            if self.unless_ended(add(space_of(inode.nid()), range, None)).is_none() {
                return;
            }
        }
        for extent in extents.into_iter().flatten().map_while(|extent| self.unless_ended(extent)) {
            if let Ok(Some(range)) = DeviceRange::of(self.image, &extent) {
                let content = Some(extent.start.get()..extent.end());
                let space = AddressSpace::Device(range.device.get());
                let added = add(space, range.start.get()..range.end(), content);
                // Each overlap near the range is compared.
                let work = to_u64(overlaps.len() / 64);
                if self.unless_ended(added.and_then(|()| budget.charge(work))).is_none() {
                    break;
                }
            }
        }
    }
}

/// The overlaps that a range touches. They are sorted, and at most as long as a block or a pcluster
/// (12 MiB).
fn touched(overlaps: &[Overlap], space: AddressSpace, range: &std::ops::Range<u64>) -> Vec<usize> {
    let longest = 12 << 20;
    let from = (space, range.start.saturating_sub(longest));
    let first = overlaps.partition_point(|(s, r)| (*s, r.start) < from);
    (first..)
        .zip(overlaps.get(first..).unwrap_or_default())
        .take_while(|(_, (s, r))| *s == space && r.start < range.end)
        .filter(|(_, (_, r))| r.end > range.start)
        .map(|(number, _)| number)
        .collect()
}
