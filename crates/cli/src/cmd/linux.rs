//! The Linux version that mounts an image, and the size of its pages, from its superblock.

use std::fmt;

use ferofs::read::{Algorithm, Compression, Incompat, Superblock};

use crate::args::byte_size;

/// The requirements of Linux for mounting an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) version: LinuxVersion,
    /// The smallest page size, in bytes.
    pub(crate) page: u64,
}

/// The smallest pages of a processor on which Linux runs, in bytes.
pub(crate) const SMALLEST_PAGE: u64 = 4096;

impl Requirement {
    /// The requirement of an image that exists.
    pub(crate) fn of_image(superblock: &Superblock) -> Self {
        let block = superblock.block_size.bytes64();
        let available = match superblock.compression {
            Compression::Configured { available } => available,
            Compression::Lz4Only { .. } => 0,
        };
        let algorithms =
            Algorithm::ALL.into_iter().filter(|algorithm| available & algorithm.bit() != 0);
        let small = match superblock.incompat.contains(Incompat::LZ4_0PADDING) {
            true => LinuxVersion(6, 8),
            false => LinuxVersion(6, 4),
        };
        // Before, Linux refused a label without a zero after it.
        let label = superblock.volume_name.last().is_some_and(|last| *last != 0);
        let versions = [(block < SMALLEST_PAGE, small), (label, LinuxVersion(6, 15))];
        let versions =
            versions.into_iter().filter_map(|(applies, version)| applies.then_some(version));
        let version =
            versions.chain(algorithms.map(of_algorithm)).max().unwrap_or(LinuxVersion(5, 4));
        Self { version, page: block.max(SMALLEST_PAGE) }.with_features(superblock.incompat)
    }

    /// The same for an image that has these features. Not all follow from options: files with holes
    /// are stored in chunks, an index of huge archives has wide addresses, and an image that is
    /// like an earlier one keeps the features of it.
    pub(crate) fn with_features(mut self, incompat: Incompat) -> Self {
        for (feature, _, version) in FEATURES {
            if incompat.contains(feature) {
                self.version = self.version.max(version);
            }
        }
        // As in `linux_version`, if the hidden inode is that of an earlier image.
        if incompat.contains(Incompat::XATTR_PREFIXES) && incompat.intersects(HIDDEN_INODE) {
            self.version = self.version.max(LinuxVersion(6, 18));
        }
        self
    }
}

/// Features of images that may have a packed inode or a metabox.
const HIDDEN_INODE: Incompat = Incompat::FRAGMENTS.union(Incompat::METABOX);

/// Incompatible features, with their names in erofs-utils and the first Linux version that mounts
/// images with them: older ones refuse them. A bit that announces two features has the older one's.
pub(crate) const FEATURES: [(Incompat, &str, LinuxVersion); 11] = [
    (Incompat::LZ4_0PADDING, "lz4_0padding", LinuxVersion(5, 4)),
    (Incompat::COMPR_CFGS, "compr_cfgs", LinuxVersion(5, 13)),
    (Incompat::BIG_PCLUSTER, "big_pcluster", LinuxVersion(5, 13)),
    (Incompat::CHUNKED_FILE, "chunked_file", LinuxVersion(5, 15)),
    (Incompat::DEVICE_TABLE, "device_table", LinuxVersion(5, 16)),
    (Incompat::ZTAILPACKING, "ztailpacking", LinuxVersion(5, 17)),
    (Incompat::FRAGMENTS, "fragments", LinuxVersion(6, 1)),
    (Incompat::DEDUPE, "dedupe", LinuxVersion(6, 1)),
    (Incompat::XATTR_PREFIXES, "xattr_prefixes", LinuxVersion(6, 4)),
    (Incompat::BIT48, "48bit", LinuxVersion(6, 15)),
    (Incompat::METABOX, "metabox", LinuxVersion(6, 17)),
];

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.version == LinuxVersion::NONE {
            return f.write_str("no version of Linux");
        }
        write!(f, "Linux {} or newer", self.version)?;
        if self.page > SMALLEST_PAGE {
            write!(f, " with pages of {}", byte_size::exact(self.page))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinuxVersion(pub(crate) u8, pub(crate) u8);

impl LinuxVersion {
    /// Later than all versions: none mounts the image.
    pub(crate) const NONE: Self = Self(u8::MAX, u8::MAX);

    /// From the facts of a library.
    pub(crate) fn first(version: Option<(u8, u8)>) -> Self {
        version.map_or(Self::NONE, |(major, minor)| Self(major, minor))
    }
}

impl fmt::Display for LinuxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self(major, minor) => write!(f, "{major}.{minor}"),
        }
    }
}

/// The first Linux version that decodes `algorithm`.
pub(crate) fn of_algorithm(algorithm: Algorithm) -> LinuxVersion {
    LinuxVersion::first(algorithm.linux_version())
}
