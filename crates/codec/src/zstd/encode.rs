//! Zstandard by libzstd, with predicted input lengths.

use zstd_safe::{CCtx, CParameter};

use super::ZstdParams;
use super::blocks::Blocks;
use super::context::{estimate, is_ok, lacked_memory};
use super::sequences::Sequences;
use crate::error::EncodeError;
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::{Codec, Params, Reencoding};
use crate::version::OWN;
use ferofs_format::Algorithm;
use ferofs_format::algorithm::ZSTD_WINDOW_LOGS;

/// The version of the search for the length of an extent, and of what is done with the matches that
/// libzstd finds. A change of any byte that is written needs a new number.
const VERSION: u32 = 5;

pub(crate) static CODEC: Codec = Codec {
    // The bytes depend on how much was searched for matches at once, which follows from the
    // extents before: so the search is repeated. Extents with records are encoded alone.
    reencodings: &[Reencoding::FillAsBuilder, Reencoding::Exact],
    extents_depend: true,
    // Trials make images of source code 2 % smaller.
    one_pass_level: Some(15),
    storing_level: None,
    needs_place: false,
    has_small_tables: false,
    levels: &[3, 9, 15, 1, 19, 6, 12, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 18, 20, 21, 22],
    level_range: "1 to 22",
    default_level: 3,
    fast: (Algorithm::Zstd, 1),
    dictionary: |size| {
        let log = u8::try_from(size.checked_ilog2()?).ok()?;
        (size.is_power_of_two() && ZSTD_WINDOW_LOGS.contains(&log)).then_some(size)
    },
    dictionary_range: "a power of two from 1024 to 1048576",
    level_dictionary: |_| 1 << 20,
    cluster_dictionary: |cluster| {
        cluster.saturating_mul(16).clamp(64 << 10, 1 << 20).next_power_of_two()
    },
    encoder: |params| {
        let own = zstd_params(params);
        // Refuses bad parameters now; without memory, `compress` fails.
        if CCtx::try_create().is_some_and(|mut context| !accepts(&mut context, own)) {
            return Err(params.no_level());
        }
        let inner = Inner { params: own, context: None, sequences: None, blocks: [None, None] };
        let window = params.dictionary as usize;
        Ok(Box::new(LengthSearch::new(inner, params.window, params.filling, window)))
    },
    version: |_| zstd_safe::version_number().saturating_add(VERSION * OWN),
    memory: |params, _, tried| {
        /// The matches of a parsed input, the context that encodes them, and one that fills large
        /// outputs block by block.
        const OTHERS: u64 = 6 << 20;
        let (params, parsed) = (zstd_params(params), tried.min(MAX_PARSED as u64));
        // The output of a trial is as long as its input.
        estimate(params, tried) + estimate(params, parsed) + tried + OTHERS
    },
    time: |params, _| match params.level {
        1..=4 => (10_000, 10),
        5..=12 => (20_000, 50),
        13..=15 => (50_000, 150),
        16..=18 => (50_000, 500),
        _ => (50_000, 1_000),
    },
};

fn zstd_params(params: &Params) -> ZstdParams {
    let window_log = params.dictionary.checked_ilog2().unwrap_or(0);
    ZstdParams { level: params.level, window_log: window_log as u8 }
}

/// The longest input in bytes that is parsed once: four of libzstd's blocks. libzstd does not
/// choose where blocks end if it only parses, which makes longer binaries 0.3 to 0.6 % larger.
/// Longer input is compressed for each trial, or once for large outputs.
const MAX_PARSED: usize = 512 << 10;

/// The longest output in bytes that is filled with small tables: in the input of a longer one they
/// find too little.
const SHORT_OUTPUT: usize = 128 << 10;

struct Inner {
    params: ZstdParams,
    /// Made for the first input that is compressed at once.
    context: Option<CCtx<'static>>,
    sequences: Option<Sequences>,
    /// For outputs of up to [`SHORT_OUTPUT`], and for others.
    blocks: [Option<Blocks>; 2],
}

impl FixedInput for Inner {
    fn bound(&mut self, len: usize) -> usize {
        zstd_safe::compress_bound(len)
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, EncodeError> {
        let context = match &mut self.context {
            Some(context) => context,
            none => none.insert(context(self.params).ok_or(EncodeError::Memory)?),
        };
        match context.compress2(dst, src) {
            Ok(produced) => Ok(Some(produced)),
            // With accepted parameters libzstd only fails if the output is too small, or without
            // memory, which `is_ok` notes.
            Err(code) => {
                is_ok(code);
                Ok(None)
            }
        }
    }

    fn begin(&mut self) {
        self.blocks.iter_mut().flatten().for_each(Blocks::begin);
    }

    fn fill(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        block: usize,
    ) -> Result<Option<(usize, usize)>, EncodeError> {
        let large = dst.len() > SHORT_OUTPUT;
        let blocks = match &mut self.blocks[usize::from(large)] {
            Some(blocks) => blocks,
            none => none.insert(Blocks::new(self.params, large).ok_or(EncodeError::Memory)?),
        };
        Ok(blocks.fill(src, dst, block))
    }

    fn lacks_memory(&mut self) -> bool {
        lacked_memory()
    }

    fn take_filled(&mut self) -> u64 {
        self.blocks.iter_mut().flatten().map(Blocks::take_tried).sum()
    }

    fn parse(&mut self, src: &[u8]) -> bool {
        if src.len() > MAX_PARSED {
            return false;
        }
        let sequences = match &mut self.sequences {
            Some(sequences) => sequences,
            none => match Sequences::new(self.params) {
                Some(new) => none.insert(new),
                None => return false,
            },
        };
        sequences.parse(src)
    }

    fn encode_parsed(&mut self, src: &[u8], len: usize, dst: &mut [u8]) -> Option<usize> {
        self.sequences.as_mut()?.encode(src, len, dst)
    }
}

/// `None` if there is no memory.
fn context(params: ZstdParams) -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    accepts(&mut context, params).then_some(context)
}

/// Sets the parameters; `false` if one is refused.
fn accepts(context: &mut CCtx<'static>, params: ZstdParams) -> bool {
    [
        CParameter::CompressionLevel(params.level.into()),
        CParameter::WindowLog(params.window_log.into()),
        CParameter::ContentSizeFlag(true),
        CParameter::ChecksumFlag(false),
    ]
    .into_iter()
    .all(|parameter| context.set_parameter(parameter).is_ok())
}
