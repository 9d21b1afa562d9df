//! A compression context of libzstd, with the parameters that zstd-safe cannot set.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_CCtx_setPledgedSrcSize,
    ZSTD_EndDirective, ZSTD_ResetDirective, ZSTD_adjustCParams, ZSTD_cParameter,
    ZSTD_compressStream2, ZSTD_compressionParameters, ZSTD_createCCtx, ZSTD_freeCCtx,
    ZSTD_getCParams, ZSTD_inBuffer, ZSTD_isError, ZSTD_outBuffer,
};

use super::ZstdParams;

/// The length in bytes of the inputs for which libzstd chooses the parameters of [`quick_search`].
/// Their tables stay in the processor's cache.
const SHORT_INPUT: u64 = 128 << 10;
/// log2 of the entries in the binary trees of levels 13 to 15, and of the most candidates of a
/// match. Those that libzstd chooses make binaries 0.5 to 1.5 % smaller, and take 1.2 to 1.4 times
/// as long.
const SMALL_TREE: (c_uint, c_uint) = (16, 3);
/// log2 of the entries in the table of three bytes at most, as libzstd has it for matches of that
/// length.
const HASH_3_LOG: c_uint = 17;

/// What libzstd returns without memory: minus `ZSTD_error_memory_allocation` of zstd_errors.h.
const NO_MEMORY: usize = 0usize.wrapping_sub(64);

thread_local! {
    static LACKED_MEMORY: Cell<bool> = const { Cell::new(false) };
}

/// Whether libzstd had too little memory in this thread since the last call.
pub(super) fn lacked_memory() -> bool {
    LACKED_MEMORY.take()
}

/// Settings of all frames: the content size, and no checksum.
pub(super) fn common(params: ZstdParams) -> [(ZSTD_cParameter, c_int); 4] {
    [
        (ZSTD_cParameter::ZSTD_c_compressionLevel, params.level.into()),
        (ZSTD_cParameter::ZSTD_c_windowLog, params.window_log.into()),
        (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 1),
        (ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
    ]
}

/// Settings for a search that takes less time than libzstd's in blocks of 128 KiB and finds as
/// much: inputs are about three times as long. Levels 6, 11, 12 and 15 search like lower ones: the
/// binary trees of levels 11 and 12 take twice the time of level 10 for images of the same size.
pub(super) fn quick_search(params: ZstdParams) -> [(ZSTD_cParameter, c_int); 6] {
    let level = match params.level {
        6 => 5,
        11 | 12 => 10,
        15 => 14,
        level => level,
    };
    // SAFETY: the function has no conditions: it clamps values that are out of range.
    let mut chosen = unsafe { ZSTD_getCParams(level.into(), SHORT_INPUT, 0) };
    if (13..=15).contains(&params.level) {
        chosen.chainLog = chosen.chainLog.min(SMALL_TREE.0);
        chosen.searchLog = chosen.searchLog.min(SMALL_TREE.1);
    }
    [
        (ZSTD_cParameter::ZSTD_c_chainLog, chosen.chainLog as c_int),
        (ZSTD_cParameter::ZSTD_c_hashLog, chosen.hashLog as c_int),
        (ZSTD_cParameter::ZSTD_c_searchLog, chosen.searchLog as c_int),
        (ZSTD_cParameter::ZSTD_c_minMatch, chosen.minMatch as c_int),
        (ZSTD_cParameter::ZSTD_c_targetLength, chosen.targetLength as c_int),
        (ZSTD_cParameter::ZSTD_c_strategy, chosen.strategy as c_int),
    ]
}

/// A compression context.
pub(super) struct Context(NonNull<ZSTD_CCtx>);

// SAFETY: the context is reached through this value alone, and libzstd binds it to no thread.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `ZSTD_createCCtx` made the context, and nothing uses it after this.
        unsafe { ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

impl Context {
    /// A context with `parameters`; `None` if there is no memory or if a parameter is refused.
    pub(super) fn new(parameters: &[(ZSTD_cParameter, c_int)]) -> Option<Self> {
        // SAFETY: the function has no conditions.
        let context = NonNull::new(unsafe { ZSTD_createCCtx() });
        LACKED_MEMORY.set(LACKED_MEMORY.get() || context.is_none());
        let context = Self(context?);
        for (parameter, value) in parameters {
            // SAFETY: the context is valid, and any value may be passed: a bad one is refused.
            let result = unsafe { ZSTD_CCtx_setParameter(context.0.as_ptr(), *parameter, *value) };
            is_ok(result).then_some(())?;
        }
        Some(context)
    }

    /// Valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut ZSTD_CCtx {
        self.0.as_ptr()
    }

    /// Starts a frame of at most `len` bytes of content, and ends the one before: its buffers are
    /// not used any more.
    pub(super) fn begin_frame(&mut self, len: usize) -> Option<()> {
        let session = ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is valid.
        let reset = unsafe { ZSTD_CCtx_reset(self.0.as_ptr(), session) };
        is_ok(reset).then_some(())?;
        // SAFETY: the context is valid.
        is_ok(unsafe { ZSTD_CCtx_setPledgedSrcSize(self.0.as_ptr(), len as u64) }).then_some(())
    }

    /// Adds the bytes of `src` in `range` to the frame, whose content before them is the start of
    /// `src`, in whole blocks. Writes to `dst` from `at` on, and returns where it ended;
    /// `Some(None)` if they do not fit.
    pub(super) fn add(
        &mut self,
        src: &[u8],
        range: Range<usize>,
        dst: &mut [u8],
        at: usize,
    ) -> Option<Option<usize>> {
        let size = src.get(..range.end)?.len();
        let mut output = ZSTD_outBuffer { dst: dst.as_mut_ptr().cast(), size: dst.len(), pos: at };
        let mut input = ZSTD_inBuffer { src: src.as_ptr().cast(), size, pos: range.start };
        let flush = ZSTD_EndDirective::ZSTD_e_flush;
        // SAFETY: the buffers are slices with these lengths, and libzstd checks the positions; the
        // context is valid. Content of earlier calls is read again, either from libzstd's copy or,
        // with a stable input, from `src`: libzstd refuses another pointer or position than those
        // where the last call ended.
        let left = unsafe { ZSTD_compressStream2(self.0.as_ptr(), &mut output, &mut input, flush) };
        is_ok(left).then(|| (left == 0 && input.pos == size).then_some(output.pos))
    }
}

/// An upper bound for the bytes of a context with `params` for inputs of up to `len` bytes. It is
/// the same on all processors, because deltas state it: `ZSTD_estimateCCtxSize` also counts
/// structs, whose sizes differ.
pub(super) fn estimate(params: ZstdParams, len: u64) -> u64 {
    /// Everything but the tables: the matches of a block, what the optimal parser knows of it, and
    /// structs.
    const OTHERS: u64 = 1 << 20;
    let chosen = chosen(params, len);
    let hash_3_log = if chosen.minMatch == 3 { HASH_3_LOG.min(chosen.windowLog) } else { 0 };
    let tables: u64 =
        [chosen.hashLog, chosen.chainLog, hash_3_log].into_iter().map(|log| 4 << log).sum();
    tables + OTHERS
}

/// The sizes of the tables, and other parameters.
fn chosen(params: ZstdParams, len: u64) -> ZSTD_compressionParameters {
    // SAFETY: the function has no conditions: it clamps values that are out of range.
    let mut chosen = unsafe { ZSTD_getCParams(params.level.into(), len, 0) };
    chosen.windowLog = params.window_log.into();
    // SAFETY: as above.
    unsafe { ZSTD_adjustCParams(chosen, len, 0) }
}

/// Whether `result` is not an error. Notes whether it is one of memory.
pub(super) fn is_ok(result: usize) -> bool {
    LACKED_MEMORY.set(LACKED_MEMORY.get() || result == NO_MEMORY);
    // SAFETY: the function has no conditions.
    unsafe { ZSTD_isError(result) == 0 }
}

#[cfg(test)]
mod tests {
    use zstd_safe::zstd_sys::ZSTD_estimateCCtxSize_usingCParams;

    use super::*;

    #[test]
    fn the_memory_is_bounded_without_the_sizes_of_structs() {
        for (level, window_log) in (1..=22).flat_map(|level| (10..=24).map(move |log| (level, log)))
        {
            for len in [1, 4 << 10, 100_000, 1 << 20, 5 << 20, 14 << 20] {
                let params = ZstdParams { level, window_log };
                // SAFETY: the function has no conditions.
                let libzstd =
                    unsafe { ZSTD_estimateCCtxSize_usingCParams(chosen(params, len)) } as u64;
                let own = estimate(params, len);
                assert!(
                    (libzstd..libzstd + (3 << 20)).contains(&own),
                    "{params:?}, {len}: {own}, {libzstd}"
                );
            }
        }
    }
}
