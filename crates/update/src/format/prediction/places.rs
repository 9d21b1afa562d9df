//! The places of relocated inodes, and the old inodes that they resemble: most follow from those
//! before them, so that only what differs is stored. `create` and `apply` step through the list in
//! the same way. Layout: docs/PATCH_FORMAT.md.

use std::collections::{HashSet, VecDeque};

use ferofs_format::area::{MetadataAreas, MetadataSize};
use ferofs_format::inode::{DataLayout, FileType};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::{SLOT_SIZE, to_u64, to_usize};
use ferofs_format::{BlockAddr, BlockSize, BytePos, FileOffset, Nid};
use ferofs_read::{Image, Inode};

use super::directory;
use super::relocations::{DirForm, Edit, Rules, SourceCode, malformed};
use crate::error::Result;

/// Entries of old directories that wait for their new inodes, at most, for directories and for
/// other files each. Entries beyond it are found by their number.
const WAITING_MAX: usize = 1 << 19;
/// Waiting entries that are passed over at most: an inode beyond them is found by its number, so
/// that those before it still wait.
const SKIP_MAX: u32 = 4096;

/// The numbers of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Its inode number.
    pub nid: Nid,
    /// The number for `stat`.
    pub ino: u32,
    /// The address of its first block, if it has blocks in an area.
    pub first: Option<BlockAddr>,
}

/// Walks through a list of relocated inodes.
#[derive(Debug)]
pub struct Places {
    image: Image,
    superblock: Superblock,
    rules: Rules,
    allocated: Option<MetadataAreas>,
    /// Whether no inode was placed yet.
    is_first: bool,
    dirs: VecDeque<Nid>,
    files: VecDeque<Nid>,
    /// Old directories that were sources: each is one once, so that the work is bounded.
    seen: HashSet<Nid>,
    /// The end of the old inode before.
    old_end: u64,
    /// How far the inode before moved, and its number for `stat`, modulo 2^64 and 2^32.
    moved: (i64, i32),
    last: (u64, u32),
}

impl Places {
    /// Starts at the first inode of an image with this `superblock`; the old one is `image`.
    #[must_use]
    pub fn new(image: &Image, superblock: &Superblock, rules: Rules) -> Self {
        let block = superblock.block_size;
        let allocated = rules.area.map(|area| {
            let first = area.metabox.unwrap_or(area.start);
            MetadataAreas::new(block, area.metabox.is_some(), first & block.mask())
        });
        let first = rules.area.map(|_| image.superblock().root);
        Self {
            image: image.clone(),
            superblock: superblock.clone(),
            rules,
            allocated,
            is_first: true,
            dirs: first.into_iter().collect(),
            files: VecDeque::new(),
            seen: HashSet::new(),
            old_end: 0,
            moved: (0, 0),
            last: (0, 0),
        }
    }

    /// The code that leads to the old inode `nid`.
    #[must_use]
    pub fn code(&self, nid: Nid, is_dir: bool) -> SourceCode {
        let waiting = if is_dir { &self.dirs } else { &self.files };
        match (0..SKIP_MAX).zip(waiting).find(|(_, waiting)| **waiting == nid) {
            Some((skip, _)) => SourceCode::Next { is_dir, skip },
            None => SourceCode::After(nid.get().wrapping_sub(self.old_end).cast_signed()),
        }
    }

    /// The old inode that `code` leads to. If it is a directory, its entries wait for their new
    /// inodes.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`](crate::PatchFault::Malformed) for a code that leads to none, or to
    /// a directory again; [`Error::Read`](crate::Error::Read).
    pub fn source(&mut self, code: SourceCode) -> Result<Option<Inode>> {
        let nid = match code {
            SourceCode::None => return Ok(None),
            SourceCode::After(slots) => Nid::new(self.old_end.wrapping_add_signed(slots)),
            SourceCode::Next { is_dir, skip } => {
                let waiting = if is_dir { &mut self.dirs } else { &mut self.files };
                waiting.drain(..to_usize(skip).min(waiting.len()));
                waiting.pop_front().ok_or_else(malformed)?
            }
        };
        let inode = self.image.inode(nid)?;
        self.old_end = nid.get().wrapping_add(len(&self.image, &inode)?.div_ceil(SLOT_SIZE));
        if inode.is_dir() && self.rules.area.is_some() {
            if !self.seen.insert(nid) {
                return Err(malformed());
            }
            for entry in self.image.read_dir(&inode)? {
                let entry = entry?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let is_dir = entry.file_type == Some(FileType::Directory);
                let waiting = if is_dir { &mut self.dirs } else { &mut self.files };
                if waiting.len() < WAITING_MAX {
                    waiting.push_back(entry.nid);
                }
            }
        }
        Ok(Some(inode))
    }

    /// What a new inode like `source`, of `version` bytes at its start, needs as far as that
    /// follows from it and from the `edits` of a directory.
    ///
    /// # Errors
    /// [`Error::Read`](crate::Error::Read) for an old inode or directory that is not valid.
    pub fn size<'e>(
        &self,
        source: &Inode,
        version: usize,
        form: DirForm,
        edits: impl Iterator<Item = &'e Edit>,
    ) -> Result<MetadataSize> {
        let block = self.superblock.block_size;
        let head = to_u64(version.saturating_add(source.xattr_size()));
        let packed = match form {
            DirForm::AsStored => None,
            _ if !source.is_dir() => None,
            DirForm::Chunks => Some(0),
            DirForm::Blocks | DirForm::Tail => directory::new_size(&self.image, source, edits)?,
        };
        let Some(packed) = packed else {
            let stored = stored_size(&self.image, source)?;
            let own = source.on_disk().version.size().saturating_add(source.xattr_size());
            let len = stored.len.saturating_sub(to_u64(own)).saturating_add(head);
            return Ok(MetadataSize { len, inline: 0, ..stored });
        };
        Ok(match form {
            DirForm::Tail => MetadataSize {
                len: head.saturating_add(packed & block.mask()),
                inline: 0,
                blocks: packed >> block.bits(),
            },
            _ => MetadataSize { len: head, inline: 0, blocks: block.blocks_for(packed) },
        })
    }

    /// The numbers that the next inode has if it is like the others.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`](crate::PatchFault::Malformed) for a place past all numbers.
    pub fn predict(&mut self, source: Option<&Inode>, size: MetadataSize) -> Result<Numbers> {
        let (old_nid, old_ino) =
            source.map_or(self.last, |source| (source.nid().get(), ino(source)));
        let moved = if source.is_some() { self.moved } else { (0, 1) };
        let ino = match self.rules.consecutive {
            true => self.last.1.wrapping_add(1),
            false => old_ino.wrapping_add_signed(moved.1),
        };
        let is_first = std::mem::replace(&mut self.is_first, false);
        let (Some(area), Some(allocated)) = (self.rules.area, &mut self.allocated) else {
            let nid = Nid::new(old_nid.wrapping_add_signed(moved.0));
            return Ok(Numbers { nid, ino, first: None });
        };
        let block = self.superblock.block_size;
        let is_apart = is_first && area.first_is_apart || size.len == 0;
        let start = area.metabox.unwrap_or(area.start);
        let pos = match is_apart {
            true => start,
            false => {
                let pos = allocated.allocate_inode(size);
                (start & !block.mask()).checked_add(pos).ok_or_else(malformed)?
            }
        };
        let nid = match area.metabox {
            Some(_) => Some(Nid::metabox_slot(pos / SLOT_SIZE)),
            None => self.superblock.nid_at(BytePos::new(pos)),
        };
        let first = allocated
            .allocate_blocks(size)
            .map(|first| BlockAddr::new((area.start >> block.bits()).saturating_add(first)));
        Ok(Numbers { nid: nid.ok_or_else(malformed)?, ino, first })
    }

    /// Passes over the inode, which has these numbers.
    pub fn pass(&mut self, source: Option<&Inode>, nid: Nid, new_ino: u32) {
        if let Some(source) = source {
            let nids = nid.get().wrapping_sub(source.nid().get());
            self.moved = (nids.cast_signed(), new_ino.wrapping_sub(ino(source)).cast_signed());
        }
        self.last = (nid.get(), new_ino);
    }
}

const fn ino(inode: &Inode) -> u32 {
    inode.on_disk().ino
}

/// Bytes of an inode with all that follows it.
fn len(image: &Image, inode: &Inode) -> Result<u64> {
    let end = image.extents(inode, FileOffset::new(0))?.metadata_end()?.pos.get();
    Ok(end.saturating_sub(inode.place().pos.get()))
}

/// What an inode takes in the metadata of its `image`.
///
/// # Errors
/// [`Error::Read`](crate::Error::Read) for an inode whose map is not valid.
pub fn stored_size(image: &Image, inode: &Inode) -> Result<MetadataSize> {
    let block = image.superblock().block_size;
    let (len, size) = (len(image, inode)?, inode.size());
    let has_names = matches!(inode.file_type(), FileType::Directory | FileType::Symlink);
    let (blocks, tail) = match inode.layout() {
        DataLayout::FlatPlain => (block.blocks_for(size), 0),
        DataLayout::FlatInline => (size >> block.bits(), size & block.mask()),
        _ => (0, 0),
    };
    let inline = inline_of(len, tail, block);
    Ok(MetadataSize { len, inline, blocks: if has_names { blocks } else { 0 } })
}

/// The content at the end of an inode of `len` bytes that decides about its place: only what is
/// longer than a block less a slot is placed by it.
#[must_use]
pub const fn inline_of(len: u64, tail: u64, block: BlockSize) -> u64 {
    if len > block.bytes64().saturating_sub(SLOT_SIZE) { tail } else { 0 }
}
