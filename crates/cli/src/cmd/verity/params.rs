//! Options of the commands that make hash trees.

use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;

use ferofs::read::FileSource;
use ferofs::verity::{HashAlgorithm, Params};

use crate::args::byte_size;
use crate::exit::Failure;

/// How a hash tree is made.
#[derive(clap::Args)]
pub(super) struct ParamsArgs {
    /// Hash algorithm
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = ["sha256", "sha512"])]
    hash: String,

    /// Bytes that are hashed before each block, as hexadecimal digits. Without a salt, the tree is that of fs-verity, too
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true)]
    salt: Bytes,

    /// Bytes of a block of the image
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = byte_size::argument::<u32>)]
    pub(super) data_block_size: u32,

    /// Bytes of a block of the hash tree
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = byte_size::argument::<u32>)]
    hash_block_size: u32,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
}

impl ParamsArgs {
    pub(super) fn params(&self) -> Params {
        let mut params = Params::default();
        params.algorithm = HashAlgorithm::from_name(&self.hash).unwrap_or_default();
        params.data_block_size = self.data_block_size;
        params.hash_block_size = self.hash_block_size;
        params.salt.clone_from(&self.salt.0);
        params
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // veritysetup's name for no salt.
        let text = if text == "-" { "" } else { text };
        if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("not pairs of hexadecimal digits");
        }
        let pairs = text.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16));
        bytes.collect::<Result<_, _>>().map(Self).map_err(|_| "not pairs of hexadecimal digits")
    }
}

/// Opens an image, or a file with a hash tree.
pub(super) fn open(path: &Path) -> Result<FileSource, Failure> {
    FileSource::open(path, 0).map_err(Failure::without_subject)
}
