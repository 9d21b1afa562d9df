//! A tree while it is put together from archives and layers, whose entries come in any order, replace each
//! other, and are removed again. [`Sketch::finish`] then numbers what is left, as a walk would have.
//!
//! Entries are put into a layer; whiteouts remove what lower layers had, wherever they stand in their own.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

use ferofs_format::inode::{FileType, Rdev, Timestamp};

use super::content::Origin;
use super::open::as_path;
use super::tree::{Dir, Entry, Kind, Node, NodeId, Tree};
use super::walk::join;
use super::xattr::{Attributes, encode_set};
use super::{Options, Warning};
use crate::Result;

/// Symbolic links that one path is followed through.
const LINKS_MAX: usize = 40;
/// EROFS has no longer names.
const NAME_MAX: usize = 255;
/// Linux has no longer targets of symbolic links.
const TARGET_MAX: usize = 4095;
/// Directories that nobody described.
const IMPLIED_PERMISSIONS: u16 = 0o755;

pub(crate) const OPAQUE: &[u8] = b"trusted.overlay.opaque";
const ORIGIN: &[u8] = b"trusted.overlay.origin";

/// A file's number: its place in the sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u32);

impl FileId {
    const ROOT: Self = Self(0);

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a file is, without its names.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) body: Body,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) xattrs: Rc<Attributes>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Regular { size: u64, origin: Origin, sparse: bool },
    Directory(Names),
    Symlink(Box<[u8]>),
    Device(FileType, Rdev),
    Fifo,
}

/// A directory's names. `BTreeMap` sorts them as EROFS does.
pub(crate) type Names = BTreeMap<Box<[u8]>, Link>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    file: FileId,
    /// The highest layer that mentions the name.
    layer: u32,
}

/// Why an entry cannot be put where it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misplaced {
    /// A hard link's target is not there (yet).
    #[error("a hard link to something that is not there")]
    LinkToNothing,
    /// A hard link's target is a directory, perhaps the root.
    #[error("a hard link to a directory")]
    LinkToDirectory,
    /// The path leads through something that is no directory.
    #[error("below something that is no directory")]
    NotADirectory,
    /// The path leads through a loop of symbolic links.
    #[error("below a loop of symbolic links")]
    Loop,
    /// The root can be nothing but a directory.
    #[error("the root is no directory")]
    Root,
    /// A name has more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    NameTooLong,
    /// A symbolic link's target is empty, longer than 4095 bytes, or has a NUL in it.
    #[error("a symbolic link to an impossible target")]
    Target,
    /// There are more than 2^32 entries.
    #[error("more files than an image can have")]
    TooMany,
}

/// A place for an entry.
#[derive(Debug)]
pub(crate) struct Spot {
    dir: FileId,
    /// `None` for the root.
    name: Option<Box<[u8]>>,
}

/// The tree in the making.
#[derive(Debug)]
pub(crate) struct Sketch {
    files: Vec<Draft>,
    /// The layer that entries are put into.
    layer: u32,
    /// The time of implied directories.
    time: Timestamp,
    sets: HashSet<Rc<Attributes>>,
}

impl Sketch {
    /// An empty root directory; `time` is given to directories that nobody describes.
    pub(crate) fn new(time: Timestamp) -> Self {
        let mut sketch = Self { files: Vec::new(), layer: 0, time, sets: HashSet::new() };
        let root = sketch.implied();
        sketch.files.push(root);
        sketch
    }

    /// From here on, entries lie over those before.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// One copy of equal sets.
    pub(crate) fn attributes(&mut self, mut set: Attributes) -> Rc<Attributes> {
        set.sort_unstable();
        match self.sets.get(&set) {
            Some(known) => Rc::clone(known),
            None => {
                let set = Rc::new(set);
                self.sets.insert(Rc::clone(&set));
                set
            }
        }
    }

    fn implied(&mut self) -> Draft {
        let xattrs = self.attributes(Vec::new());
        let body = Body::Directory(Names::new());
        Draft { body, permissions: IMPLIED_PERMISSIONS, uid: 0, gid: 0, mtime: self.time, xattrs }
    }

    fn add(&mut self, draft: Draft) -> Result<FileId, Misplaced> {
        let number = u32::try_from(self.files.len()).ok().filter(|n| *n < u32::MAX);
        self.files.push(draft);
        number.map(FileId).ok_or(Misplaced::TooMany)
    }

    fn names(&self, dir: FileId) -> Option<&Names> {
        match &self.files[dir.index()].body {
            Body::Directory(names) => Some(names),
            _ => None,
        }
    }

    fn names_mut(&mut self, dir: FileId) -> Option<&mut Names> {
        match &mut self.files[dir.index()].body {
            Body::Directory(names) => Some(names),
            _ => None,
        }
    }

    fn child(&self, dir: FileId, name: &[u8]) -> Option<Link> {
        self.names(dir)?.get(name).copied()
    }

    /// The spot of `path`: absolute paths and `..` stay within the root, directories on the way are made
    /// if `make`, symbolic links on the way are followed to directories that are there.
    pub(crate) fn spot(&mut self, path: &[u8], make: bool) -> Result<Option<Spot>, Misplaced> {
        let parts = clean(path);
        let Some((name, parents)) = parts.split_last() else {
            return Ok(Some(Spot { dir: FileId::ROOT, name: None }));
        };
        let mut way: Vec<FileId> = vec![FileId::ROOT];
        // What is still to be walked, last part first.
        let mut rest: Vec<Box<[u8]>> = parents.iter().rev().map(|part| Box::from(*part)).collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            let dir = way.last().copied().unwrap_or(FileId::ROOT);
            if &*part == b".." {
                way.truncate(way.len().saturating_sub(1).max(1));
                continue;
            }
            let Some(link) = self.child(dir, &part) else {
                if !make || links > 0 {
                    return if make { Err(Misplaced::NotADirectory) } else { Ok(None) };
                }
                let implied = self.implied();
                let made = self.add(implied)?;
                self.enter(dir, &part, made)?;
                way.push(made);
                continue;
            };
            match &self.files[link.file.index()].body {
                Body::Directory(_) => {
                    way.push(link.file);
                    self.touch(dir, &part);
                }
                Body::Symlink(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Misplaced::Loop);
                    }
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    let parts = target.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
                    let parts: Vec<Box<[u8]>> = parts.map(Box::from).collect();
                    rest.extend(parts.into_iter().rev());
                }
                _ => return Err(Misplaced::NotADirectory),
            }
        }
        let dir = way.last().copied().unwrap_or(FileId::ROOT);
        Ok(Some(Spot { dir, name: Some(Box::from(*name)) }))
    }

    fn touch(&mut self, dir: FileId, name: &[u8]) {
        let layer = self.layer;
        if let Some(link) = self.names_mut(dir).and_then(|names| names.get_mut(name)) {
            link.layer = layer;
        }
    }

    fn enter(&mut self, dir: FileId, name: &[u8], file: FileId) -> Result<(), Misplaced> {
        if name.len() > NAME_MAX {
            return Err(Misplaced::NameTooLong);
        }
        let layer = self.layer;
        let names = self.names_mut(dir).ok_or(Misplaced::NotADirectory)?;
        names.insert(name.into(), Link { file, layer });
        Ok(())
    }

    /// Puts a file at `path`. A directory that is there keeps its names if `draft` is one too; all else is
    /// replaced.
    pub(crate) fn put(&mut self, path: &[u8], mut draft: Draft) -> Result<(), Misplaced> {
        if let Body::Symlink(target) = &draft.body
            && (target.is_empty() || target.len() > TARGET_MAX || target.contains(&0))
        {
            return Err(Misplaced::Target);
        }
        let Some(spot) = self.spot(path, true)? else { return Err(Misplaced::NotADirectory) };
        let old = match &spot.name {
            None => Some(FileId::ROOT),
            Some(name) => self.child(spot.dir, name).map(|link| link.file),
        };
        if let (Some(old), Body::Directory(names)) = (old, &mut draft.body) {
            if let Some(kept) = self.names_mut(old) {
                *names = std::mem::take(kept);
                self.files[old.index()] = draft;
                if let Some(name) = &spot.name {
                    self.touch(spot.dir, name);
                }
                return Ok(());
            }
            if self.files[old.index()].is_whiteout() {
                self.make_opaque(&mut draft);
            }
        }
        let name = spot.name.as_ref().ok_or(Misplaced::Root)?;
        let file = self.add(draft)?;
        self.enter(spot.dir, name, file)
    }

    /// Gives `path` the file at `target`.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Misplaced> {
        let found = self.spot(target, false)?.ok_or(Misplaced::LinkToNothing)?;
        let name = found.name.as_ref().ok_or(Misplaced::LinkToDirectory)?;
        let file = self.child(found.dir, name).ok_or(Misplaced::LinkToNothing)?.file;
        if self.names(file).is_some() {
            return Err(Misplaced::LinkToDirectory);
        }
        let Some(spot) = self.spot(path, true)? else { return Err(Misplaced::NotADirectory) };
        self.enter(spot.dir, spot.name.as_ref().ok_or(Misplaced::Root)?, file)
    }

    /// The file at `path`, as it stands.
    pub(crate) fn file_at(&mut self, path: &[u8]) -> Result<Option<FileId>, Misplaced> {
        let Some(spot) = self.spot(path, false)? else { return Ok(None) };
        Ok(match &spot.name {
            None => Some(FileId::ROOT),
            Some(name) => self.child(spot.dir, name).map(|link| link.file),
        })
    }

    /// Removes what lower layers have at `path`; what this layer has there stays.
    pub(crate) fn remove_lower(&mut self, path: &[u8]) -> Result<(), Misplaced> {
        let Some(Spot { dir, name: Some(name) }) = self.spot(path, false)? else { return Ok(()) };
        let Some(link) = self.child(dir, &name) else { return Ok(()) };
        let own = link.layer == self.layer;
        self.empty_lower(link.file);
        if !own && let Some(names) = self.names_mut(dir) {
            names.remove(&name);
        }
        Ok(())
    }

    /// Removes what lower layers have in the directory `path`.
    pub(crate) fn hide_lower(&mut self, path: &[u8]) -> Result<(), Misplaced> {
        if let Some(dir) = self.file_at(path)? {
            self.empty_lower(dir);
        }
        Ok(())
    }

    fn empty_lower(&mut self, top: FileId) {
        let layer = self.layer;
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            let Some(names) = self.names_mut(dir) else { continue };
            // A name of this layer is there because the layer has it, or something below it.
            names.retain(|_, link| link.layer == layer);
            dirs.extend(names.values().map(|link| link.file));
        }
    }

    /// Puts overlayfs' sign that lower layers have no `path`, unless this layer has it: then a directory
    /// is marked as one that hides those below.
    pub(crate) fn put_whiteout(&mut self, path: &[u8], mtime: Timestamp) -> Result<(), Misplaced> {
        match self.file_at(path)? {
            Some(file) if self.names(file).is_some() => self.mark_opaque(path),
            Some(_) => Ok(()),
            None => {
                let body = Body::Device(FileType::CharDevice, Rdev { major: 0, minor: 0 });
                let xattrs = self.attributes(Vec::new());
                self.put(path, Draft { body, permissions: 0, uid: 0, gid: 0, mtime, xattrs })?;
                let Some(spot) = self.spot(path, false)? else { return Ok(()) };
                // Overlayfs looks for whiteouts only in directories that were copied up.
                self.set_attribute(spot.dir, ORIGIN, b"");
                Ok(())
            }
        }
    }

    /// Marks the directory `path` as one that hides those of lower layers, making it if need be.
    pub(crate) fn mark_opaque(&mut self, path: &[u8]) -> Result<(), Misplaced> {
        let inside = join(path, b".");
        let dir = match self.file_at(path)? {
            Some(dir) if self.names(dir).is_some() => dir,
            Some(_) => return Err(Misplaced::NotADirectory),
            None => {
                let implied = self.implied();
                self.put(&inside, implied)?;
                self.file_at(path)?.ok_or(Misplaced::NotADirectory)?
            }
        };
        self.set_attribute(dir, OPAQUE, b"y");
        Ok(())
    }

    fn make_opaque(&mut self, draft: &mut Draft) {
        let mut set = (*draft.xattrs).clone();
        set.push((OPAQUE.to_vec(), b"y".to_vec()));
        draft.xattrs = self.attributes(set);
    }

    fn set_attribute(&mut self, file: FileId, name: &[u8], value: &[u8]) {
        let mut set = (*self.files[file.index()].xattrs).clone();
        set.retain(|(old, _)| old != name);
        set.push((name.to_vec(), value.to_vec()));
        self.files[file.index()].xattrs = self.attributes(set);
    }

    /// Numbers what is left breadth-first, in the order of names, as a walk does.
    pub(crate) fn finish(mut self, options: &Options, warnings: &mut Vec<Warning>) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut numbers: Vec<Option<NodeId>> = vec![None; self.files.len()];
        let mut queue = VecDeque::from([(NodeId::ROOT, FileId::ROOT)]);
        self.number(options, &mut tree, b"", FileId::ROOT, NodeId::ROOT, warnings)?;
        while let Some((dir, file)) = queue.pop_front() {
            let names = self.names_mut(file).map(std::mem::take).unwrap_or_default();
            let path = tree.path_bytes(dir);
            let first = tree.entries.len();
            for (name, Link { file, .. }) in names {
                let draft = &self.files[file.index()];
                if options.strip_overlay && draft.is_whiteout() {
                    continue;
                }
                if options.is_excluded(&join(&path, &name)) {
                    continue;
                }
                if let Some(node) = numbers[file.index()] {
                    tree.nodes[node.index()].nlink += 1;
                    let name = tree.intern(&name);
                    tree.entries.push(Entry { name, node });
                    continue;
                }
                let is_dir = matches!(draft.body, Body::Directory(_));
                let node = self.number(options, &mut tree, &name, file, dir, warnings)?;
                numbers[file.index()] = Some(node).filter(|_| !options.hard_dereference);
                if is_dir {
                    tree.nodes[dir.index()].nlink += 1;
                    queue.push_back((node, file));
                }
                let name = tree.node(node).name;
                tree.entries.push(Entry { name, node });
            }
            if let Kind::Directory(index) = tree.node(dir).kind {
                tree.dirs[index as usize] = Dir { first, count: tree.entries.len() - first };
            }
        }
        Ok(tree)
    }

    fn number(
        &self,
        options: &Options,
        tree: &mut Tree,
        name: &[u8],
        file: FileId,
        parent: NodeId,
        warnings: &mut Vec<Warning>,
    ) -> Result<NodeId> {
        let draft = &self.files[file.index()];
        // There are no more nodes than files in the sketch, whose numbers fit.
        let id = NodeId(tree.nodes.len() as u32);
        let (mut size, mut origin) = (0, Origin::None);
        let kind = match &draft.body {
            Body::Regular { size: bytes, origin: from, sparse } => {
                (size, origin) = (*bytes, *from);
                Kind::Regular { sparse: *sparse }
            }
            Body::Directory(_) => {
                tree.dirs.push(Dir::default());
                Kind::Directory(tree.dirs.len() as u32 - 1)
            }
            Body::Symlink(target) => Kind::Symlink(tree.intern(target)),
            Body::Device(kind, rdev) => Kind::Device(*kind, *rdev),
            Body::Fifo => Kind::Fifo,
        };
        let path = || PathBuf::from(as_path(&join(&tree.path_bytes(parent), name)));
        let set = encode(options, &draft.xattrs, path, warnings)?;
        let xattrs = tree.xattrs.intern(&set);
        let name = tree.intern(name);
        tree.nodes.push(Node {
            kind,
            permissions: draft.permissions,
            uid: options.uid(draft.uid),
            gid: options.gid(draft.gid),
            nlink: if matches!(kind, Kind::Directory(_)) { 2 } else { 1 },
            mtime: options.all_time.unwrap_or(draft.mtime),
            xattrs,
            size,
            origin,
            parent,
            name,
        });
        Ok(id)
    }
}

impl Draft {
    /// Whether this is overlayfs' sign that lower layers have no such name.
    pub(crate) fn is_whiteout(&self) -> bool {
        matches!(self.body, Body::Device(FileType::CharDevice, Rdev { major: 0, minor: 0 }))
    }
}

/// The attributes as EROFS has them.
fn encode(
    options: &Options,
    attributes: &Attributes,
    path: impl Fn() -> PathBuf,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<u8>> {
    use ferofs_format::xattr::NamePrefix;
    if attributes.is_empty() || !options.xattrs.keep {
        return Ok(Vec::new());
    }
    let mut kept = attributes.clone();
    if options.strip_overlay {
        kept.retain(|(name, _)| name != OPAQUE && name != ORIGIN);
    }
    for (name, _) in kept.iter().filter(|(name, _)| NamePrefix::split(name).is_none()) {
        let name = String::from_utf8_lossy(name).into_owned();
        warnings.push(Warning::ForeignXattr { path: path(), name });
    }
    encode_set(kept).map_err(|too_large| too_large.of(path()))
}

/// The parts of a path below the root: `..` leads up, but not out.
fn clean(path: &[u8]) -> Vec<&[u8]> {
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
mod tests {
    use super::*;

    fn sketch() -> Sketch {
        Sketch::new(Timestamp { secs: 7, nanos: 0 })
    }

    fn draft(sketch: &mut Sketch, body: Body) -> Draft {
        let xattrs = sketch.attributes(Vec::new());
        Draft { body, permissions: 0o600, uid: 1, gid: 2, mtime: Timestamp { secs: 9, nanos: 0 }, xattrs }
    }

    fn put(sketch: &mut Sketch, path: &str, body: Body) -> Result<(), Misplaced> {
        let draft = draft(sketch, body);
        sketch.put(path.as_bytes(), draft)
    }

    fn link_to(target: &str) -> Body {
        Body::Symlink(target.as_bytes().into())
    }

    fn dir() -> Body {
        Body::Directory(Names::new())
    }

    /// All paths, in order.
    fn paths(sketch: Sketch) -> Vec<String> {
        let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
        let mut paths: Vec<String> = (0..tree.dirs.len() as u32)
            .flat_map(|dir| {
                let owner =
                    tree.ids().find(|id| matches!(tree.node(*id).kind, Kind::Directory(n) if n == dir));
                let base = tree.path_bytes(owner.unwrap());
                tree.entries_of(dir)
                    .iter()
                    .map(|entry| String::from_utf8(join(&base, tree.text(entry.name))).unwrap())
                    .collect::<Vec<_>>()
            })
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn paths_stay_within_the_root() {
        let mut sketch = sketch();
        for path in ["/a/./b", "../../c", "a/../d", "//e//", "x/../../f"] {
            put(&mut sketch, path, Body::Fifo).unwrap();
        }
        assert_eq!(put(&mut sketch, "..", Body::Fifo), Err(Misplaced::Root));
        put(&mut sketch, "./", dir()).unwrap();
        assert_eq!(sketch.files[0].permissions, 0o600);
        assert_eq!(paths(sketch), ["a", "a/b", "c", "d", "e", "f"]);
    }

    #[test]
    fn later_entries_replace_earlier_ones() {
        let mut sketch = sketch();
        for (path, body) in [
            ("d/x", Body::Fifo),
            ("d", dir()),
            ("e/x", Body::Fifo),
            ("e", link_to("f")),
            ("f", Body::Fifo),
            ("f", dir()),
        ] {
            put(&mut sketch, path, body).unwrap();
        }
        let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
        let kinds: Vec<FileType> = tree.nodes.iter().map(|node| node.kind.file_type()).collect();
        use FileType::{Directory, Fifo, Symlink};
        assert_eq!(kinds, [Directory, Directory, Symlink, Directory, Fifo]);
        assert_eq!(tree.nodes.iter().map(|node| node.nlink).collect::<Vec<_>>(), [4, 2, 1, 2, 1]);
    }

    #[test]
    fn hard_links_need_a_file() {
        let mut sketch = sketch();
        put(&mut sketch, "d/f", Body::Fifo).unwrap();
        sketch.link(b"l", b"/d/f").unwrap();
        sketch.link(b"d/f", b"d/f").unwrap();
        assert_eq!(sketch.link(b"m", b"nothing"), Err(Misplaced::LinkToNothing));
        assert_eq!(sketch.link(b"m", b"no/thing"), Err(Misplaced::LinkToNothing));
        assert_eq!(sketch.link(b"m", b"d"), Err(Misplaced::LinkToDirectory));
        assert_eq!(sketch.link(b"m", b"."), Err(Misplaced::LinkToDirectory));
        assert_eq!(sketch.link(b"/", b"l"), Err(Misplaced::Root));
        let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
        assert_eq!(tree.nodes.len(), 3);
        assert_eq!(tree.nodes[2].nlink, 2);
    }

    #[test]
    fn links_on_the_way_are_followed_to_what_is_there() {
        let mut sketch = sketch();
        put(&mut sketch, "usr/lib/a", Body::Fifo).unwrap();
        for (path, target) in [
            ("lib", "usr/lib"),
            ("abs", "/usr"),
            ("up", "../../usr/lib"),
            ("loop", "loop"),
            ("gone", "nothing"),
        ] {
            put(&mut sketch, path, link_to(target)).unwrap();
        }
        for path in ["lib/b", "abs/lib/c", "up/d"] {
            put(&mut sketch, path, Body::Fifo).unwrap();
        }
        assert_eq!(put(&mut sketch, "loop/x", Body::Fifo), Err(Misplaced::Loop));
        assert_eq!(put(&mut sketch, "gone/x", Body::Fifo), Err(Misplaced::NotADirectory));
        assert_eq!(put(&mut sketch, "usr/lib/a/x", Body::Fifo), Err(Misplaced::NotADirectory));
        assert_eq!(put(&mut sketch, &"n".repeat(256), Body::Fifo), Err(Misplaced::NameTooLong));
        assert_eq!(put(&mut sketch, "s", link_to("")), Err(Misplaced::Target));
        let found = paths(sketch);
        assert!(["usr/lib/b", "usr/lib/c", "usr/lib/d"].iter().all(|path| found.contains(&path.to_string())));
    }

    #[test]
    fn whiteouts_hide_lower_layers_only() {
        let mut sketch = sketch();
        for path in ["a", "d/x", "d/y/z", "o/x", "o/y/z", "k/x"] {
            put(&mut sketch, path, Body::Fifo).unwrap();
        }
        sketch.next_layer();
        put(&mut sketch, "o/y/new", Body::Fifo).unwrap();
        put(&mut sketch, "d", dir()).unwrap();
        put(&mut sketch, "d/own", Body::Fifo).unwrap();
        for path in ["a", "d", "nothing", "no/thing"] {
            sketch.remove_lower(path.as_bytes()).unwrap();
        }
        sketch.hide_lower(b"o").unwrap();
        sketch.next_layer();
        sketch.remove_lower(b"k/x").unwrap();
        assert_eq!(paths(sketch), ["d", "d/own", "k", "o", "o/y", "o/y/new"]);
    }

    #[test]
    fn whiteouts_become_overlayfs_s() {
        let mut sketch = sketch();
        let time = Timestamp { secs: 1, nanos: 0 };
        put(&mut sketch, "file", Body::Fifo).unwrap();
        sketch.put_whiteout(b"file", time).unwrap();
        sketch.put_whiteout(b"d/gone", time).unwrap();
        sketch.put_whiteout(b"again", time).unwrap();
        put(&mut sketch, "again/x", Body::Fifo).unwrap_err();
        put(&mut sketch, "again", dir()).unwrap();
        sketch.mark_opaque(b"new").unwrap();
        let set = |path: &[u8], sketch: &mut Sketch| {
            let file = sketch.file_at(path).unwrap().unwrap();
            sketch.files[file.index()].clone()
        };
        assert!(matches!(set(b"file", &mut sketch).body, Body::Fifo));
        assert!(set(b"d/gone", &mut sketch).is_whiteout());
        assert_eq!(*set(b"d", &mut sketch).xattrs, [(ORIGIN.to_vec(), vec![])]);
        for path in [b"again".as_slice(), b"new"] {
            assert_eq!(*set(path, &mut sketch).xattrs, [(OPAQUE.to_vec(), b"y".to_vec())]);
        }
        let options = Options { strip_overlay: true, ..Options::new("x") };
        let tree = sketch.finish(&options, &mut Vec::new()).unwrap();
        assert_eq!(tree.nodes.len(), 5);
        assert!(tree.nodes.iter().all(|node| node.xattrs == super::super::xattr::SetId::default()));
    }
}
