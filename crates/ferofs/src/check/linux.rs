//! What Linux's decoders refuse although ours decode it: see [`LinuxJudge`].

use ferofs_codec::{Algorithm, ClusterPlace, Extent as Decode, LinuxJudge};
use ferofs_format::{Fault, Incompat, Structure};

use crate::error::{Corruption, Result};
use crate::read::{Extent, ExtentData, Image, Location};

/// Bytes that show the padding and the header of a Zstandard frame, beside the first block.
const HEADER_MAX: usize = 18;

/// Judges clusters of one image.
pub(super) struct Linux<'a> {
    image: &'a Image,
    judge: LinuxJudge,
    encoded: Vec<u8>,
}

impl<'a> Linux<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, judge: LinuxJudge::default(), encoded: Vec::new() }
    }

    /// Judges an extent that our decoders decode.
    ///
    /// # Errors
    /// Linux refuses it, or it cannot be read.
    pub(super) fn judge(&mut self, extent: &Extent) -> Result<()> {
        let ExtentData::Encoded { algorithm, at, encoded_len, partial } = extent.data else { return Ok(()) };
        let superblock = self.image.superblock();
        // Before there was padding, clusters began with their first byte.
        if !superblock.incompat.contains(Incompat::LZ4_0PADDING) {
            return Ok(());
        }
        let block = superblock.block_size;
        let pos = match at {
            Location::Device(_, pos) => pos,
            Location::Metadata(place) => place.pos,
        };
        let whole = usize::try_from(encoded_len).unwrap_or(usize::MAX);
        let wanted = match algorithm {
            Algorithm::Deflate => whole,
            Algorithm::Lz4 | Algorithm::Lzma | Algorithm::Zstd => whole.min(block.bytes() + HEADER_MAX),
        };
        self.encoded.resize(wanted, 0);
        match at {
            Location::Device(device, pos) => {
                self.image.read_device(device, pos, Structure::Extent, &mut self.encoded)?;
            }
            Location::Metadata(place) => {
                self.image.read_metadata(place, Structure::InlineData, &mut self.encoded)?;
            }
        }
        let offset = usize::try_from(pos.in_block(block)).unwrap_or(usize::MAX);
        let place = ClusterPlace { block: block.bytes(), offset };
        let decoded = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let wanted = if partial { Decode::Prefix } else { Decode::Whole };
        let window_log = self.image.configs().zstd.map(|zstd| zstd.window_log);
        self.judge.judge(algorithm, &self.encoded, place, decoded, wanted, window_log).map_err(|refusal| {
            Corruption::new(Structure::Extent, Fault::LinuxDecoder(refusal.message())).at(pos).into()
        })
    }
}
