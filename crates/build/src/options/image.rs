//! Options of the image as a whole: the fields of its superblock, and where it is written.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use ferofs_format::BlockSize;

use crate::options::sealer::Sealer;

/// Fields of the superblock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageOptions {
    /// The block size. Linux mounts images with blocks up to its page size.
    pub block_size: BlockSize,
    /// When the image was built, in seconds since 1970; `None`: now.
    pub build_time: Option<i64>,
    /// The UUID; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// The volume label: at most 16 bytes.
    pub label: Vec<u8>,
    /// Whether the superblock has a checksum.
    pub checksum: bool,
    /// Addresses of 48 bits, for an image of 2^32 blocks or more (Linux 6.15). Without them, the build of such an image fails. The
    /// index of a compressed file has them with [`IndexKind::Extents`](super::compression::IndexKind::Extents) only.
    pub wide_addresses: bool,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            block_size: BlockSize::DEFAULT,
            build_time: None,
            uuid: None,
            label: Vec::new(),
            checksum: true,
            wide_addresses: false,
        }
    }
}

/// Where the image is written, and whether it is compared with its source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutputOptions {
    /// The image starts at this byte of its file or device.
    pub offset: u64,
    /// The image's size is a multiple of this many blocks.
    pub size_alignment: NonZeroU32,
    /// Compare the image with its source before the file gets its name.
    pub verify: bool,
    /// Sees the bytes of the image while they are written, and appends to it, for example a hash tree. The image must have no extra
    /// devices, and start its file.
    pub sealer: Option<Arc<dyn Sealer>>,
    /// Other files that the caller writes. As the image and its extra device, they are left out of a source that is a directory, with
    /// [`crate::Warning::OwnOutput`].
    pub others: Vec<PathBuf>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self { offset: 0, size_alignment: NonZeroU32::MIN, verify: false, sealer: None, others: Vec::new() }
    }
}
