//! Compares nodes of the new tree with inodes of the old image: attributes, content, and digests of
//! content.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sources::digest;
use crate::sources::image::BELOW;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Origin};
use ferofs_format::inode::{FileType, Place};
use ferofs_format::xattr::NameIndex;
use ferofs_format::{FileOffset, Nid};
use ferofs_read::{Image, Inode};

use crate::error::Result;
use crate::incremental::create::context::Inputs;
use crate::incremental::create::sparse::{self, PART};

/// The properties in which a node and an old inode agree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Comparison {
    pub(super) same_type: bool,
    /// The size of a regular file, the target of a symbolic link, or the device number.
    pub(super) same_size: bool,
    /// `same_size`, and the same owner, permissions, link count, time and extended attributes, but
    /// for those that are ignored.
    pub(super) same_attributes: bool,
}

/// The old inode at each node's path, if there is one.
pub(super) fn counterparts(inputs: Inputs<'_>) -> Result<Vec<Option<Nid>>> {
    let mut found = vec![None; inputs.tree.nodes.len()];
    found[NodeId::ROOT.index()] = Some(inputs.old.superblock().root);
    // A directory's node comes before those of its entries.
    for node in inputs.tree.ids() {
        let (Kind::Directory(dir), Some(nid)) = (inputs.tree.node(node).kind, found[node.index()])
        else {
            continue;
        };
        inputs.options.run.cancel.check()?;
        let inode = inputs.old.inode(nid)?;
        if !inode.is_dir() {
            continue;
        }
        let mut names: HashMap<Vec<u8>, Nid> = HashMap::new();
        for entry in inputs.old.read_dir(&inode)? {
            let entry = entry?;
            names.insert(entry.name, entry.nid);
        }
        for entry in inputs.tree.entries_of(dir) {
            let slot = &mut found[entry.node.index()];
            *slot = slot.or_else(|| names.get(inputs.tree.text(entry.name)).copied());
        }
    }
    Ok(found)
}

/// Compares each node with its counterpart, without content.
pub(super) fn compare_attributes_of_all(
    inputs: Inputs<'_>,
    counterparts: &[Option<Nid>],
) -> Result<Vec<Comparison>> {
    inputs.options.run.parallel(
        counterparts.len(),
        || (),
        |(), number| match counterparts[number] {
            Some(nid) => compare_attributes(inputs, NodeId(number as u32), &inputs.old.inode(nid)?),
            None => Ok(Comparison::default()),
        },
    )
}

/// Compares a node with an inode, without the content of regular files. The sizes of directories do
/// not matter.
pub(super) fn compare_attributes(
    inputs: Inputs<'_>,
    id: NodeId,
    inode: &Inode,
) -> Result<Comparison> {
    let (node, disk) = (inputs.tree.node(id), inode.on_disk());
    let same_type = disk.file_type == node.kind.file_type();
    if !same_type {
        return Ok(Comparison::default());
    }
    let same_size = match node.kind {
        Kind::Regular { .. } => disk.size == node.size,
        Kind::Symlink(target) => inputs.old.read_link(inode)? == inputs.tree.text(target),
        Kind::Device(_, rdev) => disk.place == Place::Device(rdev),
        Kind::Directory(_) | Kind::Fifo | Kind::Socket => true,
    };
    let same_attributes = same_size
        && (inputs.ignore.mode || disk.permissions == node.permissions)
        && (inputs.ignore.owner || (disk.uid, disk.gid) == (node.uid, node.gid))
        && disk.nlink == node.nlink
        && (inputs.ignore.times || disk.mtime == node.mtime.into())
        && (inputs.ignore.xattrs || same_xattrs(inputs, id, inode)?);
    Ok(Comparison { same_type, same_size, same_attributes })
}

/// The digest of a file's content, if the image has digests, is not compared: the content is.
fn same_xattrs(inputs: Inputs<'_>, id: NodeId, inode: &Inode) -> Result<bool> {
    let digest = visible_digest_name(inputs.old);
    let mut expected = inputs.tree.xattrs.attributes(inputs.tree.node(id).xattrs, &[]);
    expected.retain(|(name, _)| Some(name) != digest.as_ref());
    if inode.xattr_size() == 0 {
        return Ok(expected.is_empty());
    }
    let found = inputs.old.xattrs(inode)?;
    let found = found.into_iter().map(|one| (one.name, one.value));
    let mut found: Vec<_> = found.filter(|(name, _)| Some(name) != digest.as_ref()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    Ok(found == expected)
}

/// The name of the attribute with digests in `image`, if it has digests in one that listings show.
pub(super) fn visible_digest_name(image: &Image) -> Option<Vec<u8>> {
    let (number, _) = digest::name_in(image)?;
    let (prefix, infix) = NameIndex::long(number)?.resolve(image.xattr_prefixes())?;
    Some([prefix.text(), infix].concat())
}

/// Whether the new tree takes the content of `node` from the old inode `nid`: then there is nothing
/// to compare.
fn is_content_of(inputs: Inputs<'_>, node: NodeId, nid: Nid) -> bool {
    let of_old = Origin::Image { image: BELOW, nid, start: 0 };
    inputs.options.source.lower_image.is_some() && inputs.tree.node(node).origin == of_old
}

/// Says which regular files differ from their counterparts of the same size, byte by byte.
pub(super) fn differences(
    inputs: Inputs<'_>,
    counterparts: &[Option<Nid>],
    comparisons: &[Comparison],
) -> Result<Vec<AtomicBool>> {
    let differ: Vec<AtomicBool> = comparisons.iter().map(|_| AtomicBool::new(false)).collect();
    let mut tasks = Vec::new();
    for node in inputs.tree.ids() {
        if let (Kind::Regular { .. }, Some(nid), true) = (
            inputs.tree.node(node).kind,
            counterparts[node.index()],
            comparisons[node.index()].same_size,
        ) && !is_content_of(inputs, node, nid)
        {
            let size = inputs.tree.node(node).size;
            let ranges = match size {
                ..=PART => vec![(0, size)],
                _ => sparse::union(
                    &sparse::ranges_of_node(inputs, node),
                    &sparse::ranges_of_inode(inputs.old, &inputs.old.inode(nid)?)?,
                ),
            };
            tasks.extend(
                sparse::parts(&ranges, PART, size).map(|(offset, len)| (node, nid, offset, len)),
            );
        }
    }
    inputs.options.run.parallel(
        tasks.len(),
        || (Reader::new(inputs.contents, inputs.tree), Vec::new(), Vec::new()),
        |(reader, ours, theirs), number| {
            let (node, nid, offset, len) = tasks[number];
            let differs = &differ[node.index()];
            if differs.load(Ordering::Relaxed) {
                return Ok::<_, crate::error::Error>(());
            }
            let len = len as usize;
            ours.resize(len, 0);
            theirs.resize(len, 0);
            reader.read(node, offset, ours)?;
            let inode = inputs.old.inode(nid)?;
            let read = inputs.old.read_at(&inode, FileOffset::new(offset), theirs)?;
            if read != len || ours != theirs {
                differs.store(true, Ordering::Relaxed);
            }
            Ok(())
        },
    )?;
    Ok(differ)
}

/// A node's file type and size: only old files that agree in both can have the same content.
pub(super) fn kind_and_size(inputs: Inputs<'_>, node: NodeId) -> (FileType, u64) {
    let node = inputs.tree.node(node);
    (node.kind.file_type(), node.size)
}

/// The digest of an old inode's content and file type, equal to [`new_digest`] of a node with the
/// same content.
pub(super) fn old_digest(
    inputs: Inputs<'_>,
    inode: &Inode,
    buffer: &mut Vec<u8>,
) -> Result<[u8; 32]> {
    let is_regular = inode.file_type() == FileType::Regular;
    let mut digest = ContentDigest::new(if is_regular { inode.size() } else { 0 });
    match (inode.file_type(), inode.on_disk().place) {
        (FileType::Symlink, _) => digest.add(0, &inputs.old.read_link(inode)?),
        (_, Place::Device(rdev)) => digest.add(0, &rdev.encode().to_le_bytes()),
        (FileType::Regular, _) => {
            let size = inode.size();
            let ranges = match size {
                ..=PART => vec![(0, size)],
                _ => sparse::ranges_of_inode(inputs.old, inode)?,
            };
            for (at, len) in sparse::parts(&ranges, PART, size) {
                buffer.resize(len as usize, 0);
                let read = inputs.old.read_at(inode, FileOffset::new(at), buffer)?;
                digest.add(at, &buffer[..read]);
            }
        }
        _ => {}
    }
    Ok(digest.finish(inode.file_type()))
}

/// The digest of a node's content and file type.
pub(super) fn new_digest(
    inputs: Inputs<'_>,
    id: NodeId,
    reader: &mut Reader<'_>,
    buffer: &mut Vec<u8>,
) -> Result<[u8; 32]> {
    let node = inputs.tree.node(id);
    let is_regular = matches!(node.kind, Kind::Regular { .. });
    let mut digest = ContentDigest::new(if is_regular { node.size } else { 0 });
    match node.kind {
        Kind::Symlink(target) => digest.add(0, inputs.tree.text(target)),
        Kind::Device(_, rdev) => digest.add(0, &rdev.encode().to_le_bytes()),
        Kind::Regular { .. } => {
            for (at, len) in sparse::parts(&sparse::ranges_of_node(inputs, id), PART, node.size) {
                buffer.resize(len as usize, 0);
                reader.read(id, at, buffer)?;
                digest.add(at, buffer);
            }
        }
        Kind::Directory(_) | Kind::Fifo | Kind::Socket => {}
    }
    Ok(digest.finish(node.kind.file_type()))
}

/// A digest of a file's size and content, in which parts of zeroes count nothing: it does not
/// depend on where a file has holes.
struct ContentDigest(blake3::Hasher);

impl ContentDigest {
    /// The digest of a file with so many bytes; 0 if the file is not a regular one.
    fn new(size: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&size.to_le_bytes());
        Self(hasher)
    }

    /// Adds a part of the content, of [`PART`] bytes or up to the end, and its offset.
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.iter().any(|byte| *byte != 0) {
            self.0.update(&offset.to_le_bytes()).update(bytes);
        }
    }

    fn finish(mut self, file_type: FileType) -> [u8; 32] {
        self.0.update(&[file_type.mode_bits().to_le_bytes()[1]]);
        *self.0.finalize().as_bytes()
    }
}
