//! Predicts the bytes of new metadata from old inodes and directories, so that a patch only stores
//! what differs. `create` and `apply` predict in the same way: what is predicted, and where, is
//! part of the patch's format. Layout: docs/PATCH_FORMAT.md.

mod directory;
mod replay;

use ferofs_format::area::{MetadataAreas, MetadataSize};
use ferofs_format::dirent::Dirent;
use ferofs_format::inode::{DataLayout, FileType, Place};
use ferofs_format::superblock::Superblock;
use ferofs_format::units::{SLOT_SIZE, to_u64, to_usize};
use ferofs_format::{BlockAddr, BytePos, Nid, Structure};
use ferofs_read::error::Locate;
use ferofs_read::{FileOffset, Image, Inode, MetadataPlace, Source};

use self::directory::{Content, NewEntry};
pub use self::directory::{in_old_blocks, old_entries};
pub(super) use self::replay::set_fields;
pub use self::replay::{Replay, fields_of};
use super::header::Header;
use super::relocation::{Edit, Relocated, Relocations, Target};
use crate::error::{Error, PatchFault, Result};
use crate::image::SECTOR_POS;
use crate::image::history::{Origin, RECORD, Record};

/// Bytes of the shared and inline attributes of an inode at most, for a 16-bit count of 4-byte
/// units.
const XATTRS_MAX: usize = 1 << 18;

/// A directory of more bytes, or with more edits, is large: its names take some megabytes in
/// memory.
const LARGE_DIRECTORY: u64 = 64 << 10;
const LARGE_EDITS: usize = 4000;

/// Bytes of the new image that follow from the old one.
pub trait Predict: Sync {
    /// Puts the predicted bytes from `pos` on into `out`; zeroes where nothing is predicted.
    ///
    /// # Errors
    /// [`Error::Read`], [`PatchFault::Malformed`].
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()>;

    /// The same for the content of the metabox.
    ///
    /// # Errors
    /// [`PatchFault::Malformed`] if none is predicted.
    fn fill_metabox(&self, _pos: u64, _out: &mut [u8]) -> Result<()> {
        Err(malformed("it refers to a metabox that is not predicted"))
    }

    /// Whether making predicted bytes takes megabytes, so that only one thread should do it.
    fn takes_much_memory(&self) -> bool;
}

#[derive(Clone, Copy, Debug)]
struct NewInode {
    /// The old inode that it resembles.
    source: Option<Nid>,
    /// Where it is: slots from the start of the new metadata, or of the new content of the metabox.
    slot: u32,
    /// Blocks from there.
    first_block: u32,
    len: u32,
    blocks: u32,
    /// The number of its first value, and of values.
    first_value: u32,
    values: u8,
    in_chunks: bool,
}

/// The predicted bytes of what a patch appends.
pub struct Prediction {
    image: Image,
    superblock: Superblock,
    /// The position of the new metadata.
    base: u64,
    /// Where the new content of the metabox starts, if new inodes are there.
    metabox: Option<u64>,
    first_ino: u32,
    /// The position of the root's inode if it is not among the other metadata.
    root: Option<u64>,
    /// Whether that is in slots of the base.
    root_is_free: bool,
    inodes: Vec<NewInode>,
    /// New inodes and their blocks by position: the inode's number and 1 bit that says whether it
    /// is its blocks.
    order: Vec<u32>,
    /// The same for inodes in the metabox.
    in_metabox: Vec<u32>,
    /// The inodes with a source, by that.
    by_source: Vec<u32>,
    /// The fields that differ from the source.
    values: Vec<(u8, u64)>,
    /// The number of an inode, and its edit; sorted.
    edits: Vec<(u32, Edit)>,
    /// The position and the bytes of the history's record.
    record: (u64, Vec<u8>),
    /// Whether a directory is large.
    has_large: bool,
}

const fn malformed(what: &'static str) -> Error {
    Error::Patch(PatchFault::Malformed(what))
}

impl Prediction {
    /// Predicts what the patch with `header` appends to `image`, whose bytes are `source`.
    pub fn new(
        header: &Header,
        relocations: Relocations,
        image: &Image,
        source: &dyn Source,
    ) -> Result<Self> {
        let superblock = Superblock::parse(&header.sector).located_at(BytePos::new(SECTOR_POS))?;
        let outside = || malformed("its new metadata is outside of the appended bytes");
        let base = header.base_size.checked_add(relocations.start);
        let base = base.filter(|base| *base <= header.result_size).ok_or_else(outside)?;
        if !base.is_multiple_of(superblock.block_size.bytes64()) {
            return Err(outside());
        }
        let root = match (&header.root, relocations.root_is_first) {
            (Some((pos, _)), _) => Some(*pos),
            (None, true) => Some(header.base_size),
            (None, false) => None,
        };
        let metabox = match relocations.in_metabox {
            true => Some(new_metabox_content(image)?),
            false => None,
        };
        if metabox.is_some() && root.is_some() {
            return Err(malformed("its root's inode is in two places"));
        }
        let mut prediction = Self {
            image: image.clone(),
            base,
            metabox,
            first_ino: relocations.first_ino,
            root,
            root_is_free: header.root.is_some(),
            inodes: Vec::with_capacity(relocations.inodes.len()),
            order: Vec::new(),
            in_metabox: Vec::new(),
            by_source: Vec::new(),
            values: Vec::new(),
            edits: Vec::new(),
            record: record(header, source)?,
            has_large: false,
            superblock,
        };
        let room = header.result_size.saturating_sub(base);
        prediction.place(relocations.inodes, room)?;
        Ok(prediction)
    }

    /// Gives all new inodes their places, as `create` did.
    fn place(&mut self, relocated: Vec<Relocated>, room: u64) -> Result<()> {
        let outside = || malformed("its new metadata is outside of the appended bytes");
        let too_long = || malformed("its list of relocated inodes is too long");
        let block = self.superblock.block_size;
        let image = self.image.clone();
        let mut replay = Replay::new(&image, self.root_is_free);
        // Inodes in the metabox are apart from blocks. They are bounded by the numbers that their
        // slots can have.
        let in_metabox = self.metabox.is_some();
        let mut areas = MetadataAreas::new(block, in_metabox, 0);
        let inode_room = if in_metabox { u64::from(u32::MAX) } else { room };
        for (number, one) in (0u32..).zip(relocated) {
            let source = replay.source(one.source)?;
            let predicted = match &source {
                Some(source) => replay.sizes(source, &one, number == 0, block)?,
                None => (0, 0),
            };
            let sum = |predicted: u64, more: i64, room: u64| {
                let sum = predicted.checked_add_signed(more).filter(|sum| *sum <= room);
                sum.and_then(|sum| u32::try_from(sum).ok()).ok_or_else(outside)
            };
            let (len, blocks) =
                (sum(predicted.0, one.len, inode_room)?, sum(predicted.1, one.blocks, room)?);
            if one.inline > len || u64::from(one.inline) > block.bytes64().saturating_sub(SLOT_SIZE)
            {
                return Err(malformed("an inline tail is longer than its inode"));
            }
            let apart = number == 0 && self.root.is_some();
            let size =
                MetadataSize { len: len.into(), inline: one.inline.into(), blocks: blocks.into() };
            let pos = if apart || len == 0 { 0 } else { areas.allocate_inode(size) };
            let first_block = areas.allocate_blocks(size).unwrap_or(0);
            if areas.blocks().checked_mul(block.bytes64()).is_none_or(|end| end > room) {
                return Err(outside());
            }
            let slot = u32::try_from(pos / SLOT_SIZE).map_err(|_| outside())?;
            let first_block = u32::try_from(first_block).map_err(|_| outside())?;
            self.has_large |= source.as_ref().is_some_and(|source| {
                source.is_dir()
                    && (source.size() > LARGE_DIRECTORY || one.edits.len() > LARGE_EDITS)
            });
            let source = source.map(|source| source.nid());
            if !apart && len > 0 {
                let order = if in_metabox { &mut self.in_metabox } else { &mut self.order };
                order.push(number << 1);
            }
            if blocks > 0 {
                self.order.push(number << 1 | 1);
            }
            if source.is_some() {
                self.by_source.push(number);
            }
            let first_value = u32::try_from(self.values.len()).map_err(|_| too_long())?;
            let values = u8::try_from(one.fields.len()).map_err(|_| too_long())?;
            self.values.extend(one.fields);
            self.edits.extend(one.edits.into_iter().map(|edit| (number, edit)));
            let in_chunks = one.in_chunks;
            self.inodes.push(NewInode {
                source,
                slot,
                first_block,
                len,
                blocks,
                first_value,
                values,
                in_chunks,
            });
        }
        let (mut order, mut in_metabox) =
            (std::mem::take(&mut self.order), std::mem::take(&mut self.in_metabox));
        order.sort_unstable_by_key(|item| self.range(*item).0);
        in_metabox.sort_unstable_by_key(|item| self.range(*item).0);
        (self.order, self.in_metabox) = (order, in_metabox);
        let inodes = &self.inodes;
        self.by_source
            .sort_by_key(|number| inodes.get(to_usize(*number)).and_then(|inode| inode.source));
        Ok(())
    }

    /// Reads the old image through `image` from now on.
    pub(crate) fn set_image(&mut self, image: &Image) {
        self.image = image.clone();
    }

    fn inode(&self, number: u32) -> Option<&NewInode> {
        self.inodes.get(to_usize(number))
    }

    /// The position and the length of an item of [`Self::order`], or of [`Self::in_metabox`] there.
    fn range(&self, item: u32) -> (u64, u64) {
        let Some(inode) = self.inode(item >> 1) else { return (0, 0) };
        // Blocks, and inodes outside of the metabox, are within the region.
        match item & 1 {
            0 => {
                let start = self.metabox.unwrap_or(self.base);
                (start.saturating_add(u64::from(inode.slot) * SLOT_SIZE), inode.len.into())
            }
            _ => {
                let bytes = |blocks: u32| {
                    u64::from(blocks).saturating_mul(self.superblock.block_size.bytes64())
                };
                (self.base.saturating_add(bytes(inode.first_block)), bytes(inode.blocks))
            }
        }
    }

    /// The inode number of the new inode `number`.
    pub fn nid(&self, number: u32) -> Option<Nid> {
        let pos = match self.root {
            Some(pos) if number == 0 => pos,
            _ => self.range(number << 1).0,
        };
        if self.metabox.is_some() {
            return Some(Nid::metabox_slot(pos / SLOT_SIZE));
        }
        self.superblock.nid_at(BytePos::new(pos))
    }

    /// The new number of an old inode; the old number if it stays.
    fn relocated(&self, old: Nid) -> Nid {
        let source = |number: &u32| self.inode(*number).and_then(|inode| inode.source);
        let first = self.by_source.partition_point(|number| source(number) < Some(old));
        let found = self.by_source.get(first).filter(|number| source(number) == Some(old));
        found.and_then(|number| self.nid(*number)).unwrap_or(old)
    }

    /// Puts zeroes into `out`, which starts at `pos`, and those of `items` that are there.
    fn fill_items(&self, items: &[u32], pos: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        let end = pos.saturating_add(to_u64(out.len()));
        let first = items.partition_point(|item| {
            let (start, len) = self.range(*item);
            start.saturating_add(len) <= pos
        });
        for item in items.get(first..).unwrap_or_default() {
            let (start, _) = self.range(*item);
            if start >= end {
                break;
            }
            let number = item >> 1;
            let Some(inode) = self.inode(number) else { continue };
            match item & 1 {
                0 => self.fill_inode(number, inode, start, pos, out)?,
                _ => overlay(out, pos, start, &self.blocks(number, inode)?),
            }
        }
        Ok(())
    }

    /// The old inode that `inode` resembles, and its form and place in the new image, without its
    /// content.
    fn form(
        &self,
        number: u32,
        inode: &NewInode,
    ) -> Result<Option<(Inode, ferofs_format::inode::Inode)>> {
        let Some(source) = inode.source else { return Ok(None) };
        let source = self.image.inode(source)?;
        let mut new = source.on_disk().clone();
        let values = self.values.get(to_usize(inode.first_value)..).unwrap_or_default();
        replay::set_fields(&mut new, values.iter().take(inode.values.into()));
        new.ino = self.first_ino.wrapping_add(number);
        Ok(Some((source, new)))
    }

    fn first_block(&self, inode: &NewInode) -> BlockAddr {
        match inode.blocks {
            0 => BlockAddr::new(0),
            _ => {
                let first = self.base >> self.superblock.block_size.bits();
                BlockAddr::new(first.saturating_add(inode.first_block.into()))
            }
        }
    }

    /// The edits of the new directory `number`.
    fn edits_of(&self, number: u32) -> &[(u32, Edit)] {
        let first = self.edits.partition_point(|(of, _)| *of < number);
        let end = self.edits.partition_point(|(of, _)| *of <= number);
        self.edits.get(first..end).unwrap_or_default()
    }

    /// The content of the new directory `number`; `None` if it is not predicted.
    fn content(&self, number: u32, inode: &NewInode, source: &Inode) -> Result<Option<Content>> {
        let edits = self.edits_of(number).iter().map(|(_, edit)| edit);
        let block = self.superblock.block_size;
        let Some(entries) = directory::new_entries(&self.image, source, edits)? else {
            return Ok(None);
        };
        let nid = |entry: &NewEntry| match entry.target {
            Target::Old(nid) if entry.is_old => Some(self.relocated(Nid::new(nid))),
            Target::Old(nid) => Some(Nid::new(nid)),
            Target::New(number) => self.nid(number),
        };
        let entries: Vec<Dirent<'_>> =
            entries.iter().map(|entry| entry.dirent(nid(entry).unwrap_or_default())).collect();
        match inode.in_chunks {
            true => Content::in_chunks(&self.image, source, &entries, self.first_block(inode)),
            false => Ok(Content::flat(&entries, block)),
        }
    }

    /// Puts the inode that starts at `start` into `out`, which starts at `pos`.
    fn fill_inode(
        &self,
        number: u32,
        inode: &NewInode,
        start: u64,
        pos: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let Some((source, mut new)) = self.form(number, inode)? else { return Ok(()) };
        let old_len = to_u64(source.on_disk().version.size());
        let mut content = None;
        match new.file_type {
            FileType::Directory => {
                content = self.content(number, inode, &source)?;
                if let Some(content) = &content {
                    content.set_in(
                        &mut new,
                        inode.blocks,
                        self.superblock.block_size,
                        self.first_block(inode),
                    );
                }
            }
            FileType::Symlink if new.layout == DataLayout::FlatInline => {
                new.place = Place::Blocks(self.first_block(inode));
            }
            _ => {}
        }
        let mut head = Vec::new();
        if new.write(&self.superblock, &mut head).is_err() {
            return Ok(());
        }
        let xattrs = source.xattr_size().min(XATTRS_MAX).min(to_usize(inode.len));
        let mut attributes = vec![0; xattrs];
        let place = source.place();
        self.image.read_metadata(at(place, old_len)?, Structure::Xattr, &mut attributes)?;
        head.extend_from_slice(&attributes);
        let after = to_u64(head.len());
        if let Some(content) = content {
            head.extend_from_slice(content.tail(inode.blocks, self.superblock.block_size));
        }
        head.truncate(to_usize(inode.len));
        overlay(out, pos, start, &head);
        if new.file_type == FileType::Directory {
            return Ok(());
        }
        // What follows the attributes is as it was: an index can be long, so only the needed part
        // is read.
        let end = self.image.extents(&source, FileOffset::new(0))?.metadata_end()?.pos.get();
        let old_after = at(place, old_len.saturating_add(to_u64(xattrs)))?;
        let len =
            end.saturating_sub(old_after.pos.get()).min(u64::from(inode.len).saturating_sub(after));
        let from = start.saturating_add(after);
        let skipped = pos.saturating_sub(from);
        let within = |position: u64| to_usize(position.saturating_sub(pos)).min(out.len());
        let range = within(from)..within(from.saturating_add(len));
        if let Some(part) = out.get_mut(range).filter(|part| !part.is_empty()) {
            self.image.read_metadata(at(old_after, skipped)?, Structure::Inode, part)?;
        }
        Ok(())
    }

    /// The blocks of a directory or a symbolic link.
    fn blocks(&self, number: u32, inode: &NewInode) -> Result<Vec<u8>> {
        let Some((source, new)) = self.form(number, inode)? else { return Ok(Vec::new()) };
        let len = to_usize(inode.blocks).saturating_mul(self.superblock.block_size.bytes());
        let mut bytes = match new.file_type {
            FileType::Directory => match self.content(number, inode, &source)? {
                Some(content) => content.into_blocks(),
                None => Vec::new(),
            },
            FileType::Symlink => self.image.read_link(&source)?,
            _ => Vec::new(),
        };
        bytes.truncate(len);
        Ok(bytes)
    }
}

impl Predict for Prediction {
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        self.fill_items(&self.order, pos, out)?;
        let end = pos.saturating_add(to_u64(out.len()));
        if let (Some(root), Some(inode), false) =
            (self.root, self.inodes.first(), self.root_is_free)
            && root < end
        {
            self.fill_inode(0, inode, root, pos, out)?;
        }
        overlay(out, pos, self.record.0, &self.record.1);
        Ok(())
    }

    fn fill_metabox(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        self.fill_items(&self.in_metabox, pos, out)
    }

    fn takes_much_memory(&self) -> bool {
        self.has_large
    }
}

/// `place` and `bytes` more.
pub(super) fn at(place: MetadataPlace, bytes: u64) -> Result<MetadataPlace> {
    let overflow = || malformed("an inode is past the image");
    Ok(MetadataPlace { pos: place.pos.checked_add(bytes).ok_or_else(overflow)?, ..place })
}

/// Where the content starts that a patch adds to the metabox of `image`: in the next whole block.
fn new_metabox_content(image: &Image) -> Result<u64> {
    let without = || malformed("its new inodes are in a metabox that its base lacks");
    let superblock = image.superblock();
    let metabox = image.inode(superblock.metabox.ok_or_else(without)?)?;
    metabox.size().checked_next_multiple_of(superblock.block_size.bytes64()).ok_or_else(without)
}

/// Copies the part of `bytes`, which start at `start`, that is within `out`, which starts at `pos`.
pub(super) fn overlay(out: &mut [u8], pos: u64, start: u64, bytes: &[u8]) {
    let skip = to_usize(pos.saturating_sub(start)).min(bytes.len());
    let bytes = bytes.get(skip..).unwrap_or_default();
    let from = to_usize(start.saturating_sub(pos)).min(out.len());
    let out = out.get_mut(from..).unwrap_or_default();
    out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
}

/// The position and the bytes of the record that the patch with `header` adds to the history.
fn record(header: &Header, source: &dyn Source) -> Result<(u64, Vec<u8>)> {
    let before = Record::read(source, header.base_size)?;
    // Exact: it has at most `ROOT_MAX` bytes.
    let root_len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let record = Record {
        origin: Origin::Patch,
        number: header.base_state.wrapping_add(1),
        time: header.time,
        start: header.base_size,
        end: header.result_size,
        previous: before.map_or(0, |before| before.end),
        before: header.base_sector,
        after: header.sector,
        root: header.root.as_ref().map_or((0, 0), |(pos, bytes)| (*pos, root_len(bytes))),
    };
    Ok((header.result_size.saturating_sub(RECORD), record.to_bytes()))
}
