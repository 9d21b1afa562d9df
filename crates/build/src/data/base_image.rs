//! What an image that is there already can give to one that is built on it: patches implement this.

use crate::Result;
use crate::data::encode::dedupe::Match;
use crate::sources::data_ranges::Ranges;
use crate::tree::NodeId;

/// An image to build on. Workers ask it at the same time.
pub trait Base: Sync {
    /// Whether it is settled where the content of `node` is.
    fn has(&self, node: NodeId) -> bool;

    /// Extents that are the same in `src`, the content of `node` from `offset` on, and stood there in the file that
    /// `node` comes from: ascending and apart, those that method number `method` decodes.
    fn matches(&self, node: NodeId, offset: u64, src: &[u8], method: usize) -> Result<Vec<Match>>;

    /// Ranges of `node`, from its start to its end without gaps, that no extent of that file crosses, where possible.
    fn cuts(&self, node: NodeId) -> Option<Ranges>;
}
