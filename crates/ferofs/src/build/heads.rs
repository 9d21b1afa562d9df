//! The part of each inode that is known before its data is: its form, and how long it is with xattrs.

use ferofs_format::inode::{DataLayout, Inode, InodeVersion, Place, Timestamp};
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockSize, xattr};

use super::tree::{Kind, NodeId, Tree};
use super::xattr::XattrPlan;
use crate::{Error, Result};

/// Lengths of inodes with their xattrs, by node.
#[derive(Debug)]
pub(crate) struct Heads {
    lens: Vec<u32>,
}

impl Heads {
    /// Decides the form of every inode; `superblock` has the time that compact ones share.
    pub(crate) fn new(tree: &Tree, xattrs: &XattrPlan, superblock: &Superblock) -> Result<Self> {
        let lens = tree.ids().map(|id| {
            let inode = inode(tree, xattrs, superblock, id)?;
            Ok((inode.version.size() + xattrs.region(tree.node(id).xattrs).len()) as u32)
        });
        Ok(Self { lens: lens.collect::<Result<_>>()? })
    }

    /// Bytes of the inode and its xattrs.
    pub(crate) fn len(&self, id: NodeId) -> usize {
        self.lens[id.index()] as usize
    }

    /// How many of the last bytes of `size` can follow the inode within one block: those past the last
    /// whole block, or none.
    pub(crate) fn inline_tail(&self, id: NodeId, size: u64, block: BlockSize) -> usize {
        let tail = (size & block.mask()) as usize;
        if self.len(id) + tail <= block.bytes() { tail } else { 0 }
    }
}

/// The inode of `id`, without a place and, of directories, without a size.
pub(crate) fn inode(tree: &Tree, xattrs: &XattrPlan, superblock: &Superblock, id: NodeId) -> Result<Inode> {
    let node = tree.node(id);
    let icount = xattr::icount(xattrs.region(node.xattrs).len()).map_err(Error::Layout)?;
    let mut inode = Inode {
        version: InodeVersion::Extended,
        layout: DataLayout::FlatPlain,
        file_type: node.kind.file_type(),
        permissions: node.permissions,
        uid: node.uid,
        gid: node.gid,
        size: match node.kind {
            Kind::Symlink(target) => tree.text(target).len() as u64,
            _ => node.size,
        },
        nlink: node.nlink,
        mtime: node.mtime,
        ino: id.0 + 1,
        xattr_icount: icount,
        place: match node.kind {
            Kind::Device(_, rdev) => Place::Device(rdev),
            _ => Place::Nothing,
        },
        dot_omitted: false,
    };
    if inode.fits_compact(superblock) {
        inode.version = InodeVersion::Compact;
    }
    Ok(inode)
}

/// The time of compact inodes: the most frequent one from which `build_time` can be counted.
pub(crate) fn common_time(tree: &Tree, build_time: i64) -> Timestamp {
    let countable = |secs: i64| build_time.checked_sub(secs).is_some_and(|d| u32::try_from(d).is_ok());
    let mut times: Vec<Timestamp> =
        tree.nodes.iter().map(|node| node.mtime).filter(|time| countable(time.secs)).collect();
    times.sort_unstable();
    let mut best = (0, Timestamp { secs: build_time, nanos: 0 });
    for run in times.chunk_by(|a, b| a == b) {
        if let Some(time) = run.first().filter(|_| run.len() > best.0) {
            best = (run.len(), *time);
        }
    }
    best.1
}
