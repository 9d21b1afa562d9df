//! Fixed-size output from compressors that only know fixed-size input: the length is predicted from the stream's recent
//! ratio, then closed in by the secant through what the trials showed.

use crate::error::EncodeError;
use crate::fit::{self, Fit, FixedOutput};
use crate::plain;

/// A compressor with fixed-size input.
pub(crate) trait Exact: Send {
    /// The most that `len` bytes of input may take.
    fn bound(&mut self, len: usize) -> usize;
    /// Compresses all of `src`; `None` if `dst` is too small.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError>;
}

/// Trials at most, for one cluster.
const MAX_TRIALS: u32 = 7;

/// Fixed-size output by prediction.
pub(crate) struct Predicted<E> {
    inner: E,
    window: usize,
    /// Input bytes per output byte at the end of the last cluster; 0 at a file's start.
    ratio: f64,
    scratch: Vec<u8>,
    trials: u64,
    clusters: u64,
}

impl<E: Exact> Predicted<E> {
    pub(crate) fn new(inner: E, window: usize) -> Self {
        Self { inner, window, ratio: 0.0, scratch: Vec::new(), trials: 0, clusters: 0 }
    }

    /// Compresses `src` into the scratch space and returns the size.
    fn trial(&mut self, src: &[u8]) -> Result<usize, EncodeError> {
        let bound = self.inner.bound(src.len());
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        self.trials += 1;
        let size = self.inner.compress(src, &mut self.scratch)?;
        size.ok_or(EncodeError::Library { library: "compressor", code: 0 })
    }
}

impl<E: Exact> FixedOutput for Predicted<E> {
    fn begin(&mut self) {
        self.ratio = 0.0;
    }

    fn trials(&self) -> Option<(u64, u64)> {
        Some((self.trials, self.clusters))
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        if plain::looks_random(&src[pos..end], dst.len()) {
            return Ok(Fit::DoesNotPay);
        }
        self.clusters += 1;
        let (output, most) = (dst.len(), end - pos);
        // The encoded size that a trial aims at, and the least that is good enough to stop.
        let (aim, enough) = (output - output / 400, output - output / 160);
        let ratio = if self.ratio > 0.0 { self.ratio } else { 2.5 };
        let mut len = most.min((aim as f64 * ratio) as usize).max(1);
        // The longest input known to fit and the shortest known not to, with their sizes.
        let (mut below, mut above): ((usize, usize), Option<(usize, usize)>) = ((0, 0), None);
        for turn in 0..MAX_TRIALS {
            let size = self.trial(&src[pos..pos + len])?;
            if size <= output {
                below = (len, size);
                dst[..size].copy_from_slice(&self.scratch[..size]);
                if size >= enough || len == most {
                    break;
                }
            } else {
                above = Some((len, size));
            }
            if turn >= 4 && below.1 >= output - output / 40 {
                break;
            }
            let gap = aim as f64 - below.1 as f64;
            let next = match above {
                // Nothing too long known: go on at the slope so far, not more than fourfold.
                None => (below.0 as f64 * (aim as f64 / below.1.max(1) as f64).min(4.0)) as usize,
                Some((high, size)) => {
                    let slope = (high - below.0) as f64 / (size as f64 - below.1 as f64).max(1.0);
                    let step = (gap * slope) as usize;
                    // Late turns halve the gap, for sizes that are no smooth function of the length.
                    if turn >= 3 { below.0 + step.min((high - below.0) / 2) } else { below.0 + step }
                }
            };
            let high = above.map_or(most + 1, |(high, _)| high);
            len = next.clamp(below.0 + 1, (high - 1).max(below.0 + 1)).min(most);
            if len == below.0 || above.is_some_and(|(high, _)| len >= high) {
                break;
            }
        }
        let (consumed, produced) = below;
        if consumed > 0 {
            self.ratio = consumed as f64 / produced as f64;
        }
        let pays = fit::pays(consumed, produced, output, pos + consumed == src.len());
        // A leading zero would be taken for padding.
        match pays && dst[0] != 0 {
            true => Ok(Fit::Encoded { consumed, produced, in_place: false }),
            false => Ok(Fit::DoesNotPay),
        }
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        match self.inner.compress(src, dst)? {
            Some(produced) if produced < src.len() && dst[0] != 0 => {
                Ok(Fit::Encoded { consumed: src.len(), produced, in_place: false })
            }
            _ => Ok(Fit::DoesNotPay),
        }
    }
}
