//! The versions that the programs print: first that of the erofs-utils that they replace, because callers compare it
//! (kata requires at least 1.8.2), then that of ferofs.

/// The text after a program's name. The first version is that of the erofs-utils whose options these programs take;
/// `cargo xtask peers` shows the newest one.
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
