//! Decides how much of the content is encoded, and in what pieces.

use ferofs_codec::{Method, Params};
use ferofs_format::Algorithm;

use crate::build::estimate::windows::StreamKind;
use crate::data::encode::SEGMENT;
use crate::options::Options;
use crate::options::compression::{Compression, Fragments, PCLUSTER_MAX};
use crate::options::run::RunOptions;

/// Bytes of the windows that are encoded at the fastest level: this part of the content, but within the limits. Less gives estimates that
/// are off by more than 5 %; more takes time.
const WINDOWS_PART: u64 = 10;
const WINDOWS_MIN: u64 = 24 << 20;
const WINDOWS_MAX: u64 = 64 << 20;
/// Not more than this part of small content, whatever the minimum is: an estimate must take a small part of the time of the builds.
const WINDOWS_SHARE: u64 = 4;
/// The same for pclusters of 1 MiB, of which few would be in so little content.
const LARGE_WINDOWS_PART: u64 = 4;
/// The part of the content that is encoded at a slow level, for each time that the compressor searches it in the image, and the limits.
const SLOW_PART: f64 = 40.0;
const SLOW_MAX: f64 = (16 << 20) as f64;
/// At least this for levels that encode 10 MB a second and more, but not more than a part of the content.
const SLOW_MIN: f64 = (3 << 20) as f64;
const SLOW_SHARE: f64 = 14.0;
/// Of content with so few bytes, a sample says little, and all of it takes little time.
const FEW: u64 = 4 << 20;
/// The fewest bytes of a window. A window must hold some pclusters; more windows of fewer bytes represent the content better.
const WINDOW_LEN: u64 = 256 << 10;
/// A window has at least as many bytes as this many pclusters.
const PCLUSTERS: u64 = 8;
/// The same for pclusters of 128 KiB and more, for which the number of trials depends more on the end of the window.
const LARGE_PCLUSTERS: u64 = 12;
const LARGE_PCLUSTER: u64 = 128 << 10;
/// Bytes of a window that is encoded at a slow level: about what a pcluster decodes to, but within the limits. With less, compressors find less
/// and are faster; with more, there are fewer windows.
const SLOW_WINDOW_MIN: u64 = 128 << 10;
const SLOW_WINDOW_MAX: u64 = 1 << 20;
/// The level of Zstandard that is fast. In pclusters of 1 MiB, which decode to several, level 3 finds too little of what repeats at a distance.
const FAST_ZSTD: u8 = 3;
const FAST_ZSTD_OF_LARGE: u8 = 6;
/// Bytes of a window, at a fast level, of files for which the number of trials does not matter.
const WINDOW_WITHOUT_TRIALS: u64 = 2 << 20;
/// For windows that are shorter than what a pcluster decodes to: what the processor time of a byte grows by when the length doubles. Measured
/// for Zstandard 15 and LZMA 6 with 1 to 6 MiB.
const GROWTH: f64 = 0.2;
/// A pcluster decodes to at most this many times its size.
const MAX_RATIO: f64 = 12.0;
/// The slowness (see [`slowness`]) of Zstandard 12: levels above it search with trees.
const CHEAP: u32 = 8 * 12;
/// How many more bytes these levels search than level 3, because the size is less smooth as a function of the length.
const SLOW_TRIALS: f64 = 1.05;
/// The level of Zstandard at which trials are counted.
const COUNTING_ZSTD: u8 = 1;
/// The part of the content that is encoded in pieces at the fast level, and the limits.
const PIECES_PART: u64 = 4;
const PIECES_MIN: u64 = 12 << 20;
const PIECES_MAX: u64 = 32 << 20;

/// How slow the slowest method is, compared with others.
pub(super) fn slowness(compression: Option<&Compression>) -> u32 {
    let each = compression.into_iter().flat_map(|compression| &compression.methods);
    let slowness = each.map(|params| match params.method {
        Method::Lz4(lz4) => u32::from(lz4.level),
        Method::Deflate(deflate) => 4 * u32::from(deflate.level),
        Method::Zstd(zstd) => 8 * u32::from(zstd.level),
        Method::Lzma(_) => 100,
    });
    slowness.max().unwrap_or(0)
}

/// The same compression at the fastest level of each algorithm, whose sizes change from content to content as those of the slow levels
/// do. LZMA has no fast level; Zstandard stands for it.
pub(super) fn at_fast_level(compression: &Compression) -> Compression {
    let is_large = compression.pcluster.is_some_and(|size| size >= PCLUSTER_MAX);
    at_level(compression, if is_large { FAST_ZSTD_OF_LARGE } else { FAST_ZSTD })
}

/// The same compression at the level at which trials are counted.
pub(super) fn at_counting_level(compression: &Compression) -> Compression {
    at_level(compression, COUNTING_ZSTD)
}

/// The same compression at the fastest level of each algorithm, but with `level` of Zstandard.
fn at_level(compression: &Compression, level: u8) -> Compression {
    let mut fast = compression.clone();
    for params in &mut fast.methods {
        match &mut params.method {
            Method::Lz4(lz4) => lz4.level = 0,
            Method::Zstd(zstd) => zstd.level = zstd.level.min(level),
            Method::Deflate(deflate) => deflate.level = deflate.level.min(1),
            Method::Lzma(_) => {
                if let Ok(zstd) = Params::new(Algorithm::Zstd, Some(level)) {
                    params.method = zstd.method;
                }
            }
        }
    }
    fast
}

/// How much of the content is encoded, and in what pieces.
pub(super) struct Sampling {
    /// What runs the samples.
    pub(super) run: RunOptions,
    /// Files up to this size are sampled as a whole.
    pub(super) small_max: u64,
    /// Bytes of a window at a fast level.
    pub(super) window: u64,
    pub(super) segment: u64,
    largest_pcluster: u64,
    slowness: u32,
    compression: Option<Compression>,
}

impl Sampling {
    pub(super) fn new(settings: &Options, run: RunOptions) -> Self {
        let (compression, block) = (settings.data.compression.as_ref(), settings.image.block_size);
        let sizes = compression.map(|compression| [compression.pcluster, compression.fragment_pcluster]);
        let largest_pcluster =
            u64::from(sizes.into_iter().flatten().flatten().max().unwrap_or(0)).max(block.bytes64());
        let segment = compression.map_or(SEGMENT, |compression| compression.segment(block));
        let pclusters = if largest_pcluster < LARGE_PCLUSTER { PCLUSTERS } else { LARGE_PCLUSTERS };
        let window = WINDOW_LEN.max(largest_pcluster * pclusters);
        let all_small = compression.is_some_and(|compression| compression.fragments == Fragments::All);
        let small_max = if all_small { SEGMENT } else { window };
        let slowness = slowness(compression);
        Self {
            run,
            small_max,
            window,
            segment,
            largest_pcluster,
            slowness,
            compression: compression.cloned(),
        }
    }

    /// Bytes to encode at the fastest level, of `all`.
    pub(super) fn fast_bytes(&self, all: u64) -> u64 {
        let (part, share) = match self.window > SEGMENT {
            true => (LARGE_WINDOWS_PART, 1),
            false => (WINDOWS_PART, WINDOWS_SHARE),
        };
        if self.is_whole(all) { all } else { (all / part).clamp(WINDOWS_MIN.min(all / share), WINDOWS_MAX) }
    }

    /// Bytes to encode at the slow level, of `all` that the compressor searches `times` times in the image.
    pub(super) fn slow_bytes(&self, all: u64, times: f64) -> f64 {
        if self.is_whole(all) {
            return all as f64;
        }
        let all = all as f64;
        let least = if self.slowness <= CHEAP { SLOW_MIN.min(all / SLOW_SHARE) } else { 0.0 };
        (all * times / SLOW_PART).clamp(least, SLOW_MAX.max(least))
    }

    /// Whether all of `all` bytes of content are encoded at each level.
    pub(super) const fn is_whole(&self, all: u64) -> bool {
        all <= FEW
    }

    /// Bytes to encode in pieces at the fast level, of `all`.
    pub(super) fn piece_bytes(&self, all: u64) -> u64 {
        (all / PIECES_PART).clamp(PIECES_MIN.min(all), PIECES_MAX)
    }

    /// Whether a stream of `all` bytes of content is encoded in pieces at the slow level: files do not end the pclusters, or rarely.
    pub(super) fn in_pieces(&self, kind: StreamKind, all: u64) -> bool {
        let fragments = self.compression.as_ref().map_or(Fragments::None, |all| all.fragments);
        !self.is_whole(all)
            && self.largest_pcluster >= LARGE_PCLUSTER
            && (kind == StreamKind::Large || fragments != Fragments::None)
    }

    /// Bytes that a pcluster decodes to, if each byte becomes `size` bytes.
    pub(super) fn decoded_len(&self, size: f64) -> f64 {
        self.largest_pcluster as f64 / size.max(1.0 / MAX_RATIO)
    }

    /// Bytes of a piece, if each byte becomes about `size` bytes: what a pcluster decodes to, but within the limits of windows.
    pub(super) fn piece_len(&self, size: f64) -> u64 {
        (self.decoded_len(size) as u64).clamp(SLOW_WINDOW_MIN, SLOW_WINDOW_MAX)
    }

    /// The size of a pcluster that decodes to `longer` times the bytes of a piece, as a part of the size of so many pieces, if two pieces together become
    /// `pair` times as large as apart. Zstandard finds what repeats only within the bytes of the longest piece; LZMA goes on finding more.
    pub(super) fn size_in_longer(&self, kind: StreamKind, pair: f64, longer: f64) -> f64 {
        match self.has_trials(kind) {
            true => (1.0 + (longer - 1.0) * (2.0 * pair - 1.0).max(0.0)) / longer,
            false => pair.powf(longer.log2()),
        }
    }

    /// How much longer searching takes in what a pcluster decodes to than in `len` bytes of it: its tables do not stay in the caches.
    pub(super) fn growth(&self, kind: StreamKind, len: u64, size: f64) -> f64 {
        if self.has_trials(kind) {
            return 1.0;
        }
        let decoded = (self.largest_pcluster as f64 / size.max(1.0 / MAX_RATIO)) / len as f64;
        1.0 + GROWTH * decoded.max(1.0).log2()
    }

    /// Whether the compressor of a stream searches for the input that fits: see [`Compressor::searched`](ferofs_codec::Compressor::searched).
    pub(super) fn has_trials(&self, kind: StreamKind) -> bool {
        let methods = self.compression.iter().flat_map(|compression| &compression.methods);
        methods
            .skip(self.method(kind))
            .take(1)
            .any(|params| matches!(params.method, Method::Zstd(_) | Method::Deflate(_)))
    }

    /// The number of the method of a stream.
    pub(super) fn method(&self, kind: StreamKind) -> usize {
        let large_files = self.compression.as_ref().and_then(|compression| compression.large_files);
        if kind == StreamKind::Large { large_files.unwrap_or(0) } else { 0 }
    }

    /// How many more trials the slow level needs than the fast one.
    pub(super) const fn more_trials(&self) -> f64 {
        if self.slowness > CHEAP { SLOW_TRIALS } else { 1.0 }
    }

    /// Bytes of a window of a stream at the fastest level.
    pub(super) fn fast_window(&self, kind: StreamKind) -> u64 {
        if self.has_trials(kind) { self.window } else { self.window.min(WINDOW_WITHOUT_TRIALS) }
    }

    /// Bytes of a window at the slow level, for content of which each byte becomes `size` bytes at the fastest one, if `wanted` bytes are to be
    /// encoded.
    pub(super) fn slow_window(&self, size: f64, wanted: u64) -> u64 {
        let decoded = self.largest_pcluster as f64 * 0.9 / size.max(0.01);
        let least = if self.slowness <= 12 { WINDOW_LEN } else { SLOW_WINDOW_MIN };
        (decoded as u64).clamp(least, SLOW_WINDOW_MAX).min(wanted.max(SLOW_WINDOW_MIN))
    }
}
