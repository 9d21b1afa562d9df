//! The digest of fs-verity, which a file system computes for a file: the hash of a descriptor that
//! holds the root of the same tree, made without salt. Source: Linux's
//! Documentation/filesystems/fsverity.rst, "File digest computation".

use sha2::{Digest as _, Sha256, Sha512};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::{HashAlgorithm, Params};

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Descriptor {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    reserved_0x04: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; 32],
    reserved: [u8; 144],
}

/// The digest that `fsverity digest` prints for a file of `len` bytes with this `root`.
///
/// # Errors
/// [`Error::Parameter`] when `params` have a salt, or block sizes that differ: fs-verity has no
/// such tree.
pub fn fsverity_digest(params: &Params, len: u64, root: Digest) -> Result<Digest> {
    params.check()?;
    if !params.salt.is_empty() {
        return Err(Error::Parameter { parameter: "salt", problem: "must be empty for fs-verity" });
    }
    if params.data_block_size != params.hash_block_size {
        return Err(Error::Parameter {
            parameter: "hash block size",
            problem: "must be the data block size for fs-verity",
        });
    }
    let mut root_hash = [0; 64];
    root_hash.split_at_mut(root.as_bytes().len()).0.copy_from_slice(root.as_bytes());
    let descriptor = Descriptor {
        version: 1,
        hash_algorithm: match params.algorithm {
            HashAlgorithm::Sha256 => 1,
            HashAlgorithm::Sha512 => 2,
        },
        log_blocksize: u8::try_from(params.data_block_size.trailing_zeros()).unwrap_or(0),
        salt_size: 0,
        reserved_0x04: 0.into(),
        data_size: len.into(),
        root_hash,
        salt: [0; 32],
        reserved: [0; 144],
    };
    let bytes = descriptor.as_bytes();
    Ok(match params.algorithm {
        HashAlgorithm::Sha256 => Digest::new(&Sha256::digest(bytes)),
        HashAlgorithm::Sha512 => Digest::new(&Sha512::digest(bytes)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::make_tree;

    /// Digests that another program made with hash functions alone.
    #[test]
    fn digests_are_those_of_fsverity() {
        let image: Vec<u8> = (0..4096 * 300_usize).map(|n| (n / 5) as u8).collect();
        let len = image.len() as u64;
        let root = |params: &Params| {
            let blocks = len / u64::from(params.data_block_size);
            make_tree(&image, blocks, params, 2, |_, _| Ok(())).unwrap()
        };
        let salted = Params { salt: b"salt".to_vec(), ..Params::default() };
        assert!(fsverity_digest(&salted, len, root(&salted)).is_err());
        let other =
            Params { algorithm: HashAlgorithm::Sha512, data_block_size: 1024, ..Params::default() };
        assert!(fsverity_digest(&other, len, root(&other)).is_err());
        let sha512 = Params { hash_block_size: 1024, ..other };
        for (params, digest) in [
            (Params::default(), "85e896f1fe30b007060bf0affa0141aa79da5a23344e79293a3beef89061508d"),
            (
                sha512,
                "ae88b8899894f51775e57fd392bd6f3aa3f4bd8fe34c93eef02a8ff9091625ae\
                 8c2d6c7f91c570bb152452a9419f614d77f50814c24b8ae1d522d4ed324d814b",
            ),
        ] {
            assert_eq!(fsverity_digest(&params, len, root(&params)).unwrap().to_string(), digest);
        }
    }
}
