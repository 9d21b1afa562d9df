//! The versions that the programs print: the version of erofs-utils first, because callers compare it (kata requires at
//! least 1.8.2), then the version of ferofs.

/// The text after the name of the program. The first version is the version of erofs-utils with the same options;
/// `cargo xtask peers` shows whether a newer version exists.
macro_rules! version {
    ($($line:literal)?) => {
        concat!("(erofs-utils) 1.9.4", $("\n", $line,)? "\nferofs ", env!("CARGO_PKG_VERSION"))
    };
}

/// For programs that do not list compressors.
pub(super) const PLAIN: &str = version!();
/// For `mkfs.erofs`.
pub(super) const MKFS: &str = version!("available compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd");
/// For `fsck.erofs`.
pub(super) const FSCK: &str =
    version!("available decompressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd");
/// For `erofsfuse`, which does not print the name erofs-utils.
pub(super) const FUSE: &str = concat!("1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));
