//! The form and size of each inode, with its xattrs. They are fixed before the data stage, which
//! must know how much data fits after an inode. Source: FORMAT.md 3.

use std::path::Path;

use ferofs_format::inode::{
    DataLayout, FileType, Inode, InodeVersion, Place, Timestamp, inline_tail,
};
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockSize, Incompat, xattr};

use crate::error::{Error, Result};
use crate::options::image::{InodeForm, InodeOptions};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};

/// Bytes of the packed inode and the metabox inode: both are extended, without xattrs.
pub(crate) const PACKED_LEN: usize = 64;

/// The form and size of one inode, in the bits of one number: bytes of the inode and its xattrs,
/// which are fewer than 2^19, whether the inode is extended, and whether its tail may follow it.
#[derive(Clone, Copy, Debug)]
struct InodeSize(u32);

impl InodeSize {
    const EXTENDED: u32 = 1 << 30;
    const MAY_INLINE: u32 = 1 << 31;

    const fn new(len: usize, version: InodeVersion, may_inline: bool) -> Self {
        let extended = if matches!(version, InodeVersion::Extended) { Self::EXTENDED } else { 0 };
        let inline = if may_inline { Self::MAY_INLINE } else { 0 };
        Self(len as u32 | extended | inline)
    }

    const fn len(self) -> usize {
        (self.0 & !(Self::EXTENDED | Self::MAY_INLINE)) as usize
    }

    const fn version(self) -> InodeVersion {
        if self.0 & Self::EXTENDED != 0 { InodeVersion::Extended } else { InodeVersion::Compact }
    }

    const fn may_inline(self) -> bool {
        self.0 & Self::MAY_INLINE != 0
    }
}

/// The form and size of all inodes, by node.
#[derive(Debug)]
pub(crate) struct InodeSizes(Vec<InodeSize>);

impl InodeSizes {
    /// Decides the form of every inode; `superblock` has the time that compact ones share.
    pub(crate) fn new(
        tree: &Tree,
        xattrs: &XattrPlan,
        superblock: &Superblock,
        options: &InodeOptions,
        source: &Path,
    ) -> Result<Self> {
        let is_wide = is_wide(tree, superblock);
        let inode_size = |id| {
            let mut inode = inode(tree, xattrs, superblock, id, InodeVersion::Extended)?;
            // In the compact form, the high bits of an address take the place of the link count.
            let one_link = inode.nlink == 1 && inode.file_type != FileType::Directory;
            let fits = inode.fits_compact(superblock) && (one_link || !is_wide);
            inode.mtime = shared_time(superblock);
            let fits_without_time =
                fits || inode.fits_compact(superblock) && (one_link || !is_wide);
            let version = match options.form {
                InodeForm::Extended => InodeVersion::Extended,
                InodeForm::Compact if !fits_without_time => {
                    return Err(too_large(tree, source, id));
                }
                InodeForm::Smallest if !fits && (options.keep_mtime || !fits_without_time) => {
                    InodeVersion::Extended
                }
                InodeForm::Compact | InodeForm::Smallest => InodeVersion::Compact,
            };
            let node = tree.node(id);
            let len = version.size() + xattrs.region(id, node.xattrs).len();
            let may_inline = options.inline_data || !matches!(node.kind, Kind::Regular { .. });
            Ok(InodeSize::new(len, version, may_inline))
        };
        let mut inode_sizes = Vec::new();
        inode_sizes.reserve_exact(tree.nodes.len());
        for id in tree.ids() {
            inode_sizes.push(inode_size(id)?);
        }
        Ok(Self(inode_sizes))
    }

    /// Bytes of the inode and its xattrs.
    pub(crate) fn len(&self, id: NodeId) -> usize {
        self.0[id.index()].len()
    }

    /// The inode's form.
    pub(crate) fn version(&self, id: NodeId) -> InodeVersion {
        self.0[id.index()].version()
    }

    /// Whether the inode's tail may follow it.
    pub(crate) fn may_inline(&self, id: NodeId) -> bool {
        self.0[id.index()].may_inline()
    }

    /// How many of the last bytes of content of `size` bytes follow the inode.
    pub(crate) fn inline_tail(&self, id: NodeId, size: u64, block: BlockSize) -> usize {
        let inode = self.0[id.index()];
        if inode.may_inline() { inline_tail(inode.len() as u64, size, block) as usize } else { 0 }
    }
}

/// Whether addresses in the image can need more than 32 bits, and may have them: with `48BIT` and
/// from half of 2^32 blocks on, as metadata follows the data.
pub(crate) fn is_wide(tree: &Tree, superblock: &Superblock) -> bool {
    let blocks = |bytes: u64| bytes.div_ceil(superblock.block_size.bytes64());
    let data = tree
        .nodes
        .iter()
        .fold(superblock.blocks, |sum, node| sum.saturating_add(blocks(node.size)));
    superblock.incompat.contains(Incompat::BIT48) && data >= 1 << 31
}

/// The error for an inode that does not fit the compact form.
fn too_large(tree: &Tree, source: &Path, id: NodeId) -> Error {
    let node = tree.node(id);
    let values = [
        ("a size for compact inodes of", node.size, u32::MAX.into()),
        ("an owner for compact inodes of", node.uid.into(), u16::MAX.into()),
        ("a group for compact inodes of", node.gid.into(), u16::MAX.into()),
        ("a link count for compact inodes of", node.nlink.into(), u16::MAX.into()),
        (
            "a link count for compact inodes, in an image of 2^31 blocks or more, of",
            node.nlink.into(),
            1,
        ),
    ];
    let (what, value, limit) =
        values.into_iter().find(|(_, value, limit)| value > limit).unwrap_or(values[0]);
    Error::DoesNotFit { path: source.join(tree.path(id)), what, value, limit }
}

/// The inode of `id`, without a position. Directories also have no size yet.
pub(crate) fn inode(
    tree: &Tree,
    xattrs: &XattrPlan,
    superblock: &Superblock,
    id: NodeId,
    version: InodeVersion,
) -> Result<Inode> {
    let node = tree.node(id);
    let icount = xattr::icount(xattrs.region(id, node.xattrs).len()).map_err(Error::Layout)?;
    let mut inode = Inode {
        version,
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
        mtime: node.mtime.into(),
        ino: id.0 + 1,
        xattr_icount: icount,
        place: match node.kind {
            Kind::Device(_, rdev) => Place::Device(rdev),
            _ => Place::Nothing,
        },
        dot_omitted: false,
    };
    if version == InodeVersion::Compact && !inode.fits_compact(superblock) {
        inode.mtime = shared_time(superblock);
    }
    Ok(inode)
}

/// The time that all compact inodes share.
const fn shared_time(superblock: &Superblock) -> Timestamp {
    Timestamp { secs: superblock.epoch, nanos: superblock.fixed_nsec }
}

/// The time that compact inodes count from, in seconds and with the nanoseconds of all of them: the
/// most frequent time from which `build_time` can be counted, or, when inodes hold seconds
/// (`wide`), the first one with the most frequent nanoseconds.
pub(crate) fn common_time(tree: &Tree, build_time: i64, wide: bool) -> Timestamp {
    let countable =
        |secs: i64| build_time.checked_sub(secs).is_some_and(|d| u32::try_from(d).is_ok());
    let mut times: Vec<Timestamp> = tree
        .nodes
        .iter()
        .map(|node| Timestamp::from(node.mtime))
        .filter(|time| countable(time.secs))
        .collect();
    if wide {
        times.sort_unstable_by_key(|time| (time.nanos, time.secs));
    } else {
        times.sort_unstable();
    }
    let same = |a: &Timestamp, b: &Timestamp| a.nanos == b.nanos && (wide || a.secs == b.secs);
    let mut best = (0, Timestamp { secs: build_time, nanos: 0 });
    for run in times.chunk_by(same) {
        if let Some(time) = run.first().filter(|_| run.len() > best.0) {
            best = (run.len(), *time);
        }
    }
    best.1
}
