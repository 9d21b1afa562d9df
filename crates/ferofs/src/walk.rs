//! A walk through an image's tree, one name at a time, bounded by its inodes: what `inspect`, `diff` and the second
//! look of `check` go by.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_format::Nid;

use crate::error::Result;
use crate::read::{Image, Inode};

/// A name on the way.
#[derive(Debug)]
pub(crate) struct Walked {
    /// From the root, which has an empty path.
    pub path: PathBuf,
    /// The inode, or why there is none.
    pub inode: Result<Inode>,
    /// Whether no earlier name led to this inode.
    pub first: bool,
}

/// Iterates over all names, parents before what is in them. A directory that is reached again is not entered again.
pub(crate) struct Walk<'a> {
    image: &'a Image,
    seen: HashSet<Nid>,
    started: bool,
    pending: Vec<(PathBuf, Inode)>,
    ready: std::vec::IntoIter<Walked>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        Self {
            image,
            seen: HashSet::new(),
            started: false,
            pending: Vec::new(),
            ready: Vec::new().into_iter(),
        }
    }

    fn walked(&mut self, path: PathBuf, nid: Nid) -> Walked {
        let inode = self.image.inode(nid);
        let first = self.seen.insert(nid);
        if let Some(inode) = inode.as_ref().ok().filter(|inode| first && inode.is_dir()) {
            self.pending.push((path.clone(), inode.clone()));
        }
        Walked { path, inode, first }
    }

    fn enter(&mut self, path: PathBuf, dir: &Inode) -> Result<()> {
        let image = self.image;
        let (mut ready, from) = (Vec::new(), self.pending.len());
        let mut failure = Ok(());
        for entry in image.read_dir(dir)? {
            match entry {
                Ok(entry) if entry.name == b"." || entry.name == b".." => {}
                Ok(entry) => {
                    let path = path.join(OsStr::from_bytes(&entry.name));
                    ready.push(self.walked(path, entry.nid));
                }
                Err(error) => failure = Err(error),
            }
        }
        // The first directory is entered first.
        if let Some(below) = self.pending.get_mut(from..) {
            below.reverse();
        }
        self.ready = ready.into_iter();
        failure
    }
}

impl Iterator for Walk<'_> {
    /// Damaged directories give an error, and what could be read of them.
    type Item = Result<Walked>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.started, true) {
            let root = self.image.superblock().root;
            return Some(Ok(self.walked(PathBuf::new(), root)));
        }
        loop {
            if let Some(walked) = self.ready.next() {
                return Some(Ok(walked));
            }
            let (path, dir) = self.pending.pop()?;
            if let Err(error) = self.enter(path, &dir) {
                return Some(Err(error));
            }
        }
    }
}
