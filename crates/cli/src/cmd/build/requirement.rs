//! The Linux version that mounts an image, and the size of its pages, from the options of a build, and from the features that the source made
//! necessary.

use std::fmt;

use ferofs::build::{Compression, Fragments, IndexKind, Method, Options, SourceData};
use ferofs::read::Incompat;

use crate::args::byte_size;

/// The requirements of Linux for mounting an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) version: LinuxVersion,
    /// The smallest page size, in bytes.
    pub(super) page: u64,
}

/// The smallest pages of a processor on which Linux runs, in bytes.
const SMALLEST_PAGE: u64 = 4096;

impl Requirement {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            version: linux_version(options),
            page: options.image.block_size.bytes64().max(SMALLEST_PAGE),
        }
    }

    /// The same for an image that has these features. Not all follow from options: files with holes are stored in chunks, an index of huge
    /// archives has wide addresses, and an image that is like an earlier one keeps the features of it.
    pub(super) fn with_features(mut self, incompat: Incompat) -> Self {
        for (feature, version) in FEATURES {
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

/// The first Linux version that mounts images with a feature: older ones refuse them. A bit that announces two features has the older one's.
const FEATURES: [(Incompat, LinuxVersion); 8] = [
    (Incompat::COMPR_CFGS, LinuxVersion(5, 13)),
    (Incompat::CHUNKED_FILE, LinuxVersion(5, 15)),
    (Incompat::DEVICE_TABLE, LinuxVersion(5, 16)),
    (Incompat::ZTAILPACKING, LinuxVersion(5, 17)),
    (Incompat::FRAGMENTS, LinuxVersion(6, 1)),
    (Incompat::XATTR_PREFIXES, LinuxVersion(6, 4)),
    (Incompat::BIT48, LinuxVersion(6, 15)),
    (Incompat::METABOX, LinuxVersion(6, 17)),
];

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {} or newer", self.version)?;
        if self.page > SMALLEST_PAGE {
            write!(f, " with pages of {}", byte_size::exact(self.page))?;
        }
        Ok(())
    }
}

/// A Linux version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinuxVersion(pub(super) u8, pub(super) u8);

impl fmt::Display for LinuxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The first Linux version that mounts every image which these options can give.
fn linux_version(options: &Options) -> LinuxVersion {
    let block = options.image.block_size.bytes64();
    let external = options.source.data == SourceData::External
        || options.data.chunks.as_ref().is_some_and(|chunks| chunks.device.is_some());
    // The data of files in chunks is not compressed.
    let is_used = |compression: &&Compression| {
        options.data.chunks.is_none() || compression.metadata.is_some() || compression.directories
    };
    let used = options.data.compression.as_ref().filter(is_used);
    let has_prefixes = !options.xattrs.prefixes.is_empty() || options.xattrs.digest.is_some();
    let has_hidden_inode = |compression: &Compression| {
        compression.fragments != Fragments::None || compression.metadata.is_some()
    };
    let compression = used.iter().flat_map(|compression| of_compression(compression, block));
    [
        // EROFS became a part of Linux that is not staging.
        (true, LinuxVersion(5, 4)),
        (options.data.chunks.is_some(), LinuxVersion(5, 15)),
        (external, LinuxVersion(5, 16)),
        (block < SMALLEST_PAGE, LinuxVersion(6, 4)),
        (block < SMALLEST_PAGE && used.is_some(), LinuxVersion(6, 8)),
        (has_prefixes, LinuxVersion(6, 4)),
        // Before, Linux looked for the prefixes in the packed inode or the metabox, if there is one.
        (has_prefixes && used.is_some_and(has_hidden_inode), LinuxVersion(6, 18)),
        (options.inodes.dot_omitted || options.image.wide_addresses, LinuxVersion(6, 15)),
        // Before, Linux refused a label without a zero after it.
        (options.image.label.len() > 15, LinuxVersion(6, 15)),
    ]
    .into_iter()
    .chain(compression)
    .filter_map(|(applies, version)| applies.then_some(version))
    .max()
    .unwrap_or(LinuxVersion(5, 4))
}

fn of_compression(compression: &Compression, block: u64) -> Vec<(bool, LinuxVersion)> {
    let sizes = [compression.pcluster, compression.fragment_pcluster].into_iter().flatten();
    let largest = sizes.chain(compression.hints.iter().filter_map(|hint| hint.pcluster)).max();
    let mut needed = vec![
        (largest.is_some_and(|size| u64::from(size) > block), LinuxVersion(5, 13)),
        (compression.inline_tails, LinuxVersion(5, 17)),
        (compression.fragments != Fragments::None || compression.dedupe, LinuxVersion(6, 1)),
        (compression.directories, LinuxVersion(6, 1)),
        // Linux shows the holes from 7.2 on; before, it reads zeroes.
        (compression.holes, LinuxVersion(6, 1)),
        (compression.index == IndexKind::Extents, LinuxVersion(6, 15)),
        (compression.metadata.is_some(), LinuxVersion(6, 17)),
    ];
    needed.extend(compression.methods.iter().map(|params| {
        let version = match params.method {
            Method::Lz4(_) => LinuxVersion(5, 4),
            Method::Lzma(_) => LinuxVersion(5, 16),
            Method::Deflate(_) => LinuxVersion(6, 6),
            Method::Zstd(_) => LinuxVersion(6, 10),
        };
        (true, version)
    }));
    needed
}

#[cfg(test)]
mod tests {
    use ferofs::build::{Algorithm, Params, XattrOptions};

    use super::*;

    fn with(compression: Compression) -> LinuxVersion {
        let mut options = Options::new("tree");
        options.data.compression = Some(compression);
        linux_version(&options)
    }

    #[test]
    fn features_of_an_earlier_image_decide_too() {
        let plain = Requirement::of(&Options::new("tree"));
        assert_eq!(plain.with_features(Incompat::LZ4_0PADDING).version, LinuxVersion(5, 4));
        for (feature, version) in FEATURES {
            assert_eq!(plain.with_features(feature | Incompat::LZ4_0PADDING).version, version);
        }
        let prefixes = plain.with_features(Incompat::XATTR_PREFIXES | Incompat::FRAGMENTS);
        assert_eq!(prefixes.version, LinuxVersion(6, 18));
        // All features but the first have a line.
        let all = FEATURES.iter().fold(Incompat::LZ4_0PADDING, |all, (feature, _)| all | *feature);
        assert_eq!(all, Incompat::all());
    }

    #[test]
    fn the_newest_feature_decides() {
        let lz4 = || Compression::lz4(9).unwrap();
        assert_eq!(linux_version(&Options::new("tree")), LinuxVersion(5, 4));
        assert_eq!(with(lz4()).to_string(), "5.4");
        let mut big = lz4();
        big.pcluster = Some(64 << 10);
        assert_eq!(with(big.clone()), LinuxVersion(5, 13));
        big.inline_tails = true;
        assert_eq!(with(big.clone()), LinuxVersion(5, 17));
        let mut holes = lz4();
        holes.holes = true;
        assert_eq!(with(holes), LinuxVersion(6, 1));
        big.index = IndexKind::Extents;
        assert_eq!(with(big), LinuxVersion(6, 15));
        assert_eq!(
            with(Compression::new(Params::new(Algorithm::Zstd, Some(3)).unwrap())),
            LinuxVersion(6, 10)
        );
        let mut chunks = Options::new("tree");
        chunks.data.chunks = Some(ferofs::build::ChunkOptions::new(4096));
        let mut zstd = Compression::new(Params::new(Algorithm::Zstd, Some(3)).unwrap());
        chunks.data.compression = Some(zstd.clone());
        assert_eq!(linux_version(&chunks), LinuxVersion(5, 15));
        zstd.directories = true;
        chunks.data.compression = Some(zstd);
        let mut directories = lz4();
        directories.directories = true;
        assert_eq!(with(directories), LinuxVersion(6, 1));
        assert_eq!(linux_version(&chunks), LinuxVersion(6, 10));
        let mut prefixes = Options::new("tree");
        prefixes.xattrs.prefixes.extend(XattrOptions::prefix(b"trusted.overlay."));
        assert_eq!(linux_version(&prefixes), LinuxVersion(6, 4));
        let mut label = Options::new("tree");
        label.image.label = vec![b'x'; 15];
        assert_eq!(linux_version(&label), LinuxVersion(5, 4));
        label.image.label.push(b'x');
        assert_eq!(linux_version(&label), LinuxVersion(6, 15));
        let mut large = Options::new("tree");
        large.image.block_size = ferofs::build::BlockSize::from_bytes(16384).unwrap();
        assert_eq!(Requirement::of(&large).to_string(), "Linux 5.4 or newer with pages of 16K");
        let mut named = Options::new("tree");
        named.xattrs.digest = XattrOptions::digest_name(b"user.sha");
        assert_eq!(linux_version(&named), LinuxVersion(6, 4));
        named.data.compression = Some(lz4());
        assert_eq!(linux_version(&named), LinuxVersion(6, 4));
        named.data.compression.as_mut().unwrap().fragments = Fragments::All;
        assert_eq!(linux_version(&named), LinuxVersion(6, 18));
        let mut small = Options::new("tree");
        small.image.block_size = ferofs::build::BlockSize::from_bytes(1024).unwrap();
        assert_eq!(linux_version(&small), LinuxVersion(6, 4));
        small.data.compression = Some(lz4());
        assert_eq!(linux_version(&small), LinuxVersion(6, 8));
    }
}
