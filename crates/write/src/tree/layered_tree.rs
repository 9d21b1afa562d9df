//! Merges archives and layers into one tree. Entries arrive in any order; later ones replace
//! earlier ones, and whiteouts remove entries of lower layers.
//!
//! The sources add entries to the current layer. [`whiteouts`] removes entries of lower layers
//! only, at any point of its own layer. At the end, [`number`] turns the rest into a
//! [`crate::tree::Tree`].

mod define;
mod names;
mod number;
#[cfg_attr(not(feature = "tar"), allow(dead_code, reason = "some whiteouts come from archives"))]
pub(crate) mod whiteouts;

use std::collections::HashSet;
use std::rc::Rc;

use ferofs_format::inode::{FileType, Rdev, Timestamp};

use crate::error::faults::EntryFault;
use crate::tree::Origin;
use crate::tree::compact::CompactTime;
use crate::tree::xattr::Attributes;
pub(crate) use names::Names;
use names::{FileId, Link, Texts};

/// The most symbolic links on one path, as in Linux; more are an error.
const LINKS_MAX: usize = 40;
/// The most bytes of a name in EROFS.
const NAME_MAX: usize = 255;
/// The most bytes of a symbolic link's target in Linux.
const TARGET_MAX: usize = 4095;
/// The most path components that one path may need in the targets of symbolic links: 40 links with
/// 25 components each. More is an error, because a short member could take much time.
const LINK_STEPS_MAX: usize = 1000;
/// The deepest nesting of directories: twice as deep as a path of `PATH_MAX` bytes. Deeper is an
/// error, because the time for each file grows with the depth.
const DEPTH_MAX: usize = 4096;
/// Bytes of memory for an attribute and its temporary copies, in addition to twice its length.
const ATTRIBUTE: u64 = 160;
/// Bytes of memory for an entry that was replaced.
const REPLACED: u64 = 200;
/// Bytes of memory for a directory without an entry of its own.
const IMPLIED: u64 = 256;
/// The permissions of a directory without an entry of its own.
const IMPLIED_DIRECTORY_MODE: u16 = 0o755;

/// A file of a layer, without its names.
#[derive(Clone, Debug)]
pub(crate) struct LayeredFile {
    pub body: Body,
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: CompactTime,
    pub xattrs: Rc<Attributes>,
    /// Options for owners, times and excluded files do not apply, or were applied before.
    pub ignores_options: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Regular { size: u64, origin: Origin, sparse: bool },
    Directory(Box<Names>),
    Symlink(Box<[u8]>),
    Device(FileType, Rdev),
    Fifo,
    Socket,
}

/// The directory and name that a path leads to.
#[derive(Debug)]
pub(crate) struct EntryPosition {
    dir: FileId,
    /// `None` for the root.
    name: Option<Box<[u8]>>,
}

/// The merged tree of all layers so far.
#[derive(Debug)]
pub(crate) struct LayeredTree {
    files: Vec<LayeredFile>,
    texts: Texts,
    /// Files that may have more than one name.
    linked: HashSet<FileId>,
    /// The number of the current layer.
    layer: u32,
    /// The time of directories without an entry of their own.
    time: Timestamp,
    sets: HashSet<Rc<Attributes>>,
    /// The estimated memory, in bytes, for everything but names of files that remain.
    memory_used: u64,
    /// Directories from which this layer has removed the entries of lower layers.
    emptied: HashSet<FileId>,
    /// Whiteouts that remove names of lower layers of the mounted overlay. Other devices with
    /// number 0:0 are ordinary files.
    whiteouts: HashSet<FileId>,
    /// Directories that hide those of lower layers of the mounted overlay, even if a later layer
    /// replaces their attributes.
    opaque: HashSet<FileId>,
}

impl LayeredTree {
    /// An empty root directory. Directories without an entry of their own get this `time`.
    pub(crate) fn new(time: Timestamp) -> Self {
        let mut layers = Self {
            files: Vec::new(),
            texts: Texts::new(),
            linked: HashSet::new(),
            layer: 0,
            time,
            sets: HashSet::new(),
            memory_used: 0,
            emptied: HashSet::new(),
            whiteouts: HashSet::new(),
            opaque: HashSet::new(),
        };
        let root = layers.implied_directory();
        layers.files.push(root);
        layers
    }

    /// Starts a layer above all entries so far.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
        self.emptied.clear();
    }

    /// The estimated memory, in bytes, for attributes, replaced entries, directories without an
    /// entry of their own, and what [`Self::count_memory`] added.
    pub(crate) const fn memory_used(&self) -> u64 {
        self.memory_used
    }

    pub(crate) const fn count_memory(&mut self, bytes: u64) {
        self.memory_used = self.memory_used.saturating_add(bytes);
    }

    /// Stores equal sets of attributes once.
    pub(crate) fn attributes(&mut self, mut set: Attributes) -> Rc<Attributes> {
        set.sort_unstable();
        match self.sets.get(&set) {
            Some(known) => Rc::clone(known),
            None => {
                let bytes = set
                    .iter()
                    .map(|(name, value)| 2 * (name.len() + value.len()) as u64 + ATTRIBUTE);
                self.count_memory(bytes.sum());
                let set = Rc::new(set);
                self.sets.insert(Rc::clone(&set));
                set
            }
        }
    }

    fn implied_directory(&mut self) -> LayeredFile {
        let xattrs = self.attributes(Vec::new());
        let body = Body::Directory(Box::default());
        LayeredFile {
            body,
            permissions: IMPLIED_DIRECTORY_MODE,
            uid: 0,
            gid: 0,
            mtime: self.time.into(),
            xattrs,
            ignores_options: false,
        }
    }

    fn add(&mut self, layered_file: LayeredFile) -> Result<FileId, EntryFault> {
        let number = u32::try_from(self.files.len()).ok().filter(|n| *n < u32::MAX);
        self.files.push(layered_file);
        number.map(FileId).ok_or(EntryFault::TooManyFiles)
    }

    fn names(&self, dir: FileId) -> Option<&Names> {
        match &self.files[dir.index()].body {
            Body::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// The names of `dir`, to change them, and their texts.
    fn names_mut(&mut self, dir: FileId) -> Option<(&mut Names, &mut Texts)> {
        match &mut self.files[dir.index()].body {
            Body::Directory(names) => Some((names, &mut self.texts)),
            _ => None,
        }
    }

    fn child(&self, dir: FileId, name: &[u8]) -> Option<Link> {
        self.texts.get(self.names(dir)?, name)
    }

    /// Resolves `path` to a directory and a name. Absolute paths and `..` stay within the root;
    /// symbolic links are followed to existing directories. With `make`, for an entry of the current
    /// layer, missing directories are created, and all of them belong to this layer.
    pub(crate) fn resolve(
        &mut self,
        path: &[u8],
        make: bool,
    ) -> Result<Option<EntryPosition>, EntryFault> {
        let parts = clean(path);
        let Some((name, parents)) = parts.split_last() else {
            return Ok(Some(EntryPosition { dir: FileId::ROOT, name: None }));
        };
        let mut way: Vec<FileId> = vec![FileId::ROOT];
        // The components that are left, in reverse order.
        let mut rest: Vec<Box<[u8]>> = parents.iter().rev().map(|part| Box::from(*part)).collect();
        let (mut links, mut steps) = (0, 0);
        while let Some(part) = rest.pop() {
            steps += usize::from(links > 0);
            if steps > LINK_STEPS_MAX + parents.len() {
                return Err(EntryFault::SymlinkLoop);
            }
            if way.len() > DEPTH_MAX {
                return Err(EntryFault::TooDeep);
            }
            let dir = way.last().copied().unwrap_or(FileId::ROOT);
            if &*part == b".." {
                way.truncate(way.len().saturating_sub(1).max(1));
                continue;
            }
            let Some(link) = self.child(dir, &part) else {
                if !make || links > 0 {
                    return if make { Err(EntryFault::NotADirectory) } else { Ok(None) };
                }
                let implied = self.implied_directory();
                self.count_memory(IMPLIED);
                let made = self.add(implied)?;
                self.insert_name(dir, &part, made)?;
                way.push(made);
                continue;
            };
            match &self.files[link.file.index()].body {
                Body::Directory(_) => {
                    way.push(link.file);
                    if make {
                        self.mark_in_layer(dir, &part);
                    }
                }
                Body::Symlink(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(EntryFault::SymlinkLoop);
                    }
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    let parts =
                        target.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
                    let parts: Vec<Box<[u8]>> = parts.map(Box::from).collect();
                    rest.extend(parts.into_iter().rev());
                }
                _ => return Err(EntryFault::NotADirectory),
            }
        }
        let dir = way.last().copied().unwrap_or(FileId::ROOT);
        Ok(Some(EntryPosition { dir, name: Some(Box::from(*name)) }))
    }

    fn mark_in_layer(&mut self, dir: FileId, name: &[u8]) {
        let layer = self.layer;
        if let Some((names, texts)) = self.names_mut(dir) {
            texts.set_layer(names, name, layer);
        }
    }

    fn insert_name(&mut self, dir: FileId, name: &[u8], file: FileId) -> Result<(), EntryFault> {
        if name.len() > NAME_MAX {
            return Err(EntryFault::NameTooLong);
        }
        let layer = self.layer;
        let (names, texts) = self.names_mut(dir).ok_or(EntryFault::NotADirectory)?;
        if texts.insert(names, name, file, layer) {
            self.count_memory(REPLACED);
        }
        Ok(())
    }

    /// Puts a file at `path`. A directory that is there keeps its names if `layered_file` is one
    /// too; all else is replaced.
    pub(crate) fn put(
        &mut self,
        path: &[u8],
        mut layered_file: LayeredFile,
    ) -> Result<(), EntryFault> {
        if let Body::Symlink(target) = &layered_file.body
            && (target.is_empty() || target.len() > TARGET_MAX || target.contains(&0))
        {
            return Err(EntryFault::SymlinkTarget);
        }
        if let Body::Device(_, device) = &layered_file.body
            && Rdev::decode(device.encode()) != *device
        {
            return Err(EntryFault::DeviceNumber);
        }
        let Some(position) = self.resolve(path, true)? else {
            return Err(EntryFault::NotADirectory);
        };
        let old = match &position.name {
            None => Some(FileId::ROOT),
            Some(name) => self.child(position.dir, name).map(|link| link.file),
        };
        let mut replaces_whiteout = false;
        if let (Some(old), Body::Directory(names)) = (old, &mut layered_file.body) {
            if let Some((kept, _)) = self.names_mut(old) {
                **names = std::mem::take(kept);
                let before = std::mem::replace(&mut self.files[old.index()], layered_file);
                if self.opaque.contains(&old) {
                    self.copy_opaque_marks(&before, old);
                }
                if let Some(name) = &position.name {
                    self.mark_in_layer(position.dir, name);
                }
                return Ok(());
            }
            replaces_whiteout = self.whiteouts.contains(&old);
        }
        let name = position.name.as_ref().ok_or(EntryFault::RootNotDirectory)?;
        let file = self.add(layered_file)?;
        if replaces_whiteout {
            self.make_opaque(file);
        }
        self.insert_name(position.dir, name, file)
    }

    /// Whether `path` is a directory with names of the current layer.
    pub(crate) fn has_entries(&mut self, path: &[u8]) -> Result<bool, EntryFault> {
        let layer = self.layer;
        let Some(EntryPosition { dir, name }) = self.resolve(path, false)? else {
            return Ok(false);
        };
        let found = match name {
            None => Some(dir),
            Some(name) => self.child(dir, &name).map(|link| link.file),
        };
        let names = found.and_then(|file| self.names(file));
        Ok(names.is_some_and(|names| names.links().iter().any(|link| link.layer == layer)))
    }

    /// Adds `path` as a hard link to the file at `target`.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), EntryFault> {
        let found = self.resolve(target, false)?.ok_or(EntryFault::LinkTargetMissing)?;
        let name = found.name.as_ref().ok_or(EntryFault::LinkToDirectory)?;
        let file = self.child(found.dir, name).ok_or(EntryFault::LinkTargetMissing)?.file;
        if self.names(file).is_some() {
            return Err(EntryFault::LinkToDirectory);
        }
        let Some(position) = self.resolve(path, true)? else {
            return Err(EntryFault::NotADirectory);
        };
        self.linked.insert(file);
        self.insert_name(
            position.dir,
            position.name.as_ref().ok_or(EntryFault::RootNotDirectory)?,
            file,
        )
    }

    /// The file at `path`, if there is one.
    pub(crate) fn file_at(&mut self, path: &[u8]) -> Result<Option<FileId>, EntryFault> {
        let Some(position) = self.resolve(path, false)? else { return Ok(None) };
        Ok(match &position.name {
            None => Some(FileId::ROOT),
            Some(name) => self.child(position.dir, name).map(|link| link.file),
        })
    }
}

/// The components of a path. `..` removes one, but does not leave the root.
pub(crate) fn clean(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests;
