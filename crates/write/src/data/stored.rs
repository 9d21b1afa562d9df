//! Where the data stage put the content of each inode, which the metadata stage and the
//! verification read. Also the interface to an existing image that a new one is built on, which
//! `crate::incremental` implements.

use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::{BlockAddr, BytePos, Incompat};

use crate::data::encode::dedupe::Match;
use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::error::Result;
use crate::output::spill::SpillRange;
use crate::tree::NodeId;
use ferofs_host::stat::Ranges;

/// Where the content of an inode is stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum StoredContent {
    /// The inode has no content, or none yet.
    #[default]
    None,
    /// In consecutive blocks; the tail follows the inode.
    Flat { start: BlockAddr, tail: SpillRange },
    /// Compressed. The index follows the inode, and its last `inline` bytes, less than a block, are
    /// content.
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

    /// How many of the last bytes that follow the inode are content, which must not cross a block
    /// boundary.
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
    /// Bytes of extents that the base image has, of files that it has in another version.
    pub bytes_found: u64,
    /// Bytes of data that an earlier image has at the same place.
    pub bytes_kept: u64,
    /// Files whose whole content is among these bytes.
    pub files_kept: u64,
    /// The largest number of jobs that were in progress at once.
    pub peak_jobs: usize,
    /// Those of an earlier image that the new one is built like.
    pub earlier_inodes: Option<EarlierInodes>,
}

/// The inodes of an earlier image, whose places new inodes take if they fit there.
#[derive(Debug)]
pub(crate) struct EarlierInodes {
    /// The inode of each node.
    pub by_node: Vec<Option<EarlierInode>>,
    /// Where the packed inode is, in bytes from the start of the metadata.
    pub packed: Option<u64>,
    /// How many bytes of metadata may be unused, in percent.
    pub waste: u64,
    /// How many more may be unused, because there is less unused data than may be.
    pub unused_left: u64,
}

/// An inode of an earlier image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierInode {
    /// Where it is, in bytes from the start of the metadata.
    pub pos: u64,
    /// The number that `stat` shows.
    pub ino: u32,
    /// Its first block of a directory or symbolic link, from the start of the metadata.
    pub first_block: Option<u64>,
}

/// The content of a file that exists in the image, and that new content follows.
#[derive(Clone, Debug)]
pub(crate) struct EarlierContent {
    /// Bytes of the file.
    pub size: u64,
    /// Its extents, all of them shared.
    pub log: ExtentLog,
    /// Its extents are not those that its inode has in the image, so that it is written again even
    /// if nothing follows it.
    pub is_changed: bool,
}

impl EarlierContent {
    /// The extents of the whole content, with those of `new` after the earlier ones, and where the
    /// first one is that is not shared. New extents are at `first` and after it.
    pub(crate) fn followed_by(&self, new: &ExtentLog, first: BytePos) -> (BytePos, ExtentLog) {
        let mut all = self.log.clone();
        if let Some(start) = self.start_if_consecutive(first) {
            // Without places of their own, extents have a shorter index.
            all = ExtentLog::new(self.log.unit());
            let earlier =
                self.log.iter().map(|extent| Extent { place: ExtentPlace::Next, ..extent });
            earlier.for_each(|extent| all.push_without_dedupe(extent));
            all.extend(new);
            return (start, all);
        }
        all.extend(new);
        (first, all)
    }

    /// Where the extents start, if they have no holes, are whole, and are stored one after another
    /// up to `end`.
    fn start_if_consecutive(&self, end: BytePos) -> Option<BytePos> {
        let mut extents = self.log.iter().map(|extent| match extent.place {
            ExtentPlace::Shared { at, partial: false } if !extent.is_hole() => {
                Some((at.get(), extent.size))
            }
            _ => None,
        });
        let (start, size) = extents.next()??;
        let last = extents.try_fold(start + size, |next, extent| {
            extent.filter(|(at, _)| *at == next).map(|(at, size)| at + size)
        })?;
        (last == end.get()).then_some(BytePos::new(start))
    }
}

/// An existing image whose data the new image can use. Several workers call it at the same time.
pub(crate) trait BaseImage: Sync {
    /// Whether the content of `node` has its place already, so that the data stage skips it.
    fn has_content(&self, node: NodeId) -> bool;

    /// Extents of the base image with the same content as a part of `src`, at the same offset of
    /// the file that `node` comes from. `src` is the content of `node` from `offset` on. The
    /// matches ascend, do not overlap, and are encoded by method number `method`.
    fn find_extents(
        &self,
        node: NodeId,
        offset: u64,
        src: &[u8],
        method: usize,
    ) -> Result<Vec<Match>>;

    /// Where to split `node`: ranges without gaps from its start to its end, which divide as few
    /// extents of the base image as possible.
    fn split_ranges(&self, node: NodeId) -> Option<Ranges>;

    /// The content of the packed inode, if new fragments follow it; `None` if new fragments get a
    /// packed inode of their own.
    fn packed(&self) -> Option<&EarlierContent>;
}
