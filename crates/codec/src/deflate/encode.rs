//! DEFLATE by libdeflate.

use libdeflater::{CompressionLvl, Compressor};

use crate::error::EncodeError;
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::{Codec, Reencoding};
use ferofs_format::Algorithm;

/// The version of libdeflate, 1.26, for which libdeflater has no constant. A test notices another
/// one.
const VERSION: u32 = 126;
/// libdeflate's window is always 32 KiB. Every reader of EROFS supports it, so a smaller one would
/// save nothing.
const WINDOW: u32 = 32 << 10;

pub(crate) static CODEC: Codec = Codec {
    // One call with the right length gives the bytes that the search for the length found.
    reencodings: &[Reencoding::Exact],
    extents_depend: false,
    one_pass_level: None,
    storing_level: Some(0),
    needs_place: true,
    has_small_tables: false,
    levels: &[6, 1, 9, 12, 8, 7, 5, 4, 3, 2, 10, 11, 0],
    level_range: "0 to 12",
    default_level: 6,
    fast: (Algorithm::Deflate, 1),
    dictionary: |size| (1..=WINDOW).contains(&size).then_some(WINDOW),
    dictionary_range: "1 to 32768",
    level_dictionary: |_| WINDOW,
    cluster_dictionary: |_| WINDOW,
    encoder: |params| {
        let level = CompressionLvl::new(params.level.into()).map_err(|_| params.no_level())?;
        let inner = Inner(Compressor::new(level));
        let search = LengthSearch::new(inner, params.window, params.filling, WINDOW as usize);
        Ok(Box::new(search))
    },
    version: |_| VERSION,
    memory: |params, _, tried| match params.level {
        0..=9 => (2 << 20) + tried + tried / 8,
        _ => (12 << 20) + tried + tried / 8,
    },
    time: |params, _| match params.level {
        0..=6 => (10_000, 30),
        7..=9 => (20_000, 100),
        _ => (50_000, 300),
    },
};

struct Inner(Compressor);

impl FixedInput for Inner {
    fn bound(&mut self, len: usize) -> usize {
        self.0.deflate_compress_bound(len)
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        Ok(self.0.deflate_compress(src, dst).ok())
    }
}
