//! Fixed-size output from compressors with fixed-size input: [`LengthSearch`] compresses inputs of
//! several lengths and keeps the longest one that fits into the output.
//!
//! The previous cluster's ratio predicts the first length. Each further length follows from a
//! secant through the trials so far. Ratios are bytes of output per unit of estimated cost
//! ([`cost`]), not per byte of input: the estimate knows which parts of the input compress well.

mod cost;
#[cfg(test)]
mod tests;

use memchr::memmem;

use self::cost::{CostEstimate, common_prefix};
use crate::error::EncodeError;
use crate::fit::{self, Compressor, Fit};
use crate::incompressible;
use crate::params::{Filling, LEAST_UNUSED};

/// A compressor with fixed-size input.
pub(crate) trait FixedInput: Send {
    /// The largest possible output for `len` bytes of input.
    fn bound(&mut self, len: usize) -> usize;
    /// Compresses all of `src`; `None` if `dst` is too small.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError>;

    /// Starts another input.
    fn begin(&mut self) {}

    /// Encodes as much of `src` as fits into `dst`, or a little less, in one pass that ends near
    /// the end of a block of `block` bytes. Returns the bytes taken and the bytes produced; both
    /// are 0 if encoding does not make the input smaller. `None` if the compressor cannot do that,
    /// or if it failed.
    fn fill(
        &mut self,
        _src: &[u8],
        _dst: &mut [u8],
        _block: usize,
    ) -> Result<Option<(usize, usize)>, EncodeError> {
        Ok(None)
    }

    /// Bytes of input that [`Self::fill`] has tried since the last call.
    fn take_filled(&mut self) -> u64 {
        0
    }

    /// Whether the compressor had too little memory since the last call. What it did then depends
    /// on the memory.
    fn lacks_memory(&mut self) -> bool {
        false
    }

    /// Searches matches in `src`, so that [`Self::encode_parsed`] takes less time than
    /// [`Self::compress`]. Returns whether it did.
    fn parse(&mut self, _src: &[u8]) -> bool {
        false
    }

    /// Encodes the first `len` bytes of the input that was parsed last, and with which `src`
    /// starts. `None` if that fails.
    fn encode_parsed(&mut self, _src: &[u8], _len: usize, _dst: &mut [u8]) -> Option<usize> {
        None
    }
}

/// The most trials for one cluster. After them the longest input that fitted is taken.
const MAX_TRIALS: u32 = 7;
/// After so many trials the estimate is not trusted if the last one exceeds the output by this part.
const GUESSES: u32 = 3;
const NEAR: usize = 64;
/// Outputs of at least this many bytes are filled in one pass if the compressor can do that, else
/// an eighth of them may stay unused. Images store only the blocks that are used, and a cluster
/// that is shorter by an eighth compresses as well.
const LARGE_OUTPUT: usize = 1 << 20;
/// Whole blocks are filled in one pass in outputs of at least this many bytes: in smaller ones, the
/// pieces at the end take too much.
const FILLED_BLOCKS: usize = 64 << 10;
/// A parse covers the predicted length and this part of it: most trials that follow are not longer.
const PARSE_MARGIN: usize = 16;

/// Encoding what was parsed takes less than this part of the time of a parse with the levels that
/// take long.
const PARSED_COST: u64 = 8;

/// Bytes after an accepted trial that are searched in its input, to see whether what follows
/// repeats it.
const PROBE: usize = 64;
/// A repetition of at least this part of the input is worth another trial.
const REPEATED_MIN: usize = 8;

/// A compressor with fixed-size output that runs trials of a compressor with fixed-size input.
pub(crate) struct LengthSearch<E> {
    inner: E,
    window: usize,
    /// The part of the output that clusters may leave unused on average, in 1/1024: less unused
    /// space needs more trials.
    unused: usize,
    filling: Filling,
    history: History,
    estimate: CostEstimate,
    scratch: Vec<u8>,
    parsed: Parsed,
    trials: u64,
    clusters: u64,
    /// Bytes of input in all trials, and those that more trials may take.
    searched: u64,
    left: u64,
}

/// How much of the cluster's input is parsed: see [`FixedInput::parse`].
#[derive(Clone, Copy)]
enum Parsed {
    Bytes(usize),
    /// It cannot be parsed.
    Never,
}

/// State of a file's previous clusters that its next cluster uses.
struct History {
    /// Output bytes per unit of estimated cost in the last cluster.
    ratio: f64,
    /// The ratio of the last bytes of a cluster, divided by the cluster's average ratio. It is
    /// usually below 1: the last bytes have more data to refer to, and no header.
    end_ratio: f64,
    /// Bytes by which earlier clusters stayed below the allowed unused space; later clusters may
    /// leave them unused.
    saved_slack: usize,
    /// Whether the last cluster took its whole window.
    took_window: bool,
}

impl History {
    const NONE: Self =
        Self { ratio: 1.0 / 64.0, end_ratio: 1.0, saved_slack: 0, took_window: false };
}

/// One trial: input bytes, their estimated cost, and what they were encoded to.
#[derive(Clone, Copy)]
struct Trial {
    len: usize,
    cost: f64,
    size: usize,
}

impl Trial {
    fn ratio(self) -> f64 {
        self.size as f64 / self.cost
    }
}

impl<E: FixedInput> LengthSearch<E> {
    /// Wraps `inner`, whose matches reach back at most `distance` bytes.
    pub(crate) fn new(inner: E, window: usize, filling: Filling, distance: usize) -> Self {
        let (history, estimate) = (History::NONE, CostEstimate::new(distance));
        let unused = match filling {
            Filling::Trials { unused } => unused,
            Filling::Bytes | Filling::Blocks { .. } => LEAST_UNUSED,
        };
        Self {
            inner,
            window,
            unused: unused.into(),
            filling,
            history,
            estimate,
            scratch: Vec::new(),
            parsed: Parsed::Never,
            trials: 0,
            clusters: 0,
            searched: 0,
            left: u64::MAX,
        }
    }

    /// Compresses the first `len` bytes of `src` into the scratch space. Returns the bytes
    /// produced.
    fn compress(&mut self, src: &[u8], len: usize) -> Result<usize, EncodeError> {
        let bound = self.inner.bound(len);
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        self.trials += 1;
        let encoded = match self.is_parsed(src, len)? {
            true => {
                self.spend(len as u64 / PARSED_COST)?;
                self.inner.encode_parsed(src, len, &mut self.scratch)
            }
            false => None,
        };
        let size = match encoded {
            Some(size) => Some(size),
            None => {
                self.spend(len as u64)?;
                self.inner.compress(&src[..len], &mut self.scratch)?
            }
        };
        size.ok_or(EncodeError::Library { library: "compressor", code: 0 })
    }

    /// The same, with the cost of these bytes.
    fn trial(&mut self, src: &[u8], len: usize, output: usize) -> Result<Trial, EncodeError> {
        let size = self.compress(src, len)?;
        // The last trial needs no estimate.
        let cost =
            if len == src.len() && size <= output { 1.0 } else { self.estimate.cost(src, len) };
        Ok(Trial { len, cost, size })
    }

    /// Counts the work of a trial.
    fn spend(&mut self, bytes: u64) -> Result<(), EncodeError> {
        self.searched += bytes;
        self.left = self.left.checked_sub(bytes).ok_or(EncodeError::Work)?;
        Ok(())
    }

    /// Whether the first `len` bytes of `src` are parsed. Parses them if that was not tried before.
    fn is_parsed(&mut self, src: &[u8], len: usize) -> Result<bool, EncodeError> {
        Ok(match self.parsed {
            Parsed::Bytes(bytes) if len <= bytes => true,
            Parsed::Never => false,
            Parsed::Bytes(_) => {
                let bytes = src.len().min(len + len / PARSE_MARGIN);
                let is_parsed = self.inner.parse(&src[..bytes]);
                if is_parsed {
                    self.spend(bytes as u64)?;
                }
                self.parsed = if is_parsed { Parsed::Bytes(bytes) } else { Parsed::Never };
                is_parsed
            }
        })
    }

    /// The size of the blocks of an output that is filled in one pass if the compressor can do
    /// that; 1 if it may end anywhere.
    fn filled_blocks(&self, output: usize) -> Option<usize> {
        match self.filling {
            Filling::Bytes => Some(1),
            Filling::Blocks { log } if output >= FILLED_BLOCKS => Some(1 << log),
            _ => (output >= LARGE_OUTPUT).then_some(1),
        }
    }

    /// Finds how much of `src` fits into `dst`, and writes its encoding there. Returns the bytes
    /// taken and the bytes produced; both are 0 if encoding does not make the input smaller.
    fn find_length(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(usize, usize), EncodeError> {
        let (output, most) = (dst.len(), src.len());
        if let Some(block) = self.filled_blocks(output)
            && let Some(filled) = self.inner.fill(src, dst, block)?
        {
            self.trials += 1;
            let tried = self.inner.take_filled();
            self.spend(tried)?;
            return Ok(filled);
        }
        let allowance = output * self.unused / 1024;
        // The space that may stay unused. Trials aim at a size within it, so that a small error
        // still is accepted.
        let slack = match output {
            LARGE_OUTPUT.. => output / 8,
            _ => allowance + self.history.saved_slack.min(2 * allowance),
        };
        let aim = (output - slack * 5 / 8) as f64;
        self.estimate.begin();
        self.parsed = Parsed::Bytes(0);
        // If the input is little longer than the output or than the prediction, all of it may fit:
        // then one trial is enough.
        let mut len = most;
        if most > 2 * output && !self.history.took_window {
            len = self.estimate.length(src, aim / self.history.ratio).max(1);
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
                // After three trials the size is not a smooth function of the length: accept more
                // unused space.
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
            let ratio = self.ratio_near(trial, other, output);
            len = self.estimate.length(src, trial.cost + (aim - trial.size as f64) / ratio);
            if below.is_none() {
                // Fewer bytes would fit even if they were not encoded.
                len = len.max(aim as usize);
            }
            // The estimate takes long runs for free. If it still leads to much more than fits, each
            // byte is taken to need the same.
            if turn > GUESSES
                && trial.size > output + output / NEAR
                && below.is_none_or(|below| below.size < output / 2)
            {
                let (from, size) = below.map_or((0, 0), |below| (below.len, below.size));
                let part = (aim - size as f64) / (trial.size - size) as f64;
                len = from + ((trial.len - from) as f64 * part) as usize;
            }
            len = len.clamp(low, high);
        }
        if let Some(trial) = below {
            self.history.took_window = trial.len == most;
            if trial.len < most {
                self.history.ratio = trial.ratio();
                self.history.saved_slack =
                    (self.history.saved_slack + allowance).saturating_sub(output - trial.size);
                if let Some(len) = repeated_after(src, trial, output) {
                    let longer = self.trial(src, len, output)?;
                    if longer.size <= output {
                        dst[..longer.size].copy_from_slice(&self.scratch[..longer.size]);
                        below = Some(longer);
                    }
                }
            }
        }
        Ok(below.map_or((0, 0), |t| (t.len, t.size)))
    }

    /// Output bytes per unit of cost at the end of `trial`: an average of the usual end ratio and
    /// of the ratio between this trial and the `other` one. The second one's weight grows with the
    /// distance of the two trials.
    fn ratio_near(&mut self, trial: Trial, other: Option<Trial>, output: usize) -> f64 {
        let usual = self.history.end_ratio;
        let last = match other {
            Some(other) if other.size != trial.size => {
                let between = (trial.size as f64 - other.size as f64) / (trial.cost - other.cost);
                let seen = (between / trial.ratio()).clamp(0.4, 2.0);
                let apart = trial.size.abs_diff(other.size) as f64 / output as f64;
                usual + (seen - usual) * apart / (apart + 0.01)
            }
            _ => usual,
        };
        self.history.end_ratio += (last - usual) / 4.0;
        last * trial.ratio()
    }
}

/// How long the input can be if what follows `trial` repeats a large part of its input: the next
/// copy of a file, for which there may be room, as it takes nearly none.
fn repeated_after(src: &[u8], trial: Trial, output: usize) -> Option<usize> {
    // Twice what would fill the rest of the output on average: the end of a cluster compresses
    // better than its start.
    let start = trial.len + 2 * trial.len * (output - trial.size) / trial.size.max(1);
    let probe = src.get(start..start + PROBE)?;
    let earlier = memmem::find(&src[..trial.len], probe)?;
    let len = common_prefix(&src[earlier..], &src[start..]);
    (len >= trial.len / REPEATED_MIN).then_some(start + len)
}

impl<E: FixedInput> Compressor for LengthSearch<E> {
    fn begin(&mut self) {
        self.history = History::NONE;
        self.inner.begin();
    }

    fn trials(&self) -> Option<(u64, u64)> {
        Some((self.trials, self.clusters))
    }

    fn searched(&self) -> Option<u64> {
        Some(self.searched)
    }

    fn limit(&mut self, bytes: u64) {
        self.left = bytes;
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        let input = &src[pos..end];
        if incompressible::looks_random(input, dst.len()) {
            return Ok(Fit::Incompressible);
        }
        self.clusters += 1;
        let found = self.find_length(input, dst);
        if self.inner.lacks_memory() {
            return Err(EncodeError::Memory);
        }
        let (consumed, produced) = found?;
        // What is stored to the byte saves space however short it is; blocks after the encoded
        // bytes take none.
        let (any_len, output) = match self.filling {
            Filling::Trials { .. } => (false, dst.len()),
            Filling::Bytes => (true, dst.len()),
            Filling::Blocks { log } => (false, dst.len().min(produced.next_multiple_of(1 << log))),
        };
        let any_len = any_len || pos + consumed == src.len();
        let smaller = fit::saves_space(consumed, produced, output, any_len);
        // A decoder would skip a leading zero as padding.
        match smaller && dst[0] != 0 {
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
        self.trials += 1;
        self.spend(src.len() as u64)?;
        let compressed = self.inner.compress(src, dst);
        if self.inner.lacks_memory() {
            return Err(EncodeError::Memory);
        }
        match compressed? {
            Some(produced) if produced < src.len() && dst[0] != 0 => {
                Ok(Fit::Encoded { consumed: src.len(), produced })
            }
            _ => Ok(Fit::Incompressible),
        }
    }
}
