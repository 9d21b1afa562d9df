use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::verify::test_images::{params, sealed};

/// `bytes` from block `start` on, at most `len` blocks of `size` bytes.
fn run(bytes: &[u8], start: u64, len: u64, size: u64) -> &[u8] {
    let (start, len) = ((start * size) as usize, (len * size) as usize);
    &bytes[start..bytes.len().min(start + len)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_of_image_and_tree_are_right_or_name_the_changed_block(
        params in params(), blocks in 1..300_u64, start in any::<prop::sample::Index>(), len in 1..300_u64,
        changed in any::<prop::sample::Index>(), bit in 0..8_u32,
    ) {
        let (image, tree, root) = sealed(blocks, &params);
        let verifier = BlockVerifier::new(tree.as_slice(), 0, blocks, &params, root).unwrap();
        let size = u64::from(params.data_block_size);
        let first = start.index(blocks as usize) as u64;
        let right = run(&image, first, len, size);
        prop_assert!(verifier.verify(first, right).is_ok());
        let mut wrong = right.to_vec();
        let at = changed.index(wrong.len());
        wrong[at] ^= 1 << bit;
        let expected = first + at as u64 / size;
        let error = verifier.verify(first, &wrong).unwrap_err();
        let named = IntegrityError { is_hash: false, block: expected, position: expected * size };
        prop_assert_eq!(error.to_string(), named.to_string());

        if tree.is_empty() {
            return Ok(());
        }
        let size = u64::from(params.hash_block_size);
        let first = start.index(tree.len() / size as usize) as u64;
        let right = run(&tree, first, len, size);
        prop_assert!(verifier.verify_tree(first, right).is_ok());
        let mut wrong = right.to_vec();
        let at = changed.index(wrong.len());
        wrong[at] ^= 1 << bit;
        let expected = first + at as u64 / size;
        let error = verifier.verify_tree(first, &wrong).unwrap_err();
        let named = IntegrityError { is_hash: true, block: expected, position: expected * size };
        prop_assert_eq!(error.to_string(), named.to_string());
    }

    #[test]
    fn digests_are_those_of_the_blocks(params in params(), blocks in 1..300_u64, start in 0..300_u64, len in 0..300_u64) {
        let (image, tree, root) = sealed(blocks, &params);
        let verifier = BlockVerifier::new(tree, 0, blocks, &params, root).unwrap();
        let range = start..start + len;
        let digests = verifier.digests(range.clone());
        if range.end > blocks {
            let refused = matches!(digests, Err(Error::Parameter { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        let size = params.data_block_size as usize;
        let expected: Vec<Digest> = image.chunks(size).map(|block| params.hasher().hash(block)).collect();
        prop_assert_eq!(digests.unwrap(), &expected[start as usize..range.end as usize]);
    }
}

type Verifier = Arc<OnceLock<BlockVerifier<Arc<Fetched>>>>;

/// A tree that arrives in pieces of some blocks, each of which is verified before it is stored.
struct Fetched {
    tree: Vec<u8>,
    piece: usize,
    stored: Mutex<Vec<Option<Vec<u8>>>>,
    verifier: Verifier,
}

impl Source for Fetched {
    fn size(&self) -> u64 {
        self.tree.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let number = pos as usize / self.piece;
        let stored = self.stored.lock().get(number).cloned().flatten();
        let piece = match stored {
            Some(piece) => piece,
            None => {
                let piece = self.tree.chunks(self.piece).nth(number).unwrap().to_vec();
                let verifier = self.verifier.get().unwrap();
                let first = (number * self.piece) as u64 / verifier.layout().hash_block_size();
                verifier.verify_tree(first, &piece)?;
                self.stored.lock()[number] = Some(piece.clone());
                piece
            }
        };
        buf.copy_from_slice(&piece[pos as usize % self.piece..][..buf.len()]);
        Ok(())
    }
}

#[test]
fn a_tree_can_be_fetched_by_its_own_checks() {
    let params = Params { data_block_size: 512, hash_block_size: 512, ..Params::default() };
    let (image, tree, root) = sealed(3000, &params);
    for (blocks, changed) in
        [(1, None), (7, None), (1, Some(700)), (7, Some(0)), (7, Some(tree.len() - 1))]
    {
        let mut tree = tree.clone();
        if let Some(at) = changed {
            tree[at] ^= 1;
        }
        let verifier = Arc::<OnceLock<_>>::default();
        let (piece, stored) = (512 * blocks, Mutex::new(vec![None; tree.len()]));
        let fetched = Arc::new(Fetched { tree, piece, stored, verifier: Arc::clone(&verifier) });
        let set = verifier.set(BlockVerifier::new(fetched, 0, 3000, &params, root).unwrap());
        assert!(set.is_ok());
        let results = image
            .chunks(512)
            .enumerate()
            .map(|(n, block)| verifier.get().unwrap().verify(n as u64, block));
        let wrong: Vec<Error> = results.filter_map(Result::err).collect();
        assert_eq!(wrong.is_empty(), changed.is_none());
        assert!(
            wrong.iter().all(|error| matches!(error, Error::Integrity(error) if error.is_hash))
        );
    }
}

#[test]
fn bytes_that_are_no_blocks_are_refused() {
    let params = Params::default();
    let (image, tree, root) = sealed(200, &params);
    let verifier = BlockVerifier::new(tree.as_slice(), 0, 200, &params, root).unwrap();
    let refused =
        |result| matches!(result, Err(Error::Parameter { parameter: "bytes to verify", .. }));
    assert!(refused(verifier.verify(0, &image[..5000])));
    assert!(refused(verifier.verify(199, &image[..8192])));
    assert!(refused(verifier.verify(u64::MAX, &image[..4096])));
    assert!(refused(verifier.verify_tree(0, &tree[..100])));
    assert!(refused(verifier.verify_tree(3, &tree[..4096])));
    assert!(verifier.verify(200, &[]).is_ok() && verifier.verify_tree(3, &[]).is_ok());
}
