//! The errors of parameters, of encoding and of decoding.

use std::ops::RangeInclusive;

use crate::compressor_names;

/// An invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// The algorithm has no such level.
    #[error("{algorithm} has no level {level}: {range}")]
    Level {
        /// The algorithm's name.
        algorithm: &'static str,
        /// The requested value.
        level: u8,
        /// The accepted levels, as text.
        range: &'static str,
    },
    /// A parameter other than the level is out of range.
    #[error("{field} is {value}; it must be {} to {}", range.start(), range.end())]
    Range {
        /// The parameter's name.
        field: &'static str,
        /// The requested value.
        value: u64,
        /// The accepted values.
        range: RangeInclusive<u64>,
    },
    /// The size of the dictionary is out of range.
    #[error("dictsize={given}: {algorithm} takes {range}")]
    Dictionary {
        /// The algorithm's name.
        algorithm: &'static str,
        /// The requested value.
        given: String,
        /// The accepted values, as text.
        range: &'static str,
    },
    /// LZMA's literal context and position bits exceed 4 together.
    #[error("lc + lp is {0}; it must be 0 to 4")]
    LcLp(u8),
    /// An algorithm other than LZMA has LZMA's bits.
    #[error("{0} does not take lc, lp and pb")]
    NotLzma(&'static str),
    /// A text names no compressor.
    #[error("unknown compressor{hint}; the compressors are {}", compressor_names().join(", "))]
    Compressor {
        /// The name.
        name: String,
        /// What the name may mean, after a semicolon; or nothing.
        hint: String,
    },
    /// A text has something else where a number is expected.
    #[error("{0:?} is not a number")]
    Number(String),
    /// A text has an option that no compressor has.
    #[error(
        "unknown option {0} of a compressor; the options are level=N and dictsize=BYTES, and lc=N, lp=N and pb=N of lzma"
    )]
    Option(String),
}

/// Why a compressor cannot encode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The input has no bytes at the position.
    #[error("nothing to encode: position {pos} of {len} bytes")]
    EmptyInput {
        /// The cluster's start in the input.
        pos: usize,
        /// The input's length.
        len: usize,
    },
    /// The output is smaller than every compressor accepts.
    #[error("output of {len} bytes is too small; the least is {least}")]
    OutputTooSmall {
        /// The output's length.
        len: usize,
        /// The smallest accepted length.
        least: usize,
    },
    /// The output is larger than Linux accepts for a cluster, 1 MiB.
    #[error("output of {len} bytes is too large; the most is {most}")]
    OutputTooLarge {
        /// The output's length.
        len: usize,
        /// The largest accepted length.
        most: usize,
    },
    /// The window is smaller than the output: its data, even uncompressed, could not fill the
    /// output.
    #[error("window of {window} bytes is smaller than the output of {output}")]
    WindowTooSmall {
        /// The compression window in bytes.
        window: usize,
        /// The output's length in bytes.
        output: usize,
    },
    /// The input is longer than 1 GiB: compressors store positions in 32 bits.
    #[error("input of {len} bytes is too large; the most is {most}")]
    InputTooLarge {
        /// The input's length.
        len: usize,
        /// The largest accepted length.
        most: usize,
    },
    /// The library could not allocate its state.
    #[error("out of memory for the compressor's state")]
    Memory,
    /// Trials took more input than [`Compressor::limit`](crate::Compressor::limit) allows.
    #[error("the search for the length of a cluster takes too much work")]
    Work,
    /// A library returned an error that valid parameters should not cause.
    #[error("{library} failed with code {code}")]
    Library {
        /// The library's name.
        library: &'static str,
        /// The library's error code.
        code: i64,
    },
}

/// Why encoded bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are no encoded bytes: the cluster is empty or all zeroes.
    #[error("no encoded bytes")]
    EmptyInput,
    /// The bytes are not a valid stream of this algorithm.
    #[error("corrupt {algorithm} data")]
    Corrupt {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// The stream ends before the wanted bytes are complete.
    #[error("{algorithm} data decodes to {got} bytes, not {wanted}")]
    TooShort {
        /// The algorithm's name.
        algorithm: &'static str,
        /// Decoded bytes.
        got: usize,
        /// Bytes that the caller asked for.
        wanted: usize,
    },
    /// The stream decodes to more bytes than the caller says the cluster has.
    #[error("{algorithm} data decodes to more than {wanted} bytes")]
    TooLong {
        /// The algorithm's name.
        algorithm: &'static str,
        /// Bytes that the caller asked for.
        wanted: usize,
    },
    /// A match refers to bytes that the window no longer holds.
    #[error("a match reaches back further than the window")]
    MatchBeyondWindow,
    /// Decoding in place would overwrite encoded bytes that are not yet read.
    #[error("the cluster cannot be decoded in place")]
    OverwritesInput,
    /// This program was built without the decoder.
    #[error("built without {algorithm}")]
    NotBuilt {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// The library could not allocate its state.
    #[error("out of memory for the decoder's state")]
    Memory,
}
