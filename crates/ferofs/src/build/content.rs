//! Where the bytes of regular files come from: each has an [`Origin`], and a [`Reader`] fetches them.
//!
//! Stands between the tree and the data stage: workers and the stage ask for bytes by node, and need not know
//! what kind of source they build from.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::chunk::{Ranges, data_ranges};
use super::open::{identity, open_dir, open_file, stat_fd};
use super::tree::{Node, NodeId, Tree};
use crate::{Error, Result};

use ferofs_format::inode::Timestamp;

/// Where the content of a regular file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It has none: no regular file.
    #[default]
    None,
    /// In the source directory, under its first name, as long as that is still this file.
    File(Identity),
}

/// What tells whether a source file is still the one that was walked; its size is the node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) ino: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
}

/// All that content is read from.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The source directory.
    root: Option<OwnedFd>,
    /// Its name, or the archive's: for messages.
    name: PathBuf,
}

impl Contents {
    /// Opens the source directory.
    pub(crate) fn directory(source: impl Into<PathBuf>) -> Result<Self> {
        let name = source.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&name, flags, Mode::empty()).map_err(|e| Error::io("open", &name, e))?;
        Ok(Self { root: Some(root), name })
    }

    /// The source directory, open.
    pub(crate) fn root(&self) -> Result<&OwnedFd> {
        self.root.as_ref().ok_or_else(|| Error::io("open", &self.name, Errno::NOTDIR))
    }

    /// A file's name in the source, for messages.
    pub(crate) fn path(&self, tree: &Tree, id: NodeId) -> PathBuf {
        self.name.join(tree.path(id))
    }

    /// Fails if the content of `id` can surely not be read.
    pub(crate) fn probe(&self, tree: &Tree, id: NodeId) -> Result<()> {
        match tree.node(id).origin {
            Origin::None => Ok(()),
            Origin::File(_) => {
                self.open(tree, id).map(drop).map_err(|e| Error::io("open", self.path(tree, id), e))
            }
        }
    }

    /// The ranges of a file that hold data; `None` when nobody can tell.
    pub(crate) fn data_ranges(&self, tree: &Tree, id: NodeId) -> Option<Ranges> {
        let node = tree.node(id);
        match node.origin {
            Origin::None => None,
            Origin::File(_) => data_ranges(self.open(tree, id).ok()?, node.size),
        }
    }

    fn open(&self, tree: &Tree, id: NodeId) -> Result<OwnedFd, Errno> {
        let node = tree.node(id);
        let root = self.root.as_ref().ok_or(Errno::NOTDIR)?;
        let dir = open_dir(root.as_fd(), &tree.path_bytes(node.parent), OFlags::PATH)?;
        open_file(dir.as_fd(), tree.text(node.name))
    }
}

/// A worker's hands for reading.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    contents: &'a Contents,
    tree: &'a Tree,
    /// The directory of the file before.
    dir: Option<(NodeId, OwnedFd)>,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(contents: &'a Contents, tree: &'a Tree) -> Self {
        Self { contents, tree, dir: None }
    }

    /// Fills `buf` with the content of `id` from `offset` on, all of which is within the file.
    pub(crate) fn read(&mut self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let node = self.tree.node(id);
        match node.origin {
            Origin::None => Ok(()),
            Origin::File(expected) => self.read_file(id, node, expected, offset, buf),
        }
    }

    /// Reads from the source directory, and makes sure that the file is the one that was walked.
    fn read_file(
        &mut self,
        id: NodeId,
        node: &Node,
        expected: Identity,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (contents, tree) = (self.contents, self.tree);
        let changed = || Error::SourceChanged(contents.path(tree, id));
        let io = |action, e: Errno| match e {
            Errno::NOENT | Errno::LOOP => changed(),
            e => Error::io(action, contents.path(tree, id), e),
        };
        let parent = match &self.dir {
            Some((parent, fd)) if *parent == node.parent => fd.as_fd(),
            _ => {
                let path = tree.path_bytes(node.parent);
                let fd =
                    open_dir(contents.root()?.as_fd(), &path, OFlags::PATH).map_err(|e| io("open", e))?;
                self.dir.insert((node.parent, fd)).1.as_fd()
            }
        };
        let file = open_file(parent, tree.text(node.name)).map_err(|e| io("open", e))?;
        let mut filled = 0;
        while filled < buf.len() {
            match rustix::io::pread(&file, &mut buf[filled..], offset + filled as u64) {
                Ok(0) => return Err(changed()),
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(io("read", e)),
            }
        }
        let stat = stat_fd(file.as_fd()).map_err(|e| io("stat", e))?;
        if identity(&stat) == expected && stat.stx_size == node.size { Ok(()) } else { Err(changed()) }
    }
}
