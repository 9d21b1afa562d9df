use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::error::IntegrityError;
use crate::tree::make_tree;
use crate::verify::test_images::{params, sealed};

/// An image or tree of which reads may wait for the medium.
struct Slow(Vec<u8>, AtomicBool);

impl Source for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(pos, buf)
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        self.1.load(Ordering::Relaxed) && self.0.read_exact_at(pos, buf).is_ok()
    }
}

#[test]
fn cached_reads_are_verified_and_do_not_wait() {
    let params = Params::default();
    let (mut image, tree, root) = sealed(300, &params);
    let right = image.clone();
    image[4096 * 7] ^= 1;
    let (image, tree) = (Slow(image, AtomicBool::new(false)), Slow(tree, AtomicBool::new(false)));
    let source = VerifiedSource::new(&image, &tree, 300, &params, root).unwrap();
    let mut buf = vec![0; 6000];
    for (image_cached, tree_cached) in [(false, false), (true, false), (false, true)] {
        image.1.store(image_cached, Ordering::Relaxed);
        tree.1.store(tree_cached, Ordering::Relaxed);
        assert!(!source.read_if_cached(8000, &mut buf));
    }
    image.1.store(true, Ordering::Relaxed);
    assert!(source.read_if_cached(8000, &mut buf) && buf == right[8000..14_000]);
    assert!(!source.read_if_cached(4096 * 7, &mut buf), "a wrong block");
    assert!(source.read_exact_at(4096 * 7, &mut buf).is_err());
    // What was checked needs no hash block.
    tree.1.store(false, Ordering::Relaxed);
    assert!(source.read_if_cached(8000, &mut buf) && buf == right[8000..14_000]);
    assert!(!source.read_if_cached(4096 * 200, &mut buf));
}

/// An image that changes.
struct Changing(parking_lot::Mutex<Vec<u8>>);

impl Source for Changing {
    fn size(&self) -> u64 {
        self.0.lock().size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.lock().read_exact_at(pos, buf)
    }
}

#[test]
fn blocks_are_checked_again_if_that_is_wanted() {
    let params = Params::default();
    let (image, tree, root) = sealed(100, &params);
    let image = Changing(parking_lot::Mutex::new(image));
    let source = VerifiedSource::new(&image, &tree, 100, &params, root).unwrap().check_each_read();
    let mut buf = vec![0; 6000];
    source.read_exact_at(8000, &mut buf).unwrap();
    image.0.lock()[9000] ^= 1;
    assert!(source.read_exact_at(8000, &mut buf).is_err());
    assert!(!source.read_if_cached(8000, &mut buf));
    let mut ranges = [ReadRange { pos: 8192, buf: &mut buf[..4096] }];
    assert!(source.read_ranges(&mut ranges, Access::Sparse).is_err());
    image.0.lock()[9000] ^= 1;
    source.read_exact_at(8000, &mut buf).unwrap();
}

#[test]
fn the_words_of_a_range_have_its_bits() {
    for range in [0..1, 5..64, 63..65, 0..200, 32_767..32_769, 100..100, 32_760..98_400] {
        let mut bits = Vec::new();
        for (part, word, mask) in VerifiedSource::<&[u8], &[u8]>::words(range.clone()) {
            assert!(word < WORDS);
            let first = part as u64 * PART + word as u64 * 64;
            bits.extend((0..64).filter(|bit| mask & 1 << bit != 0).map(|bit| first + bit));
        }
        assert_eq!(bits, range.collect::<Vec<_>>());
    }
}

/// Bytes that are read by batches only.
struct Batching<'a> {
    bytes: Vec<u8>,
    calls: &'a AtomicU64,
}

impl Source for Batching<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_ranges(ranges, access)
    }

    fn prefers_batches(&self) -> bool {
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_give_the_image(params in params(), blocks in 1..300_u64, reads in prop::collection::vec((any::<prop::sample::Index>(), 0..200_000_usize), 1..20)) {
        let (image, tree, root) = sealed(blocks, &params);
        let source = VerifiedSource::new(image.as_slice(), tree.as_slice(), blocks, &params, root).unwrap();
        for (start, len) in reads {
            let start = start.index(image.len());
            let len = len.min(image.len() - start);
            let mut buf = vec![0; len];
            source.read_exact_at(start as u64, &mut buf).unwrap();
            prop_assert!(buf == image[start..start + len]);
        }
        prop_assert!(source.read_exact_at(image.len() as u64, &mut [0]).is_err());
        prop_assert!(source.read_exact_at(u64::MAX, &mut [0]).is_err());
    }

    #[test]
    fn several_ranges_take_one_read_each_of_image_and_tree(params in params(), blocks in 2..300_u64, reads in prop::collection::vec((any::<prop::sample::Index>(), 0..20_000_usize), 1..20), flip in any::<prop::sample::Index>()) {
        let (mut image, tree, root) = sealed(blocks, &params);
        let mut buffers: Vec<(usize, Vec<u8>)> = Vec::new();
        for (start, len) in reads {
            let start = start.index(image.len());
            buffers.push((start, vec![0; len.min(image.len() - start)]));
        }
        let calls = [AtomicU64::new(0), AtomicU64::new(0)];
        let read = |image: &[u8], buffers: &mut [(usize, Vec<u8>)]| {
            let image = Batching { bytes: image.to_vec(), calls: &calls[0] };
            let tree = Batching { bytes: tree.clone(), calls: &calls[1] };
            let source = VerifiedSource::new(image, tree, blocks, &params, root).unwrap();
            let ranges = buffers.iter_mut().map(|(pos, buf)| ReadRange { pos: *pos as u64, buf });
            source.read_ranges(&mut ranges.collect::<Vec<_>>(), Access::Sparse)
        };
        read(&image, &mut buffers).unwrap();
        for (start, buf) in &buffers {
            prop_assert!(*buf == image[*start..start + buf.len()]);
        }
        for calls in &calls {
            prop_assert_eq!(calls.swap(0, Ordering::Relaxed), 1);
        }
        let flip = flip.index(image.len());
        image[flip] ^= 1;
        let size = params.data_block_size as usize;
        let touches = |(start, buf): &(usize, Vec<u8>)| {
            !buf.is_empty() && (start / size..=(start + buf.len() - 1) / size).contains(&(flip / size))
        };
        // A read of no bytes may check a block.
        if buffers.iter().all(|(_, buf)| !buf.is_empty()) {
            prop_assert_eq!(read(&image, &mut buffers).is_err(), buffers.iter().any(touches));
        }
    }

    #[test]
    fn a_change_is_found_or_does_not_matter(params in params(), blocks in 1..300_u64, at in any::<prop::sample::Index>(), bit in 0..8_u32, of_tree in any::<bool>()) {
        let (image, tree, root) = sealed(blocks, &params);
        let (mut changed_image, mut changed_tree) = (image.clone(), tree.clone());
        let changed = if of_tree && !tree.is_empty() { &mut changed_tree } else { &mut changed_image };
        let at = at.index(changed.len());
        changed[at] ^= 1 << bit;
        let source = VerifiedSource::new(changed_image, changed_tree, blocks, &params, root).unwrap();
        let mut found = 0;
        let size = params.data_block_size as usize;
        for (block, right) in image.chunks(size).enumerate() {
            let mut buf = vec![0; size];
            match source.read_exact_at((block * size) as u64, &mut buf) {
                Ok(()) => prop_assert!(buf == right, "wrong bytes"),
                Err(error) => {
                    prop_assert!(error.get_ref().unwrap().is::<IntegrityError>());
                    found += 1;
                }
            }
        }
        prop_assert!(found > 0, "every byte of image and tree is covered");
    }
}

#[test]
fn roots_are_those_of_veritysetup() {
    // `veritysetup format --salt=- --hash sha256` of 1, 2 and 200 blocks of zeroes.
    let zeroes = |blocks: u64, params: &Params| {
        let image = vec![0; blocks as usize * 4096];
        make_tree(&image, blocks, params, 1, |_, _| Ok(())).unwrap().to_string()
    };
    let params = Params::default();
    assert_eq!(
        zeroes(1, &params),
        "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7"
    );
}

#[test]
fn impossible_parameters_are_refused() {
    let params = Params::default();
    let (image, tree, root) = sealed(200, &params);
    let new = |image: &[u8], tree: &[u8], blocks, root| {
        VerifiedSource::new(image.to_vec(), tree.to_vec(), blocks, &params, root).map(drop)
    };
    assert!(new(&image, &tree, 200, root).is_ok());
    assert!(new(&image[..image.len() - 1], &tree, 200, root).is_err());
    assert!(new(&image, &tree[..tree.len() - 1], 200, root).is_err());
    assert!(new(&image, &tree, u64::MAX, root).is_err());
    assert!(new(&image, &tree, 200, Digest::new(&[0; 64])).is_err());
}
