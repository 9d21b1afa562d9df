//! MicroLZMA by liblzma.

use liblzma_sys::{
    LZMA_OK, LZMA_PRESET_EXTREME, LZMA_STREAM_END, lzma_lzma_preset, lzma_microlzma_encoder,
    lzma_options_lzma, lzma_version_number,
};

use super::Stream;
use ferofs_format::Algorithm;
use ferofs_format::algorithm::LZMA_DICT_SIZES;

use crate::error::{EncodeError, ParamsError};
use crate::fit::{self, Compressor, Fit};
use crate::incompressible;
use crate::params::{Codec, Params, Reencoding};
use crate::version::OWN;

/// The version of what this crate lets liblzma do. A change of any byte that it writes needs a new
/// number.
const VERSION: u32 = 1;

pub(crate) static CODEC: Codec = Codec {
    // The dictionary that LZMA searches has a length by the capacity.
    reencodings: &[Reencoding::Fill, Reencoding::ExactInPcluster, Reencoding::FillAsBuilder],
    extents_depend: false,
    one_pass_level: None,
    storing_level: None,
    needs_place: false,
    has_small_tables: false,
    levels: &[6, 109, 106, 9, 5, 4, 3, 2, 1, 0, 7, 8, 100, 101, 102, 103, 104, 105, 107, 108],
    level_range: "0 to 9, or 100 to 109 (extreme)",
    default_level: 6,
    // LZMA has no fast level.
    fast: (Algorithm::Zstd, 1),
    dictionary: |size| LZMA_DICT_SIZES.contains(&size).then_some(size),
    dictionary_range: "4096 to 8388608",
    // Those of liblzma's presets, at most 8 MiB: Linux refuses larger ones.
    level_dictionary: |level| match level % 100 {
        0 => 256 << 10,
        1 => 1 << 20,
        2 => 2 << 20,
        3 | 4 => 4 << 20,
        _ => 8 << 20,
    },
    cluster_dictionary: |cluster| cluster.saturating_mul(8).clamp(32 << 10, 8 << 20),
    encoder: |params| Ok(Box::new(Encoder::new(params)?)),
    // SAFETY: the function has no arguments and only returns a constant.
    version: |_| unsafe { lzma_version_number() }.saturating_add(VERSION * OWN),
    // liblzma: 4 bytes for each second byte of the dictionary, and the content of a cluster with 8
    // to 10 bytes for each of its bytes.
    memory: |params, longest, _| {
        let dictionary = u64::from(params.dictionary);
        2 * dictionary + 11 * longest.min(dictionary) + (4 << 20)
    },
    time: |params, capacity| {
        let dictionary = (params.dictionary as usize).min(capacity.saturating_mul(16)) as u64;
        let byte = match params.level {
            0..=3 => 80,
            _ => 200,
        };
        (60_000 + dictionary / 4, byte)
    },
};

/// The MicroLZMA compressor.
struct Encoder {
    stream: Stream,
    options: lzma_options_lzma,
    dict_size: u32,
    window: usize,
}

// SAFETY: the only pointer in `options` is the preset dictionary's, which stays null.
unsafe impl Send for Encoder {}

impl Encoder {
    fn new(params: &Params) -> Result<Self, ParamsError> {
        // SAFETY: `lzma_options_lzma` is integers, enums with a zero value and null pointers; the
        // preset fills it.
        let mut options: lzma_options_lzma = unsafe { std::mem::zeroed() };
        let extreme = if params.level >= 100 { LZMA_PRESET_EXTREME } else { 0 };
        let preset = u32::from(params.level % 100) | extreme;
        // SAFETY: `options` is ours and writable.
        if unsafe { lzma_lzma_preset(&raw mut options, preset) } != 0 {
            return Err(params.no_level());
        }
        options.lc = params.bits.lc.into();
        options.lp = params.bits.lp.into();
        options.pb = params.bits.pb.into();
        let (dict_size, window) = (params.dictionary, params.window);
        Ok(Self { stream: Stream::default(), options, dict_size, window })
    }

    fn run(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        dict: usize,
    ) -> Result<(usize, usize), EncodeError> {
        self.options.dict_size =
            self.dict_size.min(u32::try_from(dict).unwrap_or(u32::MAX)).max(4096);
        // SAFETY: the stream is zeroed or of an earlier run, which liblzma reuses; the options
        // outlive the call.
        let code =
            unsafe { lzma_microlzma_encoder(&raw mut *self.stream.0, &raw const self.options) };
        if code != LZMA_OK {
            return Err(failure(code));
        }
        match self.stream.run(src, dst) {
            (LZMA_STREAM_END, consumed, produced) => Ok((consumed, produced)),
            (code, ..) => Err(failure(code)),
        }
    }
}

fn failure(code: u32) -> EncodeError {
    match code {
        liblzma_sys::LZMA_MEM_ERROR => EncodeError::Memory,
        code => EncodeError::Library { library: "liblzma", code: code.into() },
    }
}

impl Compressor for Encoder {
    fn begin(&mut self) {}

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        if incompressible::looks_random(&src[pos..end], dst.len()) {
            return Ok(Fit::Incompressible);
        }
        // For each cluster liblzma clears hash tables as large as the dictionary. A cluster seldom
        // decodes to more than sixteen times its size, so a larger dictionary would only cost time.
        let dict = (dst.len() * 16).max(1 << 16).next_power_of_two();
        let (consumed, produced) = self.run(&src[pos..end], dst, dict)?;
        Ok(classify(consumed, produced, dst.len(), pos + consumed == src.len()))
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        fit::check(src, 0, dst, usize::MAX)?;
        let (consumed, produced) = self.run(src, dst, src.len().next_power_of_two())?;
        Ok(if consumed == src.len() {
            classify(consumed, produced, 0, true)
        } else {
            Fit::Incompressible
        })
    }
}

fn classify(consumed: usize, produced: usize, output: usize, at_end: bool) -> Fit {
    match fit::saves_space(consumed, produced, output, at_end) {
        true => Fit::Encoded { consumed, produced },
        false => Fit::Incompressible,
    }
}

#[cfg(test)]
mod tests {
    use liblzma_sys::{
        LZMA_FILTER_LZMA1, LZMA_VLI_UNKNOWN, lzma_filter, lzma_raw_encoder_memusage,
    };

    use super::*;
    use crate::encoder_memory;

    #[test]
    fn the_memory_of_long_contents_is_bounded() {
        for (level, dict_log) in
            [0, 4, 6, 9, 109].into_iter().flat_map(|level| (12..=23).map(move |log| (level, log)))
        {
            let mut params = Params::new(Algorithm::Lzma, Some(level)).unwrap();
            params.dictionary = 1 << dict_log;
            let mut encoder = Encoder::new(&params).unwrap();
            encoder.options.dict_size = params.dictionary;
            let options = (&raw mut encoder.options).cast();
            let end = lzma_filter { id: LZMA_VLI_UNKNOWN, options: std::ptr::null_mut() };
            let filters = [lzma_filter { id: LZMA_FILTER_LZMA1, options }, end];
            // SAFETY: the filters end with the unknown one, and the options outlive the call.
            let liblzma = unsafe { lzma_raw_encoder_memusage(filters.as_ptr()) };
            // As much content as the dictionary holds, which is more than the window.
            let own = encoder_memory(&params, 1 << dict_log);
            assert!(own >= liblzma, "{params:?}: {own}, {liblzma}");
        }
    }
}
