//! One tree of a comparison: an image's, or a directory's.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ferofs_format::{Fault, FileOffset, Nid, Structure};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::change::Stat;
use super::content::Content;
use crate::error::{Corruption, Error, Result};
use ferofs_host::stat::{mtime, size, stat_at};
use ferofs_host::{check_preload, open_dir, open_file};
use ferofs_read::{FileType, Image, Inode, Place, Rdev};

/// Linux's limit for the path of a system call, with the NUL at its end.
const PATH_MAX: usize = 4096;

/// One of the compared trees.
#[derive(Debug)]
pub enum Side {
    /// The tree of an image.
    Image(Box<Image>),
    /// The tree below a directory.
    Directory(PathBuf),
}

impl Side {
    pub(super) fn is_same_image(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Image(one), Self::Image(other)) => one.is_same_image(other),
            _ => false,
        }
    }
}

/// A file of one tree.
#[derive(Debug)]
pub(super) enum Node {
    Inode(Nid),
    File(PathBuf),
}

/// Identifies a file within its tree: device and inode number, or device 0 and the nid.
pub(super) type FileId = (u64, u64);

impl Node {
    pub(super) const fn nid(&self) -> Option<Nid> {
        match self {
            Self::Inode(nid) => Some(*nid),
            Self::File(_) => None,
        }
    }
}

/// The walk of one tree.
pub(super) struct Tree<'a> {
    side: &'a Side,
    /// Directories that were read: a hostile image can have loops.
    entered: HashSet<Nid>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(side: &'a Side) -> Self {
        Self { side, entered: HashSet::new() }
    }

    pub(super) fn root(&self) -> Result<Node> {
        match self.side {
            Side::Image(image) => Ok(Node::Inode(image.root()?.nid())),
            Side::Directory(path) => {
                check_preload()?;
                match fs::symlink_metadata(path) {
                    Ok(metadata) if metadata.is_dir() => Ok(Node::File(path.clone())),
                    Ok(_) => Err(ferofs_read::Error::NotADirectory(path.clone()).into()),
                    Err(error) => Err(Error::io("open", path, error)),
                }
            }
        }
    }

    /// A path to the file at `path` that is short enough for system calls.
    fn short_path(&self, path: &Path) -> Result<ShortPath> {
        let (Side::Directory(root), Some(parent), Some(name)) =
            (self.side, path.parent(), path.file_name())
        else {
            return Ok(ShortPath { path: path.to_owned(), _dir: None });
        };
        if path.as_os_str().len() < PATH_MAX {
            return Ok(ShortPath { path: path.to_owned(), _dir: None });
        }
        let open = || {
            let top = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let below = parent.strip_prefix(root).unwrap_or(parent);
            open_dir(top.as_fd(), below.as_os_str().as_bytes(), OFlags::PATH)
        };
        let dir = open().map_err(|e| Error::io("open", path, e))?;
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        Ok(ShortPath { path, _dir: Some(dir) })
    }

    /// The image's inode, or the path of a file of the system.
    fn inode(&self, node: &Node) -> Result<std::result::Result<(&'a Image, Inode), PathBuf>> {
        match (node, self.side) {
            (Node::Inode(nid), Side::Image(image)) => Ok(Ok((image, image.inode(*nid)?))),
            (Node::File(path), _) => Ok(Err(path.clone())),
            // This does not happen: the nodes of a directory are paths.
            (Node::Inode(_), Side::Directory(path)) => Ok(Err(path.clone())),
        }
    }

    pub(super) fn stat(&self, node: &Node) -> Result<Stat> {
        match self.inode(node)? {
            Ok((_, inode)) => Ok(stat_of_inode(&inode)),
            Err(path) => Ok(stat_of_file(&self.stat_path(&path)?)),
        }
    }

    /// The identity of a file that is not a directory, and whether it has several names.
    pub(super) fn identity(&self, node: &Node) -> Result<Option<(FileId, bool)>> {
        match self.inode(node)? {
            Ok((_, inode)) if inode.is_dir() => Ok(None),
            Ok((_, inode)) => Ok(Some(((0, inode.nid().get()), inode.on_disk().nlink > 1))),
            Err(path) => {
                let stat = self.stat_path(&path)?;
                let is_dir = FileType::from_mode(stat.st_mode as u16) == Some(FileType::Directory);
                Ok((!is_dir).then_some(((stat.st_dev, stat.st_ino), stat.st_nlink > 1)))
            }
        }
    }

    fn stat_path(&self, path: &Path) -> Result<rustix::fs::Stat> {
        let short = self.short_path(path)?;
        let stat = stat_at(CWD, short.path.as_os_str().as_bytes());
        stat.map_err(|e| Error::io("stat", path, e))
    }

    /// The sorted entries of a directory whose path has `path_len` bytes; empty if `node` is no
    /// directory.
    pub(super) fn list(&mut self, node: &Node, path_len: usize) -> Result<Vec<(OsString, Node)>> {
        let mut all = Vec::new();
        match self.inode(node)? {
            Ok((_, inode)) if !inode.is_dir() => return Ok(all),
            Ok((image, inode)) => {
                if !self.entered.insert(inode.nid()) {
                    let corruption = Corruption::new(Structure::Directory, Fault::DirectoryLoop);
                    return Err(corruption.of(inode.nid()).into());
                }
                for entry in image.read_dir(&inode)? {
                    let entry = entry?;
                    if entry.name != b"." && entry.name != b".." {
                        // The comparison makes a path for each entry.
                        image.budget().charge_bytes(u64::try_from(path_len).unwrap_or(u64::MAX))?;
                        all.push((OsString::from_vec(entry.name), Node::Inode(entry.nid)));
                    }
                }
            }
            Err(path) => {
                let short = self.short_path(&path)?;
                if !fs::symlink_metadata(&short.path).is_ok_and(|metadata| metadata.is_dir()) {
                    return Ok(all);
                }
                for entry in fs::read_dir(&short.path).map_err(|e| Error::io("list", &path, e))? {
                    let name = entry.map_err(|e| Error::io("list", &path, e))?.file_name();
                    let file = child(&path, &name)?;
                    all.push((name, Node::File(file)));
                }
            }
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(all)
    }

    /// All extended attributes, sorted.
    pub(super) fn xattrs(&self, node: &Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = match self.inode(node)? {
            Ok((image, inode)) => {
                image.xattrs(&inode)?.into_iter().map(|xattr| (xattr.name, xattr.value)).collect()
            }
            Err(path) => xattrs_of_file(&self.short_path(&path)?.path, &path)?,
        };
        all.sort_unstable();
        Ok(all)
    }

    pub(super) fn read_link(&self, node: &Node) -> Result<Vec<u8>> {
        match self.inode(node)? {
            Ok((image, inode)) => Ok(image.read_link(&inode)?),
            Err(path) => {
                let short = self.short_path(&path)?;
                let target =
                    fs::read_link(&short.path).map_err(|e| Error::io("read link", &path, e))?;
                Ok(target.into_os_string().into_vec())
            }
        }
    }

    pub(super) fn open(&self, node: &Node) -> Result<Content<'a>> {
        match self.inode(node)? {
            Ok((image, inode)) => Ok(Content::Inode(image, Box::new(inode))),
            Err(path) => {
                let short = self.short_path(&path)?;
                let opened = open_file(CWD, short.path.as_os_str().as_bytes()).map(File::from);
                let file = opened.map_err(|e| Error::io("open", &path, e))?;
                // It was a regular file before.
                match file.metadata().map_err(|e| Error::io("stat", &path, e))?.is_file() {
                    true => Ok(Content::File(file, path)),
                    false => Err(Error::SourceChanged(path)),
                }
            }
        }
    }

    /// Whether both files, of the same image, have the same extents.
    pub(super) fn same_extents(
        &self,
        node: &Node,
        other: &Tree<'_>,
        other_node: &Node,
    ) -> Result<bool> {
        let (Ok((image, one)), Ok((other_image, other))) =
            (self.inode(node)?, other.inode(other_node)?)
        else {
            return Ok(false);
        };
        let extents = image.extents(&one, FileOffset::new(0))?;
        let others = other_image.extents(&other, FileOffset::new(0))?;
        let mut pairs = 0u64;
        let mut others = others;
        for extent in extents {
            let Some(other) = others.next() else { return Ok(false) };
            // Inline data has different positions even if its bytes are the same.
            if extent? != other? {
                return Ok(false);
            }
            pairs += 1;
        }
        Ok(pairs > 0 && others.next().is_none())
    }
}

/// The path of `name` in the directory `path`. A damaged file system can return a name with a
/// slash, and its path would lead to another directory.
fn child(path: &Path, name: &OsStr) -> Result<PathBuf> {
    match name.as_bytes().contains(&b'/') {
        true => Err(Error::io("list", path, Errno::UCLEAN)),
        false => Ok(path.join(name)),
    }
}

/// A path to a file whose own path may be too long for system calls.
struct ShortPath {
    path: PathBuf,
    /// Keeps the directory open that `path` starts with.
    _dir: Option<OwnedFd>,
}

fn stat_of_inode(inode: &Inode) -> Stat {
    let disk = inode.on_disk();
    Stat {
        file_type: disk.file_type,
        permissions: disk.permissions,
        uid: disk.uid,
        gid: disk.gid,
        size: if matches!(disk.file_type, FileType::Regular | FileType::Symlink) {
            disk.size
        } else {
            0
        },
        mtime: disk.mtime,
        rdev: if let Place::Device(rdev) = disk.place { rdev } else { Rdev::default() },
    }
}

fn stat_of_file(stat: &rustix::fs::Stat) -> Stat {
    // The upper bits are the type.
    let mode = stat.st_mode as u16;
    // Every type that Linux has is known.
    let file_type = FileType::from_mode(mode).unwrap_or(FileType::Regular);
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    Stat {
        file_type,
        permissions: mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: if matches!(file_type, FileType::Regular | FileType::Symlink) {
            size(stat)
        } else {
            0
        },
        mtime: mtime(stat),
        rdev: match is_device {
            true => Rdev {
                major: rustix::fs::major(stat.st_rdev),
                minor: rustix::fs::minor(stat.st_rdev),
            },
            false => Rdev::default(),
        },
    }
}

/// The attributes of the file at `short`; errors name `path`.
fn xattrs_of_file(short: &Path, path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // Linux's limits on a list of names, and on a value.
    let mut names = vec![0u8; 1 << 16];
    let len = match rustix::fs::llistxattr(short, &mut names[..]) {
        Ok(len) => len,
        // The file system does not support attributes.
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list attributes", path, error)),
    };
    names.truncate(len);
    let mut all = Vec::new();
    let mut value = vec![0u8; 1 << 16];
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let len = rustix::fs::lgetxattr(short, OsStr::from_bytes(name), &mut value[..])
            .map_err(|e| Error::io("read attribute", path, e))?;
        all.push((name.to_vec(), value.get(..len).unwrap_or_default().to_vec()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_is_an_error() {
        let dir = Path::new("/dir");
        for name in ["/", "/etc", "../a/b", "a/"] {
            let error = child(dir, OsStr::new(name)).unwrap_err();
            assert!(
                matches!(&error, Error::Io(error) if error.source.raw_os_error() == Some(Errno::UCLEAN.raw_os_error())),
                "{name}: {error:?}"
            );
        }
        assert_eq!(child(dir, OsStr::new("a")).unwrap(), Path::new("/dir/a"));
    }

    /// A regular file that a FIFO replaces between stat and open: opening it would wait for a
    /// writer.
    #[test]
    fn a_fifo_in_the_place_of_a_file_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let side = Side::Directory(dir.path().to_owned());
            let opened = Tree::new(&side).open(&Node::File(path));
            // The test has ended when this fails.
            let _ = sender.send(matches!(opened, Err(Error::SourceChanged(_))));
        });
        let changed = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert!(changed.expect("it does not block"), "it is reported as a change of the source");
    }
}
