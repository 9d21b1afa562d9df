//! LZ4 encoding by liblz4, as mkfs.erofs does it: deltas make the images of other programs again,
//! byte for byte.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use crate::error::EncodeError;
use crate::fit::{self, Compressor, Fit};
use crate::version::OWN;

unsafe extern "C" {
    // lz4.h and lz4hc.h, since 1.8.3 and 1.9.0: the crate lz4-sys links them, but does not declare
    // them.
    fn LZ4_compress_destSize(
        src: *const c_char,
        dst: *mut c_char,
        src_size: *mut c_int,
        target: c_int,
    ) -> c_int;
    fn LZ4_compress_HC_destSize(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: *mut c_int,
        target: c_int,
        level: c_int,
    ) -> c_int;
    fn LZ4_sizeofStateHC() -> c_int;
}

/// liblz4's version, of which 1.9.4 is 10,904, and how its bytes differ between processors.
pub(crate) fn version(is_fast: bool) -> u32 {
    // SAFETY: the function takes nothing and only returns a constant.
    let version = u32::try_from(unsafe { lz4_sys::LZ4_versionNumber() }).unwrap_or(0);
    version.saturating_add(liblz4_variant(is_fast) * OWN)
}

/// liblz4's bytes depend on the processor: its hashes are of bytes in the processor's order, and
/// those of the fast level are of as many bytes as a register has.
pub(crate) const fn liblz4_variant(is_fast: bool) -> u32 {
    match (cfg!(target_endian = "little"), cfg!(target_pointer_width = "64")) {
        (true, true) => 1,
        (true, false) => 1 + is_fast as u32,
        (false, true) => 3,
        (false, false) => 3 + is_fast as u32,
    }
}

/// liblz4's compressors with fixed output size.
pub(crate) struct Library {
    /// 0 is the fast compressor, others are levels of lz4hc.
    level: u8,
    window: usize,
    /// liblz4's tables for lz4hc, aligned as it needs; empty for the fast compressor.
    state: Vec<u64>,
}

impl Library {
    pub(crate) fn new(level: u8, window: usize) -> Self {
        // SAFETY: the function takes nothing and only returns a constant.
        let bytes = usize::try_from(unsafe { LZ4_sizeofStateHC() }).unwrap_or(0);
        let words = if level == 0 { 0 } else { bytes.div_ceil(size_of::<u64>()) };
        Self { level, window, state: vec![0; words] }
    }

    /// Encodes as much of `src` as fits into `dst`: the bytes taken and produced.
    fn encode(&mut self, src: &[u8], dst: &mut [u8]) -> Option<(usize, usize)> {
        let mut taken = c_int::try_from(src.len()).ok()?;
        let target = c_int::try_from(dst.len()).ok()?;
        let (from, to) = (src.as_ptr().cast::<c_char>(), dst.as_mut_ptr().cast::<c_char>());
        let produced = if self.level == 0 {
            // SAFETY: liblz4 reads at most `taken` bytes at `from` and writes at most `target`
            // bytes at `to`: both are the lengths of the slices. `taken` is a valid place for its
            // result.
            unsafe { LZ4_compress_destSize(from, to, &raw mut taken, target) }
        } else {
            let state = self.state.as_mut_ptr().cast::<c_void>();
            // SAFETY: as above. `state` has `LZ4_sizeofStateHC` bytes, is aligned to 8 bytes as
            // lz4hc.h asks, and liblz4 initialises it.
            unsafe {
                LZ4_compress_HC_destSize(state, from, to, &raw mut taken, target, self.level.into())
            }
        };
        let (taken, produced) = (usize::try_from(taken).ok()?, usize::try_from(produced).ok()?);
        (produced > 0 && produced <= dst.len() && taken <= src.len()).then_some((taken, produced))
    }
}

impl Compressor for Library {
    fn begin(&mut self) {
        // Nothing to do: liblz4 starts anew at each call.
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        let rest = end - pos;
        Ok(match self.encode(&src[pos..end], dst) {
            // Otherwise builders store the content.
            Some((consumed, produced))
                if fit::saves_space(consumed, produced, dst.len(), consumed == rest) =>
            {
                Fit::Encoded { consumed, produced }
            }
            _ => Fit::Incompressible,
        })
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        Ok(match self.encode(src, dst) {
            Some((consumed, produced)) if consumed == src.len() && produced < consumed => {
                Fit::Encoded { consumed, produced }
            }
            _ => Fit::Incompressible,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Decoder, LIBLZ4, Params, Portion, compressor, right_align};

    #[test]
    fn liblz4_fills_clusters_of_each_level() {
        let line = |n: u32| format!("number {} of the list\n", n.wrapping_mul(2_654_435_761) >> 12);
        let text: Vec<u8> = (0..5000).flat_map(|n| line(n).into_bytes()).collect();
        for level in [0, 1, 3, 9, 12] {
            let fast = Params::new(Algorithm::Lz4, None).unwrap();
            let params = Params { level: LIBLZ4 + level, ..fast };
            let mut encoder = compressor(&params).unwrap();
            let (mut at, mut clusters) = (0, 0);
            while at < text.len() {
                let mut block = vec![0; 4096];
                let Fit::Encoded { consumed, produced } =
                    encoder.fit(&text, at, &mut block).unwrap()
                else {
                    // The last bytes.
                    assert!(text.len() - at < 100, "level {level} does not compress text at {at}");
                    break;
                };
                right_align(&mut block, produced);
                let mut out = vec![0; consumed];
                Decoder::default()
                    .decode(Algorithm::Lz4, &block, &mut out, Portion::Whole)
                    .unwrap();
                assert!(out == text[at..at + consumed]);
                assert!(produced > 4000 || at + consumed == text.len(), "{produced}");
                (at, clusters) = (at + consumed, clusters + 1);
            }
            let mut all = vec![0; text.len()];
            let fit = encoder.fit_exact(&text, &mut all).unwrap();
            assert!(
                matches!(fit, Fit::Encoded { consumed, .. } if consumed == text.len()),
                "{fit:?}"
            );
            assert_eq!(encoder.fit_exact(&text, &mut all[..1024]), Ok(Fit::Incompressible));
            assert!(clusters > 1);
        }
    }
}
