//! The tree of the new image: inodes without positions, numbered breadth-first, and directories
//! with their names.
//!
//! The second stage of a build: sources fill it; the data and metadata stages read it.
//!
//! [`Node`] 0 is the root. The order of nodes is the order in which their data and their inodes are
//! laid out. An [`Origin`] says where the content of a regular file is in its source. The sources
//! set it, and [`crate::sources::content`] reads by it. For all kinds of sources,
//! [`apply_overrides`] gives nodes what [`crate::AttributeOptions`] ask for: times, Android's
//! owners and modes, SELinux labels.

pub(crate) mod compact;
pub(crate) mod inode_sizes;
pub(crate) mod layered_tree;
pub(crate) mod xattr;

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_format::Nid;
use ferofs_format::dirent::Dirent;
use ferofs_format::inode::{FileType, Rdev, Timestamp};
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::options::attributes::{FsConfig, capability_xattr};
use crate::options::{AttributeOptions, RunOptions};
use crate::paths::as_path;
use crate::tree::compact::{Arena, CompactTime};
pub(crate) use crate::tree::compact::{NodeId, Text};
use crate::tree::xattr::{SetId, XattrTable};
use ferofs_host::stat::mtime;

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

    /// Adds a directory without entries, and returns its type.
    pub(crate) fn new_directory(&mut self) -> Kind {
        self.dirs.push(Dir::default());
        Kind::Directory(self.dirs.len() as u32 - 1)
    }

    /// Gives directory `id` the entries from `first` on.
    pub(crate) fn end_directory(&mut self, id: NodeId, first: usize) {
        if let Kind::Directory(index) = self.node(id).kind {
            self.dirs[index as usize] = Dir { first, count: self.entries.len() - first };
        }
    }

    /// Stores `bytes` in the arena.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> Text {
        self.arena.push(bytes)
    }

    /// The bytes after `text`.
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
    pub(crate) fn names(
        &self,
        id: NodeId,
        with_dot: bool,
    ) -> impl Iterator<Item = (&[u8], NodeId)> {
        let node = self.node(id);
        let entries = match node.kind {
            Kind::Directory(dir) => self.entries_of(dir),
            _ => &[],
        };
        let dots = [(b".".as_slice(), id), (b"..".as_slice(), node.parent)].into_iter();
        let mut dots = dots.skip(usize::from(!with_dot)).peekable();
        let mut entries =
            entries.iter().map(|entry| (self.text(entry.name), entry.node)).peekable();
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

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// Where the content of a regular file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There is no content: the file is empty, or not a regular file.
    #[default]
    None,
    /// In the source directory, under the node's first name, in the file with this identity.
    File(Identity),
    /// In another directory, under the first name of `node` in the tree of that directory: see
    /// [`Contents::add_directory`](crate::sources::content::Contents::add_directory).
    LayerFile { layer: u16, node: NodeId, identity: Identity },
    /// In one piece that starts here.
    At(SourcePosition),
    /// In memory: an index into the pieces of [`Contents`](crate::sources::content::Contents).
    Memory(u32),
    /// In `count` pieces, with holes between them: an index range of
    /// [`Contents::spans`](crate::sources::content::Contents::spans).
    Spans { first: u32, count: u32 },
    /// The content of an inode of a source image, from `start` on: see
    /// [`Contents::image`](crate::sources::content::Contents::image).
    Image { image: u16, nid: Nid, start: u64 },
    /// The file is one hole: all bytes are zero.
    Zeroes,
    /// Reading the file for its digest failed. The data stage leaves the file out or fails: see
    /// [`crate::SourceOptions::skip_unreadable`].
    Unreadable(Errno),
}

/// A position in an archive or in the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    /// The index of the file: see [`Contents::file`](crate::sources::content::Contents::file).
    pub file: u16,
    /// Bytes from the start of that file.
    pub at: u64,
}

/// A piece of data in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it starts in the file.
    pub offset: u64,
    pub len: u64,
    pub place: SourcePosition,
}

/// Identifies a source file and its state, to detect a change after the directory walk. The size is
/// in the node. A tree has one for each file, so it is kept small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// A hash of the inode number and of the times of the last changes, which are only compared.
    hash: u64,
    /// When the file or its metadata changed last, in nanoseconds since 1970, or the nearest time
    /// that fits.
    ctime: i64,
}

impl Identity {
    pub(crate) fn new(ino: u64, mtime: Timestamp, ctime: Timestamp) -> Self {
        let mut hasher = DefaultHasher::new();
        (ino, mtime.secs, mtime.nanos, ctime.secs, ctime.nanos).hash(&mut hasher);
        let nanos = ctime.secs.saturating_mul(NANOS_PER_SEC).saturating_add(ctime.nanos.into());
        Self { hash: hasher.finish(), ctime: nanos }
    }

    /// The identity of the file that fstat(2) describes. Without the inode number if its file
    /// system does not keep it.
    pub(crate) fn of_file(stat: &Stat, keeps_number: bool) -> Self {
        let ctime = Timestamp { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 };
        Self::new(if keeps_number { stat.st_ino } else { 0 }, mtime(stat), ctime)
    }

    /// Whether fstat(2) describes this file.
    pub(crate) fn is_of(self, stat: &Stat) -> bool {
        [true, false].iter().any(|keeps| self == Self::of_file(stat, *keeps))
    }

    /// When the file or its metadata changed last, or the nearest time between the years 1678 and
    /// 2262.
    pub(crate) const fn ctime(self) -> Timestamp {
        Timestamp {
            secs: self.ctime.div_euclid(NANOS_PER_SEC),
            nanos: self.ctime.rem_euclid(NANOS_PER_SEC) as u32,
        }
    }
}

/// Applies `options` to every node of `tree`.
pub(crate) fn apply_overrides(
    tree: &mut Tree,
    options: &AttributeOptions,
    run: &RunOptions,
) -> Result<()> {
    if let Some(newest) = options.newest_time {
        let newest = Timestamp { secs: newest, nanos: 0 };
        for node in tree.nodes.iter_mut() {
            node.mtime = Timestamp::from(node.mtime).min(newest).into();
        }
    }
    let target = &options.target;
    if target.labels.is_some() || target.fs_config.is_some() {
        for id in tree.ids() {
            run.cancel.check()?;
            let path = target_path(&target.mount_point, &tree.path_bytes(id));
            if let Some(config) = &target.fs_config {
                apply_fs_config(tree, id, config, &path)?;
            }
            if let Some(labels) = &target.labels {
                let absolute = [b"/".as_slice(), &path].concat();
                if let Some(label) = labels.lookup(&absolute, tree.node(id).kind.file_type()) {
                    set_xattr(tree, id, b"security.selinux", label, &absolute)?;
                }
            }
        }
    }
    Ok(())
}

/// The path of a file where the image will be mounted, without a leading slash.
fn target_path(mount_point: &[u8], path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> =
        [mount_point, path].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

fn apply_fs_config(tree: &mut Tree, id: NodeId, config: &FsConfig, path: &[u8]) -> Result<()> {
    let own = if id == NodeId::ROOT {
        config.lookup(path).or_else(|| config.lookup(b""))
    } else {
        config.lookup(path)
    };
    let Some(entry) = own else {
        return Err(Error::NotInFsConfig(PathBuf::from(as_path(path))));
    };
    let node = &mut tree.nodes[id.index()];
    (node.uid, node.gid, node.permissions) = (entry.uid, entry.gid, entry.permissions);
    if entry.capabilities != 0 {
        set_xattr(tree, id, b"security.capability", &capability_xattr(entry.capabilities), path)?;
    }
    Ok(())
}

fn set_xattr(tree: &mut Tree, id: NodeId, name: &[u8], value: &[u8], path: &[u8]) -> Result<()> {
    let old = tree.node(id).xattrs;
    let new = tree.xattrs.replace(old, name, Some(value)).map_err(|e| e.of(as_path(path)))?;
    tree.nodes[id.index()].xattrs = new;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_the_time_and_depends_on_everything() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        let known = Identity::new(1, time(2, 3), time(-4, 5));
        assert_eq!(known.ctime(), time(-4, 5));
        for other in [
            (2, time(2, 3), time(-4, 5)),
            (1, time(2, 4), time(-4, 5)),
            (1, time(2, 3), time(-4, 6)),
        ] {
            assert_ne!(Identity::new(other.0, other.1, other.2), known);
        }
        let [far, farther] =
            [i64::MAX - 1, i64::MAX].map(|secs| Identity::new(1, time(0, 0), time(secs, 0)));
        assert_ne!(far, farther);
        assert!(far.ctime().secs > 9_000_000_000);
    }
}
