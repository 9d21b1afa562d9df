//! Images that are patched in memory: pieces are decoded when they are read, and only some stay there.

use super::*;
use crate::apply::lazy_region::LazyRegion;

/// A patch whose appended bytes are several pieces.
pub(super) fn fixture(compression: Option<Compression>) -> Fixture {
    let fixture = Fixture::new(compression);
    for number in 0..5 {
        let bytes: Vec<u8> = text(2_500_000 + number).into_iter().map(|byte| byte ^ number as u8).collect();
        std::fs::write(fixture.path("new").join(format!("large{number}")), bytes).unwrap();
    }
    fixture.create("new", "patch").unwrap();
    fixture
}

fn applied(fixture: &Fixture) -> Vec<u8> {
    let medium = Recorder::new(fixture.image());
    apply(&medium, &fixture.patch(), TrailingData::Keep, &AtomicBool::new(false)).unwrap();
    medium.bytes.into_inner().unwrap()
}

pub(super) fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) as usize
}

#[test]
fn any_range_has_the_bytes_of_the_applied_patch_whatever_stays_in_memory() {
    let go = AtomicBool::new(false);
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let fixture = fixture(compression);
        let (expected, patch) = (applied(&fixture), fixture.patch());
        assert!(patch.appended().count() >= 3);
        for limit in [0, 2 << 20, 5 << 20, 64 << 20] {
            let image =
                overlay_with(Arc::new(fixture.image()), &patch, &PieceCache::new(limit), &go).unwrap();
            assert_eq!(image.size(), expected.len() as u64);
            // Four readers at the same time.
            std::thread::scope(|scope| {
                for reader in 0..4 {
                    let (image, expected) = (&image, &expected);
                    scope.spawn(move || {
                        let mut seed = reader;
                        for _ in 0..12 {
                            let start = random(&mut seed) % expected.len();
                            let len = random(&mut seed) % (expected.len() - start).min(3 << 20);
                            let mut bytes = vec![0; len];
                            image.read_exact_at(start as u64, &mut bytes).unwrap();
                            assert!(bytes == expected[start..start + len], "{limit} {start} {len}");
                        }
                    });
                }
            });
            assert!(image.read_exact_at(expected.len() as u64 - 1, &mut [0; 2]).is_err());
        }
    }
}

#[test]
fn only_the_last_pieces_stay_in_memory() {
    let fixture = fixture(None);
    let (base, patch): (Arc<dyn Source>, _) = (Arc::new(fixture.image()), fixture.patch());
    let image = Image::open(Arc::clone(&base)).unwrap();
    for limit in [0, 9 << 20] {
        let cache = PieceCache::new(limit);
        let region = LazyRegion::new(&patch, patch.pieces(Arc::clone(&base), &image, 1).unwrap(), &cache);
        region.read_exact_at(0, &mut vec![0; region.size() as usize]).unwrap();
        assert!(cache.bytes() <= limit && (limit == 0 || cache.bytes() >= 4 << 20), "{}", cache.bytes());
    }
}

#[test]
fn several_patches_share_one_cache() {
    let go = AtomicBool::new(false);
    let fixture = fixture(None);
    let first = fixture.patch();
    std::fs::write(fixture.path("image"), applied(&fixture)).unwrap();
    let base = fixture.image();
    std::fs::write(fixture.path("new/more"), text(3_000_000).into_iter().rev().collect::<Vec<u8>>()).unwrap();
    fixture.create("new", "second").unwrap();
    let second = Patch::open(&fixture.path("second")).unwrap();
    drop(base);
    // The old image again.
    let medium = FileMedium::open(&fixture.path("image")).unwrap();
    let both = applied_to(fixture.image(), &second);
    drop(medium);
    let size = first.base_size() as usize;
    let mut old = fixture.image();
    old.truncate(size);
    // The superblock of the state before.
    let before = log(&fixture.image()).unwrap();
    assert_eq!(before.len(), 2);
    old[SECTOR..SECTOR + 512].copy_from_slice(&first.header().base_sector);
    if let Some((pos, root)) = &first.header().root {
        old[*pos as usize..*pos as usize + root.len()].fill(0);
    }
    let cache = PieceCache::new(5 << 20);
    let image = overlay_with(Arc::new(old), &first, &cache, &go).unwrap();
    let image = overlay_with(image, &second, &cache, &go).unwrap();
    let mut bytes = vec![0; image.size() as usize];
    image.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == both);
    assert!((1..=5 << 20).contains(&cache.bytes()), "{}", cache.bytes());
}

const SECTOR: usize = 1024;

fn applied_to(image: Vec<u8>, patch: &Patch) -> Vec<u8> {
    let medium = Recorder::new(image);
    apply(&medium, patch, TrailingData::Keep, &AtomicBool::new(false)).unwrap();
    medium.bytes.into_inner().unwrap()
}

/// A base that somebody changes: a piece that is decoded again has the bytes that were compared at the start, or reading fails.
#[test]
fn a_piece_that_is_decoded_again_must_be_the_same() {
    let fixture = Fixture::new(Some(Compression::lz4(0).unwrap()));
    let (base, patch) = (Arc::new(Recorder::new(fixture.image())), fixture.patch());
    let image = overlay_with(base.clone(), &patch, &PieceCache::new(0), &AtomicBool::new(false)).unwrap();
    let start = patch.base_size();
    let read = || {
        // Both pieces, so that each read decodes again.
        let mut bytes = vec![0; (image.size() - start) as usize];
        image.read_exact_at(start, &mut bytes).map(|()| bytes)
    };
    let expected = read().unwrap();
    let mut failed = 0;
    let len = fixture.image().len();
    for at in (1600..len).step_by(len / 150) {
        base.bytes.lock().unwrap()[at] ^= 1;
        match read() {
            Ok(bytes) => assert!(bytes == expected, "{at}"),
            Err(_) => failed += 1,
        }
        base.bytes.lock().unwrap()[at] ^= 1;
    }
    assert!(failed > 5, "{failed}");
    assert!(read().unwrap() == expected);
}
