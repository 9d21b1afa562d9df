//! The difference of two images as an upper layer of overlayfs: what is new or changed, and
//! whiteouts of what is removed.
//!
//! Overlayfs shows the second image when this layer lies above the first one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ferofs::build::{Attributes, Builder, Content, Rdev};
use ferofs::diff::{ChangeKind, Event, Options, Side, diff};
use ferofs::read::{FileType, Image, Inode, Nid, Place};

use crate::exit::{About, Failure};

/// The attributes in which overlayfs keeps what it has changed.
const MARKS: &[u8] = b"trusted.overlay.";
/// The one that a directory has only because of whiteouts in it.
const ORIGIN: &[u8] = b"trusted.overlay.origin";

/// Adds the difference to `builder`. `name` is the second image's, for messages. Returns whether
/// there is one.
pub(super) fn add(
    base: &Image,
    image: &Image,
    name: &Path,
    builder: &mut Builder,
) -> Result<bool, Failure> {
    refuse_marks(image, name)?;
    let mut changes = Changes::find(base, image, name)?;
    changes.add_links(base, image, name)?;
    if changes.changed.is_empty() && changes.removed.is_empty() {
        return Ok(false);
    }
    let whiteouts = changes.whiteouts();
    let needed = with_parents(changes.changed.iter().chain(&whiteouts));
    let mut first_names: HashMap<Nid, PathBuf> = HashMap::new();
    for entry in image.walk() {
        let entry = entry.about(name)?;
        if !needed.contains(&entry.path) {
            continue;
        }
        let inode = entry.inode.about(name)?;
        match first_names.get(&inode.nid()) {
            Some(first) => drop(builder.hard_link(&entry.path, first)),
            None => {
                put(builder, image, &entry.path, &inode, name)?;
                if !inode.is_dir() {
                    first_names.insert(inode.nid(), entry.path);
                }
            }
        }
    }
    for path in whiteouts {
        builder.char_device(path, Rdev::default(), Attributes::default().mode(0));
    }
    Ok(true)
}

/// Fails for an entry that overlayfs would not show as it is, also if it is in the base already.
fn refuse_marks(image: &Image, name: &Path) -> Result<(), Failure> {
    for entry in image.walk() {
        let entry = entry.about(name)?;
        let inode = entry.inode.about(name)?;
        let is_null =
            matches!(inode.on_disk().place, Place::Device(device) if device == Rdev::default());
        let is_mark = |name: &[u8]| name.starts_with(MARKS) && !(inode.is_dir() && name == ORIGIN);
        let what = if inode.file_type() == FileType::CharDevice && is_null {
            "a whiteout"
        } else if image.xattrs(&inode).about(name)?.iter().any(|xattr| is_mark(&xattr.name)) {
            "marked with an attribute"
        } else {
            continue;
        };
        let reason = format!("is {what} of overlayfs, which cannot be in a layer as a file");
        return Err(Failure::about(&name.join(entry.path), reason));
    }
    Ok(())
}

/// Paths that differ.
#[derive(Default)]
struct Changes {
    /// New paths, and those whose file differs in anything.
    changed: BTreeSet<PathBuf>,
    /// Paths that only the first image has.
    removed: BTreeSet<PathBuf>,
    /// Paths whose files have different types.
    retyped: BTreeSet<PathBuf>,
}

impl Changes {
    fn find(base: &Image, image: &Image, name: &Path) -> Result<Self, Failure> {
        let sides = [base, image].map(|image| Side::Image(Box::new(image.clone())));
        let [first, second] = &sides;
        let (mut changes, mut failed) = (Self::default(), None);
        let compared = diff(first, second, &Options::default(), |event| {
            match event {
                Event::Failed { path, error } => {
                    failed = Some(Failure::about(&name.join(path), error));
                    return ControlFlow::Break(());
                }
                Event::Change(change) => {
                    match change.kind {
                        ChangeKind::Removed(_) => changes.removed.insert(change.path),
                        ChangeKind::Added(_) => changes.changed.insert(change.path),
                        ChangeKind::Changed(differences) => {
                            if differences.file_type {
                                changes.retyped.insert(change.path.clone());
                            }
                            changes.changed.insert(change.path)
                        }
                    };
                }
            }
            ControlFlow::Continue(())
        });
        compared.without_subject()?;
        failed.map_or(Ok(changes), Err)
    }

    /// Adds all names of each file whose names are others than before, or one of whose names
    /// changed: names of one file must be in one layer.
    fn add_links(&mut self, base: &Image, image: &Image, name: &Path) -> Result<(), Failure> {
        let (before, after) = (names(base, name)?, names(image, name)?);
        let old: HashMap<&PathBuf, &BTreeSet<PathBuf>> =
            before.values().flat_map(|names| names.iter().map(move |path| (path, names))).collect();
        for names in after.values() {
            let is_same = |path: &PathBuf| old.get(path).is_some_and(|old| *old == names);
            if !names.iter().all(is_same) || names.iter().any(|path| self.changed.contains(path)) {
                self.changed.extend(names.iter().cloned());
            }
        }
        // Files that had several names, and have one now.
        let now: BTreeSet<&PathBuf> = after.values().flatten().collect();
        let lost = before
            .values()
            .flatten()
            .filter(|path| !now.contains(path) && !self.removed.contains(*path));
        let lost: Vec<PathBuf> = lost.cloned().collect();
        self.changed.extend(lost);
        Ok(())
    }

    /// The removed paths that need a whiteout: those in directories that the second image has, too.
    fn whiteouts(&self) -> Vec<PathBuf> {
        let is_gone = |path: &Path| self.removed.contains(path) || self.retyped.contains(path);
        self.removed.iter().filter(|path| !path.parent().is_some_and(is_gone)).cloned().collect()
    }
}

/// All names of files with several names.
fn names(image: &Image, name: &Path) -> Result<BTreeMap<u64, BTreeSet<PathBuf>>, Failure> {
    let mut names: BTreeMap<u64, BTreeSet<PathBuf>> = BTreeMap::new();
    for entry in image.walk() {
        let entry = entry.about(name)?;
        let inode = entry.inode.about(name)?;
        if !inode.is_dir() && inode.nlink() > 1 {
            names.entry(inode.nid().get()).or_default().insert(entry.path);
        }
    }
    names.retain(|_, names| names.len() > 1);
    Ok(names)
}

/// The paths, and the directories that lead to them.
fn with_parents<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::from([PathBuf::new()]);
    for path in paths {
        for part in path.ancestors() {
            if !all.insert(part.to_owned()) && part != path {
                break;
            }
        }
    }
    all
}

/// Adds a file of the second image.
fn put(
    builder: &mut Builder,
    image: &Image,
    path: &Path,
    inode: &Inode,
    name: &Path,
) -> Result<(), Failure> {
    let disk = inode.on_disk();
    let mut attributes =
        Attributes::default().mode(disk.permissions).owner(disk.uid, disk.gid).mtime(disk.mtime);
    for xattr in image.xattrs(inode).about(name)? {
        attributes = attributes.xattr(xattr.name, xattr.value);
    }
    let device = match disk.place {
        Place::Device(device) => device,
        _ => Rdev::default(),
    };
    match inode.file_type() {
        FileType::Regular => builder.file(path, Content::image_file(image, inode), attributes),
        FileType::Directory => builder.directory(path, attributes),
        FileType::Symlink => {
            let target = image.read_link(inode).about(name)?;
            builder.symlink(path, OsStr::from_bytes(&target), attributes)
        }
        FileType::CharDevice => builder.char_device(path, device, attributes),
        FileType::BlockDevice => builder.block_device(path, device, attributes),
        FileType::Fifo => builder.fifo(path, attributes),
        FileType::Socket => builder.socket(path, attributes),
    };
    Ok(())
}
