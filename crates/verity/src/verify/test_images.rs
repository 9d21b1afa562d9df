//! Images and trees for tests.

use proptest::prelude::*;

use crate::digest::Digest;
use crate::layout::TreeLayout;
use crate::params::{HashAlgorithm, Params, SALT_MAX};
use crate::tree::make_tree;

/// An image and its tree.
pub(super) fn sealed(blocks: u64, params: &Params) -> (Vec<u8>, Vec<u8>, Digest) {
    let len = blocks as usize * params.data_block_size as usize;
    let image: Vec<u8> =
        (0..len).map(|n| (n.wrapping_mul(n) >> 9) as u8 ^ (n >> 12) as u8).collect();
    let mut tree = vec![0; TreeLayout::new(blocks, params).unwrap().len() as usize];
    let root = make_tree(&image, blocks, params, 3, |pos, bytes| {
        tree[pos as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    (image, tree, root.unwrap())
}

/// Any parameters that are fast to test.
pub(super) fn params() -> impl Strategy<Value = Params> {
    let algorithm = prop_oneof![Just(HashAlgorithm::Sha256), Just(HashAlgorithm::Sha512)];
    let salt = prop_oneof![Just(vec![]), prop::collection::vec(any::<u8>(), 0..=SALT_MAX)];
    (algorithm, 9..13_u32, 9..13_u32, salt).prop_map(|(algorithm, data, hash, salt)| Params {
        algorithm,
        data_block_size: 1 << data,
        hash_block_size: 1 << hash,
        salt,
    })
}
