//! Predicts the content of a new directory: the entries of the old one with the new numbers of
//! their inodes, packed as a build packs them. Source: FORMAT.md 3.

use std::ops::Range;

use ferofs_format::dirent::{
    ChunkedDir, DirBlock, Dirent, directory_size, for_each_block, write_block,
};
use ferofs_format::inode::{self, DataLayout, Place};
use ferofs_format::{
    BlockAddr, BlockSize, BytePos, DeviceId, FileOffset, FormatError, Nid, Structure,
};
use ferofs_read::{DirEntry, ExtentData, Image, Inode, Location};

use super::relocations::{Edit, Target};
use crate::error::Result;
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a directory that is predicted: it is decoded in memory. Larger ones are compressed
/// without a prediction; mostly, nearly all of their blocks stay as they are.
const DIRECTORY_MAX: u64 = 1 << 20;

/// The work of finding an entry's inode, sorting it in and writing it, in units of about 100 ns.
const ENTRY_WORK: u64 = 5;

/// The entries of the old directory `source` as stored; `None` if it is too large to be predicted.
///
/// # Errors
/// [`Error::Read`](crate::Error::Read).
pub fn old_entries(image: &Image, source: &Inode) -> Result<Option<Vec<DirEntry>>> {
    if source.size() > DIRECTORY_MAX {
        return Ok(None);
    }
    Ok(Some(image.read_dir(source)?.collect::<std::result::Result<_, _>>()?))
}

/// The entries of the new directory that resembles `source`, sorted by name; `None` if it is too
/// large to be predicted. `numbers` gives the number in the new image. The work counts for the image: a file can have many edits of a small directory, and refer to it often.
pub(super) fn new_entries<'e>(
    image: &Image,
    source: &Inode,
    edits: impl Iterator<Item = &'e Edit>,
    numbers: impl Fn(Target) -> Nid,
) -> Result<Option<Vec<DirEntry>>> {
    let Some(mut old) = old_entries(image, source)? else { return Ok(None) };
    old.iter_mut().for_each(|entry| entry.nid = numbers(Target::Old(entry.nid.get())));
    let mut entries: Vec<Option<DirEntry>> = old.into_iter().map(Some).collect();
    for edit in edits {
        image.budget().charge(1)?;
        match edit {
            Edit::Removed(number) => {
                if let Some(slot) = entries.get_mut(to_usize(*number)) {
                    *slot = None;
                }
            }
            Edit::Added { name, file_type, target } => {
                let (file_type, nid) = (Some(*file_type), numbers(*target));
                entries.push(Some(Dirent { nid, file_type, name }.into()));
            }
        }
    }
    let mut entries: Vec<DirEntry> = entries.into_iter().flatten().collect();
    image.budget().charge(ENTRY_WORK.saturating_mul(to_u64(entries.len())))?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(entries))
}

/// Bytes of the new directory that resembles `source`; `None` if it is too large to be predicted.
pub(super) fn new_size<'e>(
    image: &Image,
    source: &Inode,
    edits: impl Iterator<Item = &'e Edit>,
) -> Result<Option<u64>> {
    let entries = new_entries(image, source, edits, |_| Nid::default())?;
    let block = image.superblock().block_size;
    Ok(entries.map(|entries| directory_size(entries.iter().map(|entry| entry.name.len()), block)))
}

/// The content of a new directory whose entries are packed again.
pub(super) struct Content {
    /// For a directory in chunks only its new blocks.
    bytes: Vec<u8>,
    /// Bytes of these that follow the inode.
    tail: usize,
    /// The directory and its table, if it is in chunks.
    chunks: Option<(ChunkedDir, Vec<u8>)>,
}

impl Content {
    /// All entries, block by block; `None` if a name is invalid.
    pub(super) fn flat(entries: &[Dirent<'_>], has_tail: bool, block: BlockSize) -> Option<Self> {
        let mut bytes = Vec::new();
        for_each_block(entries.iter().copied(), block, |dirents| {
            append_block(dirents, block, &mut bytes)
        })
        .ok()?;
        let tail = if has_tail { to_usize(to_u64(bytes.len()) & block.mask()) } else { 0 };
        Some(Self { bytes, tail, chunks: None })
    }

    /// The entries in the blocks of the old directory `source`, of which those stay in which
    /// nothing changes; `first` is the address of the first new block.
    pub(super) fn in_chunks(
        image: &Image,
        source: &Inode,
        entries: &[Dirent<'_>],
        first: BlockAddr,
    ) -> Result<Option<Self>> {
        let block = image.superblock().block_size;
        let Some(dir) = in_old_blocks(image, source, entries, |_| true)? else { return Ok(None) };
        let (mut bytes, mut table) = (Vec::new(), Vec::new());
        for new in dir.new_blocks() {
            if append_block(entries.get(new).unwrap_or_default(), block, &mut bytes).is_err() {
                return Ok(None);
            }
        }
        bytes.resize(bytes.len().next_multiple_of(block.bytes()), 0);
        let is_written = dir.write_table(first, &mut table).is_ok();
        Ok(is_written.then_some(Self { bytes, tail: 0, chunks: Some((dir, table)) }))
    }

    /// Sets size, layout and place of the directory's `inode`, whose blocks are at `first` and
    /// after it.
    pub(super) fn set_in(&self, inode: &mut inode::Inode, block: BlockSize, first: BlockAddr) {
        inode.dot_omitted = false;
        match &self.chunks {
            Some((dir, _)) => dir.set_in(inode, block),
            None => {
                inode.size = to_u64(self.bytes.len());
                inode.layout = match self.tail {
                    0 => DataLayout::FlatPlain,
                    _ => DataLayout::FlatInline,
                };
                inode.place = Place::Blocks(first);
            }
        }
    }

    /// What follows the inode: the table, or the last entries.
    pub(super) fn after(&self) -> &[u8] {
        match &self.chunks {
            Some((_, table)) => table,
            None => self.bytes.get(self.blocks().len()..).unwrap_or_default(),
        }
    }

    /// The bytes in blocks.
    pub(super) fn blocks(&self) -> &[u8] {
        self.bytes.get(..self.bytes.len().saturating_sub(self.tail)).unwrap_or_default()
    }
}

/// Appends a block with these entries to those before it.
fn append_block(
    entries: &[Dirent<'_>],
    block: BlockSize,
    out: &mut Vec<u8>,
) -> ferofs_format::error::Result<()> {
    out.resize(out.len().next_multiple_of(block.bytes()), 0);
    write_block(entries, out)
}

/// Lays out a directory with `entries` in the blocks of the old directory `source`: a block whose
/// entries do not change stays where it is. `can_stay` says whether a block with these entries may
/// be an old one. `None` if a name is invalid.
pub fn in_old_blocks(
    image: &Image,
    source: &Inode,
    entries: &[Dirent<'_>],
    can_stay: impl Fn(Range<usize>) -> bool,
) -> Result<Option<ChunkedDir>> {
    let block = image.superblock().block_size;
    let old = old_blocks(image, source)?;
    let (mut dir, mut start, mut rest) = (ChunkedDir::default(), 0usize, entries);
    let next_names = old.iter().skip(1).map(|(name, _)| Some(name.as_slice())).chain([None]);
    for ((_, addr), next) in old.iter().zip(next_names) {
        // The entries up to the first name of the next old block.
        let len = next.map_or(rest.len(), |next| rest.partition_point(|entry| entry.name < next));
        let (group, after) = rest.split_at(len);
        let range = start..start.saturating_add(len);
        (start, rest) = (range.end, after);
        let packed = for_each_block(group.iter().copied(), block, |dirents| {
            let is_all = dirents.len() == group.len();
            let kept = match addr {
                Some(addr) if is_all && can_stay(range.clone()) => {
                    is_same(image, *addr, dirents, block)?.then_some(*addr)
                }
                _ => None,
            };
            dir.push(dirents, kept);
            Ok::<_, FormatError>(())
        });
        if packed.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(dir))
}

/// Whether the block at `addr` holds exactly these entries.
fn is_same(
    image: &Image,
    addr: BlockAddr,
    entries: &[Dirent<'_>],
    block: BlockSize,
) -> Result<bool, FormatError> {
    let mut expected = Vec::with_capacity(block.bytes());
    write_block(entries, &mut expected)?;
    expected.resize(block.bytes(), 0);
    let mut found = vec![0; block.bytes()];
    let pos = addr.to_pos(block).unwrap_or(BytePos::new(u64::MAX));
    let read = image.read_device(DeviceId::new(0), pos, Structure::Directory, &mut found);
    Ok(read.is_ok() && found == expected)
}

/// The first name of each block of the directory `inode`, and the block's address if it is a whole
/// block of the primary device.
fn old_blocks(old: &Image, inode: &Inode) -> Result<Vec<(Vec<u8>, Option<BlockAddr>)>> {
    let block = old.superblock().block_size;
    let mut blocks = Vec::new();
    let mut bytes = vec![0; block.bytes()];
    for number in 0..block.blocks_for(inode.size()) {
        let offset = FileOffset::new(number.saturating_mul(block.bytes64()));
        let read = old.read_at(inode, offset, &mut bytes)?;
        let found = bytes.get(..read).unwrap_or_default();
        let first = DirBlock::parse(found).ok().and_then(|block| block.get(0)?.ok());
        let name = first.map_or(Vec::new(), |first| first.name.to_vec());
        let extent = old.extents(inode, offset)?.next().transpose()?;
        let addr = extent.and_then(|extent| match extent.data {
            ExtentData::Stored { at: Location::Device(device, at) }
                if device == DeviceId::new(0) =>
            {
                let at = at.checked_add(offset.get().checked_sub(extent.start.get())?)?;
                (at.in_block(block) == 0).then(|| at.block(block))
            }
            _ => None,
        });
        blocks.push((name, addr));
    }
    Ok(blocks)
}
