//! Finds clusters that Linux refuses although the decoders of this crate accept them. Linux passes
//! the encoded bytes to its decoders page by page, searches for the end of the padding in one block
//! only, and limits the window to the size that the superblock announces.
//!
//! The rules were found with Linux 6.18; earlier kernels that support these algorithms have the
//! same rules.

#[cfg(test)]
mod tests;

use ferofs_format::Algorithm;
use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE};
use flate2::{Decompress, FlushDecompress, Status};

use crate::decoder::Portion;
use crate::error::DecodeError;
use crate::fit::{MAX_DECODED, strip_padding};
use crate::{deflate, lz4, lzma};

/// Bytes that Linux passes to a decoder at once. Kernels with larger pages split the data at some
/// of the same offsets.
pub const PAGE: usize = 4096;
/// The most input bytes that an inflater needs after it has produced the last byte of its output:
/// an end-of-block code has at most 15 bits, which touch three bytes. More are possible only if an
/// encoder ends with empty blocks; ours do not.
const DEFLATE_END: usize = 3;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The most bytes that a Zstandard block decodes to, and in a frame with the smallest window.
/// Source: RFC 8878, 3.1.1.2.4.
const ZSTD_BLOCK: u64 = 128 << 10;
const ZSTD_SMALLEST_BLOCK: usize = 1 << 10;

/// Why Linux refuses a cluster that a library decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum LinuxRefusal {
    /// The first block of the cluster holds only padding.
    Padding,
    /// A page boundary lies between the code of the last byte and the end of a DEFLATE stream.
    SplitStreamEnd,
    /// The Zstandard data is not one frame of the extent's length.
    Frame,
    /// A Zstandard frame needs a larger window than the superblock announces.
    Window,
    /// A match reaches back further than the superblock announces.
    Distance,
    /// Linux's decoder refuses the stream, or the rest of it after the bytes that the extent uses.
    Stream,
}

impl LinuxRefusal {
    /// The reason as text.
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
            Self::Stream => "Linux's decoder refuses the stream",
        }
    }
}

/// The position of a cluster within its block.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlace {
    /// The block size in bytes.
    pub block: usize,
    /// Bytes from the start of the block to the start of the cluster. For an inline cluster: from
    /// the start of the 4 KiB page or of the block, whichever is larger.
    pub offset: usize,
}

/// Checks clusters by the rules of Linux. It does not find clusters that [`crate::Decoder`]
/// refuses, too.
#[derive(Default)]
pub struct LinuxChecker {
    inflate: Option<Decompress>,
    deflate: deflate::Decoder,
    lzma: lzma::Decoder,
    out: Vec<u8>,
}

impl LinuxChecker {
    /// Whether [`Self::check`] needs the whole of a cluster that decodes to `decoded` bytes.
    /// Otherwise its first block and 18 more bytes, the longest Zstandard frame header, are enough.
    #[must_use]
    pub fn needs_whole_cluster(
        algorithm: Algorithm,
        decoded: usize,
        portion: Portion,
        configs: &CompressionConfigs,
    ) -> bool {
        match algorithm {
            Algorithm::Deflate | Algorithm::Lz4 => true,
            Algorithm::Lzma => {
                portion == Portion::Prefix
                    || dictionary_size(configs).is_some_and(|dictionary| dictionary < decoded)
            }
            Algorithm::Zstd => decoded > ZSTD_SMALLEST_BLOCK,
        }
    }

    /// Checks the cluster `src`, which includes its padding and decodes to `decoded` bytes.
    /// `configs` are the superblock's. [`Self::needs_whole_cluster`] says how many bytes `src` must
    /// have.
    ///
    /// # Errors
    /// Why Linux refuses the cluster.
    pub fn check(
        &mut self,
        algorithm: Algorithm,
        src: &[u8],
        place: ClusterPlace,
        decoded: usize,
        portion: Portion,
        configs: &CompressionConfigs,
    ) -> Result<(), LinuxRefusal> {
        // Linux computes this as an unsigned number: after the first block of a page it searches
        // all bytes.
        let first_block = place.block.checked_sub(place.offset).unwrap_or(src.len()).min(src.len());
        let stream = strip_padding(src);
        let padding = src.len() - stream.len();
        if padding >= first_block {
            return Err(LinuxRefusal::Padding);
        }
        match (algorithm, portion) {
            (Algorithm::Deflate, Portion::Whole) => {
                match last_page_start(stream, place.offset + padding, place.block) {
                    Some(cut) if self.decodes_completely(&stream[..cut], decoded) => {
                        Err(LinuxRefusal::SplitStreamEnd)
                    }
                    _ => Ok(()),
                }
            }
            (Algorithm::Zstd, _) => {
                check_zstd_frame(stream, decoded, portion, configs.window(algorithm))
            }
            (Algorithm::Deflate, Portion::Prefix) => {
                match self.inflates_to_its_end(stream, decoded) {
                    true => Ok(()),
                    false => Err(LinuxRefusal::Stream),
                }
            }
            (Algorithm::Lz4, _) => {
                let allowed = max_distance(configs).unwrap_or(usize::MAX);
                match lz4::farthest_match(stream, decoded, portion) {
                    None => Err(LinuxRefusal::Stream),
                    Some(farthest) if farthest > allowed => Err(LinuxRefusal::Distance),
                    Some(_) => Ok(()),
                }
            }
            (Algorithm::Lzma, _)
                if Self::needs_whole_cluster(algorithm, decoded, portion, configs) =>
            {
                self.out.resize(decoded.saturating_add(1), 0);
                let dictionary = dictionary_size(configs).unwrap_or(usize::MAX);
                let mut decodes = |len: usize, portion| {
                    let decoded =
                        self.lzma.decode_with(dictionary, stream, &mut self.out[..len], portion);
                    !matches!(
                        decoded,
                        Err(DecodeError::Corrupt { .. } | DecodeError::TooShort { .. })
                    )
                };
                // After the last byte of a prefix, Linux reads what the next byte needs, or sees
                // the stream's end.
                match decodes(decoded, Portion::Whole)
                    || portion == Portion::Prefix && decodes(decoded.saturating_add(1), portion)
                {
                    true => Ok(()),
                    false if portion == Portion::Prefix => Err(LinuxRefusal::Stream),
                    false => Err(LinuxRefusal::Distance),
                }
            }
            (Algorithm::Lzma, _) => Ok(()),
        }
    }

    /// The number of zero bytes that must precede the DEFLATE `stream` at `place` so that Linux
    /// decodes it; `None` if the first block has too few bytes for them. The last byte of `stream`
    /// must be part of the DEFLATE data.
    #[must_use]
    pub fn deflate_padding(
        &mut self,
        stream: &[u8],
        place: ClusterPlace,
        decoded: usize,
    ) -> Option<usize> {
        let max_padding = place.block.saturating_sub(place.offset).min(PAGE);
        (0..max_padding).find(|padding| {
            match last_page_start(stream, place.offset + padding, place.block) {
                Some(cut) => {
                    stream.len() - cut > DEFLATE_END
                        || !self.decodes_completely(&stream[..cut], decoded)
                }
                None => true,
            }
        })
    }

    /// Whether `stream`, of which an extent uses `decoded` bytes, is valid to its end. Linux also
    /// decodes the code after the last of them.
    fn inflates_to_its_end(&mut self, stream: &[u8], decoded: usize) -> bool {
        let mut space = decoded.saturating_mul(2).clamp(PAGE, MAX_DECODED);
        loop {
            self.out.resize(space, 0);
            match self.deflate.decode(stream, &mut self.out, Portion::Whole) {
                Ok(_) | Err(DecodeError::TooShort { .. }) => return true,
                Err(DecodeError::TooLong { .. }) if space < MAX_DECODED => {
                    space = space.saturating_mul(2).min(MAX_DECODED);
                }
                Err(_) => return false,
            }
        }
    }

    /// Whether an inflater produces all `decoded` bytes from this first part of a stream, without
    /// reaching the stream's end.
    fn decodes_completely(&mut self, part: &[u8], decoded: usize) -> bool {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        // One more byte than needed, so that the inflater continues to the stream's end if it is in
        // this part.
        self.out.resize(decoded.saturating_add(1), 0);
        loop {
            let (consumed, produced) = (inflate.total_in() as usize, inflate.total_out() as usize);
            let (Some(rest), Some(free)) = (part.get(consumed..), self.out.get_mut(produced..))
            else {
                return false;
            };
            let status = inflate.decompress(rest, free, FlushDecompress::None);
            let now = (inflate.total_in() as usize, inflate.total_out() as usize);
            match status {
                Ok(Status::StreamEnd) | Err(_) => return false,
                Ok(_) if now.1 > decoded || now == (consumed, produced) => return now.1 >= decoded,
                Ok(_) => {}
            }
        }
    }
}

/// The bytes of a stream, which starts `offset` bytes after a block's start, that precede its last
/// page; `None` if it has only one page.
fn last_page_start(stream: &[u8], offset: usize, block: usize) -> Option<usize> {
    let page = PAGE.max(block);
    let last = (offset + stream.len()).checked_sub(1)? / page * page;
    last.checked_sub(offset).filter(|cut| *cut > 0)
}

/// The largest distance of LZ4 matches that the superblock announces; `None` if it is LZ4's own
/// limit.
fn max_distance(configs: &CompressionConfigs) -> Option<usize> {
    let window = configs.window(Algorithm::Lz4)?;
    usize::try_from(window).ok().filter(|distance| *distance < usize::from(LZ4_MAX_DISTANCE))
}

/// The size in bytes of the LZMA dictionary that the superblock announces.
fn dictionary_size(configs: &CompressionConfigs) -> Option<usize> {
    configs.window(Algorithm::Lzma).and_then(|window| usize::try_from(window).ok())
}

impl std::fmt::Debug for LinuxChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinuxChecker").finish_non_exhaustive()
    }
}

/// Checks a Zstandard frame by its header, and by those of its blocks.
fn check_zstd_frame(
    stream: &[u8],
    decoded: usize,
    portion: Portion,
    window: Option<u32>,
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
    // Linux decodes data that fits into one page without a window, if its size is known.
    let small = stream.len() <= PAGE && decoded <= PAGE as u64 && header.content.is_some();
    if !small && !header.blocks_fit_window(decoded) {
        return Err(LinuxRefusal::Stream);
    }
    let Some(announced) = window.filter(|_| !small) else { return Ok(()) };
    let decoder_memory = |window: u64, content: u64| {
        let block = window.min(ZSTD_BLOCK);
        block.max(4).saturating_add(content.min(window.saturating_add(block).saturating_add(64)))
    };
    let needed = decoder_memory(header.window.max(1 << 10), header.content.unwrap_or(u64::MAX));
    if needed > decoder_memory(announced.into(), u64::MAX) {
        Err(LinuxRefusal::Window)
    } else {
        Ok(())
    }
}

/// The header of a Zstandard frame. Source: RFC 8878, 3.1.1.1.
struct FrameHeader<'a> {
    /// The window size in bytes.
    window: u64,
    /// The decoded size in bytes, if the frame declares it.
    content: Option<u64>,
    /// What follows the header.
    blocks: &'a [u8],
}

impl<'a> FrameHeader<'a> {
    /// Whether no block is longer than the frame's window, of those that are surely among the first
    /// `decoded` bytes. libzstd accepts longer ones if it has all of the frame; Linux passes it
    /// page by page.
    fn blocks_fit_window(&self, decoded: u64) -> bool {
        let longest = self.window.min(ZSTD_BLOCK);
        let (mut rest, mut known) = (self.blocks, 0u64);
        while known < decoded {
            let Some(([low, middle, high], after)) = rest.split_first_chunk() else { return true };
            let header = u32::from_le_bytes([*low, *middle, *high, 0]);
            let len = u64::from(header >> 3);
            if len > longest {
                return false;
            }
            let (stored, plain) = match header >> 1 & 3 {
                // As it is, and one byte that is repeated.
                0 => (len, len),
                1 => (1, len),
                _ => (len, 0),
            };
            known = known.saturating_add(plain);
            let stored = usize::try_from(stored).unwrap_or(usize::MAX);
            match after.get(stored..) {
                Some(after) if header & 1 == 0 => rest = after,
                _ => return true,
            }
        }
        true
    }

    fn parse(stream: &'a [u8]) -> Option<Self> {
        let mut rest = stream.strip_prefix(&ZSTD_MAGIC)?;
        let mut take = |len: usize| -> Option<u64> {
            let (bytes, remaining) = rest.split_at_checked(len)?;
            rest = remaining;
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
        Some(Self { window: window.or(content)?, content, blocks: rest })
    }
}
