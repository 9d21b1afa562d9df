//! Directory blocks. Source: FORMAT.md 3.
//!
//! A directory's content is a sequence of blocks. Each is an array of 12-byte dirents, followed by their names. Names are
//! sorted by their bytes across the whole directory.

mod blocks;

pub use blocks::{ChunkedDir, directory_size, for_each_block};

use alloc::vec::Vec;
use core::cmp::Ordering;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::inode::FileType;
use crate::units::{Nid, to_u64};
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

    /// Finds `name` by binary search. The inner `Err` says where the name would be.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn find(&self, name: &[u8]) -> Result<core::result::Result<Dirent<'a>, Side>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let Some(entry) = self.get(middle).transpose()? else { break };
            match entry.name.cmp(name) {
                Ordering::Equal => return Ok(Ok(entry)),
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
            }
        }
        Ok(Err(match low {
            0 => Side::Before,
            n if n == self.len() => Side::After,
            _ => Side::Within,
        }))
    }
}

/// The position of a name that a block does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before this block.
    Before,
    /// Between this block's entries: the directory does not contain the name.
    Within,
    /// After this block.
    After,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BlockSize;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        proptest::collection::btree_set(proptest::collection::vec(1u8.., 1..NAME_MAX), 1..200)
    }

    /// Writes `names` as a whole directory, padded between blocks; nids count up from 1. Its size is counted, too.
    fn directory(names: &BTreeSet<Vec<u8>>, block_size: BlockSize) -> Vec<u8> {
        let entries = names.iter().zip(1..).map(|(name, nid)| Dirent {
            nid: Nid::new(nid),
            file_type: Some(FileType::Symlink),
            name,
        });
        let mut out = Vec::new();
        let write = |block: &[Dirent<'_>]| {
            out.resize(out.len().next_multiple_of(block_size.bytes()), 0);
            write_block(block, &mut out)
        };
        for_each_block(entries, block_size, write).unwrap();
        assert_eq!(directory_size(names.iter().map(Vec::len), block_size), to_u64(out.len()));
        out
    }

    proptest! {
        #[test]
        fn round_trips_and_finds(names in names(), bits in 9u8..=16) {
            let block_size = BlockSize::from_bits(bits).unwrap();
            let bytes = directory(&names, block_size);
            let mut read = Vec::new();
            for block in bytes.chunks(block_size.bytes()) {
                let block = DirBlock::parse(block).unwrap();
                for entry in block.entries() {
                    let entry = entry.unwrap();
                    prop_assert_eq!(block.find(entry.name).unwrap(), Ok(entry));
                    read.push(entry.name.to_vec());
                }
                prop_assert_eq!(block.find(b"\0"), Ok(Err(Side::Before)));
                prop_assert_eq!(block.find(&[255; 256]), Ok(Err(Side::After)));
            }
            prop_assert_eq!(read, names.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>, first in 0u16..40) {
            for forced in [false, true] {
                if let (true, Some(field)) = (forced, bytes.get_mut(8..10)) {
                    field.copy_from_slice(&(first.wrapping_mul(12)).to_le_bytes());
                }
                if let Ok(block) = DirBlock::parse(&bytes) {
                    let _ = block.entries().count();
                    let _ = block.find(b"name");
                }
            }
        }
    }

    #[test]
    fn refuses_names_that_run_out_of_the_block() {
        let mut bytes = Vec::new();
        let entry = |name| Dirent { nid: Nid::new(1), file_type: None, name };
        write_block(&[entry(&b"a"[..]), entry(b"b")], &mut bytes).unwrap();
        bytes[20] = 99;
        let block = DirBlock::parse(&bytes).unwrap();
        assert!(block.get(0).unwrap().is_err());
        assert!(block.get(1).unwrap().is_err());
        assert!(block.get(2).is_none());
        bytes[8] = 0;
        assert!(DirBlock::parse(&bytes).is_err());
        assert!(write_block(&[entry(b"")], &mut bytes).is_err());
    }
}
