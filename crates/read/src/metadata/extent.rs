//! Extents: the ranges of a file's content, each with where and how it is stored.
//!
//! A map finds them from metadata alone; the engine reads and decodes their data.

use ferofs_format::{Algorithm, BytePos, DeviceId, FileOffset};

use crate::volume::MetadataPlace;

/// Bytes at most of an encoded pcluster; Linux refuses larger ones. Source: FORMAT.md 6.1.
pub(crate) const MAX_ENCODED: u64 = 1 << 20;
/// Bytes at most of a decoded pcluster; Linux refuses larger ones.
pub(crate) const MAX_DECODED: u64 = 12 << 20;

/// A range of a file's decoded content that is stored in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first offset in the decoded content.
    pub start: FileOffset,
    /// Bytes of decoded content, at least 1.
    pub len: u64,
    /// How and where it is stored.
    pub data: ExtentData,
}

/// How and where an extent is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentData {
    /// Zeroes that are stored nowhere.
    Hole,
    /// The bytes as they are.
    Stored {
        /// The place of the extent's first byte.
        at: Location,
    },
    /// One stored block, rotated so that each byte is at its file offset modulo the block size.
    Interlaced {
        /// The start of the block.
        at: Location,
    },
    /// A pcluster to decode.
    Encoded {
        /// The algorithm.
        algorithm: Algorithm,
        /// The start of the pcluster.
        at: Location,
        /// Bytes of the pcluster, with its leading zeroes.
        encoded_len: u64,
        /// The pcluster decodes to more than this extent uses.
        partial: bool,
    },
    /// A range of the packed inode's decoded content.
    Fragment {
        /// Its first offset there.
        offset: FileOffset,
    },
}

/// The place of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// On a device, on blocks of their own.
    Device(DeviceId, BytePos),
    /// Among the metadata: inline data, right after its inode or index.
    Metadata(MetadataPlace),
}

impl Extent {
    /// The offset after the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        // An extent lies within its file, whose size fits 63 bits.
        self.start.get().saturating_add(self.len)
    }

    /// Whether it covers `offset`.
    #[must_use]
    pub const fn contains(&self, offset: FileOffset) -> bool {
        offset.get() >= self.start.get() && offset.get() < self.end()
    }
}
