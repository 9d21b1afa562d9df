//! The size of an image: of its data, which was estimated, and of its metadata, as [`metadata`](super::metadata) plans it and as
//! [`compressed`](super::compressed) encodes it.

use crate::build::behind_superblock;
use crate::build::estimate::compressed::Sampler;
use crate::build::estimate::metadata::{Content, Places, Plan, compact_index_len};
use crate::error::Result;
use crate::metadata::area::AreaAllocator;
use crate::metadata::write::{BehindSuperblock, RESERVED};
use crate::tree::inode_sizes;

impl Plan<'_> {
    /// Bytes of the image with this content, and the processor seconds of encoding its metadata.
    pub(super) fn image_size(&self, content: &Content<'_>) -> Result<(u64, f64)> {
        let block = self.settings.image.block_size;
        let places = self.places(content, RESERVED);
        let stored = content.bytes.saturating_sub(places.inline).next_multiple_of(block.bytes64());
        let data = self.superblock_area.len() + stored + places.known_blocks * block.bytes64();
        if let Some(size) = self.size_behind_superblock(content, &places, data) {
            return Ok((size + self.xattrs.shared.len() as u64, 0.0));
        }
        let mut size = data + self.xattrs.shared.len() as u64;
        let mut sampler = Sampler::new(self, content, &places.nids)?;
        if let Some(sampler) = &mut sampler {
            size += sampler.directories(&places.encoded_dirs)?;
        }
        let packed = self.packed_inode_len(content.bytes);
        size += match &mut sampler {
            Some(sampler) if self.in_metabox() => {
                let mut area = AreaAllocator::new(block, RESERVED);
                let metabox = sampler.metabox(places.metabox)?;
                let index = compact_index_len(block, places.metabox);
                area.allocate(inode_sizes::PACKED_LEN as u64 + index, 0);
                area.allocate(packed, 0);
                metabox + (places.area.blocks() + area.blocks()) * block.bytes64()
            }
            _ => {
                let mut area = places.area;
                area.allocate(packed, 0);
                area.blocks() * block.bytes64()
            }
        };
        Ok((size, sampler.map_or(0.0, |sampler| sampler.seconds())))
    }

    /// The size of an image, without shared xattrs, whose metadata begins in the block of the superblock; `None` if it does not.
    fn size_behind_superblock(&self, content: &Content<'_>, places: &Places, data: u64) -> Option<u64> {
        let block = self.settings.image.block_size.bytes64();
        let behind = behind_superblock(&self.superblock, &self.superblock_area, data)?;
        let is_small = places.area.blocks() * block < BehindSuperblock::LARGEST;
        let can_end_with_shared = self.xattrs.has_block_from_each_shared(self.settings.image.block_size);
        if self.in_metabox() || !places.encoded_dirs.is_empty() || !is_small || !can_end_with_shared {
            return None;
        }
        let (base, reserved) = behind.reserved(block)?;
        let mut area = self.places(content, reserved).area;
        if data > self.superblock_area.len() {
            area.allocate(self.packed_inode_len(content.bytes), 0);
        }
        let len = area.blocks() * block;
        (!behind.has_data || area.blocks() == 1).then_some((base + len).max(data))
    }
}
