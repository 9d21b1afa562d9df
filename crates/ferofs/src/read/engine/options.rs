//! How much memory the engine may hold.

/// Budgets of the engine, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Encoded blocks of clusters that were wanted in part. Default: 256 KiB.
    pub encoded_cache: usize,
    /// Decoded clusters of which a sequential reader wants the rest next; one is kept however large it is.
    /// Default: 256 KiB.
    pub tail_cache: usize,
    /// Decoded clusters of the packed inode, used by images with fragments alone; one is kept however large it is.
    /// Default: 16 MiB.
    pub packed_cache: usize,
    /// Keep neither encoded nor decoded data but for the packed inode, and give buffers back at once. Default: no.
    pub low_memory: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { encoded_cache: 256 << 10, tail_cache: 256 << 10, packed_cache: 16 << 20, low_memory: false }
    }
}
