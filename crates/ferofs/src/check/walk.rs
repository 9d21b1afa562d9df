//! Walks all directories from the root, in one thread, so that the findings do not depend on the
//! number of threads.
//!
//! Checks names, links and types, and sends each inode to the workers once. `ferofs_read::walk`
//! does not fit: it leaves out `.` and `..`, which this walk checks.

mod seen;

use std::collections::HashMap;

use ferofs_format::{Fault, Nid, Structure};

use self::seen::{Links, Seen, UNREADABLE};
use super::checker::{Checker, METABOX, PACKED};
use super::inodes::Task;
use super::paths::{Dir, Name, Paths};
use super::queue::Queue;
use super::report::Progress;
use ferofs_read::error::Corruption;
use ferofs_read::{DirEntry, FileType, Inode};

/// A directory that is to be read.
struct PendingDir {
    dir: Dir,
    nid: Nid,
    parent: Nid,
}

/// The walk of an image.
pub(super) struct Walk<'a> {
    checker: &'a Checker<'a>,
    tasks: &'a Queue<Task>,
    seen: Seen,
    pending: Vec<PendingDir>,
    /// Directories that were found.
    directories: u64,
    progress: &'a Progress,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        checker: &'a Checker<'a>,
        tasks: &'a Queue<Task>,
        progress: &'a Progress,
    ) -> Self {
        Self {
            checker,
            tasks,
            seen: Seen::default(),
            pending: Vec::new(),
            directories: 0,
            progress,
        }
    }

    /// Walks the tree, and returns the number of its inodes, and of the directories among them.
    pub(super) fn run(mut self) -> (u64, u64) {
        let image = self.checker.image;
        let top = Name { dir: Paths::ROOT, name: Vec::new() };
        self.special_inodes();
        let Some(root) = self.checker.value_of(&top, image.root()) else { return (0, 0) };
        if !root.is_dir() {
            self.checker.report(
                &top,
                Corruption::new(Structure::Inode, Fault::FileTypeMismatch).of(root.nid()),
            );
            return (1, 0);
        }
        self.add_inode(top, &root);
        self.pending.push(PendingDir { dir: Paths::ROOT, parent: root.nid(), nid: root.nid() });
        while let Some(pending) = self.pending.pop() {
            if self.checker.findings.has_failed() {
                break;
            }
            self.directory(&pending);
        }
        // A stopped walk has not found all names.
        if !self.checker.findings.has_failed() {
            self.check_links();
        }
        (self.seen.count, self.directories)
    }

    /// Adds the packed inode and the metabox, which no directory contains.
    fn special_inodes(&mut self) {
        let superblock = self.checker.image.superblock();
        for (name, nid) in [(PACKED, superblock.packed), (METABOX, superblock.metabox)] {
            let Some(nid) = nid else { continue };
            let name = Name { dir: Paths::ROOT, name: name.into() };
            let Some(inode) = self.checker.value_of(&name, self.checker.image.inode(nid)) else {
                continue;
            };
            if inode.file_type() != FileType::Regular {
                self.checker.report(
                    &name,
                    Corruption::new(Structure::Inode, Fault::FileTypeMismatch).of(nid),
                );
            }
            self.tasks.push(Task::new(name, inode));
        }
    }

    fn directory(&mut self, pending: &PendingDir) {
        let checker = self.checker;
        let here = Name { dir: pending.dir, name: Vec::new() };
        let Some(inode) = checker.value_of(&here, checker.image.inode(pending.nid)) else { return };
        let Some(entries) = checker.value_of(&here, checker.image.read_dir(&inode)) else { return };
        let bad = |fault| {
            checker.report(&here, Corruption::new(Structure::Directory, fault).of(pending.nid));
        };
        let (mut dot, mut dot_dot, mut complete) = (inode.on_disk().dot_omitted, false, true);
        let mut in_order = true;
        let mut before: Option<Vec<u8>> = None;
        for entry in entries {
            let Some(entry) = checker.value_of(&here, entry) else {
                complete = false;
                continue;
            };
            if let Some(before) = before.filter(|before| in_order && *before >= entry.name) {
                // One finding is enough: all later names can be out of order because of it.
                in_order = false;
                bad(if before == entry.name { Fault::DuplicateName } else { Fault::NameOrder });
            }
            match entry.name.as_slice() {
                b"." if entry.nid == pending.nid => dot = true,
                b".." if entry.nid == pending.parent => dot_dot = true,
                b"." | b".." => {}
                _ => self.entry(pending, &entry),
            }
            before = Some(entry.name);
        }
        if complete && !(dot && dot_dot) {
            bad(Fault::DotEntry);
        }
    }

    fn entry(&mut self, pending: &PendingDir, entry: &DirEntry) {
        let name = Name { dir: pending.dir, name: entry.name.clone() };
        if self.seen.contains(entry.nid) {
            self.other_name(&name, entry);
            return;
        }
        let Some(inode) = self.checker.value_of(&name, self.checker.image.inode(entry.nid)) else {
            self.seen.insert_unreadable(entry.nid);
            return;
        };
        self.check_type(&name, entry, Some(inode.file_type()));
        if inode.is_dir() {
            let parent = self.seen.links_mut(pending.nid, || UNREADABLE);
            parent.found = parent.found.saturating_add(1);
            let dir = self.checker.paths.add(&name);
            self.add_inode(Name { dir, name: Vec::new() }, &inode);
            self.pending.push(PendingDir { dir, nid: inode.nid(), parent: pending.nid });
        } else {
            self.add_inode(name, &inode);
        }
    }

    /// Checks another name of an inode.
    fn other_name(&mut self, name: &Name, entry: &DirEntry) {
        let image = self.checker.image;
        // Only files with one stored link are read again.
        let first = || image.inode(entry.nid).map_or(UNREADABLE, |inode| Links::first(&inode));
        let known = self.seen.links_mut(entry.nid, first);
        if known.file_type == Some(FileType::Directory) {
            let corruption = Corruption::new(Structure::Directory, Fault::DirectoryLoop);
            self.checker.report(name, corruption.of(entry.nid));
            return;
        }
        known.found = known.found.saturating_add(1);
        let file_type = known.file_type;
        self.check_type(name, entry, file_type);
    }

    fn check_type(&self, name: &Name, entry: &DirEntry, file_type: Option<FileType>) {
        if file_type.is_some() && entry.file_type.is_some() && file_type != entry.file_type {
            let corruption = Corruption::new(Structure::Directory, Fault::FileTypeMismatch);
            self.checker.report(name, corruption.of(entry.nid));
        }
    }

    /// Adds an inode to [`seen`](Self::seen), and sends it to the workers.
    fn add_inode(&mut self, name: Name, inode: &Inode) {
        self.seen.insert(inode.nid(), Links::first(inode));
        self.directories = self.directories.saturating_add(inode.is_dir().into());
        self.progress.inodes.add(1);
        self.tasks.push(Task::new(name, inode.clone()));
    }

    fn check_links(&self) {
        let mut wrong: HashMap<Nid, &Links> = self.seen.wrong().collect();
        if wrong.is_empty() {
            return;
        }
        // The walk keeps no paths of files, to save memory: a second walk finds those of the few
        // wrong ones.
        for file in self.checker.names() {
            let Some(links) = file.inode.ok().and_then(|inode| wrong.remove_entry(&inode.nid()))
            else {
                continue;
            };
            let (nid, Links { stored, found, .. }) = links;
            let fault = Fault::LinkCount { stored: (*stored).into(), found: (*found).into() };
            self.checker.findings.add(
                || file.path,
                Corruption::new(Structure::Inode, fault).of(nid),
                None,
            );
        }
    }
}
