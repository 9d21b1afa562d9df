//! Images that are patched in memory: pieces are decoded when they are read, and only some stay
//! there. And the memory of patches whose plans have as many parts as a plan can have.

use std::process::Command;

use crate::apply::lazy_region::LazyRegion;
use crate::format;
use crate::format::columns::compress;
use crate::format::piece::{Piece, PieceKind};
use crate::format::plan::{ExtentKind, Item, Plan, Reference, Unit, UnitExtent};
use crate::format::prediction::Relocations;
use crate::tests::*;

/// A patch whose appended bytes are several pieces.
pub(super) fn fixture(compression: Option<Compression>) -> Fixture {
    let fixture = Fixture::new(compression);
    for number in 0..5 {
        let bytes: Vec<u8> =
            text(2_500_000 + number).into_iter().map(|byte| byte ^ number as u8).collect();
        std::fs::write(fixture.path("new").join(format!("large{number}")), bytes).unwrap();
    }
    fixture.create("new", "patch").unwrap();
    fixture
}

pub(super) fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) as usize
}

#[test]
fn any_range_has_the_bytes_of_the_applied_patch_whatever_stays_in_memory() {
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let fixture = fixture(compression);
        let (expected, patch) = (applied(&fixture.image(), &fixture.patch()), fixture.patch());
        assert!(patch.appended().count() >= 3);
        for limit in [0, 2 << 20, 5 << 20, 64 << 20] {
            let image = overlay_with(
                Arc::new(fixture.image()),
                &patch,
                &PieceCache::new(limit),
                &Cancel::default(),
            )
            .unwrap();
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
        let region =
            LazyRegion::new(&patch, patch.pieces(Arc::clone(&base), &image, 1).unwrap(), &cache);
        region.read_exact_at(0, &mut vec![0; region.size() as usize]).unwrap();
        assert!(
            cache.bytes() <= limit && (limit == 0 || cache.bytes() >= 4 << 20),
            "{}",
            cache.bytes()
        );
    }
}

#[test]
fn several_patches_share_one_cache() {
    let fixture = fixture(None);
    let first = fixture.patch();
    std::fs::write(fixture.path("image"), applied(&fixture.image(), &fixture.patch())).unwrap();
    let base = fixture.image();
    std::fs::write(
        fixture.path("new/more"),
        text(3_000_000).into_iter().rev().collect::<Vec<u8>>(),
    )
    .unwrap();
    fixture.create("new", "second").unwrap();
    let second = Patch::open(fixture.path("second")).unwrap();
    drop(base);
    // The old image again.
    let medium = FileMedium::open(fixture.path("image")).unwrap();
    let both = applied(&fixture.image(), &second);
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
    let image = overlay_with(Arc::new(old), &first, &cache, &Cancel::default()).unwrap();
    let image = overlay_with(image, &second, &cache, &Cancel::default()).unwrap();
    let mut bytes = vec![0; image.size() as usize];
    image.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == both);
    assert!((1..=5 << 20).contains(&cache.bytes()), "{}", cache.bytes());
}

const SECTOR: usize = 1024;

/// A base that somebody changes: a piece that is decoded again has the bytes that were compared at
/// the start, or reading fails.
#[test]
fn a_piece_that_is_decoded_again_must_be_the_same() {
    let fixture = Fixture::new(Some(Compression::lz4(0).unwrap()));
    let (base, patch) = (Arc::new(Recorder::new(fixture.image())), fixture.patch());
    let image =
        overlay_with(base.clone(), &patch, &PieceCache::new(0), &Cancel::default()).unwrap();
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

/// For a process that only applies a patch: the directory of the fixture, and the bytes of memory
/// that are stated.
const VARIABLES: [&str; 2] = ["FEROFS_TEST_APPLY", "FEROFS_TEST_MEMORY"];

/// Replaces the patch of `fixture` by one with a piece of this plan, which appends `len` bytes of
/// the payload, all of them zeroes.
fn replace_patch(fixture: &Fixture, plan: &Plan, len: usize) {
    let mut header = fixture.patch().header().clone();
    header.result_size = header.base_size + len as u64;
    let piece = Piece {
        kind: PieceKind::Content,
        plan: plan.encode().unwrap(),
        payload_len: len,
        region_len: len,
        digest: [0; 16],
        compressed: true,
        delta_len: 0,
        payload: compress(&vec![0; len], 1).unwrap(),
        longest_extent: 0,
    };
    let methods = Compression::lz4(0).unwrap().methods;
    let relocations = Relocations::default().encode().unwrap().unwrap();
    let mut file = Vec::new();
    format::write(&header, &methods, &[piece], &[], &relocations, |bytes| {
        file.extend_from_slice(bytes);
        Ok::<(), crate::Error>(())
    })
    .unwrap();
    std::fs::write(fixture.path("patch"), file).unwrap();
}

/// Applies the patch of a fixture in this process, and compares the largest resident set since its
/// start with `bound`.
fn apply_within(dir: &Path, bound: u64) {
    let patch = Patch::open(dir.join("patch")).unwrap();
    let medium = FileMedium::open(dir.join("image")).unwrap();
    let applied = apply_to(&medium, &patch);
    // All pieces were made: only the digest of the result is another.
    let differs =
        |cause: &crate::Error| matches!(cause, crate::Error::Patch(PatchFault::ResultDiffers));
    assert!(
        matches!(&applied, Err(crate::Error::Unfinished { cause, .. }) if differs(cause)),
        "{applied:?}"
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    assert!(peak <= bound, "{peak} bytes, but {bound} are stated");
    assert!(bound < 3 * peak, "{peak} bytes, and {bound} are stated");
}

#[test]
fn the_stated_memory_is_enough_for_any_plan() {
    if let [Some(dir), Some(bound)] = VARIABLES.map(std::env::var_os) {
        return apply_within(Path::new(&dir), bound.to_str().unwrap().parse().unwrap());
    }
    let fixture = Fixture::new(None);
    let raw = Item::Raw { len: 1 };
    let extent = UnitExtent { kind: ExtentKind::Stored, len: 1, size: 1, capacity: 0 };
    let unit = Item::Unit(Unit { method: 0, content_len: 1, extents: vec![extent] });
    let references = vec![Reference::Image { pos: 0, len: 1 }; 2_700_000];
    // The decoded columns have nearly 8 MiB each.
    for (what, plan) in [
        ("raw items", Plan { references: Vec::new(), items: vec![raw; 4_000_000] }),
        ("units", Plan { references: Vec::new(), items: vec![unit; 1_190_000] }),
        ("references", Plan { references, items: vec![Item::Raw { len: 1 }] }),
    ] {
        replace_patch(&fixture, &plan, plan.items.len());
        let bound = fixture.patch().apply_memory().unwrap();
        let name = "tests::in_memory::the_stated_memory_is_enough_for_any_plan";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact", "--nocapture"]).env(VARIABLES[0], fixture.path(""));
        let output = child.env(VARIABLES[1], bound.to_string()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{what}");
    }
}
