//! Files that are not compressed. Flat files have consecutive blocks, and for `FLAT_INLINE` a tail
//! after the inode (FORMAT.md 2). Files in chunks have an address for each chunk.

use ferofs_format::inode::{DataLayout, Place as InodePlace};
use ferofs_format::map::{ChunkFormat, ChunkIndex};
use ferofs_format::{DeviceId, Fault, FileOffset, Structure};

use crate::error::{Corruption, Locate, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::metadata::inode::Inode;
use crate::volume::MetadataPlace;
use ferofs_format::units::to_u64;

#[derive(Debug)]
pub(crate) struct FlatMap<'a> {
    metadata: &'a dyn ReadMetadata,
    inode: &'a Inode,
}

impl<'a> FlatMap<'a> {
    pub(crate) fn new(metadata: &'a dyn ReadMetadata, inode: &'a Inode) -> Self {
        Self { metadata, inode }
    }

    pub(crate) fn extent_at(&self, offset: FileOffset) -> Result<Extent> {
        let size = self.inode.size();
        let block_size = self.metadata.volume().superblock.block_size;
        let tail_len = self.tail_len(size);
        let in_blocks = size.saturating_sub(tail_len);
        if offset.get() >= in_blocks {
            return self.tail(in_blocks, tail_len);
        }
        let extent = |data| Extent { start: FileOffset::new(0), len: in_blocks, data };
        match self.inode.disk.place {
            InodePlace::Blocks(block) => {
                let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("startblk"));
                let pos = block.to_pos(block_size).ok_or_else(overflow)?;
                Ok(extent(ExtentData::Stored { at: Location::Device(DeviceId::new(0), pos) }))
            }
            _ => Ok(extent(ExtentData::Hole)),
        }
    }

    /// Bytes of the inline tail: the last block of a file, even a full one. Linux refuses that one,
    /// as it cannot end in the inode's block.
    fn tail_len(&self, size: u64) -> u64 {
        match (self.inode.disk.layout, size.checked_sub(1)) {
            (DataLayout::FlatInline, Some(last)) => {
                (last & self.metadata.volume().superblock.block_size.mask()).saturating_add(1)
            }
            _ => 0,
        }
    }

    /// The inline tail, which stays within the block where it starts.
    fn tail(&self, start: u64, len: u64) -> Result<Extent> {
        let place = self.inode.end()?;
        let block_size = self.metadata.volume().superblock.block_size;
        if place.pos.in_block(block_size).saturating_add(len) > block_size.bytes64() {
            let fault = Fault::Map("inline data crosses a block's end");
            return Err(Corruption::new(Structure::InlineData, fault).at(place.pos).into());
        }
        let data = ExtentData::Stored { at: Location::Metadata(place) };
        Ok(Extent { start: FileOffset::new(start), len, data })
    }

    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        self.inode.end()?.offset(self.tail_len(self.inode.content_len()))
    }
}

#[derive(Debug)]
pub(crate) struct ChunkMap<'a> {
    metadata: &'a dyn ReadMetadata,
    inode: &'a Inode,
    index: ChunkIndex,
    in_metabox: bool,
}

impl<'a> ChunkMap<'a> {
    pub(crate) fn open(
        metadata: &'a dyn ReadMetadata,
        inode: &'a Inode,
        format: u16,
    ) -> Result<Self> {
        let end = inode.end()?;
        let block_size = metadata.volume().superblock.block_size;
        let open =
            || ChunkIndex::new(end.pos, inode.size(), ChunkFormat::parse(format)?, block_size);
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
        let overflow =
            || Corruption::new(Structure::ChunkIndex, Fault::Overflow("startblk")).at(pos);
        let at =
            Location::Device(chunk.device, chunk.addr.to_pos(block_size).ok_or_else(overflow)?);
        Ok(Extent { start, len, data: ExtentData::Stored { at } })
    }

    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        let start = MetadataPlace { in_metabox: self.in_metabox, pos: self.index.start() };
        start.offset(self.index.count().saturating_mul(to_u64(self.index.format().entry_size())))
    }
}
