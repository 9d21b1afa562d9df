//! Options of the image as a whole: the fields of its superblock, how inodes are stored (FORMAT.md
//! 3), and where it is written. A [`Sealer`] is a program's own processing of the bytes of an image
//! while they are written.

use std::fmt::Debug;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use ferofs_format::BlockSize;
use ferofs_read::Source;

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
    /// Addresses of 48 bits, for an image of 2^32 blocks or more (Linux 6.15). Without them, the
    /// build of such an image fails. The index of a compressed file has them with
    /// [`IndexKind::Extents`](super::compression::IndexKind::Extents) only.
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
    /// Sees the bytes of the image while they are written, and appends to it, for example a hash
    /// tree. The image must have no extra devices, and start its file.
    pub sealer: Option<Arc<dyn Sealer>>,
    /// Other files that the caller writes. As the image and its extra device, they are left out of
    /// a source that is a directory, with [`crate::Warning::OwnOutput`].
    pub others: Vec<PathBuf>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self {
            offset: 0,
            size_alignment: NonZeroU32::MIN,
            verify: false,
            sealer: None,
            others: Vec::new(),
        }
    }
}

/// Sees the bytes of an image when they are written, and appends to the image when it is complete;
/// for example a hash tree.
pub trait Sealer: Debug + Send + Sync {
    /// The image is filled with zeroes up to a multiple of this many bytes before [`Self::finish`].
    fn alignment(&self) -> u64 {
        1
    }

    /// These bytes were written at `position` in the image. A few places are written twice: the
    /// last bytes count. Bytes that are never written are zero.
    fn written(&self, position: u64, bytes: &[u8]);

    /// The image is complete and has `len` bytes. What is passed to `append` follows the image.
    ///
    /// # Errors
    /// Any error, also of `append`, makes the build fail.
    fn finish(
        &self,
        image: &dyn Source,
        len: u64,
        append: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()>;
}

/// The on-disk form of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InodeForm {
    /// Compact (32 bytes) where the fields fit, else extended (64 bytes).
    #[default]
    Smallest,
    /// Always compact, without a modification time of its own. An inode whose fields do not fit is
    /// an error.
    Compact,
    /// Always extended.
    Extended,
}

/// How inodes are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InodeOptions {
    /// Compact or extended.
    pub form: InodeForm,
    /// Use an extended inode if a compact one cannot store the modification time; otherwise the
    /// file gets the build time.
    pub keep_mtime: bool,
    /// Store the last bytes of regular files, and whole small files, after their inode. Turn this
    /// off for DAX, which cannot map such data.
    pub inline_data: bool,
    /// Directories have no `.` entry (`dot-omitted`; Linux 6.15).
    pub dot_omitted: bool,
}

impl Default for InodeOptions {
    fn default() -> Self {
        Self { form: InodeForm::Smallest, keep_mtime: true, inline_data: true, dot_omitted: false }
    }
}
