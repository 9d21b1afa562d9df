//! MicroLZMA through liblzma's own fixed-size-output encoder, and its decoder. Source: FORMAT.md 6.5.
#![allow(unsafe_code)]

use liblzma_sys::{
    LZMA_FINISH, LZMA_OK, LZMA_PRESET_EXTREME, LZMA_STREAM_END, lzma_code, lzma_end, lzma_lzma_preset,
    lzma_microlzma_decoder, lzma_microlzma_encoder, lzma_options_lzma, lzma_stream,
};

use crate::decoder::Extent;
use crate::error::{DecodeError, EncodeError, ParamsError};
use crate::fit::{self, Fit, FixedOutput};
use crate::params::LzmaParams;
use crate::plain;

/// A `lzma_stream` of ours, ended when dropped.
struct Stream(Box<lzma_stream>);

// SAFETY: liblzma's state is reached through this stream alone and is bound to no thread.
unsafe impl Send for Stream {}

impl Default for Stream {
    fn default() -> Self {
        // SAFETY: LZMA_STREAM_INIT is all zeroes: integers, null pointers, `Option`s of function pointers.
        Self(Box::new(unsafe { std::mem::zeroed() }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is zeroed or was initialised by liblzma; both may be ended.
        unsafe { lzma_end(&raw mut *self.0) };
    }
}

impl Stream {
    /// Runs the initialised coder over `src` into `dst` until it stops; returns its code, bytes taken, bytes made.
    fn run(&mut self, src: &[u8], dst: &mut [u8]) -> (u32, usize, usize) {
        self.0.next_in = src.as_ptr();
        self.0.avail_in = src.len();
        self.0.next_out = dst.as_mut_ptr();
        self.0.avail_out = dst.len();
        // SAFETY: the caller initialised the coder; the pointers cover exactly the two slices.
        let code = unsafe { lzma_code(&raw mut *self.0, LZMA_FINISH) };
        (code, src.len() - self.0.avail_in, dst.len() - self.0.avail_out)
    }
}

/// The MicroLZMA compressor.
pub(crate) struct Encoder {
    stream: Stream,
    options: lzma_options_lzma,
    dict_size: u32,
    window: usize,
}

// SAFETY: the only pointer in `options` is the preset dictionary's, which stays null.
unsafe impl Send for Encoder {}

impl Encoder {
    pub(crate) fn new(params: LzmaParams, window: usize) -> Result<Self, ParamsError> {
        // SAFETY: `lzma_options_lzma` is integers, enums with a zero value and null pointers; the preset fills it.
        let mut options: lzma_options_lzma = unsafe { std::mem::zeroed() };
        let extreme = if params.level >= 100 { LZMA_PRESET_EXTREME } else { 0 };
        let preset = u32::from(params.level % 100) | extreme;
        // SAFETY: `options` is ours and writable.
        if unsafe { lzma_lzma_preset(&raw mut options, preset) } != 0 {
            return Err(ParamsError::Level {
                algorithm: "lzma",
                level: params.level,
                range: "0 to 9, or 100 to 109",
            });
        }
        options.lc = params.lc.into();
        options.lp = params.lp.into();
        options.pb = params.pb.into();
        Ok(Self { stream: Stream::default(), options, dict_size: params.dict_size, window })
    }

    fn run(&mut self, src: &[u8], dst: &mut [u8], dict: usize) -> Result<(usize, usize), EncodeError> {
        self.options.dict_size = self.dict_size.min(u32::try_from(dict).unwrap_or(u32::MAX)).max(4096);
        // SAFETY: the stream is zeroed or of an earlier run, which liblzma reuses; the options outlive the call.
        let code = unsafe { lzma_microlzma_encoder(&raw mut *self.stream.0, &raw const self.options) };
        if code != LZMA_OK {
            return Err(failure(code));
        }
        match self.stream.run(src, dst) {
            (LZMA_STREAM_END, consumed, produced) => Ok((consumed, produced)),
            (code, ..) => Err(failure(code)),
        }
    }
}

fn failure(code: u32) -> EncodeError {
    match code {
        liblzma_sys::LZMA_MEM_ERROR => EncodeError::Memory,
        code => EncodeError::Library { library: "liblzma", code: code.into() },
    }
}

impl FixedOutput for Encoder {
    fn begin(&mut self) {}

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        if plain::looks_random(&src[pos..end], dst.len()) {
            return Ok(Fit::DoesNotPay);
        }
        // liblzma clears hash tables of the dictionary's size for each cluster: sixteen times the output is plenty.
        let dict = (dst.len() * 16).max(1 << 16).next_power_of_two();
        let (consumed, produced) = self.run(&src[pos..end], dst, dict)?;
        Ok(judge(consumed, produced, dst.len(), pos + consumed == src.len()))
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        let (consumed, produced) = self.run(src, dst, src.len().next_power_of_two())?;
        Ok(if consumed == src.len() { judge(consumed, produced, 0, true) } else { Fit::DoesNotPay })
    }
}

fn judge(consumed: usize, produced: usize, output: usize, at_end: bool) -> Fit {
    match fit::pays(consumed, produced, output, at_end) {
        true => Fit::Encoded { consumed, produced, in_place: false },
        false => Fit::DoesNotPay,
    }
}

/// The MicroLZMA decompressor.
#[derive(Default)]
pub(crate) struct Decoder(Stream);

impl Decoder {
    pub(crate) fn decode(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        extent: Extent,
    ) -> Result<usize, DecodeError> {
        // No match reaches further back than the output's start, so the dictionary need not be larger.
        let dict = u32::try_from(dst.len()).unwrap_or(u32::MAX).clamp(4096, 16 << 20);
        let (taken, wanted) = (src.len() as u64, dst.len() as u64);
        let exact = u8::from(extent == Extent::Whole);
        // SAFETY: the stream is zeroed or of an earlier run, which liblzma reuses.
        let code = unsafe { lzma_microlzma_decoder(&raw mut *self.0.0, taken, wanted, exact, dict) };
        if code != LZMA_OK {
            return Err(DecodeError::Memory);
        }
        let (code, _, got) = self.0.run(src, dst);
        match (extent, code) {
            (_, liblzma_sys::LZMA_MEM_ERROR) => Err(DecodeError::Memory),
            (Extent::Whole, LZMA_STREAM_END) | (Extent::Prefix, LZMA_STREAM_END | LZMA_OK)
                if got == dst.len() =>
            {
                Ok(got)
            }
            (Extent::Prefix, LZMA_OK | LZMA_STREAM_END) => {
                Err(DecodeError::TooShort { algorithm: "lzma", got, wanted: dst.len() })
            }
            _ => Err(DecodeError::Corrupt { algorithm: "lzma" }),
        }
    }
}
