//! Chunk-based files. Source: FORMAT.md 5.

use ferofs_format::map::{ChunkFormat, ChunkIndex};
use ferofs_format::{Fault, FileOffset, Structure};

use crate::error::{Corruption, Locate, Result};
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::metadata::inode::Inode;
use crate::metadata::reader::ReadMetadata;
use crate::numbers::to_u64;
use crate::volume::place::MetadataPlace;

#[derive(Debug)]
pub(crate) struct ChunkMap<'a> {
    metadata: &'a dyn ReadMetadata,
    inode: &'a Inode,
    index: ChunkIndex,
    in_metabox: bool,
}

impl<'a> ChunkMap<'a> {
    pub(crate) fn open(metadata: &'a dyn ReadMetadata, inode: &'a Inode, format: u16) -> Result<Self> {
        let end = inode.end()?;
        let block_size = metadata.volume().superblock.block_size;
        let open = || ChunkIndex::new(end.pos, inode.size(), ChunkFormat::parse(format)?, block_size);
        let index = open().located_at(end.pos)?;
        Ok(Self { metadata, inode, index, in_metabox: end.in_metabox })
    }

    #[expect(clippy::indexing_slicing, reason = "an entry has 4 or 8 bytes")]
    pub(crate) fn extent_at(&self, offset: FileOffset) -> Result<Extent> {
        let block_size = self.metadata.volume().superblock.block_size;
        let chunk_size = self.index.format().chunk_size(block_size);
        let number = self.index.chunk(offset);
        let pos = self.index.pos(number).located_at(self.index.start())?;
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.index.format().entry_size()];
        let place = MetadataPlace { in_metabox: self.in_metabox, pos };
        self.metadata.read_metadata(place, Structure::ChunkIndex, bytes)?;
        // The chunk holds `offset`, so its start does not overflow.
        let start = FileOffset::new(number.saturating_mul(chunk_size));
        let len = self.inode.size().saturating_sub(start.get()).min(chunk_size);
        let Some(chunk) = self.index.format().decode(bytes).located_at(pos)? else {
            return Ok(Extent { start, len, data: ExtentData::Hole });
        };
        let overflow = || Corruption::new(Structure::ChunkIndex, Fault::Overflow("startblk")).at(pos);
        let at = Location::Device(chunk.device, chunk.addr.to_pos(block_size).ok_or_else(overflow)?);
        Ok(Extent { start, len, data: ExtentData::Stored { at } })
    }

    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        let start = MetadataPlace { in_metabox: self.in_metabox, pos: self.index.start() };
        start.offset(self.index.count().saturating_mul(to_u64(self.index.format().entry_size())))
    }
}
