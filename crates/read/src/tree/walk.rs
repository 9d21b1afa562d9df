//! Walks through an image's tree: [`Walk`] returns all names, [`DirectoryWalk`] the entries of the
//! directories that the caller selects.

mod directories;

use std::collections::HashSet;
use std::path::PathBuf;

use ferofs_format::Nid;

use crate::error::Result;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::dir::DirEntry;

pub use directories::{DirId, DirectoryWalk, Step};

/// A name, and its inode.
#[derive(Debug)]
#[non_exhaustive]
pub struct WalkEntry {
    /// From the root, which has an empty path.
    pub path: PathBuf,
    /// The inode, or the reason why it cannot be read.
    pub inode: Result<Inode>,
    /// The directory of this name; for the root, the root.
    pub parent: Nid,
    /// Whether no earlier name led to this inode.
    pub first: bool,
}

/// Iterates over all names. A directory comes before its entries, and is entered once.
#[derive(Debug)]
pub struct Walk<'a> {
    image: &'a Image,
    /// `None` before the root was returned, and if it is not a directory.
    directories: Option<DirectoryWalk<'a>>,
    started: bool,
    /// The directory of the last error.
    failed: DirId,
    /// The inodes so far that are not directories.
    files: HashSet<Nid>,
}

impl<'a> Walk<'a> {
    /// Starts at the root.
    #[must_use]
    pub fn new(image: &'a Image) -> Self {
        Self {
            image,
            directories: None,
            started: false,
            failed: DirId::START,
            files: HashSet::new(),
        }
    }

    /// The path of the directory that the last error concerns.
    #[must_use]
    pub fn failed_path(&self) -> PathBuf {
        self.directories
            .as_ref()
            .map(|directories| directories.path(self.failed))
            .unwrap_or_default()
    }

    fn root(&mut self) -> WalkEntry {
        let inode = self.image.root();
        if let Some(root) = inode.as_ref().ok().filter(|inode| inode.is_dir()) {
            self.directories = Some(DirectoryWalk::new(self.image, root.nid()));
        }
        let parent = self.image.superblock().root;
        WalkEntry { path: PathBuf::new(), inode, parent, first: true }
    }
}

/// Reads the inode of an entry of the current directory.
fn walked(
    image: &Image,
    directories: &mut DirectoryWalk<'_>,
    files: &mut HashSet<Nid>,
    entry: &DirEntry,
) -> WalkEntry {
    let path = directories.entry_path(&entry.name);
    // The paths of a deep tree are long: making them counts as work.
    let inode = image.charge_path(path.as_os_str().len()).and_then(|()| image.inode(entry.nid));
    let parent = directories.current().map_or(image.superblock().root, Inode::nid);
    let first = match &inode {
        Ok(inode) if inode.is_dir() => directories.enter(&entry.name, entry.nid).is_some(),
        _ => files.insert(entry.nid),
    };
    WalkEntry { path, inode, parent, first }
}

impl Iterator for Walk<'_> {
    /// A part of a directory that cannot be read is an error; the walk continues after it.
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.started, true) {
            return Some(Ok(self.root()));
        }
        let directories = self.directories.as_mut()?;
        loop {
            match directories.next()? {
                Step::Entry(entry) => {
                    return Some(Ok(walked(self.image, directories, &mut self.files, &entry)));
                }
                Step::Failed(dir, error) => {
                    self.failed = dir;
                    return Some(Err(error));
                }
                Step::Enter(_) | Step::Leave(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// An image of empty files with these paths. `again` is another name of the first one.
    fn image(files: &[&str]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let (source, image) = (dir.path().join("source"), dir.path().join("image"));
        for file in files {
            let path = source.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::hard_link(source.join(files[0]), source.join("again")).unwrap();
        ferofs_write::build(&ferofs_write::Options::new(source), &image).unwrap();
        Image::open(fs::read(image).unwrap()).unwrap()
    }

    #[test]
    fn a_directory_comes_before_its_entries() {
        let image = image(&["a/one", "a/b/two", "z"]);
        let walked: Vec<_> = Walk::new(&image).map(Result::unwrap).collect();
        let paths: Vec<_> = walked.iter().map(|walked| walked.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["", "a", "again", "z", "a/b", "a/one", "a/b/two"]);
        for WalkEntry { path, inode, parent, first } in &walked {
            let resolve = |path: &Path| image.resolve(path, false).unwrap().nid();
            assert_eq!(*parent, resolve(path.parent().unwrap_or(Path::new(""))));
            assert_eq!(inode.as_ref().unwrap().nid(), resolve(path));
            assert_eq!(*first, path != Path::new("a/one"));
        }
    }

    #[test]
    fn only_the_selected_directories_are_entered_and_each_once() {
        let image = image(&["a/one", "b/two", "c/d/three"]);
        let mut walk = DirectoryWalk::new(&image, image.superblock().root);
        let mut steps = Vec::new();
        while let Some(step) = walk.next() {
            match step {
                Step::Enter(dir) => steps.push(format!("enter {}", walk.path(dir).display())),
                Step::Leave(dir) => steps.push(format!("leave {}", walk.path(dir).display())),
                Step::Failed(_, error) => panic!("{error}"),
                Step::Entry(entry) => {
                    let path = walk.entry_path(&entry.name);
                    steps.push(path.display().to_string());
                    match path.to_str().unwrap() {
                        "b" => {}
                        "c/d" => walk.skip_directory(),
                        _ if !image.inode(entry.nid).unwrap().is_dir() => {}
                        _ => {
                            assert!(walk.enter(&entry.name, entry.nid).is_some());
                            assert!(walk.enter(&entry.name, entry.nid).is_none());
                        }
                    }
                }
            }
        }
        let root = ["enter ", "a", "again", "b", "c", "leave "];
        let below = ["enter a", "a/one", "leave a", "enter c", "c/d"];
        assert_eq!(steps, [&root[..], &below].concat());
    }
}
