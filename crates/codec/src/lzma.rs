//! MicroLZMA through liblzma, whose encoder has fixed-size output. Source: FORMAT.md 6.5.
#![allow(unsafe_code)]

#[cfg(feature = "encode")]
mod encode;

use liblzma_sys::{
    LZMA_FINISH, LZMA_OK, LZMA_STREAM_END, lzma_code, lzma_end, lzma_microlzma_decoder, lzma_stream,
};

use crate::decoder::Portion;
use crate::error::DecodeError;

#[cfg(feature = "encode")]
pub(crate) use encode::CODEC;

/// A `lzma_stream` that is ended when dropped.
struct Stream(Box<lzma_stream>);

// SAFETY: liblzma's state is reached through this stream alone and is bound to no thread.
unsafe impl Send for Stream {}

impl Default for Stream {
    fn default() -> Self {
        // SAFETY: LZMA_STREAM_INIT is all zeroes: integers, null pointers, `Option`s of function
        // pointers.
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
    /// Runs the initialised coder from `src` to `dst` until it stops; returns its code, the bytes
    /// taken and the bytes produced.
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
        // No match reaches further back than the output's start, so this dictionary is large
        // enough.
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
        let code =
            unsafe { lzma_microlzma_decoder(&raw mut *self.0.0, taken, wanted, exact, dict) };
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
#[cfg(feature = "encode")]
mod tests {
    use ferofs_format::Algorithm;

    use super::*;
    use crate::fit::Fit;
    use crate::params::{LzmaBits, Params};

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

    fn exact(params: Params, src: &[u8]) -> Vec<u8> {
        let mut dst = vec![0; src.len()];
        let fit = crate::compressor(&params).unwrap().fit_exact(src, &mut dst).unwrap();
        let Fit::Encoded { produced, .. } = fit else { panic!("{params:?} does not compress it") };
        dst.truncate(produced);
        let mut out = vec![0; src.len()];
        Decoder::default().decode(&dst, &mut out, Portion::Whole).unwrap();
        assert!(out == src, "{params:?}");
        dst
    }

    fn params(level: u8) -> Params {
        Params::new(Algorithm::Lzma, Some(level)).unwrap()
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
                let encoded = exact(Params { bits: LzmaBits { lc, lp, pb }, ..params(6) }, &src);
                assert_eq!(!encoded[0], (pb * 5 + lp) * 9 + lc);
            }
        }
    }

    #[test]
    fn matches_stay_within_the_dictionary() {
        let src = text(8000, 16_000);
        let near = exact(Params { dictionary: 4096, ..params(6) }, &src);
        let far = exact(Params { dictionary: 16 << 10, ..params(6) }, &src);
        assert!(near.len() > 11_000 && far.len() < 6500, "{} {}", near.len(), far.len());
    }
}
