//! The LZ4 compressors.
//!
//! Level 0 is [`fast`], levels 1 to 6 are [`lazy`], levels 7 to 12 are [`optimal`]; the latter two
//! find matches with [`chain`](super::chain). All of them write through
//! [`sequence_writer`](super::sequence_writer).

#[cfg(test)]
mod tests;

#[cfg(any(feature = "liblz4-encode", test))]
use super::library::Library;
use super::{fast, lazy, optimal};
use crate::error::{EncodeError, ParamsError};
use crate::fit::{self, Compressor, Fit};
use crate::incompressible;
use crate::params::{Codec, LIBLZ4, Params, Reencoding};
use ferofs_format::Algorithm;
use ferofs_format::algorithm::LZ4_MAX_DISTANCE;
use optimal::Effort;

/// The version of these compressors. A change of any byte that one of them writes needs a new
/// number; a test compares their output with digests.
const VERSION: u32 = 2;

pub(crate) static CODEC: Codec = Codec {
    // An extent with a record is encoded alone, into at most a pcluster.
    reencodings: &[Reencoding::Fill, Reencoding::ExactInPcluster],
    extents_depend: false,
    one_pass_level: None,
    storing_level: None,
    needs_place: false,
    has_small_tables: true,
    // After the own levels that are used most those of liblz4, with which mkfs.erofs encodes.
    levels: &[
        0, 12, 128, 140, 137, 138, 139, 136, 135, 134, 133, 132, 131, 130, 129, 9, 10, 11, 8, 7, 6,
        5, 4, 3, 2, 1,
    ],
    level_range: "0 (fast) to 12",
    default_level: 0,
    fast: (Algorithm::Lz4, 0),
    dictionary: |size| match size {
        1024..=65535 => Some(size),
        65536 => Some(LZ4_MAX_DISTANCE.into()),
        _ => None,
    },
    dictionary_range: "1024 to 65536",
    level_dictionary: |_| LZ4_MAX_DISTANCE.into(),
    cluster_dictionary: |_| LZ4_MAX_DISTANCE.into(),
    encoder,
    version: |params| match params.level {
        #[cfg(any(feature = "liblz4-encode", test))]
        LIBLZ4.. => super::library::version(params.level == LIBLZ4),
        _ => VERSION,
    },
    // A bit for each position, in a list that doubles as it grows.
    memory: |params, longest, _| match params.level {
        0..=2 => (1 << 20) + longest / 4,
        _ => (4 << 20) + longest / 4,
    },
    time: |params, _| match params.level % LIBLZ4 {
        0 => (2_000, 4),
        1..=9 => (20_000, 60),
        // liblz4 takes up to 20 times as long for content of two symbols as for usual content.
        _ if params.level >= LIBLZ4 => (20_000, 600),
        _ => (20_000, 200),
    },
};

fn encoder(params: &Params) -> Result<Box<dyn Compressor>, ParamsError> {
    #[cfg(any(feature = "liblz4-encode", test))]
    if let Some(level) = params.level.checked_sub(LIBLZ4) {
        return Ok(Box::new(Library::new(level, params.window)));
    }
    let max_distance = u16::try_from(params.dictionary).unwrap_or(LZ4_MAX_DISTANCE);
    Ok(Box::new(Lz4::new(params.level, max_distance, params.window)))
}

/// The LZ4 compressors, by level.
struct Lz4 {
    parse: Parse,
    window: usize,
}

enum Parse {
    Fast(fast::Fast),
    Lazy(Box<lazy::Lazy>),
    Optimal(Box<optimal::Optimal>),
}

/// Levels 1 to 6: the most candidates tried at a position. More candidates find longer matches and
/// cost time.
const ATTEMPTS: [u32; 6] = [1, 3, 8, 16, 32, 64];

/// Levels 7 to 12.
const EFFORTS: [Effort; 6] = [
    Effort { attempts: 16, exact: false },
    Effort { attempts: 24, exact: false },
    Effort { attempts: 32, exact: true },
    Effort { attempts: 48, exact: true },
    Effort { attempts: 64, exact: true },
    Effort { attempts: 96, exact: true },
];

impl Lz4 {
    fn new(level: u8, max_distance: u16, window: usize) -> Self {
        let parse = match level {
            0 => Parse::Fast(fast::Fast::new(max_distance)),
            level @ 1..=6 => {
                let attempts = ATTEMPTS[usize::from(level) - 1];
                Parse::Lazy(Box::new(lazy::Lazy::new(attempts, max_distance)))
            }
            level => {
                let effort = EFFORTS[usize::from(level.min(12)) - 7];
                Parse::Optimal(Box::new(optimal::Optimal::new(effort, max_distance)))
            }
        };
        Self { parse, window }
    }

    fn run(
        &mut self,
        src: &[u8],
        pos: usize,
        dst: &mut [u8],
        window: usize,
    ) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, window)?;
        // Positions count from the cluster's start.
        let (src, end) = (&src[pos..], end - pos);
        // The fast parse skips random data as quickly as the test for it runs.
        let tests_input = !matches!(self.parse, Parse::Fast(_));
        if tests_input && incompressible::looks_random(&src[..end], dst.len()) {
            return Ok(Fit::Incompressible);
        }
        Ok(match &mut self.parse {
            Parse::Fast(fast) => fast.fit(src, end, dst),
            Parse::Lazy(lazy) => lazy.fit(src, end, dst),
            Parse::Optimal(optimal) => optimal.fit(src, end, dst),
        })
    }
}

impl Compressor for Lz4 {
    fn begin(&mut self) {
        // Nothing to do: no match refers to an earlier cluster, so no state is kept.
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        self.run(src, pos, dst, self.window)
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        Ok(match self.run(src, 0, dst, usize::MAX)? {
            fit @ Fit::Encoded { consumed, .. } if consumed == src.len() => fit,
            _ => Fit::Incompressible,
        })
    }
}
