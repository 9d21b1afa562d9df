//! A compression context of libzstd, with the parameters that zstd-safe cannot set.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_EndDirective, ZSTD_ResetDirective,
    ZSTD_adjustCParams, ZSTD_cParameter, ZSTD_compressStream2, ZSTD_createCCtx,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_freeCCtx, ZSTD_getCParams, ZSTD_inBuffer, ZSTD_isError,
    ZSTD_outBuffer,
};

use crate::params::ZstdParams;

/// Settings of all frames: the content size, and no checksum.
pub(super) fn common(params: ZstdParams) -> [(ZSTD_cParameter, c_int); 4] {
    [
        (ZSTD_cParameter::ZSTD_c_compressionLevel, params.level.into()),
        (ZSTD_cParameter::ZSTD_c_windowLog, params.window_log.into()),
        (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 1),
        (ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
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
        let context = Self(NonNull::new(unsafe { ZSTD_createCCtx() })?);
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

    /// Compresses `src` to one frame until `dst` is full. Returns the bytes written, and whether they are the whole frame.
    pub(super) fn compress_until_full(&mut self, src: &[u8], dst: &mut [u8]) -> Option<(usize, bool)> {
        let mut output = ZSTD_outBuffer { dst: dst.as_mut_ptr().cast(), size: dst.len(), pos: 0 };
        let mut input = ZSTD_inBuffer { src: src.as_ptr().cast(), size: src.len(), pos: 0 };
        let session = ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is valid. This ends the frame of the call before, so that no buffer of that call is used any more.
        let reset = unsafe { ZSTD_CCtx_reset(self.0.as_ptr(), session) };
        is_ok(reset).then_some(())?;
        let end = ZSTD_EndDirective::ZSTD_e_end;
        // SAFETY: the buffers are slices with these lengths and positions, and they live until this returns; the context is valid.
        let left = unsafe { ZSTD_compressStream2(self.0.as_ptr(), &mut output, &mut input, end) };
        (is_ok(left) && (left == 0 || output.pos == dst.len())).then_some((output.pos, left == 0))
    }
}

/// Bytes of a context with `params` for inputs of up to `len` bytes, as libzstd says.
pub(super) fn estimate(params: ZstdParams, len: u64) -> u64 {
    // SAFETY: the function has no conditions: it clamps values that are out of range.
    let mut chosen = unsafe { ZSTD_getCParams(params.level.into(), len, 0) };
    chosen.windowLog = params.window_log.into();
    // SAFETY: as above.
    let adjusted = unsafe { ZSTD_adjustCParams(chosen, len, 0) };
    // SAFETY: as above.
    unsafe { ZSTD_estimateCCtxSize_usingCParams(adjusted) as u64 }
}

/// Whether `result` is not an error.
pub(super) fn is_ok(result: usize) -> bool {
    // SAFETY: the function has no conditions.
    unsafe { ZSTD_isError(result) == 0 }
}
