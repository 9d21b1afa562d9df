//! The interface to an existing image that a new one is built on. `crate::incremental` implements it.

use crate::data::encode::dedupe::Match;
use crate::data::extents::log::ExtentLog;
use crate::error::Result;
use crate::sources::data_ranges::Ranges;
use crate::tree::NodeId;

/// The content of a file that exists in the image, and that new content follows.
#[derive(Clone, Debug)]
pub(crate) struct EarlierContent {
    /// Bytes of the file.
    pub size: u64,
    /// Its extents, all of them shared.
    pub log: ExtentLog,
}

/// An existing image whose data the new image can use. Several workers call it at the same time.
pub(crate) trait BaseImage: Sync {
    /// Whether the content of `node` has its place already, so that the data stage skips it.
    fn has_content(&self, node: NodeId) -> bool;

    /// Extents of the base image with the same content as a part of `src`, at the same offset of the file that `node` comes
    /// from. `src` is the content of `node` from `offset` on. The matches ascend, do not overlap, and are encoded by
    /// method number `method`.
    fn find_extents(&self, node: NodeId, offset: u64, src: &[u8], method: usize) -> Result<Vec<Match>>;

    /// Where to split `node`: ranges without gaps from its start to its end, which divide as few extents of the base image
    /// as possible.
    fn split_ranges(&self, node: NodeId) -> Option<Ranges>;

    /// The content of the packed inode, if new fragments follow it; `None` if new fragments get a packed inode of their own.
    fn packed(&self) -> Option<&EarlierContent>;
}
