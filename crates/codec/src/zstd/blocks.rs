//! Encodes as many blocks of a frame as fit into the output, in one pass: libzstd compresses all of the input until the output is full,
//! and the frame is ended behind its last whole block. A block has at most 128 KiB of content, so this is for large outputs.
//! Source: RFC 8878, sections 3.1.1.1 (frame header) and 3.1.1.2 (blocks).

use std::ops::Range;

use zstd_safe::zstd_sys::ZSTD_cParameter;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::MAX_WINDOW_LOG;
use super::context::{Context, common};
use crate::params::ZstdParams;

/// Bytes of the magic number, before the frame header's descriptor.
const MAGIC: usize = 4;
/// Bytes of a block's header: its last bit, its type and its size.
const BLOCK_HEADER: usize = 3;
/// Bytes of content that are decoded at a time, to know how much the blocks hold.
const DECODED: usize = 128 << 10;

/// Fills outputs.
pub(super) struct Blocks {
    context: Context,
    /// Decodes blocks, to know how much content they hold: their headers do not tell.
    decoder: DCtx<'static>,
    decoded: Vec<u8>,
}

impl Blocks {
    /// `None` if there is no memory.
    pub(super) fn new(params: ZstdParams) -> Option<Self> {
        // The input stays where it is until the call returns: without a copy of it, matches reach as far back as in a frame that is
        // compressed at once. With the copy, images are 0.5 % larger.
        let stable_input = (ZSTD_cParameter::ZSTD_c_experimentalParam9, 1);
        let context = Context::new(&[&common(params)[..], &[stable_input]].concat())?;
        let mut decoder = DCtx::try_create()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).ok()?;
        Some(Self { context, decoder, decoded: vec![0; DECODED] })
    }

    /// Encodes the longest part of `src`, from its start, whose blocks fit into `dst`. Returns the bytes of content and of output;
    /// `None` if not even one block fits, or if libzstd fails.
    pub(super) fn fill(&mut self, src: &[u8], dst: &mut [u8]) -> Option<(usize, usize)> {
        let (produced, is_all) = self.context.compress_until_full(src, dst)?;
        if is_all {
            return Some((src.len(), produced));
        }
        let frame = dst.get_mut(..produced)?;
        let content_size = content_size(frame)?;
        let (last, end) = last_whole_block(frame, content_size.end)?;
        let consumed = self.decoded_len(&frame[..end])?;
        frame[last] |= 1;
        let bytes = u32::try_from(consumed).ok()?.to_le_bytes();
        frame.get_mut(content_size)?.copy_from_slice(&bytes);
        Some((consumed, end))
    }

    /// The bytes of content in `frame`, which has whole blocks, and no last one.
    fn decoded_len(&mut self, frame: &[u8]) -> Option<usize> {
        self.decoder.reset(ResetDirective::SessionOnly).ok()?;
        let (mut input, mut len) = (InBuffer::around(frame), 0);
        loop {
            let before = input.pos();
            let mut output = OutBuffer::around(&mut self.decoded[..]);
            self.decoder.decompress_stream(&mut output, &mut input).ok()?;
            len += output.pos();
            if output.pos() == 0 && input.pos() == before {
                return (input.pos() == frame.len()).then_some(len);
            }
        }
    }
}

/// Where the frame header of `frame` has the content size, if it takes four bytes: the size of any input from 64 KiB + 256 bytes on.
fn content_size(frame: &[u8]) -> Option<Range<usize>> {
    let descriptor = *frame.get(MAGIC)?;
    let (size_flag, single_segment, dictionary) = (descriptor >> 6, descriptor >> 5 & 1, descriptor & 3);
    let start = MAGIC + 1 + usize::from(single_segment == 0);
    (size_flag == 2 && dictionary == 0).then_some(start..start + 4)
}

/// Where the last whole block of `frame` begins, and where it ends. The first block begins at `first`.
fn last_whole_block(frame: &[u8], first: usize) -> Option<(usize, usize)> {
    let (mut last, mut at) = (None, first);
    while let Some(&[low, middle, high]) = frame.get(at..at + BLOCK_HEADER) {
        let header = u32::from_le_bytes([low, middle, high, 0]);
        // A block of one repeated byte (type 1) stores it once.
        let size = if header >> 1 & 3 == 1 { 1 } else { (header >> 3) as usize };
        let end = at + BLOCK_HEADER + size;
        if end > frame.len() {
            break;
        }
        last = Some((at, end));
        at = end;
    }
    last
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn frames_decode_to_the_content_that_they_took(
            len in 1usize..3_000_000, output in 64usize..700_000, level in 1u8..8, window in 17u8..22, seed: u64,
        ) {
            let src = content(len, seed);
            let mut blocks = Blocks::new(ZstdParams { level, window_log: window }).unwrap();
            let mut dst = vec![0; output];
            // Twice: nothing of the first input stays.
            for _ in 0..2 {
                if let Some((consumed, produced)) = blocks.fill(&src, &mut dst) {
                    prop_assert!(consumed > 0 && produced <= output);
                    let mut decoded = vec![0; consumed];
                    let got = zstd_safe::decompress(&mut decoded[..], &dst[..produced]).unwrap();
                    prop_assert_eq!(got, consumed);
                    prop_assert!(decoded == src[..consumed]);
                    prop_assert_eq!(zstd_safe::get_frame_content_size(&dst[..produced]).unwrap(), Some(consumed as u64));
                } else {
                    prop_assert!(output < (128 << 10) + 64, "a block fits into {output} bytes");
                }
            }
        }
    }
}
