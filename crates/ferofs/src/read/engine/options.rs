//! How much memory the engine may hold, and how it decodes.

/// How a wholly wanted LZ4 cluster is decoded. All give the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Within the output, where its encoded bytes were read to; directly where it lacks the room. The fastest.
    #[default]
    InPlace,
    /// From a buffer of encoded bytes, right into the output.
    Direct,
    /// From and to buffers, and copied out.
    Buffer,
}

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
    /// The strategy for clusters that are wanted whole. Default: in place.
    pub strategy: Strategy,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            encoded_cache: 256 << 10,
            tail_cache: 256 << 10,
            packed_cache: 16 << 20,
            low_memory: false,
            strategy: Strategy::default(),
        }
    }
}
