//! Predicts the content of a new directory: the entries of the old one with the new numbers of their inodes, packed as a build packs them.
//! Source: FORMAT.md 3.

use ferofs_format::dirent::{DIRENT_SIZE, DirBlock, DirPacker, Dirent, write_block};
use ferofs_format::inode::{self, DataLayout, FileType, Place};
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, BlockSize, BytePos, DeviceId, FileOffset, Nid, Structure};
use ferofs_read::{ExtentData, Image, Inode, Location};

use crate::error::Result;
use crate::format::relocation::{Edit, Target};

/// Bytes of a directory that is predicted: it is decoded in memory. Larger ones are compressed without a prediction; mostly, nearly all
/// of their blocks stay as they are.
const DIRECTORY_MAX: u64 = 1 << 20;

/// The work of finding an entry's inode, sorting it in and writing it, in units of about 100 ns.
const ENTRY_WORK: u64 = 5;

/// A name of a new directory.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(super) name: Vec<u8>,
    pub(super) file_type: Option<FileType>,
    pub(super) target: Target,
    /// Whether the old directory has this entry: then a new inode that resembles `target` takes its place.
    pub(super) is_old: bool,
}

/// An entry with the number of its inode in the new image.
pub(super) type Placed = (Vec<u8>, Option<FileType>, Nid);

/// Whether the content of new inodes that resemble `source` is predicted.
pub(super) fn is_predicted(source: &Inode) -> bool {
    !source.is_dir() || source.size() <= DIRECTORY_MAX
}

/// The entries of the old directory `source` as stored; `None` if it is too large to be predicted.
pub fn old_entries(image: &Image, source: &Inode) -> Result<Option<Vec<ferofs_read::DirEntry>>> {
    if !is_predicted(source) {
        return Ok(None);
    }
    Ok(Some(image.read_dir(source)?.collect::<std::result::Result<_, _>>()?))
}

/// The entries of the new directory that resembles `source`, sorted by name. The work counts for the image: a patch can have many edits of
/// a small directory, and refer to it often.
pub(super) fn new_entries<'e>(
    image: &Image,
    source: &Inode,
    edits: impl Iterator<Item = &'e Edit>,
) -> Result<Option<Vec<NewEntry>>> {
    let Some(old) = old_entries(image, source)? else { return Ok(None) };
    let mut entries: Vec<Option<NewEntry>> = old
        .into_iter()
        .map(|old| {
            let target = Target::Old(old.nid.get());
            Some(NewEntry { name: old.name, file_type: old.file_type, target, is_old: true })
        })
        .collect();
    for edit in edits {
        image.budget().charge(1)?;
        match edit {
            Edit::Removed(number) => {
                if let Some(slot) = entries.get_mut(*number as usize) {
                    *slot = None;
                }
            }
            Edit::Added { name, file_type, target } => entries.push(Some(NewEntry {
                name: name.clone(),
                file_type: Some(*file_type),
                target: *target,
                is_old: false,
            })),
        }
    }
    let mut entries: Vec<NewEntry> = entries.into_iter().flatten().collect();
    image.budget().charge(ENTRY_WORK.saturating_mul(entries.len() as u64))?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(entries))
}

/// Divides names of these lengths among blocks; also returns the directory's size.
fn pack(names: impl Iterator<Item = usize>, block: BlockSize) -> (Vec<std::ops::Range<usize>>, u64) {
    let mut packer = DirPacker::new(block);
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    for (number, len) in names.enumerate() {
        match (packer.push(len), blocks.last_mut()) {
            (false, Some(last)) => last.end = number + 1,
            _ => blocks.push(number..number + 1),
        }
    }
    (blocks, packer.size())
}

/// Bytes of a directory with these entries.
pub(super) fn size(entries: &[NewEntry], block: BlockSize) -> u64 {
    pack(entries.iter().map(|entry| entry.name.len()), block).1
}

/// Appends a block with these entries; `None` if there is no such block.
fn write(entries: &[Placed], out: &mut Vec<u8>) -> Option<()> {
    let dirents: Vec<Dirent<'_>> = entries
        .iter()
        .map(|(name, file_type, nid)| Dirent { nid: *nid, file_type: *file_type, name })
        .collect();
    write_block(&dirents, out).ok()
}

/// The content of a new directory.
pub(super) struct Content {
    /// For a directory in chunks only its new blocks.
    bytes: Vec<u8>,
    /// The size of the directory, and its table, if it is in chunks.
    chunks: Option<(u64, Vec<u8>)>,
}

impl Content {
    /// All entries, block by block; `None` if a name is none.
    pub(super) fn flat(entries: &[Placed], block: BlockSize) -> Option<Self> {
        let mut bytes = Vec::new();
        for row in pack(entries.iter().map(|(name, ..)| name.len()), block).0 {
            bytes.resize(bytes.len().next_multiple_of(block.bytes()), 0);
            write(entries.get(row).unwrap_or_default(), &mut bytes)?;
        }
        Some(Self { bytes, chunks: None })
    }

    /// The entries in the blocks of the old directory `source`, of which those stay in which nothing changes; `first` is the address of the
    /// first new block.
    pub(super) fn in_chunks(
        image: &Image,
        source: &Inode,
        entries: &[Placed],
        first: BlockAddr,
    ) -> Result<Option<Self>> {
        let block = image.superblock().block_size;
        let Some(format) = ChunkFormat::new(0, EntryFormat::Addresses) else { return Ok(None) };
        let old = old_blocks(image, source)?;
        let (mut bytes, mut table) = (Vec::new(), Vec::new());
        let (mut start, mut blocks, mut used) = (0, 0u64, 0);
        for (number, (_, addr)) in old.iter().enumerate() {
            let rest = entries.get(start..).unwrap_or_default();
            let end = match old.get(number + 1) {
                Some((next, _)) => rest.partition_point(|(name, ..)| name < next),
                None => rest.len(),
            };
            let group = rest.get(..end).unwrap_or_default();
            start += end;
            let parts = pack(group.iter().map(|(name, ..)| name.len()), block).0;
            let is_one = parts.len() == 1;
            for part in parts {
                let part = group.get(part).unwrap_or_default();
                used = part.iter().map(|(name, ..)| name.len() + DIRENT_SIZE).sum();
                let mut new = Vec::with_capacity(block.bytes());
                if write(part, &mut new).is_none() {
                    return Ok(None);
                }
                new.resize(block.bytes(), 0);
                let kept = match addr {
                    Some(addr) if is_one => is_same(image, *addr, &new).then_some(*addr),
                    _ => None,
                };
                let addr = kept.unwrap_or_else(|| {
                    let number = (bytes.len() / block.bytes()) as u64;
                    bytes.extend_from_slice(&new);
                    BlockAddr::new(first.get().saturating_add(number))
                });
                if format.encode(Some(ChunkPlace { device: DeviceId::new(0), addr }), &mut table).is_err() {
                    return Ok(None);
                }
                blocks += 1;
            }
        }
        let size = blocks.saturating_sub(1).saturating_mul(block.bytes64()).saturating_add(used as u64);
        Ok(Some(Self { bytes, chunks: Some((size, table)) }))
    }

    /// Sets size, layout and place of the directory's `inode`, which has `blocks` from `first` on.
    pub(super) fn set_in(&self, inode: &mut inode::Inode, blocks: u32, block: BlockSize, first: BlockAddr) {
        inode.dot_omitted = false;
        match &self.chunks {
            Some((size, _)) => {
                inode.size = *size;
                inode.layout = DataLayout::ChunkBased;
                let format = ChunkFormat::new(0, EntryFormat::Addresses);
                inode.place = Place::Chunked { format: format.map_or(0, |format| format.raw()) };
            }
            None => {
                inode.size = self.bytes.len() as u64;
                let has_tail = !self.tail(blocks, block).is_empty();
                inode.layout = if has_tail { DataLayout::FlatInline } else { DataLayout::FlatPlain };
                inode.place = Place::Blocks(first);
            }
        }
    }

    /// What follows the inode: the table, or the bytes that are not in `blocks`.
    pub(super) fn tail(&self, blocks: u32, block: BlockSize) -> &[u8] {
        match &self.chunks {
            Some((_, table)) => table,
            None => self.bytes.get(blocks as usize * block.bytes()..).unwrap_or_default(),
        }
    }

    /// All bytes that can be in blocks.
    pub(super) fn into_blocks(self) -> Vec<u8> {
        self.bytes
    }
}

fn is_same(image: &Image, addr: BlockAddr, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    let pos = addr.to_pos(image.superblock().block_size).unwrap_or(BytePos::new(u64::MAX));
    image.read_device(DeviceId::new(0), pos, Structure::Directory, &mut found).is_ok() && found == expected
}

/// The first name of each block of the directory `inode`, and the block's address if it is a whole block of the primary device.
pub fn old_blocks(old: &Image, inode: &Inode) -> Result<Vec<(Vec<u8>, Option<BlockAddr>)>> {
    let block = old.superblock().block_size;
    let mut blocks = Vec::new();
    let mut bytes = vec![0; block.bytes()];
    for number in 0..block.blocks_for(inode.size()) {
        let offset = FileOffset::new(number * block.bytes64());
        let read = old.read_at(inode, offset, &mut bytes)?;
        let first = DirBlock::parse(&bytes[..read]).ok().and_then(|block| block.get(0)?.ok());
        let name = first.map_or(Vec::new(), |first| first.name.to_vec());
        let extent = old.extents(inode, offset)?.next().transpose()?;
        let addr = extent.and_then(|extent| match extent.data {
            ExtentData::Stored { at: Location::Device(device, at) } if device == DeviceId::new(0) => {
                let at = at.checked_add(offset.get() - extent.start.get())?;
                (at.in_block(block) == 0).then(|| at.block(block))
            }
            _ => None,
        });
        blocks.push((name, addr));
    }
    Ok(blocks)
}
