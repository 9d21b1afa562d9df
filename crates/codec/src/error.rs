//! What can go wrong: three enums, for parameters, encoding and decoding. No text is built here.

use std::ops::RangeInclusive;

/// A parameter that no compressor accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// The algorithm has no such level.
    #[error("{algorithm} has no level {level}: {range}")]
    Level {
        /// The algorithm's name.
        algorithm: &'static str,
        /// What was asked for.
        level: u8,
        /// What it accepts, in words.
        range: &'static str,
    },
    /// Another parameter is out of its range.
    #[error("{field} is {value}; it must be {} to {}", range.start(), range.end())]
    Range {
        /// The parameter.
        field: &'static str,
        /// What was asked for.
        value: u64,
        /// What is accepted.
        range: RangeInclusive<u64>,
    },
    /// LZMA's literal context and position bits exceed 4 together.
    #[error("lc + lp is {0}; it must be 0 to 4")]
    LcLp(u8),
}

/// A call that a compressor cannot carry out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is nothing to encode at the position given.
    #[error("nothing to encode: position {pos} of {len} bytes")]
    EmptyInput {
        /// Where the cluster was to start.
        pos: usize,
        /// The input's length.
        len: usize,
    },
    /// The output cannot hold even the smallest encoding.
    #[error("output of {len} bytes is too small; the least is {least}")]
    OutputTooSmall {
        /// The output's length.
        len: usize,
        /// The smallest accepted.
        least: usize,
    },
    /// A cluster is at most 1 MiB.
    #[error("output of {len} bytes is too large; the most is {most}")]
    OutputTooLarge {
        /// The output's length.
        len: usize,
        /// The largest accepted.
        most: usize,
    },
    /// A window no larger than the output could never fill it.
    #[error("window of {window} bytes is smaller than the output of {output}")]
    WindowTooSmall {
        /// The compression window in bytes.
        window: usize,
        /// The output's length in bytes.
        output: usize,
    },
    /// Positions are kept in 32 bits.
    #[error("input of {len} bytes is too large; the most is {most}")]
    InputTooLarge {
        /// The input's length.
        len: usize,
        /// The largest accepted.
        most: usize,
    },
    /// The library could not allocate its state.
    #[error("out of memory for the compressor's state")]
    Memory,
    /// A library refused for a reason that the checked parameters rule out.
    #[error("{library} failed with code {code}")]
    Library {
        /// The library.
        library: &'static str,
        /// Its own error code.
        code: i64,
    },
}

/// Encoded bytes that do not decode as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are no encoded bytes, or all of them are padding.
    #[error("no encoded bytes")]
    EmptyInput,
    /// The bytes are no valid stream of this algorithm.
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
        /// How many bytes came out.
        got: usize,
        /// How many were wanted.
        wanted: usize,
    },
    /// The stream holds more than the cluster is said to.
    #[error("{algorithm} data decodes to more than {wanted} bytes")]
    TooLong {
        /// The algorithm's name.
        algorithm: &'static str,
        /// How many bytes were wanted.
        wanted: usize,
    },
    /// A match reaches back further than the window that there is.
    #[error("a match reaches back further than the window")]
    MatchBeyondWindow,
    /// Decoding in place would overwrite encoded bytes not yet read.
    #[error("the cluster cannot be decoded in place")]
    OverwritesInput,
    /// The library could not allocate its state.
    #[error("out of memory for the decoder's state")]
    Memory,
}
