//! What content takes in the image and in the build, from what samples of it take.

use crate::build::estimate::encode::{Effort, Measured, Measurer};
use crate::build::estimate::pieces::{PieceCost, Pieces};
use crate::build::estimate::regression::{self, Point};
use crate::build::estimate::sampling::Sampling;
use crate::build::estimate::windows::{Prober, Sampled, Stream, StreamKind, Window, WindowLimits};
use crate::error::Result;
use crate::options::compression::Compression;
use crate::options::run::RunOptions;
use ferofs_format::BlockSize;

/// About how much smaller content is in a large pcluster at a slow level than in a small one, or in one at a fast level: decides only how long pieces are.
const DENSER: f64 = 0.8;

/// Trials are counted in this part of what is encoded at a fast level otherwise.
const COUNTED_PART: u64 = 2;

impl Sampled<'_> {
    /// What each byte of `stream` takes, which is a part of `all` bytes.
    pub(super) fn each_byte(
        self,
        stream: &Stream,
        all: u64,
        sampling: &Sampling,
        levels: &Levels<'_>,
        sum: &mut Sum,
    ) -> Result<EachByte> {
        if stream.bytes() == 0 {
            return Ok(EachByte::default());
        }
        let share = stream.bytes() as f64 / all.max(1) as f64;
        let pieces = levels.pieces.filter(|_| sampling.in_pieces(stream.kind(), all));
        let of_pieces = |pieces: &PieceLevels<'_>, expected: f64, times: f64| {
            let PieceLevels { slow, fast, block, .. } = *pieces;
            let wanted = (sampling.piece_bytes(all) as f64 * share) as u64;
            let pieces = Pieces { sampled: self, stream, sampling, slow, fast, block };
            pieces.cost(wanted, sampling.slow_bytes(all, times) * share, expected)
        };
        if let Some(pieces) = pieces.filter(|_| !sampling.has_trials(stream.kind())) {
            let expected = self.probes.mean(stream).map_or(1.0, |mean| mean * DENSER);
            let PieceCost { size, reading, searching, searched, sampled } = of_pieces(pieces, expected, 1.0)?;
            sum.sampled += sampled;
            let growth = sampling.growth(stream.kind(), sampling.piece_len(expected), size);
            let direct = reading + searching * searched * growth;
            return Ok(EachByte { size, direct, ..EachByte::default() });
        }
        // Fragments of all small files are encoded together.
        let whole =
            (sampling.is_whole(all) && stream.kind() == StreamKind::Small).then(|| 2 * stream.bytes());
        let len = whole.unwrap_or_else(|| sampling.fast_window(stream.kind()));
        let limits = WindowLimits { len, segment: sampling.segment };
        let wanted = (sampling.fast_bytes(all) as f64 * share) as u64;
        let wanted = if pieces.is_some() { wanted / COUNTED_PART } else { wanted };
        let windows = stream.windows(wanted.div_ceil(limits.len).max(2), limits);
        let measured = pieces.map_or(levels.fast, |pieces| pieces.counting).measure(&windows)?;
        sum.sampled += bytes(&measured);
        if let Some(pieces) = pieces {
            let (direct, packed) =
                (searched(&measured, |one| &one.direct), searched(&measured, |one| &one.packed));
            let fragment_bytes = part(&measured, |one| one.packed.bytes, |one| one.bytes);
            let times = (direct * (1.0 - fragment_bytes) + packed * fragment_bytes).max(0.1);
            let expected = part(&measured, |one| one.size, |one| one.bytes) * DENSER;
            let PieceCost { size, reading, searching, sampled, .. } = of_pieces(pieces, expected, times)?;
            sum.sampled += sampled;
            let seconds = searching * sampling.more_trials();
            return Ok(EachByte {
                size,
                fragments: size * fragment_bytes,
                fragment_bytes,
                direct: reading + seconds * direct * (1.0 - fragment_bytes),
                packed: seconds * packed,
            });
        }
        let (x, x_mean) = match self.probes.mean(stream) {
            Some(mean) => (self.compressibility(&windows, &sampling.run)?, mean),
            // Each window counts as much as its bytes.
            None => (vec![1.0; windows.len()], 1.0),
        };
        let points = |value: &dyn Fn(&Measured) -> f64| -> Vec<Point> {
            let each = measured.iter().zip(&x).filter(|(one, _)| one.bytes > 0.0);
            each.map(|(one, x)| Point { weight: one.bytes, x: *x, y: value(one) / one.bytes }).collect()
        };
        let size = regression::total(&points(&|one| one.size), x_mean);
        let fast = EachByte {
            size,
            fragments: regression::total(&points(&|one| one.fragments), x_mean),
            fragment_bytes: part(&measured, |one| one.packed.bytes, |one| one.bytes),
            direct: regression::mean(&points(&|one| one.direct.seconds), x_mean),
            packed: part(&measured, |one| one.packed.seconds, |one| one.packed.bytes),
        };
        let Some(slow) = levels.slow else {
            sum.add_tails(&measured);
            return Ok(fast);
        };
        let (direct, packed) =
            (searched(&measured, |one| &one.direct), searched(&measured, |one| &one.packed));
        let times = match sampling.has_trials(stream.kind()) {
            true => (direct * (1.0 - fast.fragment_bytes) + packed * fast.fragment_bytes).max(0.1),
            false => 1.0,
        };
        let wanted = sampling.slow_bytes(all, times) * share;
        let len = whole.unwrap_or_else(|| sampling.slow_window(fast.size, wanted as u64));
        let limits = WindowLimits { len, ..limits };
        let windows = stream.windows((wanted / len as f64).ceil().max(1.0) as u64, limits);
        let again = slow.measure(&windows)?;
        let before = levels.fast.measure(&windows)?;
        sum.sampled += bytes(&again);
        sum.add_tails(&again);
        let pairs = || again.iter().zip(&before).filter(|(one, _)| one.bytes > 0.0);
        let points = |value: &dyn Fn(&Measured) -> (f64, f64)| -> Vec<Point> {
            pairs()
                .filter_map(|(one, before)| {
                    let (y, weight) = value(one);
                    let x = before.size / before.bytes;
                    (weight > 0.0).then(|| Point { weight, x, y: y / weight })
                })
                .collect()
        };
        let ratio = |value: fn(&Measured) -> f64| {
            let (after, before) =
                pairs().fold((0.0, 0.0), |sum, (one, before)| (sum.0 + value(one), sum.1 + value(before)));
            if before > 0.0 { after / before } else { 1.0 }
        };
        // What the compressor takes for each byte that it searches.
        let is_counted = again.iter().any(|one| one.direct.searched.or(one.packed.searched).is_some());
        let amount = |effort: &Effort| match is_counted {
            true => effort.searched.unwrap_or(effort.bytes),
            false => effort.bytes,
        };
        let seconds = |one: &Measured| {
            (one.direct.seconds + one.packed.seconds, amount(&one.direct) + amount(&one.packed))
        };
        let seconds = regression::mean(&points(&seconds), part(&before, |one| one.size, |one| one.bytes));
        let seconds = seconds * sampling.growth(stream.kind(), len, size);
        let slower = sampling.more_trials();
        let (direct, packed) = if is_counted { (direct * slower, packed * slower) } else { (1.0, 1.0) };
        Ok(EachByte {
            size: regression::total(&points(&|one| (one.size, one.bytes)), fast.size),
            fragments: fast.fragments * ratio(|one| one.fragments),
            fragment_bytes: fast.fragment_bytes,
            direct: seconds * direct * (1.0 - fast.fragment_bytes),
            packed: seconds * packed,
        })
    }

    /// How compressible each window is: see [`Probes::mean`].
    fn compressibility(self, windows: &[Window], run: &RunOptions) -> Result<Vec<f64>> {
        let context = || Prober::new(self.tree, self.contents);
        run.parallel(windows.len(), context, |prober, number| prober.window(&windows[number]))
    }
}

/// What each byte of a hole takes.
pub(super) fn holes(
    stream: &Stream,
    sampling: &Sampling,
    levels: &Levels<'_>,
    sum: &mut Sum,
) -> Result<EachByte> {
    let Some(window) = stream.hole(sampling.segment) else { return Ok(EachByte::default()) };
    let measured = levels.slow.unwrap_or(levels.fast).measure(&[window])?;
    sum.sampled += bytes(&measured);
    let size = part(&measured, |one| one.size, |one| one.bytes);
    let direct = part(&measured, |one| one.direct.seconds, |one| one.bytes);
    Ok(EachByte { size, direct, ..EachByte::default() })
}

/// How often the compressor searches each byte.
fn searched(measured: &[Measured], effort: fn(&Measured) -> &Effort) -> f64 {
    let counted = measured.iter().filter_map(|one| effort(one).searched).sum::<f64>();
    let bytes = measured.iter().map(|one| effort(one).bytes).sum::<f64>();
    if counted > 0.0 && bytes > 0.0 { counted / bytes } else { 1.0 }
}

pub(super) fn bytes(measured: &[Measured]) -> f64 {
    measured.iter().map(|one| one.bytes).sum()
}

/// The sum of a value, as a part of the sum of another one.
pub(super) fn part(measured: &[Measured], value: fn(&Measured) -> f64, of: fn(&Measured) -> f64) -> f64 {
    let (value, of): (f64, f64) = (measured.iter().map(value).sum(), measured.iter().map(of).sum());
    if of > 0.0 { value / of } else { 0.0 }
}

/// Encoders of the content.
pub(super) struct Levels<'a> {
    pub(super) fast: &'a Measurer<'a>,
    /// At the level of the setting, if that is slow.
    pub(super) slow: Option<&'a Measurer<'a>>,
    /// Those of pieces, if the setting is slow.
    pub(super) pieces: Option<&'a PieceLevels<'a>>,
}

/// What [`pieces`](super::pieces) are encoded with.
pub(super) struct PieceLevels<'a> {
    pub(super) slow: &'a Compression,
    pub(super) fast: &'a Compression,
    /// At the level at which trials are counted.
    pub(super) counting: &'a Measurer<'a>,
    pub(super) block: BlockSize,
}

/// What one byte of content takes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct EachByte {
    /// Bytes in the image.
    pub(super) size: f64,
    /// Of them, those of fragments.
    pub(super) fragments: f64,
    /// Bytes that become fragments.
    pub(super) fragment_bytes: f64,
    /// Processor time outside of the packed inode.
    pub(super) direct: f64,
    /// Processor time for each byte of the packed inode.
    pub(super) packed: f64,
}

impl EachByte {
    pub(super) fn seconds(&self) -> f64 {
        self.direct + self.packed * self.fragment_bytes
    }
}

/// Sums over all content.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) size: f64,
    pub(super) fragments: f64,
    pub(super) sampled: f64,
    /// The sizes and tails of whole files.
    pub(super) tails: Vec<(u64, u16)>,
}

impl Sum {
    fn add_tails(&mut self, measured: &[Measured]) {
        self.tails.extend(measured.iter().flat_map(|one| one.tails.iter().copied()));
    }
}
