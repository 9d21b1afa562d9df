//! The walk: every directory from the root on, by one thread, so that what is found never depends on threads.
//!
//! Looks at names, links and types, and hands each inode to the workers once.

use std::collections::HashMap;

use ferofs_format::{Fault, Nid, Structure};

use super::Checker;
use super::content::Work;
use super::paths::{Dir, Name, Paths};
use super::queue::Queue;
use ferofs_read::error::Corruption;
use ferofs_read::{DirEntry, FileType, Inode};

/// What is known of an inode after its first name.
struct Seen {
    /// Its file type, if it could be read.
    file_type: Option<FileType>,
    stored_links: u32,
    /// Names found; for directories, subdirectories and two more.
    found_links: u32,
}

/// A directory to walk.
struct Step {
    dir: Dir,
    nid: Nid,
    parent: Nid,
}

/// The walk of one image.
pub(super) struct Walk<'a> {
    checker: &'a Checker<'a>,
    works: &'a Queue<Work>,
    seen: HashMap<Nid, Seen>,
    pending: Vec<Step>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(checker: &'a Checker<'a>, works: &'a Queue<Work>) -> Self {
        Self { checker, works, seen: HashMap::new(), pending: Vec::new() }
    }

    /// Walks the tree; says how many inodes it has.
    pub(super) fn run(mut self) -> u64 {
        let image = self.checker.image;
        let top = Name { dir: Paths::ROOT, name: Vec::new() };
        self.special_inodes();
        let Some(root) = self.checker.note(&top, image.root()) else { return 0 };
        if !root.is_dir() {
            self.checker
                .find(&top, Corruption::new(Structure::Inode, Fault::FileTypeMismatch).of(root.nid()));
            return 1;
        }
        self.first_sight(top, &root);
        self.pending.push(Step { dir: Paths::ROOT, parent: root.nid(), nid: root.nid() });
        while let Some(step) = self.pending.pop() {
            if self.checker.found.has_failed() {
                break;
            }
            self.directory(&step);
        }
        // A walk that was stopped has not found all names.
        if !self.checker.found.has_failed() {
            self.check_links();
        }
        u64::try_from(self.seen.len()).unwrap_or(u64::MAX)
    }

    /// The packed inode and the metabox are in no directory.
    fn special_inodes(&mut self) {
        let superblock = self.checker.image.superblock();
        for (name, nid) in [("(packed inode)", superblock.packed), ("(metabox)", superblock.metabox)] {
            let Some(nid) = nid else { continue };
            let name = Name { dir: Paths::ROOT, name: name.into() };
            let Some(inode) = self.checker.note(&name, self.checker.image.inode(nid)) else { continue };
            if inode.file_type() != FileType::Regular {
                self.checker.find(&name, Corruption::new(Structure::Inode, Fault::FileTypeMismatch).of(nid));
            }
            self.works.push(Work::new(name, inode));
        }
    }

    fn directory(&mut self, step: &Step) {
        let checker = self.checker;
        let here = Name { dir: step.dir, name: Vec::new() };
        let Some(inode) = checker.note(&here, checker.image.inode(step.nid)) else { return };
        let Some(entries) = checker.note(&here, checker.image.read_dir(&inode)) else { return };
        let bad = |fault| {
            checker.find(&here, Corruption::new(Structure::Directory, fault).of(step.nid));
        };
        let (mut dot, mut dot_dot, mut complete) = (inode.on_disk().dot_omitted, false, true);
        let mut in_order = true;
        let mut before: Option<Vec<u8>> = None;
        for entry in entries {
            let Some(entry) = checker.note(&here, entry) else {
                complete = false;
                continue;
            };
            if let Some(before) = before.filter(|before| in_order && *before >= entry.name) {
                // Once out of order, all that follows may be.
                in_order = false;
                bad(if before == entry.name { Fault::DuplicateName } else { Fault::NameOrder });
            }
            match entry.name.as_slice() {
                b"." if entry.nid == step.nid => dot = true,
                b".." if entry.nid == step.parent => dot_dot = true,
                b"." | b".." => {}
                name if name.contains(&b'/') || name.contains(&0) => bad(Fault::Name),
                _ => self.entry(step, &entry),
            }
            before = Some(entry.name);
        }
        if complete && !(dot && dot_dot) {
            bad(Fault::DotEntry);
        }
    }

    fn entry(&mut self, step: &Step, entry: &DirEntry) {
        let name = Name { dir: step.dir, name: entry.name.clone() };
        if let Some(known) = self.seen.get_mut(&entry.nid) {
            if known.file_type == Some(FileType::Directory) {
                let corruption = Corruption::new(Structure::Directory, Fault::DirectoryLoop);
                self.checker.find(&name, corruption.of(entry.nid));
                return;
            }
            known.found_links = known.found_links.saturating_add(1);
            let file_type = known.file_type;
            self.check_type(&name, entry, file_type);
            return;
        }
        let Some(inode) = self.checker.note(&name, self.checker.image.inode(entry.nid)) else {
            let unreadable = Seen { file_type: None, stored_links: 0, found_links: 1 };
            self.seen.insert(entry.nid, unreadable);
            return;
        };
        self.check_type(&name, entry, Some(inode.file_type()));
        if inode.is_dir() {
            if let Some(parent) = self.seen.get_mut(&step.nid) {
                parent.found_links = parent.found_links.saturating_add(1);
            }
            let dir = self.checker.paths.add(&name);
            self.first_sight(Name { dir, name: Vec::new() }, &inode);
            self.pending.push(Step { dir, nid: inode.nid(), parent: step.nid });
        } else {
            self.first_sight(name, &inode);
        }
    }

    fn check_type(&self, name: &Name, entry: &DirEntry, file_type: Option<FileType>) {
        if file_type.is_some() && entry.file_type.is_some() && file_type != entry.file_type {
            let corruption = Corruption::new(Structure::Directory, Fault::FileTypeMismatch);
            self.checker.find(name, corruption.of(entry.nid));
        }
    }

    /// Notes an inode, and sends it to the workers.
    fn first_sight(&mut self, name: Name, inode: &Inode) {
        let seen = Seen {
            file_type: Some(inode.file_type()),
            stored_links: inode.on_disk().nlink,
            found_links: if inode.is_dir() { 2 } else { 1 },
        };
        self.seen.insert(inode.nid(), seen);
        self.works.push(Work::new(name, inode.clone()));
    }

    fn check_links(&self) {
        let wrong = |seen: &Seen| {
            let (stored, found) = (seen.stored_links, seen.found_links);
            match seen.file_type {
                None => false,
                // 1 says that subdirectories are not counted.
                Some(FileType::Directory) => stored != 1 && stored != found,
                Some(_) => stored != found,
            }
        };
        let mut wrong: HashMap<Nid, &Seen> =
            self.seen.iter().filter(|(_, seen)| wrong(seen)).map(|(nid, seen)| (*nid, seen)).collect();
        if wrong.is_empty() {
            return;
        }
        // Of sound images no names are kept, so a second walk finds them.
        for file in self.checker.names() {
            let Some(seen) = file.inode.ok().and_then(|inode| wrong.remove_entry(&inode.nid())) else {
                continue;
            };
            let (nid, Seen { stored_links, found_links, .. }) = seen;
            let fault = Fault::LinkCount { stored: (*stored_links).into(), found: (*found_links).into() };
            self.checker.found.find(|| file.path, Corruption::new(Structure::Inode, fault).of(nid), None);
        }
    }
}
