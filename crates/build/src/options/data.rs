//! How the content of files is stored: encoded or not, in which order, and shared or not.

mod priorities;

use std::num::NonZeroU32;
use std::path::PathBuf;

use ferofs_read::Profile;

use crate::options::compression::Compression;
pub use priorities::{Priorities, PrioritiesError};

/// How the content of files is stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataOptions {
    /// How content is compressed; `None`: not at all.
    pub compression: Option<Compression>,
    /// Store files in chunks, and equal chunks once, in place of [`Self::compression`].
    pub chunks: Option<ChunkOptions>,
    /// Files with identical content share it.
    pub share_identical: bool,
    /// Files that are read most come first. This has no effect on content that stays in the sources.
    pub hot_files: Option<HotFiles>,
    /// Files whose content comes before or after that of others. Hot files come before all.
    pub priorities: Priorities,
    /// The order of the content of all other files.
    pub order: ContentOrder,
    /// Content starts at multiples of this many blocks.
    pub alignment: NonZeroU32,
}

/// The order in which the content of files is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentOrder {
    /// In the order of a program that reads the whole tree.
    #[default]
    Tree,
    /// Versions of a file are adjacent: directories whose names are mostly the same are read at the same time. With fragments in
    /// large pclusters, many versions of a tree take little more space than one; reading one version decodes data of the
    /// others.
    Similar,
    /// [`Self::Similar`] if half of the content is in files that have versions, and there are fragments; else [`Self::Tree`].
    Auto,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            compression: None,
            chunks: None,
            share_identical: true,
            hot_files: None,
            priorities: Priorities::default(),
            order: ContentOrder::default(),
            alignment: NonZeroU32::MIN,
        }
    }
}

/// How files are cut into chunks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChunkOptions {
    /// Bytes of a chunk: a power of two, at least a block and at most 64 MiB.
    pub size: u64,
    /// Write chunk indexes of 8 bytes, which name a device, where block addresses of 4 bytes would do.
    pub force_indexes: bool,
    /// The file or block device that chunks go to, as the image's extra device 1; `None`: the image.
    pub device: Option<PathBuf>,
}

impl ChunkOptions {
    /// Chunks of `size` bytes, in the image.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, force_indexes: false, device: None }
    }
}

/// The files that are read most, and how many of them are stored uncompressed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HotFiles {
    /// The recorded reads. Files that it does not name count as not read.
    pub profile: Profile,
    /// The files with the most reads per byte are stored uncompressed, up to this many bytes in total.
    pub stored: u64,
}

impl HotFiles {
    /// The reads of `profile`, and up to `stored` bytes uncompressed.
    #[must_use]
    pub const fn new(profile: Profile, stored: u64) -> Self {
        Self { profile, stored }
    }
}
