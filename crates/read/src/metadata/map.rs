//! The map of a file: which extent covers an offset. Source: FORMAT.md 2, 5, 6.
//!
//! Reads metadata alone. A [`FileMap`] keeps what the last look-up read, so that walking a file
//! from extent to extent costs little.

mod index;
mod records;
mod uncompressed;

use ferofs_format::inode::Place as InodePlace;
use ferofs_format::map::{MapHeader, header};
use ferofs_format::{Fault, FileOffset, Incompat, Structure};

use crate::error::{Corruption, Locate, OfInode, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::{Extent, ExtentData};
use crate::metadata::inode::Inode;
use crate::volume::MetadataPlace;
use ferofs_format::units::to_u64;

/// Extents that a map remembers: a request looks at its extents several times, and small requests
/// have few.
const RECENT: usize = 4;

/// A file's map, with the extents that were found last.
#[derive(Debug)]
pub(crate) struct FileMap<'a> {
    layout: Layout<'a>,
    recent: [Option<Extent>; RECENT],
    /// The entry of `recent` that the next extent replaces.
    oldest: usize,
}

/// A map, by layout.
#[derive(Debug)]
enum Layout<'a> {
    Flat(uncompressed::FlatMap<'a>),
    Chunks(uncompressed::ChunkMap<'a>),
    Index(index::IndexMap<'a>),
    Records(records::RecordMap<'a>),
    /// The whole file is a fragment; the header ends here.
    Fragment(Extent, MetadataPlace),
}

impl<'a> FileMap<'a> {
    /// Reads what the map of `inode` starts with.
    pub(crate) fn open(metadata: &'a dyn ReadMetadata, inode: &'a Inode) -> Result<Self> {
        let layout = match inode.disk.place {
            InodePlace::Chunked { format } => {
                Layout::Chunks(uncompressed::ChunkMap::open(metadata, inode, format)?)
            }
            InodePlace::Compressed { .. } => Layout::open_compressed(metadata, inode)?,
            InodePlace::Hole
            | InodePlace::Blocks(_)
            | InodePlace::Device(_)
            | InodePlace::Nothing => Layout::Flat(uncompressed::FlatMap::new(metadata, inode)),
        };
        Ok(Self { layout, recent: [None; RECENT], oldest: 0 })
    }

    /// The map in `map`, opened at its first use.
    pub(crate) fn opened<'m>(
        map: &'m mut Option<Self>,
        metadata: &'a dyn ReadMetadata,
        inode: &'a Inode,
    ) -> Result<&'m mut Self> {
        match map {
            Some(map) => Ok(map),
            None => Ok(map.insert(Self::open(metadata, inode)?)),
        }
    }

    /// The extent that covers `offset`, which is below the file's size.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`oldest` is below `RECENT`"
    )]
    pub(crate) fn extent_at(&mut self, offset: FileOffset) -> Result<Extent> {
        if let Some(extent) = self.recent.iter().flatten().find(|extent| extent.contains(offset)) {
            return Ok(*extent);
        }
        let extent = self.layout.extent_at(offset)?;
        self.recent[self.oldest] = Some(extent);
        self.oldest = (self.oldest + 1) % RECENT;
        Ok(extent)
    }

    /// Finds the pclusters of marked holes, as Linux before 7.2 does.
    pub(crate) const fn ignore_hole_marks(&mut self) {
        if let Layout::Index(map) = &mut self.layout {
            map.ignore_hole_marks();
        }
    }

    /// Fails unless a look-up from any offset in `extent`, which was found from its start, finds
    /// the same extent.
    pub(crate) fn check_steps(&mut self, extent: &Extent) -> Result<()> {
        match &mut self.layout {
            Layout::Index(map) => map.check_steps(extent),
            // Once for all extents.
            Layout::Records(map) if extent.start.get() == 0 => map.check_order(),
            // A look-up in these maps does not go from record to record.
            Layout::Flat(_) | Layout::Chunks(_) | Layout::Records(_) | Layout::Fragment(..) => {
                Ok(())
            }
        }
    }

    /// The end of the inode's metadata: its map, and what is stored right after that.
    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        match &self.layout {
            Layout::Flat(map) => map.metadata_end(),
            Layout::Chunks(map) => map.metadata_end(),
            Layout::Index(map) => map.metadata_end(),
            Layout::Records(map) => map.metadata_end(),
            Layout::Fragment(_, end) => Ok(*end),
        }
    }

    /// Features that the superblock must announce for such a map.
    pub(crate) fn features(&self) -> Incompat {
        match &self.layout {
            Layout::Flat(_) => Incompat::empty(),
            Layout::Chunks(_) => Incompat::CHUNKED_FILE,
            Layout::Index(map) => map.features(),
            Layout::Records(map) => map.features(),
            Layout::Fragment(..) => Incompat::FRAGMENTS,
        }
    }
}

impl<'a> Layout<'a> {
    fn open_compressed(metadata: &'a dyn ReadMetadata, inode: &'a Inode) -> Result<Self> {
        let place = inode.end()?.align_up(8)?;
        let mut bytes = [0; header::HEADER_SIZE];
        metadata.read_metadata(place, Structure::MapHeader, &mut bytes)?;
        let header =
            MapHeader::parse(&bytes, inode.disk.layout, metadata.volume().superblock.block_size);
        let end = place.offset(to_u64(bytes.len()))?;
        Ok(match header.located_at(place.pos)? {
            MapHeader::WholeFragment { offset } => {
                let data = ExtentData::Fragment { offset: FileOffset::new(offset) };
                Self::Fragment(Extent { start: FileOffset::new(0), len: inode.size(), data }, end)
            }
            MapHeader::Index(header) => {
                Self::Index(index::IndexMap::open(metadata, inode, header, end)?)
            }
            MapHeader::Extents(header) => {
                Self::Records(records::RecordMap::open(metadata, inode, header, end)?)
            }
        })
    }

    fn extent_at(&mut self, offset: FileOffset) -> Result<Extent> {
        let extent = match self {
            Self::Flat(map) => map.extent_at(offset)?,
            Self::Chunks(map) => map.extent_at(offset)?,
            Self::Index(map) => map.extent_at(offset)?,
            Self::Records(map) => map.extent_at(offset)?,
            Self::Fragment(extent, _) => *extent,
        };
        // A caller that goes from extent to extent would never end.
        if extent.contains(offset) {
            return Ok(extent);
        }
        Err(Corruption::new(Structure::Extent, Fault::Map("does not cover its offset")).into())
    }
}

/// Work of finding one extent and looking at it, in the budget's units of 100 ns. Reads of the
/// index are charged beside it, but one read gives up to 16 records: an index in a hole of the
/// image would cost nearly nothing.
const EXTENT_WORK: u64 = 2;

/// Iterates over the extents of a file.
#[derive(Debug)]
pub struct Extents<'a> {
    metadata: &'a dyn ReadMetadata,
    map: FileMap<'a>,
    inode: &'a Inode,
    next: FileOffset,
}

impl<'a> Extents<'a> {
    /// The extents of `inode` from `offset` on.
    pub(crate) fn open(
        metadata: &'a dyn ReadMetadata,
        inode: &'a Inode,
        offset: FileOffset,
    ) -> Result<Self> {
        let map = FileMap::open(metadata, inode).of_inode(inode.nid)?;
        Ok(Self { metadata, map, inode, next: offset })
    }

    /// The end of the inode's metadata: its map, and what is stored right after that.
    pub fn metadata_end(&self) -> Result<MetadataPlace> {
        self.map.metadata_end().of_inode(self.inode.nid)
    }

    /// Fails unless a look-up from anywhere in `extent`, which this gave, finds the same.
    pub fn check_steps(&mut self, extent: &Extent) -> Result<()> {
        self.map.check_steps(extent).of_inode(self.inode.nid)
    }

    /// Whether the map has records of encoded extents, which can start at any byte.
    pub const fn are_records(&self) -> bool {
        matches!(self.map.layout, Layout::Records(_))
    }

    /// Features that the superblock must announce for such a map.
    pub fn features(&self) -> Incompat {
        self.map.features()
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.get() >= self.inode.content_len() {
            return None;
        }
        let charged = self.metadata.volume().budget.charge(EXTENT_WORK);
        let extent = charged.and_then(|()| self.map.extent_at(self.next).of_inode(self.inode.nid));
        self.next = match &extent {
            Ok(extent) => FileOffset::new(extent.end()),
            Err(_) => FileOffset::new(u64::MAX),
        };
        Some(extent)
    }
}
