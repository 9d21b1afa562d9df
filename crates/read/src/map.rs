//! The map of a file: which extent covers an offset. Source: FORMAT.md 2, 5, 6.
//!
//! Reads metadata alone. A [`FileMap`] keeps what the last look-up read, so that walking a file from
//! extent to extent costs little.

mod chunk;
mod costly;
mod flat;
mod index;
mod records;

use ferofs_format::inode::Place as InodePlace;
use ferofs_format::map::{MapHeader, header};
use ferofs_format::{Fault, FileOffset, Incompat, Structure};

use super::extent::{Extent, ExtentData};
use super::image::{Image, MetadataPlace, to_u64};
use super::inode::Inode;
use crate::error::{Corruption, Locate, Result};

pub(super) use costly::Costly;

/// Linux's limit on a pcluster, encoded. Source: FORMAT.md 6.1.
const MAX_ENCODED: u64 = 1 << 20;
/// Linux's limit on a pcluster, decoded.
const MAX_DECODED: u64 = 12 << 20;

/// A file's map, by layout.
#[derive(Debug)]
pub(super) enum FileMap<'a> {
    Flat(flat::FlatMap<'a>),
    Chunks(chunk::ChunkMap<'a>),
    Index(index::IndexMap<'a>),
    Records(records::RecordMap<'a>),
    /// The whole file is a fragment; the header ends here.
    Fragment(Extent, MetadataPlace),
}

impl<'a> FileMap<'a> {
    /// Reads what the map of `inode` starts with.
    pub(super) fn open(image: &'a Image, inode: &'a Inode) -> Result<Self> {
        match inode.disk.place {
            InodePlace::Chunked { format } => Ok(Self::Chunks(chunk::ChunkMap::open(image, inode, format)?)),
            InodePlace::Compressed { .. } => Self::open_compressed(image, inode),
            _ => Ok(Self::Flat(flat::FlatMap::new(image, inode))),
        }
    }

    /// The map in `map`, opened at its first use.
    pub(super) fn opened<'m>(
        map: &'m mut Option<Self>,
        image: &'a Image,
        inode: &'a Inode,
    ) -> Result<&'m mut Self> {
        match map {
            Some(map) => Ok(map),
            None => Ok(map.insert(Self::open(image, inode)?)),
        }
    }

    fn open_compressed(image: &'a Image, inode: &'a Inode) -> Result<Self> {
        let place = inode.end()?.align_up(8)?;
        let mut bytes = [0; header::HEADER_SIZE];
        image.read_metadata(place, Structure::MapHeader, &mut bytes)?;
        let header = MapHeader::parse(&bytes, inode.disk.layout, image.superblock().block_size);
        let end = place.offset(to_u64(bytes.len()))?;
        Ok(match header.located_at(place.pos)? {
            MapHeader::WholeFragment { offset } => {
                let data = ExtentData::Fragment { offset: FileOffset::new(offset) };
                Self::Fragment(Extent { start: FileOffset::new(0), len: inode.size(), data }, end)
            }
            MapHeader::Index(header) => Self::Index(index::IndexMap::open(image, inode, header, end)?),
            MapHeader::Extents(header) => Self::Records(records::RecordMap::open(image, inode, header, end)?),
        })
    }

    /// The extent that covers `offset`, which is below the file's size.
    pub(super) fn extent_at(&mut self, offset: FileOffset) -> Result<Extent> {
        let extent = match self {
            Self::Flat(map) => map.extent_at(offset)?,
            Self::Chunks(map) => map.extent_at(offset)?,
            Self::Index(map) => map.extent_at(offset)?,
            Self::Records(map) => map.extent_at(offset)?,
            Self::Fragment(extent, _) => *extent,
        };
        // Whoever walks a file relies on going forward.
        if extent.contains(offset) {
            return Ok(extent);
        }
        Err(Corruption::new(Structure::Extent, Fault::Map("does not cover its offset")).into())
    }

    /// Fails unless a look-up from anywhere in `extent`, which was found from its start, finds the same.
    pub(super) fn check_steps(&mut self, extent: &Extent) -> Result<()> {
        match self {
            Self::Index(map) => map.check_steps(extent),
            // Nothing is looked up in steps.
            Self::Flat(_) | Self::Chunks(_) | Self::Records(_) | Self::Fragment(..) => Ok(()),
        }
    }

    /// Where the inode's metadata ends: its map, and what is stored right after that.
    pub(super) fn metadata_end(&self) -> Result<MetadataPlace> {
        match self {
            Self::Flat(map) => map.metadata_end(),
            Self::Chunks(map) => map.metadata_end(),
            Self::Index(map) => map.metadata_end(),
            Self::Records(map) => map.metadata_end(),
            Self::Fragment(_, end) => Ok(*end),
        }
    }

    /// Features that the superblock must announce for such a map.
    pub(super) fn features(&self) -> Incompat {
        match self {
            Self::Flat(_) => Incompat::empty(),
            Self::Chunks(_) => Incompat::CHUNKED_FILE,
            Self::Index(map) => map.features(),
            Self::Records(map) => map.features(),
            Self::Fragment(..) => Incompat::FRAGMENTS,
        }
    }
}
