//! Fills an output in one pass: content is added to a frame in pieces, each of which ends with a
//! whole block, until the output is full. A frame whose last piece does not fit ends before it. So
//! nothing is compressed twice, except for content that the output has no space for. If the output
//! is stored in whole blocks, the last pieces are short and aim at the end of one, and the rest of
//! it holds content as it is. Source: RFC 8878, sections 3.1.1.1 (frame header) and 3.1.1.2
//! (blocks).

use std::ops::Range;

use zstd_safe::zstd_sys::ZSTD_cParameter;

use super::ZstdParams;
use super::context::{Context, common, quick_search};

/// Bytes of the magic number, before the frame header's descriptor.
const MAGIC: usize = 4;
/// Bytes of a block's header: its last bit, its type and its size.
const BLOCK_HEADER: usize = 3;
/// The most bytes of content in a block, and in a piece.
const PIECE: usize = 128 << 10;
/// Inputs of at least this many bytes have a content size of four bytes in the frame header.
const LONG: usize = (64 << 10) + 256;
/// An output is full if a piece does not fit into the rest, and the rest is less than this part of
/// it.
const FULL: usize = 8;
/// A block of the output is full if less than this part of it is left.
const FULL_BLOCK: usize = 16;
/// Bytes of a short piece that are not in proportion to its content: its header, and tables.
const OVERHEAD: usize = 64;
/// Content of fewer bytes is not stored as it is.
const LEAST_STORED: usize = 16;
/// Content and encoded bytes of a piece of average content, for the first piece of a file.
const AVERAGE: (usize, usize) = (4, 1);

/// Fills outputs.
pub(super) struct Blocks {
    context: Context,
    /// The most bytes of content in a block of the frame: no more than the window. Source: RFC
    /// 8878, section 3.1.1.2.4.
    longest: usize,
    /// Content and encoded bytes of the last piece. The next one is likely to be encoded to the
    /// same part of its size.
    last: (usize, usize),
    /// Bytes of content in all pieces, also those that did not fit.
    tried: u64,
}

impl Blocks {
    /// For outputs of more than 128 KiB if they are `large`: then the search is libzstd's own.
    /// `None` if there is no memory.
    pub(super) fn new(params: ZstdParams, large: bool) -> Option<Self> {
        // The input stays where it is until the frame ends: without a copy of it, matches reach as
        // far back as in a frame that is compressed at once. With the copy, images are 0.5 %
        // larger.
        let stable_input = (ZSTD_cParameter::ZSTD_c_experimentalParam9, 1);
        let search = if large { Vec::new() } else { quick_search(params).to_vec() };
        let context = Context::new(&[&common(params)[..], &search, &[stable_input]].concat())?;
        let longest = PIECE.min(1usize.checked_shl(params.window_log.into())?);
        Some(Self { context, longest, last: AVERAGE, tried: 0 })
    }

    /// Starts another input.
    pub(super) fn begin(&mut self) {
        self.last = AVERAGE;
    }

    /// Bytes of content that were tried since the last call.
    pub(super) fn take_tried(&mut self) -> u64 {
        std::mem::take(&mut self.tried)
    }

    /// Encodes the start of `src` into `dst`, which is stored in blocks of `block` bytes: as much
    /// as fits, or a little less. Returns the bytes of content and of output; both are 0 if
    /// encoding does not make the content smaller, and `None` if libzstd fails.
    pub(super) fn fill(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        block: usize,
    ) -> Option<(usize, usize)> {
        let mut most = PIECE;
        loop {
            let (mut taken, mut produced) = self.pieces(src, dst, &mut most, block)?;
            if taken > 0 {
                let end = produced.next_multiple_of(block).min(dst.len());
                let longest = self.longest;
                (taken, produced) = store(src, taken, dst.get_mut(..end)?, produced, longest)?;
                self.end(taken, dst.get_mut(..produced)?)?;
            }
            if taken > 0 || most <= dst.len() {
                return Some((taken, produced));
            }
            most /= 2;
        }
    }

    /// Adds pieces of at most `most` bytes until `dst` is full. Returns the bytes of content and of
    /// output. If the first piece does not fit, both are 0, and `most` becomes its length.
    fn pieces(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        most: &mut usize,
        block: usize,
    ) -> Option<(usize, usize)> {
        self.context.begin_frame(src.len().max(LONG))?;
        let (mut taken, mut produced) = (0, 0);
        while taken < src.len() {
            let free = dst.len() - produced;
            let likely = self.content(free);
            let mut piece = (src.len() - taken).min(*most);
            if likely < piece {
                let shorter = if taken == 0 || free >= (dst.len() / FULL).max(2 * block) {
                    // Half of the free bytes fit without being encoded.
                    (likely / 8 * 7).max(free / 2)
                } else if free % block > block / FULL_BLOCK {
                    // If there is another block, a piece that is longer than predicted still fits.
                    let goal = if free > 2 * block { free - block } else { free };
                    self.content((goal / 16 * 13).saturating_sub(OVERHEAD))
                } else {
                    0
                };
                piece = piece.min(shorter);
                if piece == 0 {
                    break;
                }
            }
            self.tried += piece as u64;
            let Some(end) = self.context.add(src, taken..taken + piece, dst, produced)? else {
                if taken == 0 {
                    *most = piece;
                }
                break;
            };
            self.last = (piece, end - produced);
            (taken, produced) = (taken + piece, end);
        }
        Some((taken, produced))
    }

    /// The bytes of content that `encoded` bytes are likely to hold.
    fn content(&self, encoded: usize) -> usize {
        (encoded as u64 * self.last.0 as u64 / self.last.1.max(1) as u64) as usize
    }

    /// Ends `frame`, which has `len` bytes of content in whole blocks.
    fn end(&self, len: usize, frame: &mut [u8]) -> Option<()> {
        let content_size = content_size(frame)?;
        let last = last_block(frame, content_size.end)?;
        frame[last] |= 1;
        frame.get_mut(content_size)?.copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
        Some(())
    }
}

/// Adds content from `taken` on to a frame of `produced` bytes as blocks of at most `longest` bytes
/// that are not encoded, to the end of `dst`. Returns the bytes of content and of output.
fn store(
    src: &[u8],
    mut taken: usize,
    dst: &mut [u8],
    mut produced: usize,
    longest: usize,
) -> Option<(usize, usize)> {
    loop {
        let rest = dst.get_mut(produced..)?;
        let len = rest.len().saturating_sub(BLOCK_HEADER).min(src.len() - taken).min(longest);
        if len < LEAST_STORED {
            return Some((taken, produced));
        }
        let (header, content) = rest.split_at_mut(BLOCK_HEADER);
        // Type 0, and not the last block: `end` marks it.
        header.copy_from_slice(u32::try_from(len << 3).ok()?.to_le_bytes().get(..BLOCK_HEADER)?);
        content.get_mut(..len)?.copy_from_slice(src.get(taken..taken + len)?);
        (taken, produced) = (taken + len, produced + BLOCK_HEADER + len);
    }
}

/// Where the frame header of `frame` has the content size, if it takes four bytes: the size of any
/// input from 64 KiB + 256 bytes on.
fn content_size(frame: &[u8]) -> Option<Range<usize>> {
    let descriptor = *frame.get(MAGIC)?;
    let (size_flag, single_segment, dictionary) =
        (descriptor >> 6, descriptor >> 5 & 1, descriptor & 3);
    let start = MAGIC + 1 + usize::from(single_segment == 0);
    (size_flag == 2 && dictionary == 0).then_some(start..start + 4)
}

/// Where the last block of `frame` begins. The first one begins at `first`.
fn last_block(frame: &[u8], first: usize) -> Option<usize> {
    let (mut last, mut at) = (None, first);
    while let Some(&[low, middle, high]) = frame.get(at..at + BLOCK_HEADER) {
        let header = u32::from_le_bytes([low, middle, high, 0]);
        // A block of one repeated byte (type 1) stores it once.
        let size = if header >> 1 & 3 == 1 { 1 } else { (header >> 3) as usize };
        last = Some(at);
        at += BLOCK_HEADER + size;
    }
    last.filter(|_| at == frame.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Content of words, runs and noise, by a seed.
    fn content(len: usize, mut seed: u64) -> Vec<u8> {
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        let mut out = Vec::with_capacity(len + 4096);
        while out.len() < len {
            match next() % 8 {
                0 => out.extend((0..next() % 4096).map(|_| next() as u8)),
                1 => out.extend(std::iter::repeat_n(next() as u8, next() % 300_000)),
                _ => out.extend((0..200).flat_map(|_| format!("{} ", next() % 5000).into_bytes())),
            }
        }
        out.truncate(len);
        out
    }

    #[test]
    fn stored_blocks_are_not_longer_than_the_window() {
        let (src, mut dst) = (content(9000, 1), vec![0; 5000]);
        let (taken, produced) = store(&src, 10, &mut dst, 100, 1024).unwrap();
        assert_eq!((taken, produced), (10 + 4900 - 5 * BLOCK_HEADER, 5000));
        let mut at = 100;
        for len in [1024, 1024, 1024, 1024, 4900 - 5 * BLOCK_HEADER - 4096] {
            let header = u32::from_le_bytes([dst[at], dst[at + 1], dst[at + 2], 0]);
            assert_eq!(header as usize, len << 3);
            at += BLOCK_HEADER + len;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn frames_decode_to_the_content_that_they_took(
            len in 1usize..3_000_000, output in 64usize..700_000, level in 1u8..8, window in prop_oneof![10u8..13, 17u8..22], large: bool,
            seed: u64, block in prop_oneof![Just(1usize), (9u32..17).prop_map(|log| 1 << log)],
        ) {
            let src = content(len, seed);
            let mut blocks = Blocks::new(ZstdParams { level, window_log: window }, large).unwrap();
            let mut dst = vec![0; output];
            let mut frames = Vec::new();
            for _ in 0..2 {
                blocks.begin();
                let (consumed, produced) = blocks.fill(&src, &mut dst, block).unwrap();
                frames.push(dst[..produced].to_vec());
                if consumed > 0 {
                    prop_assert!(consumed <= len && produced <= output);
                    let rest = produced.next_multiple_of(block).min(output) - produced;
                    prop_assert!(consumed == len || rest < BLOCK_HEADER + LEAST_STORED, "{rest} bytes of a block are left");
                    let mut decoded = vec![0; consumed];
                    let got = zstd_safe::decompress(&mut decoded[..], &dst[..produced]).unwrap();
                    prop_assert_eq!(got, consumed);
                    prop_assert!(decoded == src[..consumed]);
                    // In one step, libzstd accepts blocks that are longer than the window.
                    decoded.fill(0);
                    let mut context = zstd_safe::DCtx::create();
                    let mut out = zstd_safe::OutBuffer::around(&mut decoded[..]);
                    for page in dst[..produced].chunks(4096) {
                        let mut input = zstd_safe::InBuffer::around(page);
                        while input.pos() < page.len() {
                            context.decompress_stream(&mut out, &mut input).unwrap();
                        }
                    }
                    prop_assert!(out.pos() == consumed && decoded == src[..consumed]);
                    prop_assert_eq!(zstd_safe::get_frame_content_size(&dst[..produced]).unwrap(), Some(consumed as u64));
                } else {
                    prop_assert!(output < PIECE + 64, "a block fits into {output} bytes");
                }
            }
            prop_assert!(frames[0] == frames[1], "something of the first input stays");
        }
    }
}
