//! Where the data stage put the content of each inode, which the metadata stage and the verification read. Also the interface to an
//! existing image that a new one is built on, which `crate::incremental` implements.

use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::{BlockAddr, Incompat};

use crate::data::encode::dedupe::Match;
use crate::data::extents::ExtentLog;
use crate::error::Result;
use crate::host::Ranges;
use crate::output::spill::SpillRange;
use crate::tree::NodeId;

/// Where the content of an inode is stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum StoredContent {
    /// The inode has no content, or none yet.
    #[default]
    None,
    /// In consecutive blocks; the tail follows the inode.
    Flat { start: BlockAddr, tail: SpillRange },
    /// Compressed. The index follows the inode, and its last `inline` bytes, less than a block, are content.
    Compressed { layout: DataLayout, blocks: u64, index: SpillRange, inline: u16 },
    /// In chunks, whose table follows the inode.
    Chunked { format: u16, table: SpillRange },
    /// The source cannot be read: the image leaves out every name of this inode.
    Skipped,
}

impl StoredContent {
    /// Bytes that follow the inode and its xattrs.
    pub(crate) fn len_after(&self) -> usize {
        match self {
            Self::Flat { tail, .. } => tail.byte_len(),
            Self::Compressed { index, .. } => index.byte_len(),
            Self::Chunked { table, .. } => table.byte_len(),
            Self::None | Self::Skipped => 0,
        }
    }

    /// How many of the last bytes that follow the inode are content, which must not cross a block boundary.
    pub(crate) fn inline_len(&self) -> u64 {
        match self {
            Self::Flat { tail, .. } => tail.byte_len() as u64,
            Self::Compressed { inline, .. } => (*inline).into(),
            Self::None | Self::Skipped | Self::Chunked { .. } => 0,
        }
    }

    /// Sets the layout and the place of `inode`, and returns the bytes that follow it.
    pub(crate) fn set_in(&self, inode: &mut Inode) -> Option<SpillRange> {
        match *self {
            Self::None | Self::Skipped => None,
            Self::Flat { start, tail } => {
                inode.place = Place::Blocks(start);
                if tail.is_empty() {
                    return None;
                }
                inode.layout = DataLayout::FlatInline;
                Some(tail)
            }
            Self::Compressed { layout, blocks, index, .. } => {
                inode.layout = layout;
                inode.place = Place::Compressed { blocks };
                Some(index)
            }
            Self::Chunked { format, table } => {
                inode.layout = DataLayout::ChunkBased;
                inode.place = Place::Chunked { format };
                Some(table)
            }
        }
    }
}

/// The packed inode: all fragments one after another.
#[derive(Clone, Debug)]
pub(crate) struct PackedInode {
    pub size: u64,
    pub content: StoredContent,
}

/// The result of the data stage.
#[derive(Debug, Default)]
pub(crate) struct StoredData {
    /// By node.
    pub contents: Vec<StoredContent>,
    pub packed: Option<PackedInode>,
    /// The features that readers of the data need.
    pub features: Incompat,
    /// Bytes of files that share the data of other files.
    pub bytes_shared: u64,
    /// The largest number of jobs that were in progress at once.
    pub peak_jobs: usize,
}

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
