//! Fixed-size output from compressors that only know fixed-size input: the length is predicted from the stream's recent
//! ratio, then closed in by secants through what the trials showed.

mod cost;

use self::cost::CostEstimate;
use crate::error::EncodeError;
use crate::fit::{self, Compressor, Fit};
use crate::incompressible;

/// A compressor with fixed-size input.
pub(crate) trait FixedInput: Send {
    /// The most that `len` bytes of input may take.
    fn bound(&mut self, len: usize) -> usize;
    /// Compresses all of `src`; `None` if `dst` is too small.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError>;
}

/// Trials at most, for one cluster.
const MAX_TRIALS: u32 = 7;
/// The share of the output that clusters may leave empty on average, in 1/1024.
const SLACK: usize = 2;
/// Fixed-size output by prediction.
pub(crate) struct LengthSearch<E> {
    inner: E,
    window: usize,
    history: History,
    estimate: CostEstimate,
    scratch: Vec<u8>,
    trials: u64,
    clusters: u64,
}

/// What the clusters of one file have shown.
struct History {
    /// Output bytes per unit of estimated cost, at the last cluster.
    price: f64,
    /// How the price of a cluster's last bytes compares to its average: there is more to refer to, and no header.
    last_price: f64,
    /// Output bytes that earlier clusters left unused less than they might have; later ones may.
    spare: usize,
    /// Whether the last cluster took all of its window.
    whole: bool,
}

impl History {
    const NONE: Self = Self { price: 1.0 / 64.0, last_price: 1.0, spare: 0, whole: false };
}

/// One trial: input bytes, their estimated cost, and what they were encoded to.
#[derive(Clone, Copy)]
struct Trial {
    len: usize,
    cost: f64,
    size: usize,
}

impl Trial {
    fn price(self) -> f64 {
        self.size as f64 / self.cost
    }
}

impl<E: FixedInput> LengthSearch<E> {
    /// `inner` refers back at most `distance` bytes.
    pub(crate) fn new(inner: E, window: usize, distance: usize) -> Self {
        let (history, estimate) = (History::NONE, CostEstimate::new(distance));
        Self { inner, window, history, estimate, scratch: Vec::new(), trials: 0, clusters: 0 }
    }

    /// Compresses the first `len` bytes of `src` into the scratch space.
    fn trial(&mut self, src: &[u8], len: usize, output: usize) -> Result<Trial, EncodeError> {
        let bound = self.inner.bound(len);
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        self.trials += 1;
        let size = self.inner.compress(&src[..len], &mut self.scratch)?;
        let size = size.ok_or(EncodeError::Library { library: "compressor", code: 0 })?;
        // The estimate is not needed where this was the last trial.
        let cost = if len == src.len() && size <= output { 1.0 } else { self.estimate.cost(src, len) };
        Ok(Trial { len, cost, size })
    }

    /// Finds how much of `src` fits into `dst`, and leaves its encoding there: bytes taken and made, 0 if it cannot pay.
    fn close_in(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(usize, usize), EncodeError> {
        let (output, most) = (dst.len(), src.len());
        let allowance = output * SLACK / 1024;
        // What may stay empty: the allowance and some of what was saved before. Trials aim at a point within.
        let slack = allowance + self.history.spare.min(2 * allowance);
        let aim = (output - slack * 5 / 8) as f64;
        self.estimate.begin();
        // What is not much longer than the output, or than predicted, may fit whole: then one trial will do.
        let mut len = most;
        if most > 2 * output && !self.history.whole {
            len = self.estimate.length(src, aim / self.history.price).max(1);
            if most - most / 8 <= len {
                len = most;
            }
        }
        // The longest input known to fit and the shortest known not to.
        let (mut below, mut above): (Option<Trial>, Option<Trial>) = (None, None);
        for turn in 1..=MAX_TRIALS {
            let trial = self.trial(src, len, output)?;
            if trial.size >= len && below.is_none() {
                break;
            }
            let other = if trial.size <= output {
                dst[..trial.size].copy_from_slice(&self.scratch[..trial.size]);
                // Sizes that are no smooth function of the length are not worth many trials.
                let enough = output - slack * if turn > 3 { 3 } else { 1 };
                let last = below.replace(trial);
                if trial.size >= enough || len == most {
                    break;
                }
                above.or(last)
            } else {
                let last = above.replace(trial);
                below.or(last)
            };
            let low = below.map_or(1, |t| t.len + 1);
            let high = above.map_or(most, |t| t.len - 1);
            if low > high {
                break;
            }
            let price = self.price(trial, other, output);
            len = self.estimate.length(src, trial.cost + (aim - trial.size as f64) / price).clamp(low, high);
        }
        if let Some(trial) = below {
            self.history.whole = trial.len == most;
            if trial.len < most {
                self.history.price = trial.price();
                self.history.spare = (self.history.spare + allowance).saturating_sub(output - trial.size);
            }
        }
        Ok(below.map_or((0, 0), |t| (t.len, t.size)))
    }

    /// The price of the input around `trial`: what is usual, and what lies between it and the `other` trial, which counts
    /// the more the more output that is.
    fn price(&mut self, trial: Trial, other: Option<Trial>, output: usize) -> f64 {
        let usual = self.history.last_price;
        let last = match other {
            Some(other) if other.size != trial.size => {
                let between = (trial.size as f64 - other.size as f64) / (trial.cost - other.cost);
                let seen = (between / trial.price()).clamp(0.4, 2.0);
                let apart = trial.size.abs_diff(other.size) as f64 / output as f64;
                usual + (seen - usual) * apart / (apart + 0.01)
            }
            _ => usual,
        };
        self.history.last_price += (last - usual) / 4.0;
        last * trial.price()
    }
}

impl<E: FixedInput> Compressor for LengthSearch<E> {
    fn begin(&mut self) {
        self.history = History::NONE;
    }

    fn trials(&self) -> Option<(u64, u64)> {
        Some((self.trials, self.clusters))
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        let input = &src[pos..end];
        if incompressible::looks_random(input, dst.len()) {
            return Ok(Fit::Incompressible);
        }
        self.clusters += 1;
        let (consumed, produced) = self.close_in(input, dst)?;
        let pays = fit::pays(consumed, produced, dst.len(), pos + consumed == src.len());
        // A leading zero would be taken for padding.
        match pays && dst[0] != 0 {
            true => Ok(Fit::Encoded { consumed, produced }),
            false => Ok(Fit::Incompressible),
        }
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        self.begin();
        if incompressible::looks_random(src, src.len()) {
            return Ok(Fit::Incompressible);
        }
        match self.inner.compress(src, dst)? {
            Some(produced) if produced < src.len() && dst[0] != 0 => {
                Ok(Fit::Encoded { consumed: src.len(), produced })
            }
            _ => Ok(Fit::Incompressible),
        }
    }
}
