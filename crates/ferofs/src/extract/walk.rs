//! The selected names of an image, in an order that depends only on the image.
//!
//! A directory comes before its entries, and its other entries before its subdirectories.
//! [`DirectoryWalk`] lists the directories; this module selects names, checks them, and finds hard
//! links.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use ferofs_format::{Fault, Nid, Structure};

use crate::error::{Corruption, Error, Result};
use crate::select::Selection;
use ferofs_read::names::{bytes_of, path_of};
use ferofs_read::walk::{self, DirId, DirectoryWalk};
use ferofs_read::{DirEntry, FileType, Image, Inode};

/// Names of one step at most, so that memory does not depend on the size of a directory.
const MAX_FILES: usize = 1024;

/// The next part of the walk.
#[derive(Debug)]
pub(super) enum Step {
    /// A directory. Its entries follow.
    Dir(DirId),
    /// Entries of the last directory that are not directories; not always all of them.
    Files(DirId, Vec<File>),
    /// A path that cannot be read.
    Failed(PathBuf, Error),
}

/// A name of a file that is not a directory.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// The last component of its path, without slash and NUL.
    pub(super) name: OsString,
    pub(super) inode: Inode,
    /// The first name of the same inode, if this is another one.
    pub(super) first: Option<Name>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) dir: DirId,
    pub(super) name: OsString,
}

/// A directory that the walk enters.
#[derive(Debug)]
struct Dir {
    parent: DirId,
    inode: Inode,
    /// It is selected, itself or with a directory above it.
    selected: bool,
    /// It was returned as a step.
    returned: bool,
}

/// An inode with several names.
#[derive(Debug)]
struct Linked {
    first: Name,
    /// Names that were not found yet.
    remaining: u32,
}

/// The walk: an iterator of [`Step`]s.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    image: &'a Image,
    select: &'a Selection,
    entries: DirectoryWalk<'a>,
    /// By [`DirId`].
    dirs: Vec<Dir>,
    current: DirId,
    /// The last name of the current directory. Names are sorted, so a name that is not greater may
    /// be a duplicate.
    last_name: Vec<u8>,
    linked: HashMap<Nid, Linked>,
    /// Files of the current directory that are not in a step yet.
    files: Vec<File>,
    /// Steps to return, the next one last.
    ready: Vec<Step>,
}

impl<'a> Walk<'a> {
    /// Starts at the directory `from`, whose path is empty.
    pub(super) fn new(image: &'a Image, from: &Inode, select: &'a Selection) -> Self {
        let selected = select.includes(b"", true);
        let start = Dir { parent: DirId::START, inode: from.clone(), selected, returned: false };
        Self {
            image,
            select,
            entries: DirectoryWalk::new(image, from.nid()),
            dirs: vec![start],
            current: DirId::START,
            last_name: Vec::new(),
            linked: HashMap::new(),
            files: Vec::new(),
            ready: Vec::new(),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "`dirs` has each directory that the walk enters")]
    fn dir(&self, dir: DirId) -> &Dir {
        &self.dirs[dir.index()]
    }

    /// The directory's inode.
    pub(super) fn inode(&self, dir: DirId) -> &Inode {
        &self.dir(dir).inode
    }

    /// The directory's path below the one where the walk started.
    pub(super) fn path(&self, dir: DirId) -> PathBuf {
        self.entries.path(dir)
    }

    pub(super) fn path_of(&self, name: &Name) -> PathBuf {
        self.path(name.dir).join(&name.name)
    }

    /// Skips the entries of the last directory.
    pub(super) fn skip_directory(&mut self) {
        self.entries.skip_directory();
    }

    fn enter(&mut self, dir: DirId) {
        self.current = dir;
        self.last_name.clear();
        // A directory that is not selected itself is returned only if a name below it is.
        if self.dir(dir).selected {
            self.push_dirs(dir);
        }
    }

    /// Adds an entry of the current directory to `files` if it is selected and not a directory.
    fn entry(&mut self, entry: DirEntry) {
        let path = self.entries.entry_path(&entry.name);
        if let Err(error) = self.image.charge_path(path.as_os_str().len()) {
            self.entries.skip_directory();
            self.fail(PathBuf::new(), error.into());
            return;
        }
        match self.file(entry, &bytes_of(path.as_os_str())) {
            Ok(file) => self.files.extend(file),
            Err(error) => self.fail(path, error),
        }
    }

    /// The file of an entry of the current directory, if it is selected and not a directory. A
    /// directory is entered later.
    fn file(&mut self, entry: DirEntry, path: &[u8]) -> Result<Option<File>> {
        let parent = self.current;
        let parent_nid = self.inode(parent).nid();
        let DirEntry { name, nid, file_type, .. } = entry;
        let is_dir = file_type == Some(FileType::Directory);
        let bad = |fault| Err(Corruption::new(Structure::Directory, fault).of(parent_nid).into());
        match name.cmp(&self.last_name) {
            Ordering::Less => return bad(Fault::NameOrder),
            Ordering::Equal => return bad(Fault::DuplicateName),
            Ordering::Greater => self.last_name.clone_from(&name),
        }
        if !self.select.is_all() && self.select.excludes(path, is_dir) {
            return Ok(None);
        }
        let selected = self.dir(parent).selected || self.select.includes(path, is_dir);
        let inode = self.image.inode(nid)?;
        if inode.is_dir() {
            if self.entries.enter(&name, nid).is_none() {
                return Err(Corruption::new(Structure::Directory, Fault::DirectoryLoop)
                    .of(nid)
                    .into());
            }
            self.dirs.push(Dir { parent, inode, selected, returned: false });
            return Ok(None);
        }
        if !selected {
            return Ok(None);
        }
        let name = path_of(name).into_os_string();
        let first = self.first_name(&inode, parent, &name);
        Ok(Some(File { name, inode, first }))
    }

    /// The first name of `inode`, if this is another one. It is dropped after the last name, to
    /// save memory.
    fn first_name(&mut self, inode: &Inode, dir: DirId, name: &OsString) -> Option<Name> {
        let links = inode.on_disk().nlink;
        if links < 2 {
            return None;
        }
        if let Some(linked) = self.linked.get_mut(&inode.nid()) {
            linked.remaining = linked.remaining.saturating_sub(1);
            if linked.remaining > 0 {
                return Some(linked.first.clone());
            }
            return self.linked.remove(&inode.nid()).map(|linked| linked.first);
        }
        let first = Name { dir, name: name.clone() };
        self.linked.insert(inode.nid(), Linked { first, remaining: links.saturating_sub(1) });
        None
    }

    /// Returns a failure as a step, after the files so far.
    fn fail(&mut self, path: PathBuf, error: Error) {
        self.ready.push(Step::Failed(path, error));
        self.push_files();
    }

    /// Returns the files so far as a step.
    fn push_files(&mut self) {
        if !self.files.is_empty() {
            self.ready.push(Step::Files(self.current, std::mem::take(&mut self.files)));
            self.push_dirs(self.current);
        }
    }

    /// Returns a directory as a step, after the directories above it that were not returned yet.
    #[expect(clippy::indexing_slicing, reason = "as for `dir`")]
    fn push_dirs(&mut self, mut dir: DirId) {
        while !std::mem::replace(&mut self.dirs[dir.index()].returned, true) {
            self.ready.push(Step::Dir(dir));
            dir = self.dirs[dir.index()].parent;
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop() {
                return Some(step);
            }
            match self.entries.next()? {
                walk::Step::Enter(dir) => self.enter(dir),
                walk::Step::Entry(entry) => self.entry(entry),
                walk::Step::Leave(_) => self.push_files(),
                walk::Step::Failed(dir, error) => self.fail(self.path(dir), error.into()),
            }
            if self.files.len() >= MAX_FILES {
                self.push_files();
            }
        }
    }
}
