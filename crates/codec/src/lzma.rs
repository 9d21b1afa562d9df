//! MicroLZMA through liblzma, whose encoder has fixed-size output. Source: FORMAT.md 6.5.
#![allow(unsafe_code)]

use liblzma_sys::{
    LZMA_FINISH, LZMA_OK, LZMA_PRESET_EXTREME, LZMA_STREAM_END, lzma_code, lzma_end, lzma_lzma_preset,
    lzma_microlzma_decoder, lzma_microlzma_encoder, lzma_options_lzma, lzma_stream,
};

use crate::error::{DecodeError, EncodeError, ParamsError};
use crate::fit::{self, Compressor, Fit};
use crate::incompressible;
use crate::params::LzmaParams;
use crate::portion::Portion;

/// A `lzma_stream` that is ended when dropped.
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
    /// Runs the initialised coder from `src` to `dst` until it stops; returns its code, the bytes taken and the bytes
    /// produced.
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

impl Compressor for Encoder {
    fn begin(&mut self) {}

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        if incompressible::looks_random(&src[pos..end], dst.len()) {
            return Ok(Fit::Incompressible);
        }
        // For each cluster liblzma clears hash tables as large as the dictionary. A cluster seldom decodes to more than
        // sixteen times its size, so a larger dictionary would only cost time.
        let dict = (dst.len() * 16).max(1 << 16).next_power_of_two();
        let (consumed, produced) = self.run(&src[pos..end], dst, dict)?;
        Ok(classify(consumed, produced, dst.len(), pos + consumed == src.len()))
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        let (consumed, produced) = self.run(src, dst, src.len().next_power_of_two())?;
        Ok(if consumed == src.len() { classify(consumed, produced, 0, true) } else { Fit::Incompressible })
    }
}

fn classify(consumed: usize, produced: usize, output: usize, at_end: bool) -> Fit {
    match fit::saves_space(consumed, produced, output, at_end) {
        true => Fit::Encoded { consumed, produced },
        false => Fit::Incompressible,
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
        portion: Portion,
    ) -> Result<usize, DecodeError> {
        // No match reaches further back than the output's start, so this dictionary is large enough.
        self.decode_with(dst.len(), src, dst, portion)
    }

    /// As [`Self::decode`], with a dictionary of `dict` bytes.
    pub(crate) fn decode_with(
        &mut self,
        dict: usize,
        src: &[u8],
        dst: &mut [u8],
        portion: Portion,
    ) -> Result<usize, DecodeError> {
        let dict = u32::try_from(dict).unwrap_or(u32::MAX).clamp(4096, 16 << 20);
        let (taken, wanted) = (src.len() as u64, dst.len() as u64);
        let exact = u8::from(portion == Portion::Whole);
        // SAFETY: the stream is zeroed or of an earlier run, which liblzma reuses.
        let code = unsafe { lzma_microlzma_decoder(&raw mut *self.0.0, taken, wanted, exact, dict) };
        if code != LZMA_OK {
            return Err(DecodeError::Memory);
        }
        let (code, _, got) = self.0.run(src, dst);
        match (portion, code) {
            (_, liblzma_sys::LZMA_MEM_ERROR) => Err(DecodeError::Memory),
            (Portion::Whole, LZMA_STREAM_END) | (Portion::Prefix, LZMA_STREAM_END | LZMA_OK)
                if got == dst.len() =>
            {
                Ok(got)
            }
            (Portion::Prefix, LZMA_OK | LZMA_STREAM_END) => {
                Err(DecodeError::TooShort { algorithm: "lzma", got, wanted: dst.len() })
            }
            _ => Err(DecodeError::Corrupt { algorithm: "lzma" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferofs_format::Algorithm;

    use super::*;
    use crate::params::{Method, Params};

    /// Random text of 64 letters that repeats after `period` bytes.
    fn text(period: usize, len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let mut letter = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'0' + (state >> 26) as u8
        };
        let once: Vec<u8> = (0..period).map(|_| letter()).collect();
        once.into_iter().cycle().take(len).collect()
    }

    fn exact(params: LzmaParams, src: &[u8]) -> Vec<u8> {
        let mut dst = vec![0; src.len()];
        let fit = Encoder::new(params, 1 << 20).unwrap().fit_exact(src, &mut dst).unwrap();
        let Fit::Encoded { produced, .. } = fit else { panic!("{params:?} does not compress it") };
        dst.truncate(produced);
        let mut out = vec![0; src.len()];
        Decoder::default().decode(&dst, &mut out, Portion::Whole).unwrap();
        assert!(out == src, "{params:?}");
        dst
    }

    fn params(level: u8) -> LzmaParams {
        match Params::new(Algorithm::Lzma, Some(level)).unwrap().method {
            Method::Lzma(params) => params,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_level_round_trips() {
        let src = text(5000, 20_000);
        for level in (0..=9).chain(100..=109) {
            assert!(exact(params(level), &src).len() < 5000);
        }
    }

    #[test]
    fn every_property_reaches_the_stream() {
        let src = text(900, 4000);
        for (lc, lp) in (0..=4).flat_map(|lc| (0..=4 - lc).map(move |lp| (lc, lp))) {
            for pb in 0..=4 {
                let encoded = exact(LzmaParams { lc, lp, pb, ..params(6) }, &src);
                assert_eq!(!encoded[0], (pb * 5 + lp) * 9 + lc);
            }
        }
    }

    #[test]
    fn matches_stay_within_the_dictionary() {
        let src = text(8000, 16_000);
        let near = exact(LzmaParams { dict_size: 4096, ..params(6) }, &src);
        let far = exact(LzmaParams { dict_size: 16 << 10, ..params(6) }, &src);
        assert!(near.len() > 11_000 && far.len() < 6500, "{} {}", near.len(), far.len());
    }
}
