//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Seals images: hash trees over their blocks, in the formats of Linux.
//!
//! The root of a hash tree is a digest of the whole image. dm-verity (Linux's device mapper) and
//! [`VerifiedSource`] check each block against it when it is read; fs-verity builds the same tree
//! in the file system. The data flows through these modules: `params` (algorithm, salt, sizes) ->
//! `layout` (the place of each level of a tree) -> `tree` (makes one) -> `superblock` (the header
//! before it) -> `verify` (checks blocks when they are read) -> `seal` (superblock and tree in
//! files). `fsverity` computes the digest of fs-verity.
//!
//! Sources: Linux's Documentation/admin-guide/device-mapper/verity.rst and
//! Documentation/filesystems/fsverity.rst, and the format that `veritysetup` of cryptsetup calls
//! type 1.
//!
//! ```
//! use ferofs_read::Source;
//! use ferofs_verity::{Params, VerifiedSource, make_tree};
//!
//! let image = vec![7; 100 * 4096];
//! let (mut tree, params) = (Vec::new(), Params::default());
//! let root = make_tree(&image, 100, &params, 2, |pos, bytes| {
//!     tree.resize(tree.len().max(pos as usize + bytes.len()), 0);
//!     tree[pos as usize..][..bytes.len()].copy_from_slice(bytes);
//!     Ok(())
//! })?;
//! let mut changed = image.clone();
//! changed[5000] ^= 1;
//! let source = VerifiedSource::new(changed, tree, 100, &params, root)?;
//! source.read_exact_at(0, &mut [0; 4096])?;
//! let error = source.read_exact_at(4096, &mut [0; 10]).unwrap_err();
//! assert_eq!(error.to_string(), "data block 1 (byte 4096) does not have the digest of the hash tree");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod digest;
mod error;
mod fsverity;
mod layout;
mod params;
mod seal;
#[cfg(target_arch = "x86_64")]
mod sha256;
/// Other processors hash one block after the other.
#[cfg(not(target_arch = "x86_64"))]
mod sha256 {
    pub(crate) fn hash_blocks(_: &[u8], _: usize, _: &mut Vec<[u8; 32]>) -> usize {
        0
    }
}
mod superblock;
mod tree;
mod verify;
mod write_hasher;

pub use digest::{Digest, ParseDigestError};
pub use error::{Error, IntegrityError, Result};
pub use fsverity::fsverity_digest;
pub use layout::TreeLayout;
pub use params::{HashAlgorithm, Params, SALT_MAX};
pub use seal::{Seal, appended_position, check_end, verify_all};
pub use superblock::{SUPERBLOCK_SIZE, Superblock, Unfinished};
pub use tree::{HashBlock, TreeBuilder, make_tree};
pub use verify::{BlockVerifier, VerifiedSource};
pub use write_hasher::WriteHasher;
