//! Zstandard by libzstd, with predicted input lengths.

use zstd_safe::{CCtx, CParameter};

use super::blocks::Blocks;
use super::context::estimate;
use super::sequences::Sequences;
use crate::error::{EncodeError, ParamsError};
use crate::length_search::{FixedInput, LengthSearch};
use crate::params::{Filling, ZstdParams};

/// The longest input in bytes that is parsed once: four of libzstd's blocks. libzstd does not choose where blocks end if it only parses, which
/// makes longer binaries 0.3 to 0.6 % larger. Longer input is compressed for each trial, or once for large outputs.
const MAX_PARSED: usize = 512 << 10;

/// The longest output in bytes that is filled with small tables: in the input of a longer one they find too little.
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
            none => none.insert(context(self.params).map_err(|_| EncodeError::Memory)?),
        };
        match context.compress2(dst, src) {
            Ok(produced) => Ok(Some(produced)),
            // With accepted parameters libzstd only fails if the output is too small.
            Err(_) => Ok(None),
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

fn context(params: ZstdParams) -> Result<CCtx<'static>, ParamsError> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(params.level.into()),
        CParameter::WindowLog(params.window_log.into()),
        CParameter::ContentSizeFlag(true),
        CParameter::ChecksumFlag(false),
    ] {
        let range = "1 to 22";
        let refused = |_| ParamsError::Level { algorithm: "zstd", level: params.level, range };
        context.set_parameter(parameter).map_err(refused)?;
    }
    Ok(context)
}

/// Makes the Zstandard compressor.
pub(crate) fn encoder(
    params: ZstdParams,
    window: usize,
    filling: Filling,
) -> Result<LengthSearch<impl FixedInput>, ParamsError> {
    // Refuses bad parameters now.
    drop(context(params)?);
    let inner = Inner { params, context: None, sequences: None, blocks: [None, None] };
    Ok(LengthSearch::new(inner, window, filling, 1 << params.window_log))
}

/// An upper bound for the memory of the compressor with `params` for `input` bytes.
pub(crate) fn encoder_memory(params: ZstdParams, input: u64) -> u64 {
    /// The matches of a parsed input, the context that encodes them, and one that fills large outputs block by block.
    const OTHERS: u64 = 6 << 20;
    let parsed = input.min(MAX_PARSED as u64);
    // The output of a trial is as long as its input.
    estimate(params, input) + estimate(params, parsed) + input + OTHERS
}
