//! A walk through an image's tree, one name at a time, bounded by its inodes. `inspect`, `patch` and others use it.
//!
//! Directories are kept as a tree of names and not as paths, as the paths of a deep tree are far longer than its image.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_format::Nid;

use crate::error::Result;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::dir::DirCookie;

/// A name, and its inode.
#[derive(Debug)]
pub struct Walked {
    /// From the root, which has an empty path.
    pub path: PathBuf,
    /// The inode, or why there is none.
    pub inode: Result<Inode>,
    /// Whether no earlier name led to this inode.
    pub first: bool,
}

/// Iterates over all names, parents before what is in them. A directory that is reached again is not entered again.
pub struct Walk<'a> {
    image: &'a Image,
    seen: HashSet<Nid>,
    started: bool,
    /// All directories so far, parents first.
    dirs: Vec<Dir>,
    /// Directories to be listed, the next one last.
    pending: Vec<usize>,
    listing: Option<Listing>,
}

struct Dir {
    parent: usize,
    name: Box<[u8]>,
    nid: Nid,
}

/// The directory being listed.
struct Listing {
    dir: usize,
    path: PathBuf,
    inode: Inode,
    cookie: DirCookie,
    /// The entries of its block that were read, the next one last.
    ready: Vec<(Vec<u8>, Nid)>,
    /// Its directories; the first one is entered first, so that they become pending in reverse.
    below: Vec<usize>,
    ended: bool,
}

/// Entries of a directory that are read at once, which bounds the memory of large directories.
const READY: usize = 1024;

impl<'a> Walk<'a> {
    /// Starts at the root.
    #[must_use]
    pub fn new(image: &'a Image) -> Self {
        Self {
            image,
            seen: HashSet::new(),
            started: false,
            dirs: Vec::new(),
            pending: Vec::new(),
            listing: None,
        }
    }

    /// Reads the inode of a name in the directory `parent`.
    fn walked(&mut self, path: PathBuf, parent: usize, name: &[u8], nid: Nid) -> (Walked, Option<usize>) {
        // The paths of a deep tree are long, and count as work.
        let bytes = u64::try_from(path.as_os_str().len()).unwrap_or(u64::MAX);
        let inode = self.image.budget().charge_bytes(bytes).and_then(|()| self.image.inode(nid));
        let first = self.seen.insert(nid);
        let is_dir = inode.as_ref().is_ok_and(Inode::is_dir);
        let entered = (first && is_dir).then(|| {
            self.dirs.push(Dir { parent, name: name.into(), nid });
            self.dirs.len() - 1
        });
        (Walked { path, inode, first }, entered)
    }

    fn path(&self, mut at: usize) -> PathBuf {
        let mut names = Vec::new();
        // The root, which is its own parent, has no name.
        while let Some(dir) = self.dirs.get(at).filter(|_| at > 0) {
            names.push(OsStr::from_bytes(&dir.name));
            at = dir.parent;
        }
        names.into_iter().rev().collect()
    }

    /// Starts with the next directory; none at the walk's end.
    fn enter(&mut self) -> Option<Result<()>> {
        let dir = self.pending.pop()?;
        let nid = self.dirs.get(dir)?.nid;
        let path = self.path(dir);
        let bytes = u64::try_from(path.as_os_str().len()).unwrap_or(u64::MAX);
        let opened = || {
            self.image.budget().charge_bytes(bytes)?;
            let inode = self.image.inode(nid)?;
            // Counts the directory.
            self.image.read_dir(&inode).map(drop)?;
            Ok(inode)
        };
        Some(opened().map(|inode| {
            let (cookie, ready, below) = (DirCookie::default(), Vec::new(), Vec::new());
            self.listing = Some(Listing { dir, path, inode, cookie, ready, below, ended: false });
        }))
    }

    /// Reads some entries of the directory being listed. A failure comes last, after what could be read.
    fn fill(&mut self, listing: &mut Listing) -> Result<()> {
        let mut entries = self.image.read_dir_from(&listing.inode, listing.cookie)?;
        let mut failure = Ok(());
        while listing.ready.len() < READY {
            match entries.next() {
                Some(Ok(entry)) if entry.name == b"." || entry.name == b".." => {}
                Some(Ok(entry)) => listing.ready.push((entry.name, entry.nid)),
                Some(Err(error)) => failure = Err(error),
                None => {
                    listing.ended = true;
                    break;
                }
            }
        }
        listing.cookie = entries.cookie();
        listing.ready.reverse();
        failure
    }
}

impl Iterator for Walk<'_> {
    /// Damaged directories give an error, and what could be read of them.
    type Item = Result<Walked>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.started, true) {
            let root = self.image.superblock().root;
            let (walked, entered) = self.walked(PathBuf::new(), 0, b"", root);
            self.pending.extend(entered);
            return Some(Ok(walked));
        }
        loop {
            let Some(mut listing) = self.listing.take() else {
                match self.enter()? {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            };
            if let Some((name, nid)) = listing.ready.pop() {
                let path = listing.path.join(OsStr::from_bytes(&name));
                let (walked, entered) = self.walked(path, listing.dir, &name, nid);
                listing.below.extend(entered);
                self.listing = Some(listing);
                return Some(Ok(walked));
            }
            if listing.ended {
                self.pending.extend(listing.below.into_iter().rev());
                continue;
            }
            let filled = self.fill(&mut listing);
            self.listing = Some(listing);
            if let Err(error) = filled {
                return Some(Err(error));
            }
        }
    }
}
