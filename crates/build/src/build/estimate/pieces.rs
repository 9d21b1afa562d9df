//! Content in large pclusters at a slow level: encodes pieces of about one pcluster, each once.
//!
//! The data stage tries some lengths for each pcluster, which takes several times as long. How often it does is counted elsewhere, at a level that is
//! much faster; here it is enough to know what a byte takes in the image, and how long the compressor searches in it.

use crate::build::estimate::regression::{self, Point};
use crate::build::estimate::sampling::Sampling;
use crate::build::estimate::windows::{Encoded, Piece, Prober, Sampled, Stream};
use crate::error::Result;
use crate::options::compression::Compression;
use ferofs_format::BlockSize;

/// The fewest pieces at the slow level: one of content that compresses well, and one of other content.
const SLOW_MIN: usize = 2;
/// The fewest pieces at the fast level, from which they are chosen.
const FAST_MIN: u64 = 6;
/// The most pieces that tell what longer pclusters save.
const LONG_MAX: usize = 4;
/// Pieces that become larger than this part of their size say little about that, and do not fit into a pcluster when they are twice as long.
const LONG_SIZE_MAX: f64 = 0.45;
/// Pclusters that decode to at most this many times a piece are not encoded otherwise than the piece.
const NEARLY_AS_LONG: f64 = 1.25;

/// What content is encoded, and how.
pub(super) struct Pieces<'a> {
    pub(super) sampled: Sampled<'a>,
    pub(super) stream: &'a Stream,
    pub(super) sampling: &'a Sampling,
    /// The compression of the setting, and the same at the fast level.
    pub(super) slow: &'a Compression,
    pub(super) fast: &'a Compression,
    pub(super) block: BlockSize,
}

/// What one byte of the content takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceCost {
    /// Bytes in the image.
    pub(super) size: f64,
    /// Processor time of reading it.
    pub(super) reading: f64,
    /// Processor time of searching it once, if it is searched.
    pub(super) searching: f64,
    /// The part of the content that is searched.
    pub(super) searched: f64,
    /// Bytes of all pieces.
    pub(super) sampled: f64,
}

impl Pieces<'_> {
    /// Measures `wanted` bytes at the fast level, and `wanted_slow` of them at the slow one. `expected` is about what a byte becomes.
    pub(super) fn cost(&self, wanted: u64, wanted_slow: f64, expected: f64) -> Result<PieceCost> {
        let len = self.sampling.piece_len(expected);
        let pieces = self.stream.pieces(wanted.div_ceil(len).max(FAST_MIN), len);
        let fast = self.encode(&pieces, self.fast)?;
        let x = self.mean_at_fast_level(&pieces, &fast)?;
        let chosen = in_groups(&fast, ((wanted_slow / len as f64).ceil() as usize).max(SLOW_MIN));
        let again: Vec<Piece> = chosen.iter().map(|(number, _)| pieces[*number]).collect();
        let slow = self.encode(&again, self.slow)?;
        let points = |is_wanted: fn(&Encoded) -> bool, value: fn(&Encoded) -> f64| -> Vec<Point> {
            let each = chosen.iter().zip(&slow).filter(|(_, one)| one.bytes > 0.0 && is_wanted(one));
            each.map(|((number, weight), one)| Point {
                weight: *weight,
                x: fast[*number].ratio(),
                y: value(one),
            })
            .collect()
        };
        let size = regression::total(&points(|_| true, Encoded::ratio), x);
        let searching = regression::mean(&points(|one| one.is_searched, |one| one.encoding / one.bytes), x);
        let searched =
            chosen.iter().zip(&slow).filter(|(_, one)| one.is_searched).map(|((_, weight), _)| weight);
        let searched = searched.sum::<f64>() / chosen.iter().map(|(_, weight)| weight).sum::<f64>().max(1.0);
        let all = || fast.iter().chain(&slow);
        let bytes: f64 = all().map(|one| one.bytes).sum();
        let reading = all().map(|one| one.reading).sum::<f64>() / bytes.max(1.0);
        let size = size * self.in_long_pclusters(&pieces, &fast, size, len)?;
        Ok(PieceCost { size, reading, searching, searched, sampled: bytes })
    }

    /// What a byte of the whole stream becomes at the fast level.
    fn mean_at_fast_level(&self, pieces: &[Piece], fast: &[Encoded]) -> Result<f64> {
        let Sampled { tree, contents, probes } = self.sampled;
        let mean = probes.mean(self.stream);
        let context = || Prober::new(tree, contents);
        let compressibility = match mean {
            Some(_) => self.sampling.run.parallel(pieces.len(), context, |prober, number| {
                prober.probe_piece(self.stream, pieces[number])
            })?,
            None => vec![1.0; pieces.len()],
        };
        let points: Vec<Point> = fast
            .iter()
            .zip(compressibility)
            .map(|(one, x)| Point { weight: one.bytes, x, y: one.ratio() })
            .collect();
        Ok(regression::total(&points, mean.unwrap_or(1.0)))
    }

    fn encode(&self, pieces: &[Piece], compression: &Compression) -> Result<Vec<Encoded>> {
        let Sampled { tree, contents, .. } = self.sampled;
        let method = self.sampling.method(self.stream.kind());
        let context = || Prober::with(tree, contents, compression.compressor(method, self.block).ok());
        self.sampling
            .run
            .parallel(pieces.len(), context, |prober, number| prober.encode(self.stream, pieces[number]))
    }

    /// The size in pclusters that decode to more than `len` bytes, as a part of the size `each` that a byte takes in pieces of that length: more of what
    /// repeats is near. Some pieces are encoded with as many bytes behind them, and these alone.
    fn in_long_pclusters(&self, pieces: &[Piece], fast: &[Encoded], each: f64, len: u64) -> Result<f64> {
        let longer = self.sampling.decoded_len(each) / len as f64;
        if longer <= NEARLY_AS_LONG {
            return Ok(1.0);
        }
        let is_useful = |(piece, one): &(&Piece, &Encoded)| {
            piece.room >= 2 * len && piece.len == len && one.ratio() < LONG_SIZE_MAX
        };
        let useful: Vec<(&Piece, &Encoded)> = pieces.iter().zip(fast).filter(is_useful).collect();
        let some =
            useful.iter().skip(useful.len() / LONG_MAX / 2).step_by(useful.len().div_ceil(LONG_MAX).max(1));
        let (mut apart, mut together, mut more) = (0.0, 0.0, Vec::new());
        for (piece, one) in some {
            apart += one.size;
            more.push(Piece { at: piece.at + len, ..**piece });
            more.push(Piece { len: 2 * len, ..**piece });
        }
        for pair in self.encode(&more, self.fast)?.chunks_exact(2) {
            (apart, together) = (apart + pair[0].size, together + pair[1].size);
        }
        if together <= 0.0 || apart <= together {
            return Ok(1.0);
        }
        Ok(self.sampling.size_in_longer(self.stream.kind(), together / apart, longer))
    }
}

/// Chooses `count` of the pieces, or all of them: sorted by how well they compress, the middle one of each of as many groups. Returns their numbers, and how
/// many bytes their groups have.
fn in_groups(pieces: &[Encoded], count: usize) -> Vec<(usize, f64)> {
    let mut sorted: Vec<usize> = (0..pieces.len()).collect();
    sorted.sort_by(|a, b| pieces[*a].ratio().total_cmp(&pieces[*b].ratio()));
    let count = count.min(sorted.len());
    let group = |number: usize| &sorted[number * sorted.len() / count..(number + 1) * sorted.len() / count];
    let bytes = |group: &[usize]| group.iter().map(|number| pieces[*number].bytes).sum();
    (0..count).map(group).map(|group| (group[group.len() / 2], bytes(group))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_pieces_of_all_sizes() {
        let piece = |size: f64| Encoded { bytes: 10.0, size, ..Encoded::default() };
        let pieces = [9.0, 1.0, 5.0, 2.0, 8.0, 4.0].map(piece);
        assert_eq!(in_groups(&pieces, 3), [(3, 20.0), (2, 20.0), (0, 20.0)]);
        assert_eq!(in_groups(&pieces, 9).len(), 6);
        assert_eq!(in_groups(&pieces[..1], 3), [(0, 10.0)]);
        assert!(in_groups(&[], 3).is_empty());
    }
}
