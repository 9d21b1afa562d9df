//! A decompression context of libzstd that decodes a prefix of a frame where it is wanted.
//! zstd-safe only has the streaming interface: it decodes into a buffer of its own, as large as the
//! frame's window, which costs memory, and copies from there.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_DCtx, ZSTD_createDCtx, ZSTD_decompressBegin, ZSTD_decompressContinue, ZSTD_decompressDCtx,
    ZSTD_freeDCtx, ZSTD_isError, ZSTD_nextSrcSizeToDecompress,
};

/// The most bytes of content in a block: RFC 8878, section 3.1.1.2.4.
const MAX_BLOCK: usize = 128 << 10;

/// A decompression context, and memory for the last blocks of a prefix.
pub(super) struct Decompressor {
    context: NonNull<ZSTD_DCtx>,
    /// Blocks that may not fit in the rest of a prefix. Allocated at the first use.
    last_blocks: Vec<u8>,
}

// SAFETY: the context is reached through this value alone, and libzstd binds it to no thread.
unsafe impl Send for Decompressor {}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: `ZSTD_createDCtx` made the context, and nothing uses it after this.
        unsafe { ZSTD_freeDCtx(self.context.as_ptr()) };
    }
}

impl Decompressor {
    /// `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: the function has no conditions.
        let context = NonNull::new(unsafe { ZSTD_createDCtx() })?;
        Some(Self { context, last_blocks: Vec::new() })
    }

    /// Decodes all of the frame `src` into `dst`; returns the bytes of content. `None` if the frame
    /// is corrupt or does not fit.
    pub(super) fn decode_whole(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let (to, from) = (dst.as_mut_ptr().cast(), src.as_ptr().cast());
        // SAFETY: both pointers and lengths are those of the slices, and the context is valid.
        ok(unsafe { ZSTD_decompressDCtx(self.context.as_ptr(), to, dst.len(), from, src.len()) })
    }

    /// Decodes the start of the frame `src` until `dst` is full; returns the bytes of content,
    /// fewer if the frame or `src` ends before. `None` if the frame is corrupt.
    pub(super) fn decode_prefix(&mut self, mut src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // SAFETY: the context is valid. libzstd forgets the buffers of earlier frames.
        ok(unsafe { ZSTD_decompressBegin(self.context.as_ptr()) })?;
        // The bytes in `dst`, and those in `last_blocks`.
        let (mut filled, mut beside) = (0, 0);
        while filled < dst.len() {
            // SAFETY: the context is valid, and a frame has begun.
            let next = unsafe { ZSTD_nextSrcSizeToDecompress(self.context.as_ptr()) };
            let Some((block, rest)) = src.split_at_checked(next).filter(|_| next > 0) else {
                break;
            };
            src = rest;
            let free = dst.len() - filled;
            if free >= MAX_BLOCK {
                // SAFETY: all content so far is at the start of `dst`, up to here.
                filled += unsafe { continue_frame(self.context, block, &mut dst[filled..]) }?;
                continue;
            }
            self.last_blocks.resize(2 * MAX_BLOCK, 0);
            // The earlier blocks there did not fill the rest of `dst`, so that another one fits.
            let free_beside = &mut self.last_blocks[beside..];
            // SAFETY: the content so far is at the start of `dst`, and then in `last_blocks`, up to
            // here. The vector has its full length from its first use on, so that its memory stays
            // in place.
            let len = unsafe { continue_frame(self.context, block, free_beside) }?;
            let wanted = len.min(free);
            dst[filled..filled + wanted].copy_from_slice(&free_beside[..wanted]);
            (filled, beside) = (filled + wanted, beside + len);
        }
        Some(filled)
    }
}

/// Decodes the next part of a frame: a header or a block. Returns the bytes of content that this
/// gave.
///
/// # Safety
/// The context must be valid. The content since the frame began must still be where it was written,
/// because libzstd reads it again: in one range up to the start of `dst`, or in a range that ended
/// before and one up to the start of `dst`. libzstd refuses matches outside of both.
unsafe fn continue_frame(context: NonNull<ZSTD_DCtx>, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (to, from) = (dst.as_mut_ptr().cast(), src.as_ptr().cast());
    // SAFETY: both pointers and lengths are those of the slices; the rest is the caller's promise.
    ok(unsafe { ZSTD_decompressContinue(context.as_ptr(), to, dst.len(), from, src.len()) })
}

/// A result that is not an error.
fn ok(result: usize) -> Option<usize> {
    // SAFETY: the function has no conditions.
    (unsafe { ZSTD_isError(result) } == 0).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_any_length_is_the_start_of_the_content() {
        // Lines that refer back by more than a block, and noise in which blocks are not compressed.
        let mut content = Vec::new();
        for number in 0..40_000u32 {
            content.extend(
                format!("line {} {}\n", number % 9000, number.wrapping_mul(number)).bytes(),
            );
        }
        let noise = content.iter().scan(1u32, |state, byte| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(u32::from(*byte) | 1);
            Some(state.to_be_bytes()[0])
        });
        let noise: Vec<u8> = noise.take(150_000).collect();
        content.splice(200_000..200_000, noise);
        let mut frame = vec![0; content.len()];
        let len = zstd_safe::compress(&mut frame[..], &content, 3).unwrap();
        frame.truncate(len);
        let mut decompressor = Decompressor::new().unwrap();
        for len in (1..content.len()).step_by(29_989).chain([
            4096,
            MAX_BLOCK - 1,
            MAX_BLOCK,
            MAX_BLOCK + 1,
            content.len(),
        ]) {
            let mut prefix = vec![0; len];
            assert_eq!(decompressor.decode_prefix(&frame, &mut prefix), Some(len));
            assert!(prefix == content[..len], "{len}");
        }
        let mut longer = vec![0; content.len() + 1];
        assert_eq!(decompressor.decode_prefix(&frame, &mut longer), Some(content.len()));
        let cut = decompressor.decode_prefix(&frame[..frame.len() / 2], &mut longer).unwrap();
        assert!((MAX_BLOCK..content.len()).contains(&cut) && longer[..cut] == content[..cut]);
        assert_eq!(decompressor.decode_prefix(&frame[1..], &mut longer), None);
    }
}
