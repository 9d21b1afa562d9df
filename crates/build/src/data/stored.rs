//! Where the data stage put the content of each inode. The metadata stage and the verification read this.

use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::{BlockAddr, Incompat};

use crate::output::spill::SpillRange;

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
