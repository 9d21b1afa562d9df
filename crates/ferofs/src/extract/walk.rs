//! Walks the selected names of an image, in an order that depends only on the image.
//!
//! A directory comes before its entries, and its other entries before its subdirectories. Directories are stored as a tree of
//! names, not as paths: the paths of a deep tree can be far longer than its image.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use ferofs_format::{Fault, Nid, Structure};

use super::select::Selection;
use crate::error::{Corruption, Error, Result};
use ferofs_read::{DirCookie, Image, Inode};

/// Names of one step at most, so that memory does not depend on the size of a directory.
const MAX_FILES: usize = 1024;

/// The index of a directory, in the order in which the walk found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DirId(usize);

/// The next part of the walk.
#[derive(Debug)]
pub(super) enum Step {
    /// A directory. Its entries follow.
    Dir(DirId),
    /// Entries of the last directory that are no directories; not always all of them.
    Files(DirId, Vec<File>),
    /// A path that cannot be read.
    Failed(PathBuf, Error),
}

/// A name of a file that is no directory.
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

#[derive(Debug)]
struct Node {
    parent: usize,
    name: OsString,
    inode: Inode,
    /// It is selected, itself or with a directory above it.
    wanted: bool,
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
    nodes: Vec<Node>,
    /// Directories that were found: in a damaged image, two names can lead to the same one.
    seen: HashSet<Nid>,
    linked: HashMap<Nid, Linked>,
    /// Directories to be listed, the next one last.
    pending: Vec<usize>,
    listing: Option<Listing>,
    /// Steps to return, the next one last.
    ready: Vec<Step>,
}

/// The directory being listed.
#[derive(Debug)]
struct Listing {
    dir: usize,
    path: PathBuf,
    cookie: DirCookie,
    /// The last name. Names are sorted, so a name that is not greater may be a duplicate.
    last: Vec<u8>,
    /// Its subdirectories so far.
    below: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// Starts at the directory `from`, whose path is empty.
    pub(super) fn new(image: &'a Image, from: &Inode, select: &'a Selection) -> Self {
        let wanted = select.includes(b"");
        let root = Node { parent: 0, name: OsString::new(), inode: from.clone(), wanted, returned: false };
        Self {
            image,
            select,
            nodes: vec![root],
            seen: HashSet::from([from.nid()]),
            linked: HashMap::new(),
            pending: vec![0],
            listing: None,
            ready: Vec::new(),
        }
    }

    /// The directory's inode.
    pub(super) fn inode(&self, dir: DirId) -> &Inode {
        &self.nodes[dir.0].inode
    }

    /// The directory's path below the one where the walk started.
    pub(super) fn path(&self, DirId(mut at): DirId) -> PathBuf {
        let mut names = Vec::new();
        while at > 0 {
            names.push(&self.nodes[at].name);
            at = self.nodes[at].parent;
        }
        names.into_iter().rev().collect()
    }

    /// The path of a name.
    pub(super) fn path_of(&self, name: &Name) -> PathBuf {
        self.path(name.dir).join(&name.name)
    }

    /// Skips the entries of the last directory.
    pub(super) fn prune(&mut self) {
        self.listing = None;
    }

    /// Reads more entries of the current directory; false if there is none.
    fn list(&mut self) -> bool {
        let Some(mut listing) = self.listing.take() else { return false };
        let (image, dir) = (self.image, self.nodes[listing.dir].inode.clone());
        let mut files = Vec::new();
        let mut failed = Vec::new();
        let mut entries = match image.read_dir_from(&dir, listing.cookie) {
            Ok(entries) => entries,
            Err(error) => {
                self.ready.push(Step::Failed(listing.path, error.into()));
                return true;
            }
        };
        let ended = loop {
            match entries.next() {
                None => break true,
                Some(Ok(entry)) if entry.name == b"." || entry.name == b".." => {}
                Some(Ok(entry)) => {
                    let counted = image.count_made(listing.path.as_os_str().len());
                    if let Err(error) = counted {
                        failed.push(Step::Failed(PathBuf::new(), error.into()));
                        break true;
                    }
                    let path = listing.path.join(OsString::from_vec(entry.name.clone()));
                    match self.enter(&mut listing, entry.name, entry.nid, &path) {
                        Ok(file) => files.extend(file),
                        Err(error) => failed.push(Step::Failed(path, error)),
                    }
                }
                Some(Err(error)) => failed.push(Step::Failed(listing.path.clone(), error.into())),
            }
            if files.len() + failed.len() >= MAX_FILES {
                break false;
            }
        };
        listing.cookie = entries.cookie();
        drop(entries);
        self.ready.extend(failed);
        if !files.is_empty() {
            self.ready.push(Step::Files(DirId(listing.dir), files));
            self.push_dirs(listing.dir);
        }
        if ended {
            self.pending.extend(listing.below.into_iter().rev());
        } else {
            self.listing = Some(listing);
        }
        true
    }

    /// Takes a name of the directory being listed: gives it back if it is a file that is wanted.
    fn enter(
        &mut self,
        listing: &mut Listing,
        name: Vec<u8>,
        nid: Nid,
        path: &std::path::Path,
    ) -> Result<Option<File>> {
        let parent = listing.dir;
        let bad = |fault| {
            let dir = self.nodes[parent].inode.nid();
            Err(Corruption::new(Structure::Directory, fault).of(dir).into())
        };
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return bad(Fault::Name);
        }
        match name.cmp(&listing.last) {
            Ordering::Less => return bad(Fault::NameOrder),
            Ordering::Equal => return bad(Fault::DuplicateName),
            Ordering::Greater => listing.last.clone_from(&name),
        }
        let bytes = path.as_os_str().as_encoded_bytes();
        if !self.select.is_all() && self.select.excludes(bytes) {
            return Ok(None);
        }
        let wanted = self.nodes[parent].wanted || self.select.includes(bytes);
        let inode = self.image.inode(nid)?;
        let name = OsString::from_vec(name);
        if inode.is_dir() {
            if !self.seen.insert(nid) {
                return Err(Corruption::new(Structure::Directory, Fault::DirectoryLoop).of(nid).into());
            }
            listing.below.push(self.nodes.len());
            self.nodes.push(Node { parent, name, inode, wanted, returned: false });
            return Ok(None);
        }
        if !wanted {
            return Ok(None);
        }
        let first = self.first_name(&inode, parent, &name);
        Ok(Some(File { name, inode, first }))
    }

    /// The first name of `inode`, if this is another one. It is dropped after the last name, to save memory.
    fn first_name(&mut self, inode: &Inode, dir: usize, name: &OsString) -> Option<Name> {
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
        let first = Name { dir: DirId(dir), name: name.clone() };
        self.linked.insert(inode.nid(), Linked { first, remaining: links - 1 });
        None
    }

    /// Returns a directory as a step, after those above it that were not returned yet.
    fn push_dirs(&mut self, mut dir: usize) {
        while !std::mem::replace(&mut self.nodes[dir].returned, true) {
            self.ready.push(Step::Dir(DirId(dir)));
            dir = self.nodes[dir].parent;
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
            if self.list() {
                continue;
            }
            let dir = self.pending.pop()?;
            let path = self.path(DirId(dir));
            self.listing = Some(Listing {
                dir,
                path,
                cookie: DirCookie::default(),
                last: Vec::new(),
                below: Vec::new(),
            });
            // A directory that is not selected itself is returned only if a name below it is.
            if self.nodes[dir].wanted {
                self.push_dirs(dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ferofs_build as build;
    use ferofs_read::FileSource;

    fn image(files: &[&str]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        for file in files {
            let path = source.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::hard_link(source.join(files[0]), source.join("again")).unwrap();
        let image = dir.path().join("image");
        build::build(&build::Options::new(&source), &image).unwrap();
        Image::open(FileSource::open(image, 0).unwrap()).unwrap()
    }

    fn walk(image: &Image, include: &[&str], exclude: &[&str]) -> Vec<String> {
        let select = Selection::new(include, exclude).unwrap();
        let mut walk = Walk::new(image, &image.root().unwrap(), &select);
        let mut steps = Vec::new();
        while let Some(step) = walk.next() {
            match step {
                Step::Dir(dir) => steps.push(format!("{}/", walk.path(dir).display())),
                Step::Files(dir, files) => steps.extend(files.iter().map(|file| {
                    let path = walk.path(dir).join(&file.name);
                    let first = file.first.as_ref().map(|first| walk.path_of(first).display().to_string());
                    format!(
                        "{}{}",
                        path.display(),
                        first.map_or(String::new(), |first| format!(" = {first}"))
                    )
                })),
                Step::Failed(path, error) => panic!("{}: {error}", path.display()),
            }
        }
        steps
    }

    #[test]
    fn goes_from_directories_to_what_is_in_them() {
        let image = image(&["z/a/deep", "z/b", "a/one", "a/two"]);
        let all = ["/", "again", "a/", "a/one", "a/two", "z/", "z/b", "z/a/", "z/a/deep = again"];
        assert_eq!(walk(&image, &[], &[]), all);
        assert_eq!(walk(&image, &[], &["z/a", "one"]), ["/", "again", "a/", "a/two", "z/", "z/b"]);
        assert_eq!(walk(&image, &["deep"], &[]), ["/", "z/", "z/a/", "z/a/deep"]);
        assert_eq!(walk(&image, &["/z"], &["b"]), ["/", "z/", "z/a/", "z/a/deep"]);
        assert_eq!(walk(&image, &["none"], &[]), [""; 0]);
    }

    #[test]
    fn long_listings_come_in_parts() {
        let names: Vec<String> = (0..3 * MAX_FILES).map(|n| format!("dir/{n:05}")).collect();
        let image = image(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let found = walk(&image, &[], &["again"]);
        assert_eq!(found[2..], names[..]);
    }
}
