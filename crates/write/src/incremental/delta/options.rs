//! What the caller of [`create_delta`](super::create_delta) chooses, and what it is told.

use crate::options::RunOptions;

/// How a delta is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeltaOptions {
    /// Zstandard's level. Default: 19.
    pub level: i32,
    /// Whether other versions of this library, and all processors, can apply the delta: it carries
    /// pclusters, and encodes none again.
    pub portable: bool,
    /// Workers, and cancelling.
    pub run: RunOptions,
}

impl Default for DeltaOptions {
    fn default() -> Self {
        Self { level: 19, portable: false, run: RunOptions::default() }
    }
}

/// What a delta has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeltaSummary {
    /// Bytes of the delta.
    pub len: u64,
    /// Bytes of the new image.
    pub new_size: u64,
    /// Bytes that are copied from the old image.
    pub copied: u64,
    /// Bytes of pclusters that are encoded again.
    pub encoded: u64,
    /// Bytes of pclusters that no compressor here makes, or not in the time that `apply` has, and
    /// that the delta carries.
    pub carried: u64,
    /// Bytes of the hash tree that is computed.
    pub tree: u64,
    /// An upper bound for the memory of applying, in bytes.
    pub memory: u64,
}
