//! Predicts the bytes of new metadata from old inodes and directories, so that a patch or a delta
//! stores only what differs. `create` and `apply` predict in the same way: what is predicted, and
//! where, is part of the format of both. Layout: docs/PATCH_FORMAT.md.
//!
//! [`Relocations`] say which old inodes the new ones resemble, and are stored; [`Prediction`] has
//! the bytes.

mod addresses;
mod bytes;
mod directory;
mod fields;
mod places;
mod relocations;
mod shifts;

use ferofs_format::area::MetadataSize;
use ferofs_format::inode::{self, Place};
use ferofs_format::superblock::{self, Superblock};
use ferofs_format::units::{SLOT_SIZE, to_u64, to_usize};
use ferofs_format::{BlockAddr, BytePos, DeviceId, Nid, Structure};
use ferofs_read::{Image, Inode};

pub use self::addresses::addresses;
use self::addresses::first_block;
pub use self::directory::{in_old_blocks, old_entries};
pub use self::fields::{ADDRESS, Fields, SIZE, fields};
pub use self::places::{Numbers, Places, inline_of, stored_size};
use self::relocations::malformed;
pub use self::relocations::{
    Area, DirForm, Edit, INODES_MAX, LIST_MAX, Relocated, Relocations, Rules, SourceCode, Target,
};
pub use self::shifts::Shifts;
use crate::error::Result;

/// The work of finding an inode and writing it, in units of about 100 ns.
const INODE_WORK: u64 = 20;
/// A directory of more bytes, or with more edits, is large: its names take some megabytes in
/// memory.
const LARGE_DIRECTORY: u64 = 64 << 10;
const LARGE_EDITS: usize = 4000;

/// Bytes of the new image that follow from the old one.
pub trait Predict: Sync {
    /// Puts the predicted bytes from `pos` on into `out`; zeroes where nothing is predicted.
    ///
    /// # Errors
    /// [`Error::Read`](crate::Error::Read), [`PatchFault::Malformed`](crate::PatchFault::Malformed).
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()>;

    /// The same for the content of the metabox.
    ///
    /// # Errors
    /// As [`Self::fill`].
    fn fill_metabox(&self, pos: u64, out: &mut [u8]) -> Result<()>;

    /// Whether making predicted bytes takes megabytes, so that only one thread should do it.
    fn takes_much_memory(&self) -> bool;
}

/// A new inode.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Its position in the new image, or in the new content of the metabox.
    pos: u64,
    /// The old inode that it resembles.
    old: Nid,
    ino: u32,
    /// The address of its blocks, if they are in an area.
    first: Option<BlockAddr>,
    /// Its number in the list.
    number: u32,
    /// The number of its first value, and of values.
    first_value: u32,
    values: u8,
    form: DirForm,
}

/// Blocks of a directory or of a symbolic link.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    pos: u64,
    /// Bytes at most.
    len: u64,
    /// Of the inode, in the list of all, sorted by position.
    inode: usize,
}

/// The predicted bytes of new metadata.
#[derive(Debug)]
pub struct Prediction {
    image: Image,
    superblock: Superblock,
    list: Relocations,
    /// By position.
    inodes: Vec<Placed>,
    /// The same for those in the metabox.
    in_metabox: Vec<Placed>,
    /// By position. The inode is among `inodes`, or among those in the metabox after them.
    blocks: Vec<Blocks>,
    /// The numbers of all inodes in the list.
    nids: Vec<Nid>,
    /// The old number of each inode, and its new one; sorted.
    by_old: Vec<(Nid, Nid)>,
    /// The position of bytes that are known, and these.
    known: (u64, Vec<u8>),
    has_large: bool,
}

/// The `bytes`, each changed by the one of the superblock of `old` at its position: subtracting
/// gives what [`Relocations`] have of the new superblock, adding the reverse.
///
/// # Errors
/// [`Error::Read`](crate::Error::Read) if the old image is too short.
pub fn superblock_bytes(
    old: &Image,
    mut bytes: Vec<u8>,
    change: fn(u8, u8) -> u8,
) -> Result<Vec<u8>> {
    let mut own = vec![0; bytes.len()];
    let pos = BytePos::new(to_u64(superblock::OFFSET));
    old.read_device(DeviceId::new(0), pos, Structure::Superblock, &mut own)?;
    bytes.iter_mut().zip(own).for_each(|(byte, old)| *byte = change(*byte, old));
    Ok(bytes)
}

impl Prediction {
    /// Predicts the metadata of the image that differs from the old `image` as the list says, which
    /// has the new superblock, too.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_rebuilt(list: Relocations, image: &Image) -> Result<Self> {
        let bytes = superblock_bytes(image, list.superblock.clone(), u8::wrapping_add)?;
        let superblock = Superblock::parse(&bytes).map_err(|_| malformed())?;
        Self::new(list, image, superblock, (to_u64(superblock::OFFSET), bytes))
    }

    /// Predicts the metadata of an image with this `superblock`, and with the `known` bytes at a
    /// position.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if the old image is not valid, or lacks inodes of the list.
    pub fn new(
        list: Relocations,
        image: &Image,
        superblock: Superblock,
        known: (u64, Vec<u8>),
    ) -> Result<Self> {
        let mut prediction = Self {
            image: image.clone(),
            superblock,
            inodes: Vec::with_capacity(list.inodes.len()),
            in_metabox: Vec::new(),
            blocks: Vec::new(),
            nids: Vec::with_capacity(list.inodes.len()),
            by_old: Vec::with_capacity(list.inodes.len()),
            known,
            has_large: false,
            list,
        };
        prediction.place()?;
        Ok(prediction)
    }

    /// Finds the places of all new inodes and blocks.
    fn place(&mut self) -> Result<()> {
        let base = self.superblock.inode_base().ok_or_else(malformed)?;
        let block = self.superblock.block_size;
        let mut places = Places::new(&self.image, &self.superblock, self.list.rules);
        let mut first_value = 0u32;
        let inodes = std::mem::take(&mut self.list.inodes);
        for (number, one) in (0u32..).zip(&inodes) {
            self.image.budget().charge(INODE_WORK)?;
            let source = places.source(one.source)?;
            let mut placed = Placed {
                pos: 0,
                old: source.as_ref().map_or(Nid::default(), Inode::nid),
                ino: 0,
                first: None,
                number,
                first_value,
                values: one.values,
                form: one.form,
            };
            first_value = first_value.saturating_add(one.values.into());
            let mut size = MetadataSize::default();
            if let Some(old) = &source {
                let version = self.changed_inode(&placed, old).version.size();
                let edits = self.list.edits_of(number);
                self.has_large |=
                    old.is_dir() && (old.size() > LARGE_DIRECTORY || edits.len() > LARGE_EDITS);
                size = places.size(old, version, one.form, edits.iter().map(|(_, edit)| edit))?;
            }
            let sum =
                |predicted: u64, more| predicted.checked_add_signed(more).ok_or_else(malformed);
            (size.len, size.blocks) = (sum(size.len, one.len)?, sum(size.blocks, one.blocks)?);
            size.inline = one.inline.into();
            if size.inline > size.len.min(block.bytes64().saturating_sub(SLOT_SIZE)) {
                return Err(malformed());
            }
            let numbers = places.predict(source.as_ref(), size)?;
            let nid = Nid::new(numbers.nid.get().wrapping_add_signed(one.nid));
            #[expect(clippy::as_conversions, reason = "numbers for `stat` have 32 bits")]
            let ino = numbers.ino.wrapping_add_signed(one.ino as i32);
            places.pass(source.as_ref(), nid, ino);
            self.nids.push(nid);
            let Some(old) = source else { continue };
            let start = if nid.in_metabox() { BytePos::new(0) } else { base };
            placed.pos = nid.to_pos(start).ok_or_else(malformed)?.get();
            (placed.ino, placed.first) = (ino, numbers.first);
            self.by_old.push((old.nid(), nid));
            if let Place::Blocks(first) = self.changed_inode(&placed, &old).place
                && size.blocks > 0
                && let Some(pos) = first.to_pos(block)
            {
                let len = size.blocks.saturating_mul(block.bytes64());
                self.blocks.push(Blocks { pos: pos.get(), len, inode: to_usize(number) });
            }
            match nid.in_metabox() {
                true => self.in_metabox.push(placed),
                false => self.inodes.push(placed),
            }
        }
        self.by_old.sort_by_key(|(old, _)| *old);
        self.inodes.sort_by_key(|inode| inode.pos);
        self.in_metabox.sort_by_key(|inode| inode.pos);
        self.blocks.sort_by_key(|blocks| blocks.pos);
        self.name_inodes_of_blocks(inodes.len());
        self.clip_blocks();
        Ok(())
    }

    /// Replaces the numbers of inodes in the list, of which there are `count`, by their places
    /// among the sorted ones.
    fn name_inodes_of_blocks(&mut self, count: usize) {
        let mut places = vec![0; count];
        for (place, inode) in self.inodes.iter().chain(&self.in_metabox).enumerate() {
            if let Some(slot) = places.get_mut(to_usize(inode.number)) {
                *slot = place;
            }
        }
        for blocks in &mut self.blocks {
            blocks.inode = places.get(blocks.inode).copied().unwrap_or_default();
        }
    }

    /// Lets blocks end where the next ones start, so that what is predicted of a byte does not
    /// depend on where a reference starts.
    fn clip_blocks(&mut self) {
        let mut next = u64::MAX;
        for blocks in self.blocks.iter_mut().rev() {
            blocks.len = blocks.len.min(next.saturating_sub(blocks.pos));
            next = blocks.pos;
        }
    }

    /// Reads the old image through `image` from now on.
    pub(crate) fn set_image(&mut self, image: &Image) {
        self.image = image.clone();
    }

    /// The number that a name leads to.
    fn number(&self, target: Target) -> Nid {
        match target {
            Target::New(number) => self.nids.get(to_usize(number)).copied().unwrap_or_default(),
            Target::Old(nid) => self.relocated(Nid::new(nid)),
        }
    }

    /// The new number of an old inode; the old number if the list lacks it.
    fn relocated(&self, old: Nid) -> Nid {
        let first = self.by_old.partition_point(|(own, _)| *own < old);
        match self.by_old.get(first) {
            Some((own, new)) if *own == old => *new,
            _ => old,
        }
    }
}

impl Predict for Prediction {
    fn fill(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        self.fill_inodes(&self.inodes, pos, out)?;
        let end = pos.saturating_add(to_u64(out.len()));
        let ends = |blocks: &Blocks| blocks.pos.saturating_add(blocks.len);
        let first = self.blocks.partition_point(|blocks| ends(blocks) <= pos);
        for blocks in self.blocks.get(first..).unwrap_or_default() {
            if blocks.pos >= end {
                break;
            }
            self.image.budget().charge(INODE_WORK)?;
            self.fill_blocks(blocks, pos, out)?;
        }
        overlay(out, pos, self.known.0, &self.known.1);
        Ok(())
    }

    fn fill_metabox(&self, pos: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        self.fill_inodes(&self.in_metabox, pos, out)
    }

    fn takes_much_memory(&self) -> bool {
        self.has_large || !self.list.data.is_empty() || !self.list.packed.is_empty()
    }
}

/// The inode `old` of the old `image` at its new place: its blocks are at `first`, or move as its
/// content moves. Its number for `stat` is the old one.
#[must_use]
pub fn moved_inode(
    old: &Inode,
    image: &Image,
    data: &Shifts,
    form: DirForm,
    first: Option<BlockAddr>,
) -> inode::Inode {
    let mut inode = old.on_disk().clone();
    let block = image.superblock().block_size;
    let moved = first_block(&inode, block);
    let moved = moved.map(|first| BytePos::new(data.apply(first.get())).block(block));
    if let Some(first) = first.or(moved) {
        inode.place = Place::Blocks(first);
    } else if form != DirForm::AsStored && old.is_dir() {
        inode.place = Place::Blocks(BlockAddr::new(0));
    }
    inode
}

/// The address of the blocks of `inode`.
const fn blocks_of(inode: &inode::Inode) -> BlockAddr {
    match inode.place {
        Place::Blocks(first) => first,
        _ => BlockAddr::new(0),
    }
}

/// Copies the part of `bytes`, which start at `start`, that is within `out`, which starts at `pos`.
fn overlay(out: &mut [u8], pos: u64, start: u64, bytes: &[u8]) {
    let skip = to_usize(pos.saturating_sub(start)).min(bytes.len());
    let bytes = bytes.get(skip..).unwrap_or_default();
    let from = to_usize(start.saturating_sub(pos)).min(out.len());
    let out = out.get_mut(from..).unwrap_or_default();
    out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
}
