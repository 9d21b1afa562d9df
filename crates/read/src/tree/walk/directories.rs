//! Walks directories, and returns one entry at a time. The caller decides which subdirectories the
//! walk enters.
//!
//! [`Walk`](super::Walk) and the commands that skip directories or read few inodes build on it.
//! Memory is bounded: a directory's entries are read in parts, and directories are stored as a tree
//! of names, as the paths of a deep tree can be far longer than its image.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ferofs_format::Nid;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::names::{bytes_of, path_of};
use crate::tree::dir::{DirCookie, DirEntry};

/// Entries of a directory that are read at once, so that memory does not depend on its size. A
/// larger number saves no time: the next part reads one block again.
const ENTRIES_AT_ONCE: usize = 1024;

/// The number of a directory, in the order in which the caller asked to enter them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirId(usize);

impl DirId {
    /// The directory where the walk starts.
    pub const START: Self = Self(0);

    /// The number: 0 for the start.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// The next event of a walk.
#[derive(Debug)]
pub enum Step {
    /// A directory: its entries follow.
    Enter(DirId),
    /// An entry of that directory other than `.` and `..`.
    Entry(DirEntry),
    /// All entries of that directory were returned.
    Leave(DirId),
    /// A part of the directory, or all of it, cannot be read.
    Failed(DirId, Error),
}

/// Iterates over the entries of one directory after another: all of a directory's own entries
/// before those of its subdirectories, which follow in the order of [`Self::enter`].
#[derive(Debug)]
pub struct DirectoryWalk<'a> {
    image: &'a Image,
    dirs: Vec<Dir>,
    /// All directories in `dirs`: a hostile image can have loops.
    entered: HashSet<Nid>,
    /// Directories to be listed, the next one last.
    pending: Vec<DirId>,
    listing: Option<Listing>,
}

#[derive(Debug)]
struct Dir {
    parent: DirId,
    name: Box<[u8]>,
    nid: Nid,
}

/// The directory being listed.
#[derive(Debug)]
struct Listing {
    dir: DirId,
    path: PathBuf,
    inode: Inode,
    /// The start of the next part.
    cookie: DirCookie,
    /// The entries of the current part that were not returned yet, the next one last.
    ready: Vec<Result<DirEntry>>,
    /// No part follows.
    ended: bool,
    /// The subdirectories to enter.
    below: Vec<DirId>,
}

impl<'a> DirectoryWalk<'a> {
    /// Starts at the directory `start`, whose path is empty.
    #[must_use]
    pub fn new(image: &'a Image, start: Nid) -> Self {
        let dir = Dir { parent: DirId::START, name: Box::default(), nid: start };
        Self {
            image,
            dirs: vec![dir],
            entered: HashSet::from([start]),
            pending: vec![DirId::START],
            listing: None,
        }
    }

    /// Enters the subdirectory `name` of the current directory later. `None` if the walk entered
    /// the inode `nid` already, as happens when a damaged image has several names for a directory,
    /// or a loop.
    pub fn enter(&mut self, name: &[u8], nid: Nid) -> Option<DirId> {
        let listing = self.listing.as_mut()?;
        if !self.entered.insert(nid) {
            return None;
        }
        let dir = DirId(self.dirs.len());
        self.dirs.push(Dir { parent: listing.dir, name: name.into(), nid });
        listing.below.push(dir);
        Some(dir)
    }

    /// Skips the other entries of the current directory, and its subdirectories.
    pub fn skip_directory(&mut self) {
        self.listing = None;
    }

    /// The path of the current directory from the start.
    #[must_use]
    pub fn current_path(&self) -> &Path {
        self.listing.as_ref().map_or(Path::new(""), |listing| &listing.path)
    }

    /// The current directory; `None` before [`Step::Enter`] and after [`Step::Leave`].
    #[must_use]
    pub fn current(&self) -> Option<&Inode> {
        self.listing.as_ref().map(|listing| &listing.inode)
    }

    /// The path of an entry of the current directory, from the start. A slash in a damaged name
    /// stays in the path, but does not make it absolute.
    #[must_use]
    pub fn entry_path(&self, name: &[u8]) -> PathBuf {
        let dir = bytes_of(self.current_path().as_os_str());
        let path = if dir.is_empty() { name.to_vec() } else { [&*dir, name].join(&b'/') };
        path_of(path)
    }

    /// The path of `dir` from the start.
    #[must_use]
    pub fn path(&self, dir: DirId) -> PathBuf {
        let (mut names, mut at) = (Vec::new(), dir);
        // The start has no name.
        while let Some(dir) = self.dirs.get(at.index()).filter(|_| at != DirId::START) {
            names.push(&*dir.name);
            at = dir.parent;
        }
        names.reverse();
        path_of(names.join(&b'/'))
    }

    fn open(&self, dir: DirId, nid: Nid) -> Result<Listing> {
        let path = self.path(dir);
        self.image.charge_path(path.as_os_str().len())?;
        let inode = self.image.inode(nid)?;
        // This call charges the directory to the budget, which `read_dir_from` does not.
        self.image.read_dir(&inode).map(drop)?;
        let (cookie, ready, below) = (DirCookie::default(), Vec::new(), Vec::new());
        Ok(Listing { dir, path, inode, cookie, ready, ended: false, below })
    }
}

impl Listing {
    /// Reads the next part.
    fn fill(&mut self, image: &Image) -> Result<()> {
        let mut entries = image.read_dir_from(&self.inode, self.cookie)?;
        while self.ready.len() < ENTRIES_AT_ONCE {
            match entries.next() {
                Some(Ok(entry)) if entry.name == b"." || entry.name == b".." => {}
                Some(result) => self.ready.push(result),
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.cookie = entries.cookie();
        self.ready.reverse();
        Ok(())
    }
}

impl Iterator for DirectoryWalk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let Some(listing) = &mut self.listing else {
                let dir = self.pending.pop()?;
                let nid = self.dirs.get(dir.index())?.nid;
                return Some(match self.open(dir, nid) {
                    Ok(listing) => {
                        self.listing = Some(listing);
                        Step::Enter(dir)
                    }
                    Err(error) => Step::Failed(dir, error),
                });
            };
            let dir = listing.dir;
            match listing.ready.pop() {
                Some(Ok(entry)) => return Some(Step::Entry(entry)),
                Some(Err(error)) => return Some(Step::Failed(dir, error)),
                None if listing.ended => {
                    self.pending.extend(listing.below.drain(..).rev());
                    self.listing = None;
                    return Some(Step::Leave(dir));
                }
                None => {
                    if let Err(error) = listing.fill(self.image) {
                        listing.ended = true;
                        return Some(Step::Failed(dir, error));
                    }
                }
            }
        }
    }
}
