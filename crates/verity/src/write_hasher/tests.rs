use proptest::prelude::*;

use super::*;
use crate::seal::Seal;

/// Superblock and tree as [`Seal::write`] makes them from the complete image.
fn expected(image: &dyn Source, params: &Params) -> (Vec<u8>, Digest) {
    use std::io::Read;
    let mut file = tempfile::tempfile().unwrap();
    let (_, root) = Seal::write(image, image.size(), params.clone(), None, 2, &file, 0).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    (bytes, root)
}

fn seal(hasher: &WriteHasher, image: &dyn Source) -> (Vec<u8>, Digest) {
    let mut bytes = Vec::new();
    let append = |more: &[u8]| {
        bytes.extend_from_slice(more);
        Ok(())
    };
    let (_, root) = hasher.finish(image, image.size(), None, append).unwrap();
    (bytes, root)
}

/// Fails on each read: nothing may be read again but what was written out of order.
struct Unreadable(Vec<u8>, std::ops::Range<u64>);

impl Source for Unreadable {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.1.contains(&pos) {
            return Err(io::Error::other(format!("read of byte {pos}")));
        }
        self.0.read_exact_at(pos, buf)
    }
}

#[test]
fn a_unit_that_is_written_again_is_read() {
    let (params, unit) = (Params::default(), 512 << 10);
    for len in [4096, unit] {
        let hasher = WriteHasher::new(params.clone(), 2).unwrap();
        let mut image = vec![1; 2 * unit];
        hasher.written(0, &image[..unit]);
        image[..len].fill(2);
        hasher.written(0, &image[..len]);
        hasher.written(unit as u64, &image[unit..]);
        assert!(seal(&hasher, &image) == expected(&image, &params), "{len}");
    }
}

#[test]
fn what_is_written_in_order_is_not_read_again() {
    let params = Params::default();
    let unit = 512 << 10;
    let image: Vec<u8> = (0..unit * 7 + 4096 * 3_usize).map(|n| (n / 9) as u8).collect();
    let hasher = WriteHasher::new(params.clone(), 2).unwrap();
    for (number, piece) in image.chunks(100_000).enumerate() {
        hasher.written(number as u64 * 100_000, piece);
    }
    // The superblock, at last.
    hasher.written(1024, &image[1024..1152]);
    let (bytes, root) = expected(&image, &params);
    let len = image.len() as u64;
    let image = Unreadable(image, unit as u64..unit as u64 * 7);
    let mut sealed = Vec::new();
    let append = |more: &[u8]| {
        sealed.extend_from_slice(more);
        Ok(())
    };
    let (_, found) = hasher.finish(&image, len, None, append).unwrap();
    assert!(found == root && sealed == bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_order_of_writes_gives_the_seal_of_the_image(
        blocks in 1..700_usize,
        writes in prop::collection::vec((any::<prop::sample::Index>(), 1..900_000_usize, any::<u8>(), any::<bool>()), 0..25),
        threads in 0..3_usize,
        small: bool,
    ) {
        let mut params = Params::default();
        if small {
            (params.data_block_size, params.hash_block_size) = (1024, 512);
        }
        let mut image = vec![0; blocks * 4096];
        let hasher = WriteHasher::new(params.clone(), threads).unwrap();
        let mut next = 0;
        for (at, len, byte, in_order) in writes {
            let start = if in_order && next < image.len() { next } else { at.index(image.len()) };
            let end = (start + len).min(image.len());
            image[start..end].fill(byte);
            hasher.written(start as u64, &image[start..end]);
            next = end;
        }
        prop_assert!(seal(&hasher, &image) == expected(&image, &params));
    }
}
