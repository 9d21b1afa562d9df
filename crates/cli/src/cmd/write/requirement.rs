//! The Linux version that mounts an image, and the size of its pages, from the options of a build.

use crate::cmd::linux::{LinuxVersion, Requirement, SMALLEST_PAGE, of_algorithm};
use ferofs::build::{Compression, Fragments, Options, SourceData};

impl Requirement {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            version: linux_version(options),
            page: options.image.block_size.bytes64().max(SMALLEST_PAGE),
        }
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
        // Before, Linux looked for the prefixes in the packed inode or the metabox, if there is
        // one.
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
        (true, LinuxVersion::first(compression.index.linux_version())),
        (compression.metadata.is_some(), LinuxVersion(6, 17)),
    ];
    needed.extend(compression.methods.iter().map(|params| (true, of_algorithm(params.algorithm))));
    needed
}

#[cfg(test)]
mod tests {
    use ferofs::read::Incompat;

    use super::*;
    use crate::cmd::linux::FEATURES;

    #[test]
    fn features_of_an_earlier_image_decide_too() {
        let plain = Requirement::of(&Options::new("tree"));
        assert_eq!(plain.with_features(Incompat::LZ4_0PADDING).version, LinuxVersion(5, 4));
        for (feature, _, version) in FEATURES {
            assert_eq!(plain.with_features(feature | Incompat::LZ4_0PADDING).version, version);
        }
        let prefixes = plain.with_features(Incompat::XATTR_PREFIXES | Incompat::FRAGMENTS);
        assert_eq!(prefixes.version, LinuxVersion(6, 18));
        let all = FEATURES.iter().fold(Incompat::empty(), |all, (feature, ..)| all | *feature);
        assert_eq!(all, Incompat::all());
        let none = Requirement { version: LinuxVersion::NONE, ..plain }.with_features(all);
        assert_eq!(none.to_string(), "no version of Linux");
    }
}
