//! What Linux refuses beyond what the libraries here refuse. Its decoders get the encoded bytes page by page, the end of the
//! padding is searched for in one block alone, and the window is as large as the superblock says.
//!
//! Found with Linux 6.18; the earlier kernels that know these algorithms do the same.

use ferofs_format::Algorithm;
use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE};
use flate2::{Decompress, FlushDecompress, Status};

use crate::error::DecodeError;
use crate::fit::strip_padding;
use crate::portion::Portion;
use crate::{lz4, lzma};

/// Bytes that Linux gives a decoder at once. Kernels with larger pages cut at some of the same places.
pub const PAGE: usize = 4096;
/// Bytes that an inflater may still need after the last byte of its output is known: an end-of-block code has at most 15
/// bits. Encoders that end with empty blocks are not ours.
const DEFLATE_END: usize = 3;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The most that a Zstandard block decodes to.
const ZSTD_BLOCK: u64 = 128 << 10;

/// Why Linux refuses a cluster that a library decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum LinuxRefusal {
    /// The first block of the cluster holds nothing but padding.
    Padding,
    /// A page ends between the code of the last byte and the end of a DEFLATE stream.
    SplitStreamEnd,
    /// The Zstandard data is not one frame of the extent's length.
    Frame,
    /// A Zstandard frame needs a larger window than the superblock announces.
    Window,
    /// A match reaches back further than the superblock announces.
    Distance,
}

impl LinuxRefusal {
    /// The reason in words.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Padding => "padding fills the cluster's first block, which Linux refuses",
            Self::SplitStreamEnd => {
                "a page ends within the last bytes of a DEFLATE stream, which Linux refuses"
            }
            Self::Frame => "the Zstandard data is not one frame of the extent's length",
            Self::Window => "a Zstandard frame needs a larger window than the superblock announces",
            Self::Distance => "a match reaches back further than the superblock announces",
        }
    }
}

/// Where a cluster is.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlace {
    /// Bytes of a block.
    pub block: usize,
    /// Bytes between the start of a block and the cluster's; of a page of 4 KiB or a block, whichever is larger, if the
    /// cluster is inline.
    pub offset: usize,
}

/// Judges clusters as Linux does, except for what [`crate::Decoder`] refuses as well.
#[derive(Default)]
pub struct LinuxChecker {
    inflate: Option<Decompress>,
    lzma: lzma::Decoder,
    out: Vec<u8>,
}

impl LinuxChecker {
    /// Whether [`Self::check`] looks at all of a cluster that decodes to `decoded` bytes; else at its first block and 18
    /// bytes more.
    #[must_use]
    pub fn needs_whole_cluster(algorithm: Algorithm, decoded: usize, configs: &CompressionConfigs) -> bool {
        match algorithm {
            Algorithm::Deflate => true,
            Algorithm::Lz4 => distance(configs).is_some_and(|distance| distance < decoded),
            Algorithm::Lzma => dictionary(configs).is_some_and(|dictionary| dictionary < decoded),
            Algorithm::Zstd => false,
        }
    }

    /// Judges the cluster `src`, with its padding, which decodes to `decoded` bytes, by what the superblock says in
    /// `configs`: see [`Self::needs_whole_cluster`].
    ///
    /// # Errors
    /// Why Linux refuses it.
    pub fn check(
        &mut self,
        algorithm: Algorithm,
        src: &[u8],
        place: ClusterPlace,
        decoded: usize,
        portion: Portion,
        configs: &CompressionConfigs,
    ) -> Result<(), LinuxRefusal> {
        // Linux computes this without a sign: behind the first block of a page it looks at all bytes.
        let first_block = place.block.checked_sub(place.offset).unwrap_or(src.len()).min(src.len());
        let stream = strip_padding(src);
        let padding = src.len() - stream.len();
        if padding >= first_block {
            return Err(LinuxRefusal::Padding);
        }
        match (algorithm, portion) {
            (Algorithm::Deflate, Portion::Whole) => {
                match self.cut(stream, place.offset + padding, place.block) {
                    Some(cut) if self.yields(&stream[..cut], decoded) => Err(LinuxRefusal::SplitStreamEnd),
                    _ => Ok(()),
                }
            }
            (Algorithm::Zstd, _) => frame(stream, decoded, portion, configs.zstd.map(|zstd| zstd.window_log)),
            (Algorithm::Lz4, _) if Self::needs_whole_cluster(algorithm, decoded, configs) => {
                let allowed = distance(configs).unwrap_or(usize::MAX);
                match lz4::farthest_match(stream, decoded) > allowed {
                    true => Err(LinuxRefusal::Distance),
                    false => Ok(()),
                }
            }
            (Algorithm::Lzma, _) if Self::needs_whole_cluster(algorithm, decoded, configs) => {
                self.out.resize(decoded, 0);
                let dictionary = dictionary(configs).unwrap_or(usize::MAX);
                match self.lzma.decode_with(dictionary, stream, &mut self.out, portion) {
                    Err(DecodeError::Corrupt { .. }) => Err(LinuxRefusal::Distance),
                    _ => Ok(()),
                }
            }
            (Algorithm::Deflate | Algorithm::Lz4 | Algorithm::Lzma, _) => Ok(()),
        }
    }

    /// How many zero bytes must precede the DEFLATE `stream` at `place` so that Linux decodes it; `None` when there is no
    /// room for them in the first block. For streams of encoders that end with their last byte.
    #[must_use]
    pub fn deflate_padding(&mut self, stream: &[u8], place: ClusterPlace, decoded: usize) -> Option<usize> {
        let room = place.block.saturating_sub(place.offset).min(PAGE);
        (0..room).find(|padding| match self.cut(stream, place.offset + padding, place.block) {
            Some(cut) => stream.len() - cut > DEFLATE_END || !self.yields(&stream[..cut], decoded),
            None => true,
        })
    }

    /// How much of a stream, `offset` bytes after a block's start, precedes its last page.
    fn cut(&self, stream: &[u8], offset: usize, block: usize) -> Option<usize> {
        let page = PAGE.max(block);
        let last = (offset + stream.len()).checked_sub(1)? / page * page;
        last.checked_sub(offset).filter(|cut| *cut > 0)
    }

    /// Whether an inflater makes all `decoded` bytes of this part of a stream, without reaching the stream's end.
    fn yields(&mut self, part: &[u8], decoded: usize) -> bool {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        // One byte more than is wanted: the inflater goes on to the stream's end, if it is there.
        self.out.resize(decoded.saturating_add(1), 0);
        loop {
            let (taken, made) = (inflate.total_in() as usize, inflate.total_out() as usize);
            let (Some(rest), Some(room)) = (part.get(taken..), self.out.get_mut(made..)) else {
                return false;
            };
            let status = inflate.decompress(rest, room, FlushDecompress::None);
            let now = (inflate.total_in() as usize, inflate.total_out() as usize);
            match status {
                Ok(Status::StreamEnd) | Err(_) => return false,
                Ok(_) if now.1 > decoded || now == (taken, made) => return now.1 >= decoded,
                Ok(_) => {}
            }
        }
    }
}

/// How far back matches of LZ4 may reach, if not as far as they can.
fn distance(configs: &CompressionConfigs) -> Option<usize> {
    configs.lz4.map(|lz4| lz4.max_distance).filter(|distance| *distance < LZ4_MAX_DISTANCE).map(usize::from)
}

fn dictionary(configs: &CompressionConfigs) -> Option<usize> {
    configs.lzma.and_then(|lzma| usize::try_from(lzma.dict_size).ok())
}

impl std::fmt::Debug for LinuxChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinuxChecker").finish_non_exhaustive()
    }
}

/// Judges a Zstandard frame by its header.
fn frame(
    stream: &[u8],
    decoded: usize,
    portion: Portion,
    window_log: Option<u8>,
) -> Result<(), LinuxRefusal> {
    let Some(header) = FrameHeader::parse(stream) else { return Err(LinuxRefusal::Frame) };
    let decoded = decoded as u64;
    let fits = match (header.content, portion) {
        (Some(content), Portion::Whole) => content == decoded,
        (Some(content), Portion::Prefix) => content >= decoded,
        (None, _) => true,
    };
    if !fits {
        return Err(LinuxRefusal::Frame);
    }
    // What fits into one page is decoded without a window.
    let small = stream.len() <= PAGE && decoded <= PAGE as u64;
    let Some(log) = window_log.filter(|_| !small) else { return Ok(()) };
    let memory = |window: u64, content: u64| {
        let block = window.min(ZSTD_BLOCK);
        block.max(4).saturating_add(content.min(window.saturating_add(block).saturating_add(64)))
    };
    let announced = 1u64.checked_shl(log.into()).unwrap_or(u64::MAX);
    let wanted = memory(header.window.max(1 << 10), header.content.unwrap_or(u64::MAX));
    if wanted > memory(announced, u64::MAX) { Err(LinuxRefusal::Window) } else { Ok(()) }
}

/// What the header of a Zstandard frame says. Source: RFC 8878, 3.1.1.1.
struct FrameHeader {
    window: u64,
    content: Option<u64>,
}

impl FrameHeader {
    fn parse(stream: &[u8]) -> Option<Self> {
        let mut rest = stream.strip_prefix(&ZSTD_MAGIC)?;
        let mut take = |len: usize| -> Option<u64> {
            let (bytes, later) = rest.split_at_checked(len)?;
            rest = later;
            Some(bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte)))
        };
        let descriptor = take(1)?;
        let single = descriptor & 0x20 != 0;
        let window = match single {
            true => None,
            false => {
                let byte = take(1)?;
                let base = 1u64 << (10 + (byte >> 3));
                Some(base + base / 8 * (byte & 7))
            }
        };
        take([0, 1, 2, 4][(descriptor & 3) as usize])?;
        let content = match descriptor >> 6 {
            0 if single => Some(take(1)?),
            0 => None,
            1 => Some(take(2)? + 256),
            2 => Some(take(4)?),
            _ => Some(take(8)?),
        };
        Some(Self { window: window.or(content)?, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fit, Params, compressor};
    use ferofs_format::algorithm::{Lz4Config, LzmaConfig, ZstdConfig};

    fn text(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 28) as u8
        })
        .take(len)
        .collect()
    }

    fn encoded(algorithm: Algorithm, src: &[u8]) -> Vec<u8> {
        let mut out = vec![0; src.len()];
        let mut compressor = compressor(&Params::new(algorithm, None).unwrap()).unwrap();
        let Fit::Encoded { produced, .. } = compressor.fit_exact(src, &mut out).unwrap() else { panic!() };
        out.truncate(produced);
        out
    }

    fn announced(window_log: u8) -> CompressionConfigs {
        CompressionConfigs { zstd: Some(ZstdConfig { window_log }), ..CompressionConfigs::default() }
    }

    #[test]
    fn matches_reach_back_no_further_than_announced() {
        let half = text(30_000);
        let src = [&half[..], &half].concat();
        let place = ClusterPlace { block: 4096, offset: 0 };
        let check = |algorithm, stream: &[u8], configs: &CompressionConfigs| {
            LinuxChecker::default().check(algorithm, stream, place, src.len(), Portion::Whole, configs)
        };
        let lz4 = encoded(Algorithm::Lz4, &src);
        for (max_distance, result) in
            [(29_999, Err(LinuxRefusal::Distance)), (30_000, Ok(())), (LZ4_MAX_DISTANCE, Ok(()))]
        {
            let config = Lz4Config { max_distance, max_pcluster_blocks: 1 };
            let configs = CompressionConfigs { lz4: Some(config), ..CompressionConfigs::default() };
            assert_eq!(check(Algorithm::Lz4, &lz4, &configs), result, "{max_distance}");
        }
        let lzma = encoded(Algorithm::Lzma, &src);
        for (dict_size, result) in [(16 << 10, Err(LinuxRefusal::Distance)), (32 << 10, Ok(()))] {
            let configs =
                CompressionConfigs { lzma: Some(LzmaConfig { dict_size }), ..CompressionConfigs::default() };
            assert_eq!(check(Algorithm::Lzma, &lzma, &configs), result, "{dict_size}");
        }
    }

    fn check(algorithm: Algorithm, src: &[u8], offset: usize, decoded: usize) -> Result<(), LinuxRefusal> {
        let place = ClusterPlace { block: 4096, offset };
        LinuxChecker::default().check(algorithm, src, place, decoded, Portion::Whole, &announced(17))
    }

    #[test]
    fn a_deflate_stream_must_not_end_in_a_page_of_its_own() {
        let mut refused = Vec::new();
        for len in 9000..9016 {
            let src = text(len);
            let stream = encoded(Algorithm::Deflate, &src);
            // So many bytes are in the last page.
            for end in 1..8 {
                let offset = (end + 8192 - stream.len()) % 4096;
                let place = ClusterPlace { block: 4096, offset };
                let padding = LinuxChecker::default().deflate_padding(&stream, place, len);
                if check(Algorithm::Deflate, &stream, offset, len).is_ok() {
                    assert_eq!(padding, Some(0));
                    continue;
                }
                refused.push(end);
                let Some(padding) = padding else { continue };
                assert!(padding > 0);
                let padded = [&vec![0; padding][..], &stream].concat();
                check(Algorithm::Deflate, &padded, offset, len).unwrap();
            }
        }
        refused.sort_unstable();
        refused.dedup();
        // An end-of-block code of 15 bits at most is in the last two bytes.
        assert!(refused == [1] || refused == [1, 2], "{refused:?}");
    }

    #[test]
    fn padding_must_end_in_the_first_block() {
        let stream = encoded(Algorithm::Lz4, &b"the same and the same and ".repeat(400));
        let padded = [&[0; 4][..], &stream].concat();
        check(Algorithm::Lz4, &padded, 4091, 9000).unwrap();
        assert_eq!(check(Algorithm::Lz4, &padded, 4092, 9000), Err(LinuxRefusal::Padding));
        assert_eq!(check(Algorithm::Lz4, &[0; 100], 0, 9000), Err(LinuxRefusal::Padding));
    }

    #[test]
    fn an_inline_cluster_must_not_be_in_the_second_block_of_a_page_at_its_start() {
        let stream = encoded(Algorithm::Lz4, &b"the same and the same and ".repeat(400));
        let check = |offset| {
            let place = ClusterPlace { block: 1024, offset };
            let none = CompressionConfigs::default();
            LinuxChecker::default().check(Algorithm::Lz4, &stream, place, 10_400, Portion::Whole, &none)
        };
        assert_eq!(check(1024), Err(LinuxRefusal::Padding));
        for offset in [0, 1016, 1032, 2048, 3072] {
            check(offset).unwrap();
        }
    }

    #[test]
    fn a_frame_has_the_extents_length_and_a_window_that_is_announced() {
        let src = text(300_000);
        let stream = encoded(Algorithm::Zstd, &src);
        let check = |decoded, portion, log| {
            let place = ClusterPlace { block: 4096, offset: 0 };
            LinuxChecker::default().check(Algorithm::Zstd, &stream, place, decoded, portion, &announced(log))
        };
        check(300_000, Portion::Whole, 19).unwrap();
        check(299_999, Portion::Prefix, 19).unwrap();
        assert_eq!(check(299_999, Portion::Whole, 19), Err(LinuxRefusal::Frame));
        assert_eq!(check(300_001, Portion::Prefix, 19), Err(LinuxRefusal::Frame));
        assert_eq!(check(300_000, Portion::Whole, 12), Err(LinuxRefusal::Window));
    }
}
