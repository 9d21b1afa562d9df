//! What the programs say of their version: in the first place that of the erofs-utils they stand in for, as callers
//! compare it (kata wants 1.8.2 at least), then ferofs' own.

/// The text behind a program's name. The version is that of the erofs-utils whose command lines are taken;
/// `cargo xtask peers` shows the newest.
macro_rules! version {
    ($($line:literal)?) => {
        concat!("(erofs-utils) 1.9.4", $("\n", $line,)? "\nferofs ", env!("CARGO_PKG_VERSION"))
    };
}

/// Of programs without compressors.
pub(super) const PLAIN: &str = version!();
/// Of `mkfs.erofs`.
pub(super) const MKFS: &str = version!("available compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd");
/// Of `fsck.erofs`.
pub(super) const FSCK: &str =
    version!("available decompressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd");
/// Of `erofsfuse`, which does not name erofs-utils.
pub(super) const FUSE: &str = concat!("1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));
