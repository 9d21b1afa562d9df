//! Finds the old inodes that new inodes resemble, in an order in which most follow from the one
//! before.

use std::collections::{HashSet, VecDeque};

use ferofs_format::inode::{self, FileType, InodeVersion, Timestamp, inline_tail};
use ferofs_format::{BlockSize, FileOffset, Nid};
use ferofs_read::{Image, Inode};

use super::directory;
use crate::error::{Error, PatchFault, Result};
use crate::format::relocation::{FIELDS, Relocated, SourceCode};
use ferofs_format::units::{to_u64, to_usize};

/// Entries of old directories that wait for their new inodes, at most: 4 MiB for directories and
/// for other files each. Entries beyond it are named by their inode number.
const WAITING_MAX: usize = 1 << 19;
/// Waiting entries that are passed over at most: an inode beyond them is named by its number, so
/// that those before it still wait.
const SKIP_MAX: u32 = 4096;

/// The fields of `inode` that a patch can change, in the order of the format.
pub fn fields_of(inode: &inode::Inode) -> [u64; FIELDS] {
    // A directory's size follows from its entries.
    let size = if inode.file_type == FileType::Directory { 0 } else { inode.size };
    [
        u64::from(inode.version == InodeVersion::Extended),
        inode.permissions.into(),
        inode.uid.into(),
        inode.gid.into(),
        size,
        inode.nlink.into(),
        inode.mtime.secs.cast_unsigned(),
        inode.mtime.nanos.into(),
    ]
}

/// Sets the fields with these numbers.
#[expect(
    clippy::as_conversions,
    reason = "a value that is too large is cut: the bytes are only predicted"
)]
pub(crate) fn set_fields<'a>(
    inode: &mut inode::Inode,
    values: impl Iterator<Item = &'a (u8, u64)>,
) {
    for (field, value) in values {
        let value = *value;
        match field {
            0 => {
                inode.version =
                    if value == 0 { InodeVersion::Compact } else { InodeVersion::Extended }
            }
            1 => inode.permissions = value as u16 & 0o7777,
            2 => inode.uid = value as u32,
            3 => inode.gid = value as u32,
            4 => inode.size = value,
            5 => inode.nlink = value as u32,
            6 => inode.mtime = Timestamp { secs: value.cast_signed(), ..inode.mtime },
            _ => inode.mtime = Timestamp { nanos: value as u32, ..inode.mtime },
        }
    }
}

/// Walks old directories in the order of the new ones that resemble them.
pub struct Replay<'a> {
    image: &'a Image,
    /// Whether the root's inode is in slots that have no space for a tail.
    root_is_free: bool,
    dirs: VecDeque<Nid>,
    files: VecDeque<Nid>,
    /// Directories that were sources.
    seen: HashSet<Nid>,
}

impl<'a> Replay<'a> {
    /// Starts at the root of `image`. `root_is_free`: the new root goes into free slots of the
    /// base.
    pub fn new(image: &'a Image, root_is_free: bool) -> Self {
        let dirs = VecDeque::from([image.superblock().root]);
        Self { image, root_is_free, dirs, files: VecDeque::new(), seen: HashSet::new() }
    }

    /// The code that leads to the old inode `nid`.
    pub fn code(&self, nid: Nid, is_dir: bool) -> SourceCode {
        let queue = if is_dir { &self.dirs } else { &self.files };
        match (0..SKIP_MAX).zip(queue).find(|(_, waiting)| **waiting == nid) {
            Some((skip, _)) => SourceCode::Next { is_dir, skip },
            None => SourceCode::Nid(nid.get()),
        }
    }

    /// Whether `inode` can be a source.
    pub fn is_usable(&self, inode: &Inode) -> bool {
        !self.seen.contains(&inode.nid())
    }

    /// The old inode that `code` leads to; its entries wait for their new inodes, if it is a
    /// directory.
    pub fn source(&mut self, code: SourceCode) -> Result<Option<Inode>> {
        let malformed =
            || Error::Patch(PatchFault::Malformed("a relocated inode is none of the base"));
        let nid = match code {
            SourceCode::None => return Ok(None),
            SourceCode::Nid(nid) => Nid::new(nid),
            SourceCode::Next { is_dir, skip } => {
                let queue = if is_dir { &mut self.dirs } else { &mut self.files };
                queue.drain(..to_usize(skip).min(queue.len()));
                queue.pop_front().ok_or_else(malformed)?
            }
        };
        let inode = self.image.inode(nid)?;
        if !self.is_usable(&inode) {
            return Err(malformed());
        }
        if inode.is_dir() {
            // Each directory is a source once, so that the work is bounded.
            self.seen.insert(nid);
            for entry in self.image.read_dir(&inode)? {
                let entry = entry?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let is_dir = entry.file_type == Some(FileType::Directory);
                let queue = if is_dir { &mut self.dirs } else { &mut self.files };
                if queue.len() < WAITING_MAX {
                    queue.push_back(entry.nid);
                }
            }
        }
        Ok(Some(inode))
    }

    /// Bytes of the new inode with all that follows it, and its blocks, as far as they follow from
    /// its source.
    pub fn sizes(
        &self,
        source: &Inode,
        new: &Relocated,
        is_root: bool,
        block: BlockSize,
    ) -> Result<(u64, u64)> {
        let mut inode = source.on_disk().clone();
        set_fields(&mut inode, new.fields.iter());
        let head_len =
            |inode: &inode::Inode| to_u64(inode.version.size().saturating_add(source.xattr_size()));
        let head = head_len(&inode);
        if !source.is_dir() {
            let end = self.image.extents(source, FileOffset::new(0))?.metadata_end()?.pos.get();
            let after = end
                .saturating_sub(source.place().pos.get())
                .saturating_sub(head_len(source.on_disk()));
            return Ok((head.saturating_add(after), 0));
        }
        if new.in_chunks {
            return Ok((head, 0));
        }
        let Some(entries) = directory::new_entries(self.image, source, new.edits.iter())? else {
            return Ok((head, 0));
        };
        let size = directory::size(&entries, block);
        let in_slots = is_root && self.root_is_free;
        let tail = if in_slots { 0 } else { inline_tail(head, size, block) };
        Ok((head.saturating_add(tail), block.blocks_for(size.saturating_sub(tail))))
    }
}
