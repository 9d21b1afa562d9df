//! The versions that the programs print: the version of erofs-utils first, because callers compare
//! it (kata requires at least 1.8.2), then the version of ferofs.

use std::sync::LazyLock;

use ferofs::build::compressor_names;

/// The text after the name of the program. The first version is the version of erofs-utils with the
/// same options; `cargo xtask peers` shows whether a newer version exists. For programs that do not
/// list compressors.
pub(super) const PLAIN: &str = concat!("(erofs-utils) 1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));
/// For `mkfs.erofs`.
pub(super) static MKFS: LazyLock<String> = LazyLock::new(|| listing("compressors"));
/// For `fsck.erofs`.
pub(super) static FSCK: LazyLock<String> = LazyLock::new(|| listing("decompressors"));
/// For `erofsfuse`, which does not print the name erofs-utils.
pub(super) const FUSE: &str = concat!("1.9.4\nferofs ", env!("CARGO_PKG_VERSION"));

fn listing(what: &str) -> String {
    let names = compressor_names().join(", ");
    PLAIN.replacen('\n', &format!("\navailable {what}: {names}\n"), 1)
}
