//! Encodes the pcluster of zeroes to which holes refer in indexes by blocks.

use ferofs_codec::{Fit, right_align};
use ferofs_format::{BlockSize, Fault, FormatError, Structure};

use crate::data::encode::SEGMENT;
use crate::data::extents::index::ZeroCluster;
use crate::error::{Error, Result};
use crate::options::compression::Compression;

/// A pcluster of one block, and how many zeroes it decodes to: at least [`ZeroCluster::BLOCKS_MIN`]
/// blocks.
pub(crate) fn encode_zeroes(
    compression: &Compression,
    method: usize,
    block: BlockSize,
) -> Result<(Vec<u8>, u64)> {
    let mut bytes = vec![0; block.bytes()];
    let least = ZeroCluster::BLOCKS_MIN * block.bytes64();
    let mut len = compression.max_extent.map_or(SEGMENT, u64::from).clamp(least, SEGMENT);
    let mut compressor = compression.compressor(method, block)?;
    // A compressor for large clusters may not find out how many zeroes fit into one block.
    loop {
        compressor.begin();
        match compressor.fit(&vec![0; len as usize], 0, &mut bytes)? {
            Fit::Encoded { consumed, produced, .. } if consumed as u64 >= least => {
                right_align(&mut bytes, produced);
                return Ok((bytes, consumed as u64));
            }
            _ if len > least => len = (len / 2).max(least),
            _ => return Err(Error::Layout(FormatError::new(Structure::Extent, Fault::Decode))),
        }
    }
}
