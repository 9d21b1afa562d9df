//! Directory blocks. Source: FORMAT.md 3.
//!
//! A directory's content is a sequence of blocks. Each is an array of 12-byte dirents, followed by
//! their names. Names are sorted by their bytes across the whole directory.

mod blocks;
#[cfg(test)]
mod tests;

pub use blocks::{ChunkedDir, directory_size, for_each_block};

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::inode::FileType;
use crate::units::{Nid, to_u64, to_usize};
use crate::view::View;

/// The longest name in bytes, as in Linux. Longer names are an error.
pub const NAME_MAX: usize = 255;
/// Bytes of a dirent without its name.
pub const DIRENT_SIZE: usize = 12;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDirent {
    nid: U64,
    nameoff: U16,
    file_type: u8,
    reserved: u8,
}

const _: () = assert!(core::mem::size_of::<RawDirent>() == DIRENT_SIZE);

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The inode with this name.
    pub nid: Nid,
    /// The inode's type, or `None` if the directory does not contain it.
    pub file_type: Option<FileType>,
    /// 1 to 255 bytes.
    pub name: &'a [u8],
}

/// One block of a directory; its number of entries is checked.
#[derive(Clone, Copy, Debug)]
pub struct DirBlock<'a> {
    block: &'a [u8],
    dirents: &'a [RawDirent],
}

impl<'a> DirBlock<'a> {
    /// Reads one block: `block` ends where the block or the directory ends.
    ///
    /// # Errors
    /// A first `nameoff` that is zero, no multiple of 12, or past the block.
    pub fn parse(block: &'a [u8]) -> Result<Self> {
        let first = View::new(block, Structure::Directory).read::<RawDirent>()?.nameoff.get();
        let names = usize::from(first);
        let bad = |fault| FormatError::new(Structure::Directory, fault).at(8);
        if names == 0 || !names.is_multiple_of(DIRENT_SIZE) {
            return Err(bad(Fault::Field { field: "nameoff", value: first.into() }));
        }
        let Some(head) = block.get(..names).filter(|_| names < block.len()) else {
            let limit = to_u64(block.len());
            return Err(bad(Fault::OutOfRange { field: "nameoff", value: first.into(), limit }));
        };
        // `names` is a multiple of the record's size and records need no alignment.
        let dirents = <[RawDirent]>::ref_from_bytes(head)
            .map_err(|_| bad(Fault::Field { field: "nameoff", value: first.into() }))?;
        Ok(Self { block, dirents })
    }

    /// Number of entries, at least 1.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.dirents.len()
    }

    /// Always false, as a block has at least one entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.dirents.is_empty()
    }

    /// Entry `index`, or `None` past the last one.
    ///
    /// # Errors
    /// A name that is empty, too long or outside the block.
    pub fn get(&self, index: usize) -> Option<Result<Dirent<'a>>> {
        let raw = self.dirents.get(index)?;
        let next = self.dirents.get(index.saturating_add(1));
        Some(self.entry(index, raw, next))
    }

    fn entry(&self, index: usize, raw: &RawDirent, next: Option<&RawDirent>) -> Result<Dirent<'a>> {
        let at = to_u64(index.saturating_mul(DIRENT_SIZE));
        let start = usize::from(raw.nameoff.get());
        let end = next.map_or(self.block.len(), |next| usize::from(next.nameoff.get()));
        let Some(mut name) = self.block.get(start..end) else {
            let fault =
                Fault::OutOfRange { field: "nameoff", value: to_u64(start), limit: to_u64(end) };
            return Err(FormatError::new(Structure::Directory, fault).at(at));
        };
        if next.is_none() {
            name = name.split(|&b| b == 0).next().unwrap_or(name);
        }
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(FormatError::new(Structure::Directory, Fault::Name).at(at));
        }
        Ok(Dirent { nid: Nid::new(raw.nid.get()), file_type: type_from_disk(raw.file_type), name })
    }

    /// All entries, in stored order.
    pub fn entries(&self) -> impl Iterator<Item = Result<Dirent<'a>>> + use<'a> {
        let block = *self;
        (0..self.len()).filter_map(move |index| block.get(index))
    }

    /// Finds `name` after the first entry, which [`Search`] has compared to choose the block.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn find(&self, name: &[u8]) -> Result<Option<Dirent<'a>>> {
        let mut search = Search::new(name, 1..to_u64(self.len()));
        while let Some(middle) = search.middle() {
            let Some(entry) = self.get(to_usize(middle)).transpose()? else { break };
            if search.compare(middle, entry.name).is_eq() {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Replaces the inode number of each entry of a directory block in place. A block that is not valid
/// stays as it is.
pub fn change_nids(block: &mut [u8], mut change: impl FnMut(Nid) -> Nid) {
    let Ok(dirents) = DirBlock::parse(block).map(|parsed| parsed.len()) else { return };
    let (dirents, _) = block.split_at_mut(dirents.saturating_mul(DIRENT_SIZE).min(block.len()));
    if let Ok(dirents) = <[RawDirent]>::mut_from_bytes(dirents) {
        dirents.iter_mut().for_each(|raw| raw.nid = change(Nid::new(raw.nid.get())).get().into());
    }
}

/// A binary search for a name: first among the first names of blocks, then in the block before the
/// first greater one.
///
/// It compares the same names as Linux, in the same way. So it finds the same entry in a damaged
/// directory, which has a name twice or names out of order.
#[derive(Debug)]
pub struct Search<'n> {
    name: &'n [u8],
    range: Range<u64>,
    /// Bytes that the name has in common with the last name before the range, and with the first
    /// one after it.
    common: [usize; 2],
}

impl<'n> Search<'n> {
    /// A search for `name` in `range`.
    #[must_use]
    pub const fn new(name: &'n [u8], range: Range<u64>) -> Self {
        Self { name, range, common: [0; 2] }
    }

    /// The number of the entry or block to compare next; none if the range is empty.
    #[must_use]
    pub fn middle(&self) -> Option<u64> {
        let last = self.range.end.checked_sub(1).filter(|last| self.range.start <= *last)?;
        Some(self.range.start.midpoint(last))
    }

    /// Compares the name with that of number `middle`, and goes on in the half that has it.
    pub fn compare(&mut self, middle: u64, other: &[u8]) -> Ordering {
        let [before, after] = self.common;
        let equal = before.min(after);
        let rest = self.name.iter().zip(other).skip(equal);
        let equal = equal.saturating_add(rest.take_while(|(a, b)| a == b).count());
        let order = self.name.get(equal).cmp(&other.get(equal));
        match order {
            Ordering::Less => (self.range.end, self.common) = (middle, [before, equal]),
            Ordering::Greater => {
                (self.range.start, self.common) = (middle.saturating_add(1), [equal, after]);
            }
            Ordering::Equal => {}
        }
        order
    }
}

/// Appends one block with `entries` to `out`, without padding.
///
/// # Errors
/// [`Fault::Name`] for an invalid name, [`Fault::OutOfRange`] for more than a block holds.
pub fn write_block(entries: &[Dirent<'_>], out: &mut Vec<u8>) -> Result<()> {
    let mut nameoff = entries.len().saturating_mul(DIRENT_SIZE);
    for entry in entries {
        if entry.name.is_empty() || entry.name.len() > NAME_MAX || entry.name.contains(&0) {
            return Err(FormatError::new(Structure::Directory, Fault::Name));
        }
        let fault = Fault::OutOfRange { field: "nameoff", value: to_u64(nameoff), limit: 1 << 16 };
        let raw = RawDirent {
            nid: entry.nid.get().into(),
            nameoff: u16::try_from(nameoff)
                .map_err(|_| FormatError::new(Structure::Directory, fault))?
                .into(),
            file_type: entry.file_type.map_or(0, FileType::number),
            reserved: 0,
        };
        out.extend_from_slice(raw.as_bytes());
        nameoff = nameoff.saturating_add(entry.name.len());
    }
    for entry in entries {
        out.extend_from_slice(entry.name);
    }
    Ok(())
}

const fn type_from_disk(raw: u8) -> Option<FileType> {
    match raw {
        1 => Some(FileType::Regular),
        2 => Some(FileType::Directory),
        3 => Some(FileType::CharDevice),
        4 => Some(FileType::BlockDevice),
        5 => Some(FileType::Fifo),
        6 => Some(FileType::Socket),
        7 => Some(FileType::Symlink),
        _ => None,
    }
}

impl FileType {
    /// The file type's number in directories, from 1; 0 means unknown there. Source: FORMAT.md 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}
