//! The memory of compressors, for programs that must know it before they compress.

use crate::params::{Method, Params};

const MIB: u64 = 1 << 20;

/// An upper bound for the memory that the compressor with `params` takes for its tables, in bytes. No content is longer than `longest` bytes.
#[must_use]
pub fn encoder_memory(params: &Params, longest: u64) -> u64 {
    let input = longest.min(params.window as u64);
    match params.method {
        Method::Lz4(lz4) => match lz4.level {
            0..=2 => MIB,
            _ => 4 * MIB,
        },
        // liblzma: 4 bytes for each second byte of the dictionary, and the content of a cluster with 8 to 10 bytes for each of its bytes.
        Method::Lzma(lzma) => u64::from(lzma.dict_size) * 2 + 11 * input + 4 * MIB,
        Method::Deflate(deflate) => match deflate.level {
            0..=9 => 2 * MIB,
            _ => 12 * MIB,
        },
        Method::Zstd(zstd) => crate::zstd::encoder_memory(zstd, input),
    }
}
