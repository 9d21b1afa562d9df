//! The verification: compares the image with its source before the image gets its name.
//!
//! One thread reads all directories and finds the inode of each node. Then all threads compare
//! inodes, xattrs and content. The image is read through the page cache, so that the verification
//! does not find errors of the storage device.

use ferofs_format::superblock::Superblock;
use ferofs_format::{FileOffset, Nid};

use crate::data::stored::StoredContent;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::inode_sizes::{self, InodeSizes};
use crate::tree::xattr::XattrPlan;
use crate::tree::{Kind, NodeId, Tree};
use ferofs_read::{FileSource, Image, OpenOptions, Source};

/// Bytes that are compared at once: larger files are split into several tasks, which different
/// threads do. A thread has two buffers of this size.
const PIECE_LEN: u64 = 4 << 20;
/// Tasks that a thread takes at once, so that many small files do not take much time for
/// coordination.
const TASKS_PER_BATCH: usize = 64;

/// The source that the image is compared with.
pub(crate) struct Verifier<'a> {
    pub options: &'a Options,
    pub tree: &'a Tree,
    pub inode_sizes: &'a InodeSizes,
    pub xattrs: &'a XattrPlan,
    pub contents: &'a Contents,
    /// Where the content of each node is stored.
    pub stored: &'a [StoredContent],
    pub superblock: &'a Superblock,
}

/// A node, or a part of its content.
#[derive(Clone, Copy, Debug)]
struct Task {
    node: NodeId,
    offset: u64,
}

impl Verifier<'_> {
    /// Compares the image in `source` and on the extra `devices`.
    pub(crate) fn run(&self, source: Box<dyn Source>, devices: Vec<FileSource>) -> Result<()> {
        let devices =
            devices.into_iter().map(|device| Box::new(device) as Box<dyn Source>).collect();
        let image = Image::open_with(source, devices, &OpenOptions::default())?;
        let nids = self.nids_by_name(&image)?;
        let mut tasks = Vec::with_capacity(nids.len());
        for node in self.tree.ids().filter(|node| nids[node.index()].is_some()) {
            let size = self.tree.node(node).size.max(1);
            tasks.extend(
                (0..size.div_ceil(PIECE_LEN)).map(|part| Task { node, offset: part * PIECE_LEN }),
            );
        }
        let context = || Buffers {
            reader: Reader::new(self.contents, self.tree),
            from_image: Vec::new(),
            from_source: Vec::new(),
        };
        let batches = tasks.chunks(TASKS_PER_BATCH).collect::<Vec<_>>();
        let compare = |buffers: &mut Buffers<'_>, number: usize| {
            batches[number].iter().try_for_each(|task| {
                // Nodes without a nid have no tasks.
                let nid = nids[task.node.index()].unwrap_or_default();
                self.compare(&image, *task, nid, buffers)
            })
        };
        self.options.run.parallel(batches.len(), context, compare).map(drop)
    }

    fn differs(&self, node: NodeId, what: &'static str) -> Error {
        Error::VerifyMismatch { path: self.contents.path(self.tree, node), what }
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        matches!(self.stored[node.index()], StoredContent::Skipped)
    }

    /// Finds the nid of each node by its names; `None` for nodes that the image leaves out.
    fn nids_by_name(&self, image: &Image) -> Result<Vec<Option<Nid>>> {
        let mut nids = vec![None; self.tree.nodes.len()];
        nids[NodeId::ROOT.index()] = Some(image.root()?.nid());
        // The node of a directory comes after that of its parent.
        for node in self.tree.ids() {
            self.options.run.cancel.check()?;
            let (Kind::Directory(dir), Some(nid)) = (self.tree.node(node).kind, nids[node.index()])
            else {
                continue;
            };
            let expected =
                self.tree.entries_of(dir).iter().filter(|entry| !self.is_skipped(entry.node));
            let inode = image.inode(nid)?;
            let mut found = image.read_dir(&inode)?;
            let mut next = || loop {
                match found.next() {
                    Some(Ok(entry)) if entry.name == b"." || entry.name == b".." => {}
                    other => return other.transpose(),
                }
            };
            for entry in expected {
                let same = next()?.filter(|found| {
                    found.name == self.tree.text(entry.name)
                        && found.file_type == Some(self.tree.node(entry.node).kind.file_type())
                });
                let nid = same.ok_or_else(|| self.differs(entry.node, "name"))?.nid;
                let known = nids[entry.node.index()].get_or_insert(nid);
                if *known != nid {
                    return Err(self.differs(entry.node, "hard link"));
                }
            }
            if next()?.is_some() {
                return Err(self.differs(node, "number of names"));
            }
        }
        Ok(nids)
    }

    fn compare(
        &self,
        image: &Image,
        task: Task,
        nid: Nid,
        buffers: &mut Buffers<'_>,
    ) -> Result<()> {
        let Task { node, offset } = task;
        let inode = image.inode(nid)?;
        let kind = self.tree.node(node).kind;
        if offset == 0 {
            let found = inode.on_disk();
            let expected = inode_sizes::inode(
                self.tree,
                self.xattrs,
                self.superblock,
                node,
                self.inode_sizes.version(node),
            )?;
            let device = matches!(kind, Kind::Device(..)) && found.place != expected.place;
            for (differs, what) in [
                (found.file_type != expected.file_type || device, "type"),
                (found.permissions != expected.permissions, "mode"),
                ((found.uid, found.gid) != (expected.uid, expected.gid), "owner"),
                (found.nlink != expected.nlink, "number of links"),
                (found.mtime != expected.mtime, "time"),
                (found.size != expected.size && !matches!(kind, Kind::Directory(_)), "size"),
                (self.attributes(image, &inode)? != self.expected_attributes(node), "attributes"),
            ] {
                if differs {
                    return Err(self.differs(node, what));
                }
            }
        }
        match kind {
            Kind::Symlink(target) if image.read_link(&inode)? != self.tree.text(target) => {
                Err(self.differs(node, "target"))
            }
            Kind::Regular { .. } => {
                let len = (self.tree.node(node).size - offset).min(PIECE_LEN) as usize;
                buffers.from_image.resize(len, 0);
                buffers.from_source.resize(len, 0);
                buffers.reader.read(node, offset, &mut buffers.from_source)?;
                let read =
                    image.read_at(&inode, FileOffset::new(offset), &mut buffers.from_image)?;
                let same = read == len && buffers.from_image == buffers.from_source;
                if same { Ok(()) } else { Err(self.differs(node, "content")) }
            }
            _ => Ok(()),
        }
    }

    fn attributes(
        &self,
        image: &Image,
        inode: &ferofs_read::Inode,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found: Vec<_> = image
            .xattrs(inode)?
            .into_iter()
            .map(|attribute| (attribute.name, attribute.value))
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn expected_attributes(&self, node: NodeId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let set = self.tree.node(node).xattrs;
        let mut expected = self.tree.xattrs.attributes(set, &self.options.xattrs.table());
        expected.sort_unstable();
        expected
    }
}

/// The buffers of a thread.
struct Buffers<'a> {
    reader: Reader<'a>,
    from_image: Vec<u8>,
    from_source: Vec<u8>,
}
