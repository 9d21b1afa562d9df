//! What becomes of each node of the new tree: an inode of the old image stays as it is, gives its content, or gives parts
//! of it.
//!
//! Files are compared byte by byte with what had their name; those that had none of it, or another content, are looked up
//! by digest among old files of the same size. An old inode becomes at most one new one, as two would be hard links.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_format::inode::{FileType, Place};
use ferofs_format::{FileOffset, Nid};

use super::survey::{OldFile, Survey, name_hash};
use crate::Result;
use ferofs_build::Options;
use ferofs_build::sources::content::Contents;
use ferofs_build::sources::image::BELOW;
use ferofs_build::sources::reader::Reader;
use ferofs_build::tree::origin::Origin;
use ferofs_build::tree::{Kind, NodeId, Tree};
use ferofs_read::{Image, Inode};

/// Bytes that are compared or hashed at once.
const PIECE: u64 = 4 << 20;

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// This inode stays what it is.
    Keep(Nid),
    /// A new inode, with the content of this one.
    Same(Nid),
    /// A new inode, whose content comes from this one's.
    From(Nid),
    /// All of it is new.
    New,
}

/// What becomes of all nodes, directories apart: these are settled when their entries are.
#[derive(Debug)]
pub(crate) struct Fates {
    pub(crate) fates: Vec<Fate>,
    /// The old inode under the node's name.
    pub(crate) counterparts: Vec<Option<Nid>>,
    /// Old inodes that are part of the new tree.
    pub(crate) kept: HashSet<Nid>,
}

/// The old image and the new tree.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) options: &'a Options,
    pub(crate) old: &'a Image,
    pub(crate) survey: &'a Survey,
    pub(crate) tree: &'a Tree,
    pub(crate) contents: &'a Contents,
}

impl Fates {
    /// Compares everything.
    pub(crate) fn new(pair: Pair<'_>) -> Result<Self> {
        let count = pair.tree.nodes.len();
        let counterparts = pair.counterparts()?;
        let mut fates = Self { fates: vec![Fate::New; count], counterparts, kept: HashSet::new() };
        let like = pair.alike(&fates.counterparts)?;
        let differ = pair.compare(&fates.counterparts, &like)?;
        let mut open = Vec::new();
        for node in pair.tree.ids() {
            let (index, kind) = (node.index(), pair.tree.node(node).kind);
            if matches!(kind, Kind::Directory(_)) {
                continue;
            }
            let Some(nid) = fates.counterparts[index].filter(|_| like[index].same_type) else {
                open.push(node);
                continue;
            };
            let same_content = like[index].same_size && !differ[index].load(Ordering::Relaxed);
            fates.fates[index] = match (same_content, like[index].same_attributes) {
                (true, true) if fates.kept.insert(nid) => Fate::Keep(nid),
                (true, _) => Fate::Same(nid),
                (false, _) => {
                    open.push(node);
                    Fate::From(nid)
                }
            };
        }
        fates.look_up(pair, &open)?;
        Ok(fates)
    }

    /// Looks for what has no equal under its name.
    fn look_up(&mut self, pair: Pair<'_>, open: &[NodeId]) -> Result<()> {
        let wanted: HashSet<(FileType, u64)> = open.iter().map(|node| pair.kind_and_size(*node)).collect();
        let size_of = |file: &OldFile| match file.file_type {
            FileType::Regular => (file.file_type, file.size),
            other => (other, 0),
        };
        let candidates: Vec<OldFile> =
            pair.survey.files.iter().filter(|file| wanted.contains(&size_of(file))).copied().collect();
        if candidates.is_empty() {
            return Ok(());
        }
        let there: HashSet<(FileType, u64)> = candidates.iter().map(size_of).collect();
        let open: Vec<NodeId> =
            open.iter().filter(|node| there.contains(&pair.kind_and_size(**node))).copied().collect();
        let old = pair.options.run.parallel(candidates.len(), Vec::new, |buffer, number| {
            pair.old_digest(&pair.old.inode(candidates[number].nid)?, buffer)
        })?;
        let new = pair.options.run.parallel(
            open.len(),
            || (Reader::new(pair.contents, pair.tree), Vec::new()),
            |(reader, buffer), number| pair.new_digest(open[number], reader, buffer),
        )?;
        let mut by_digest: HashMap<[u8; 32], Vec<OldFile>> = HashMap::new();
        for (digest, file) in old.into_iter().zip(candidates) {
            by_digest.entry(digest).or_default().push(file);
        }
        for (digest, node) in new.into_iter().zip(open) {
            let Some(equals) = by_digest.get(&digest) else { continue };
            let name = name_hash(pair.tree.text(pair.tree.node(node).name));
            let mut free: Vec<&OldFile> =
                equals.iter().filter(|file| !self.kept.contains(&file.nid)).take(LOOKS).collect();
            if let Some(named) =
                equals.iter().find(|file| file.name == name && !self.kept.contains(&file.nid))
            {
                free.insert(0, named);
            }
            let mut found = None;
            for file in free {
                if pair.likeness(node, &pair.old.inode(file.nid)?)?.same_attributes {
                    found = Some(file.nid);
                    break;
                }
            }
            self.fates[node.index()] = match (found, equals.first()) {
                (Some(nid), _) => {
                    self.kept.insert(nid);
                    Fate::Keep(nid)
                }
                (None, Some(file)) => Fate::Same(file.nid),
                (None, None) => continue,
            };
        }
        Ok(())
    }
}

/// Old files of the same content that are looked at for one with the same attributes.
const LOOKS: usize = 16;

/// In what a node and an old inode agree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Likeness {
    same_type: bool,
    same_size: bool,
    pub(crate) same_attributes: bool,
}

impl Pair<'_> {
    /// The old inode under each node's name.
    fn counterparts(&self) -> Result<Vec<Option<Nid>>> {
        let mut found = vec![None; self.tree.nodes.len()];
        found[NodeId::ROOT.index()] = Some(self.old.superblock().root);
        // A directory's node comes before what is in it.
        for node in self.tree.ids() {
            let (Kind::Directory(dir), Some(nid)) = (self.tree.node(node).kind, found[node.index()]) else {
                continue;
            };
            self.options.run.check_cancelled()?;
            let inode = self.old.inode(nid)?;
            if !inode.is_dir() {
                continue;
            }
            let mut names: HashMap<Vec<u8>, Nid> = HashMap::new();
            for entry in self.old.read_dir(&inode)? {
                let entry = entry?;
                names.insert(entry.name, entry.nid);
            }
            for entry in self.tree.entries_of(dir) {
                let slot = &mut found[entry.node.index()];
                *slot = slot.or_else(|| names.get(self.tree.text(entry.name)).copied());
            }
        }
        Ok(found)
    }

    fn alike(&self, counterparts: &[Option<Nid>]) -> Result<Vec<Likeness>> {
        self.options.run.parallel(
            counterparts.len(),
            || (),
            |(), number| match counterparts[number] {
                Some(nid) => self.likeness(NodeId(number as u32), &self.old.inode(nid)?),
                None => Ok(Likeness::default()),
            },
        )
    }

    /// Compares a node with an inode, content apart. Directories have no size here.
    pub(crate) fn likeness(&self, id: NodeId, inode: &Inode) -> Result<Likeness> {
        let (node, disk) = (self.tree.node(id), inode.on_disk());
        let same_type = disk.file_type == node.kind.file_type();
        if !same_type {
            return Ok(Likeness::default());
        }
        let same_size = match node.kind {
            Kind::Regular { .. } => disk.size == node.size,
            Kind::Symlink(target) => self.old.read_link(inode)? == self.tree.text(target),
            Kind::Device(_, rdev) => disk.place == Place::Device(rdev),
            Kind::Directory(_) | Kind::Fifo | Kind::Socket => true,
        };
        let same_attributes = same_size
            && disk.permissions == node.permissions
            && (disk.uid, disk.gid) == (node.uid, node.gid)
            && disk.nlink == node.nlink
            && disk.mtime == node.mtime
            && self.same_xattrs(id, inode)?;
        Ok(Likeness { same_type, same_size, same_attributes })
    }

    fn same_xattrs(&self, id: NodeId, inode: &Inode) -> Result<bool> {
        let mut expected = self.tree.xattrs.attributes(self.tree.node(id).xattrs, &[]);
        if inode.xattr_size() == 0 {
            return Ok(expected.is_empty());
        }
        let found = self.old.xattrs(inode)?;
        let mut found: Vec<_> = found.into_iter().map(|one| (one.name, one.value)).collect();
        found.sort_unstable();
        expected.sort_unstable();
        Ok(found == expected)
    }

    /// Whether the content of `node` is that of the old inode `nid` itself.
    fn is_itself(&self, node: NodeId, nid: Nid) -> bool {
        let itself = Origin::Image { image: BELOW, nid };
        self.options.source.lower_image.is_some() && self.tree.node(node).origin == itself
    }

    /// Says which regular files differ from their counterparts of the same size.
    fn compare(&self, counterparts: &[Option<Nid>], like: &[Likeness]) -> Result<Vec<AtomicBool>> {
        let differ: Vec<AtomicBool> = like.iter().map(|_| AtomicBool::new(false)).collect();
        let mut tasks = Vec::new();
        for node in self.tree.ids() {
            if let (Kind::Regular { .. }, Some(nid), true) =
                (self.tree.node(node).kind, counterparts[node.index()], like[node.index()].same_size)
                && !self.is_itself(node, nid)
            {
                let pieces = self.tree.node(node).size.div_ceil(PIECE);
                tasks.extend((0..pieces).map(|piece| (node, nid, piece * PIECE)));
            }
        }
        self.options.run.parallel(
            tasks.len(),
            || (Reader::new(self.contents, self.tree), Vec::new(), Vec::new()),
            |(reader, ours, theirs), number| {
                let (node, nid, offset) = tasks[number];
                let differs = &differ[node.index()];
                if differs.load(Ordering::Relaxed) {
                    return Ok::<_, crate::Error>(());
                }
                let len = (self.tree.node(node).size - offset).min(PIECE) as usize;
                ours.resize(len, 0);
                theirs.resize(len, 0);
                reader.read(node, offset, ours)?;
                let inode = self.old.inode(nid)?;
                let read = self.old.read_at(&inode, FileOffset::new(offset), theirs)?;
                if read != len || ours != theirs {
                    differs.store(true, Ordering::Relaxed);
                }
                Ok(())
            },
        )?;
        Ok(differ)
    }

    fn kind_and_size(&self, node: NodeId) -> (FileType, u64) {
        let node = self.tree.node(node);
        (node.kind.file_type(), node.size)
    }

    /// What tells an old inode's content from others'.
    fn old_digest(&self, inode: &Inode, buffer: &mut Vec<u8>) -> Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        match (inode.file_type(), inode.on_disk().place) {
            (FileType::Symlink, _) => drop(hasher.update(&self.old.read_link(inode)?)),
            (_, Place::Device(rdev)) => drop(hasher.update(&rdev.encode().to_le_bytes())),
            (FileType::Regular, _) => {
                let mut at = 0;
                while at < inode.size() {
                    buffer.resize((inode.size() - at).min(PIECE) as usize, 0);
                    let read = self.old.read_at(inode, FileOffset::new(at), buffer)?;
                    hasher.update(&buffer[..read]);
                    at += read.max(1) as u64;
                }
            }
            _ => {}
        }
        hasher.update(&[inode.file_type().mode_bits().to_le_bytes()[1]]);
        Ok(*hasher.finalize().as_bytes())
    }

    /// The same of a node's.
    fn new_digest(&self, id: NodeId, reader: &mut Reader<'_>, buffer: &mut Vec<u8>) -> Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        let node = self.tree.node(id);
        match node.kind {
            Kind::Symlink(target) => drop(hasher.update(self.tree.text(target))),
            Kind::Device(_, rdev) => drop(hasher.update(&rdev.encode().to_le_bytes())),
            Kind::Regular { .. } => {
                let mut at = 0;
                while at < node.size {
                    buffer.resize((node.size - at).min(PIECE) as usize, 0);
                    reader.read(id, at, buffer)?;
                    hasher.update(buffer);
                    at += buffer.len() as u64;
                }
            }
            Kind::Directory(_) | Kind::Fifo | Kind::Socket => {}
        }
        hasher.update(&[node.kind.file_type().mode_bits().to_le_bytes()[1]]);
        Ok(*hasher.finalize().as_bytes())
    }
}
