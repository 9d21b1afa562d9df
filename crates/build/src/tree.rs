//! The tree of the new image: inodes without positions, numbered breadth-first, and directories with their names.
//!
//! The second stage of a build: sources fill it; the data and metadata stages read it.
//!
//! [`Node`] 0 is the root. The order of nodes is the order in which their data and their inodes are laid out.

pub(crate) mod arena;
pub(crate) mod compact_time;
pub(crate) mod inode_sizes;
pub(crate) mod layered_tree;
mod node_id;
pub(crate) mod origin;
pub(crate) mod overrides;
pub(crate) mod xattr;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_format::Nid;
use ferofs_format::dirent::Dirent;
use ferofs_format::inode::{FileType, Rdev};

use crate::tree::arena::Arena;
pub(crate) use crate::tree::arena::Text;
use crate::tree::compact_time::CompactTime;
pub(crate) use crate::tree::node_id::NodeId;
use crate::tree::origin::Origin;
use crate::tree::xattr::{SetId, XattrTable};

/// The type of a node, with the fields of that type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A regular file.
    Regular {
        /// The source has holes.
        sparse: bool,
    },
    /// A directory: an index into [`Tree::dirs`].
    Directory(u32),
    /// A symbolic link: its target's bytes.
    Symlink(Text),
    /// A character or block device.
    Device(FileType, Rdev),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    pub(crate) const fn file_type(self) -> FileType {
        match self {
            Self::Regular { .. } => FileType::Regular,
            Self::Directory(_) => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Device(kind, _) => kind,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }
}

/// An inode without its position in the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    /// The low 12 bits of the mode.
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub mtime: CompactTime,
    pub xattrs: SetId,
    /// The size of a regular file, in bytes.
    pub size: u64,
    /// Where the content of a regular file is.
    pub origin: Origin,
    /// The directory that holds the first name of this node.
    pub parent: NodeId,
    pub name: Text,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub name: Text,
    pub node: NodeId,
}

/// A directory's names, sorted by bytes, without `.` and `..`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dir {
    pub first: usize,
    pub count: usize,
}

/// All inodes, directories and names of the new image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    pub dirs: Vec<Dir>,
    pub entries: Vec<Entry>,
    pub xattrs: XattrTable,
    arena: Arena,
}

impl Tree {
    /// An empty tree whose texts are in `arena`.
    pub(crate) fn with_texts(arena: Arena) -> Self {
        Self { arena, ..Self::default() }
    }

    /// Stores `bytes` in the arena.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> Text {
        self.arena.push(bytes)
    }

    /// The bytes behind `text`.
    pub(crate) fn text(&self, text: Text) -> &[u8] {
        self.arena.get(text)
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Every node's number, in order.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        // The sources add a node only if its number fits.
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub(crate) fn entries_of(&self, dir: u32) -> &[Entry] {
        let Dir { first, count } = self.dirs[dir as usize];
        &self.entries[first..first + count]
    }

    /// The names of directory `id`, sorted, with `..`, and with `.` if wanted.
    pub(crate) fn names(&self, id: NodeId, with_dot: bool) -> impl Iterator<Item = (&[u8], NodeId)> {
        let node = self.node(id);
        let entries = match node.kind {
            Kind::Directory(dir) => self.entries_of(dir),
            _ => &[],
        };
        let dots = [(b".".as_slice(), id), (b"..".as_slice(), node.parent)].into_iter();
        let mut dots = dots.skip(usize::from(!with_dot)).peekable();
        let mut entries = entries.iter().map(|entry| (self.text(entry.name), entry.node)).peekable();
        std::iter::from_fn(move || match (dots.peek(), entries.peek()) {
            (Some((dot, _)), Some((name, _))) if name < dot => entries.next(),
            (Some(_), _) => dots.next(),
            (None, _) => entries.next(),
        })
    }

    /// The entry of a directory that gives `node`, whose inode is `nid`, this name.
    pub(crate) fn dirent<'a>(&self, name: &'a [u8], node: NodeId, nid: Nid) -> Dirent<'a> {
        Dirent { nid, file_type: Some(self.node(node).kind.file_type()), name }
    }

    /// The path of `id` below the source, as bytes; empty for the root.
    pub(crate) fn path_bytes(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT {
            let node = self.node(at);
            names.push(self.text(node.name));
            at = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path of `id` in the image, for messages.
    pub(crate) fn display_path(&self, id: NodeId) -> String {
        format!("/{}", String::from_utf8_lossy(&self.path_bytes(id)))
    }

    /// The path of `id` below the source.
    pub(crate) fn path(&self, id: NodeId) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path_bytes(id)))
    }
}
