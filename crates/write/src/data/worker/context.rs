//! The data that all workers share, and the decisions on the content of a file that follow from it.

use ferofs_codec::codec;
use ferofs_format::BlockSize;
use ferofs_format::inode::inline_tail;
use ferofs_format::units::SLOT_SIZE;

use crate::data::encode::SEGMENT;
use crate::data::encode::dedupe::ExtentIndex;
use crate::data::encode::deflate_pages::DeflatePlacer;
use crate::data::extents::index::IndexEncoder;
use crate::data::identical::IdenticalFiles;
use crate::data::order::Order;
use crate::data::stored::BaseImage;
use crate::options::Options;
use crate::options::compression::{Compression, FileCompression};
use crate::progress::Timings;
use crate::sources::content::Contents;
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::{NodeId, Origin, Tree};

/// Bytes to which the length of an inode with its xattrs is rounded up, if another file may have
/// the same content. Files with the same rounded length can share their data. A larger value lets
/// more files share, but fewer tails follow their inodes.
const INODE_LEN_STEP: usize = 128;

/// The data that all workers share.
#[derive(Clone, Copy)]
pub(crate) struct WorkerContext<'a> {
    pub options: &'a Options,
    pub tree: &'a Tree,
    pub order: &'a Order,
    pub inode_sizes: &'a InodeSizes,
    pub identical_files: &'a IdenticalFiles,
    /// The extents that can be shared, with deduplication.
    pub extent_index: Option<&'a ExtentIndex>,
    /// The existing image that this one is built on.
    pub base_image: Option<&'a dyn BaseImage>,
    pub contents: &'a Contents,
    pub compression: Option<&'a Compression>,
    pub block_size: BlockSize,
}

impl<'a> WorkerContext<'a> {
    /// The time of each activity, which workers add to.
    pub(crate) fn timings(&self) -> &'a Timings {
        &self.options.run.progress.timings
    }

    /// How `node` is encoded; `None`: it is stored uncompressed.
    pub(crate) fn file_compression(
        &self,
        node: NodeId,
    ) -> Option<(&'a Compression, FileCompression)> {
        let compression = self.compression.filter(|_| !self.order.is_stored(node))?;
        let (size, path) = (self.tree.node(node).size, || self.tree.path_bytes(node));
        Some((compression, compression.for_file(size, path, self.block_size)?))
    }

    /// Whether the image only reserves space for the content of `node`.
    pub(crate) fn is_reserved(&self, node: NodeId) -> bool {
        self.tree.node(node).origin == Origin::Zeroes && self.file_compression(node).is_none()
    }

    /// The most bytes of content that are encoded with one call.
    pub(crate) fn segment(&self) -> u64 {
        self.compression.map_or(SEGMENT, |compression| compression.segment(self.block_size))
    }

    /// Encodes the indexes of compressed files.
    pub(crate) fn index_encoder(&self) -> IndexEncoder {
        let (block, compression) = (self.block_size, self.compression);
        let index = compression.map(|compression| compression.index).unwrap_or_default();
        IndexEncoder {
            index,
            block,
            big_pclusters: compression.is_some_and(|compression| compression.is_big(block)),
        }
    }

    /// Places the extents that `method` encodes; `None` if Linux can decode them at any place.
    pub(crate) fn deflate_placer(&self, method: usize) -> Option<DeflatePlacer> {
        let compression = self.compression.filter(|compression| !compression.index.in_blocks())?;
        let algorithm = compression.methods.get(method)?.algorithm;
        codec(algorithm).needs_place.then(|| DeflatePlacer::new(self.block_size))
    }

    /// Bytes of the inode of `node` with its xattrs, for decisions on its content. They are rounded
    /// up if the file may have duplicates, so that these decide the same.
    pub(crate) fn rounded_inode_len(&self, node: NodeId) -> usize {
        let len = self.inode_sizes.len(node);
        if self.identical_files.is_candidate(node) {
            len.next_multiple_of(INODE_LEN_STEP)
        } else {
            len
        }
    }

    /// How many of the last bytes of a file of `size` bytes can follow its inode within one block.
    pub(crate) fn inline_tail(&self, node: NodeId, size: u64) -> usize {
        if !self.inode_sizes.may_inline(node) {
            return 0;
        }
        inline_tail(self.rounded_inode_len(node) as u64, size, self.block_size) as usize
    }

    /// How many bytes can follow the index of `node`, a file of `size` bytes, within one block.
    pub(crate) fn inline_capacity(&self, node: NodeId, size: u64) -> usize {
        if !self.inode_sizes.may_inline(node) {
            return 0;
        }
        let index = usize::try_from(self.index_encoder().max_size(size)).unwrap_or(usize::MAX);
        self.block_size.bytes().saturating_sub(self.rounded_inode_len(node)).saturating_sub(index)
    }

    /// Everything but the content that decides how `node` is stored: see
    /// [`IdenticalFiles::look_up`].
    pub(crate) fn encoding_key(&self, node: NodeId) -> Vec<u8> {
        let compression = self.file_compression(node).map(|(_, file)| (file.method, file.pcluster));
        let place = (self.rounded_inode_len(node), self.inode_sizes.len(node) % SLOT_SIZE as usize);
        format!("{compression:?} {place:?} {}", self.inode_sizes.may_inline(node)).into_bytes()
    }
}
