//! Patches whose base is another state of the image: they are told from patches that were applied.
//! And patch files that lie: parts are decoded, changed, and encoded again, with the right lengths
//! and the right digest.

use crate::format::columns::{compress, decompress};
use crate::image::history::{RECORD, Record};
use crate::tests::*;

/// What applying `patch` to `medium` is refused with.
fn refused(medium: &Recorder, patch: &Patch) -> PatchFault {
    let applied = apply_to(medium, patch);
    let Err(crate::Error::Patch(fault)) = applied else { panic!("{applied:?}") };
    let bytes = medium.bytes.lock().unwrap().clone();
    let over = overlay(Arc::new(bytes), patch, &Cancel::default()).map(drop);
    assert!(matches!(over, Err(crate::Error::Patch(same)) if same == fault));
    fault
}

/// Makes a patch to "new" at a fixed time.
fn create_at_time(fixture: &Fixture, name: &str) -> Patch {
    let mut options = CreateOptions::new(fixture.path("new"));
    options.build.attributes.all_time = TIME;
    options.build.image.build_time = Some(1234);
    create(fixture.path("image"), &options, fixture.path(name)).unwrap();
    Patch::open(fixture.path(name)).unwrap()
}

#[test]
fn a_patch_that_leads_to_the_same_superblock_is_not_the_applied_one() {
    for large in [0, 3 << 20] {
        let fixture = Fixture::with(None, large);
        let state = u64::from(large > 0);
        let changed = fixture.path("new/a/same");
        let one = create_at_time(&fixture, "one");
        let size = std::fs::metadata(&changed).unwrap().len() as usize;
        std::fs::write(&changed, "like".repeat(size / 4) + &"x".repeat(size % 4)).unwrap();
        let content = create_at_time(&fixture, "content");
        assert_eq!(one.header().root.is_some(), large > 0);
        // Another root, and nothing else that differs in what is appended.
        std::fs::write(&changed, "same ".repeat(5000)).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(fixture.path("new"), std::fs::Permissions::from_mode(0o711))
            .unwrap();
        let root = create_at_time(&fixture, "root");
        std::fs::set_permissions(fixture.path("new"), std::fs::Permissions::from_mode(0o755))
            .unwrap();
        assert_eq!(one.header().sector, root.header().sector);
        for other in [&content, &root] {
            let medium = Recorder::new(fixture.image());
            apply_to(&medium, &one).unwrap();
            let is_same = other.header().sector == one.header().sector;
            assert!(is_same || std::ptr::eq(other, &content), "{large}");
            assert_eq!(refused(&medium, &one), PatchFault::AlreadyApplied);
            let wrong = PatchFault::OtherState { expected: state, found: state + 1 };
            assert_eq!(refused(&medium, other), wrong, "{large} {is_same}");
            // In a later state, too.
            std::fs::write(fixture.path("image-2"), &*medium.bytes.lock().unwrap()).unwrap();
            let options = CreateOptions::new(fixture.path("old"));
            create(fixture.path("image-2"), &options, fixture.path("later")).unwrap();
            let later = Patch::open(fixture.path("later")).unwrap();
            apply_to(&medium, &later).unwrap();
            for applied in [&one, &later] {
                assert_eq!(refused(&medium, applied), PatchFault::AlreadyApplied);
            }
            let wrong = PatchFault::OtherState { expected: state, found: state + 2 };
            assert_eq!(refused(&medium, other), wrong);
        }
    }
}

#[test]
fn a_later_root_in_slots_that_a_patch_appended_hides_nothing() {
    let fixture = Fixture::with(None, 3 << 20);
    let medium = Recorder::new(fixture.image());
    let mut patches = vec![Patch::open(fixture.path("grow")).unwrap()];
    // The free slots of the built image are used first.
    for number in 0..200 {
        std::fs::write(fixture.path("image"), &*medium.bytes.lock().unwrap()).unwrap();
        std::fs::write(fixture.path("new/counter"), format!("{number}")).unwrap();
        fixture.create_at(Some(1), "new", "patch").unwrap();
        let patch = fixture.patch();
        let (root, _) = patch.header().root.clone().unwrap();
        apply_to(&medium, &patch).unwrap();
        let is_within =
            patches.iter().any(|old| (old.base_size()..old.result_size()).contains(&root));
        patches.push(patch);
        if is_within {
            for patch in &patches {
                assert_eq!(refused(&medium, patch), PatchFault::AlreadyApplied, "{number}");
            }
            return;
        }
    }
    panic!("no root is in slots that a patch appended");
}

/// A record with the largest number must not overflow the number of the next state.
#[test]
fn a_record_that_none_can_follow_is_none() {
    let fixture = Fixture::new(None);
    let medium = Recorder::new(fixture.image());
    apply_to(&medium, &fixture.patch()).unwrap();
    let image = medium.bytes.lock().unwrap().clone();
    let record = Record::read(&image, image.len() as u64).unwrap().unwrap();
    let forged = Record { number: u64::MAX, ..record };
    write(&mut medium.bytes.lock().unwrap(), image.len() as u64 - RECORD, &forged.to_bytes());
    assert!(matches!(
        rollback(&medium, None, TrailingData::Keep, 7),
        Err(crate::Error::Patch(PatchFault::NoHistory))
    ));
    std::fs::write(fixture.path("image"), &*medium.bytes.lock().unwrap()).unwrap();
    assert!(fixture.create("old", "back").is_ok());
}

/// Bytes before the header.
const START: usize = 24;
/// Offsets of the lengths of the list of changes, stored and decoded, and of relocated inodes, in
/// the header.
const LENGTHS: [usize; 3] = [1172, 1180, 1188];
/// Bytes of the header without its tables.
pub(super) const HEADER: usize = 1216;
const LIMIT: usize = 1 << 24;

/// The parts of a patch file that are stored as frames.
pub(super) struct Parts {
    pub(super) header: Vec<u8>,
    pub(super) changes: Vec<u8>,
    pub(super) relocations: Vec<u8>,
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

fn split(patch: &[u8]) -> (Parts, &[u8]) {
    let header_len = u32::from_le_bytes(patch[12..16].try_into().unwrap()) as usize;
    let (stored, rest) = patch[START..patch.len() - 32].split_at(header_len);
    let header = decompress(stored, LIMIT, "header").unwrap();
    let (changes, rest) = rest.split_at(u64_at(&header, LENGTHS[0]));
    let (relocations, rest) = rest.split_at(u64_at(&header, LENGTHS[2]));
    let changes = decompress(changes, LIMIT, "changes").unwrap();
    let relocations = decompress(relocations, LIMIT, "relocations").unwrap();
    (Parts { header, changes, relocations }, rest)
}

/// The decoded parts of a patch file.
pub(super) fn parts(patch: &[u8]) -> Parts {
    split(patch).0
}

/// The file `patch` after `edit` changed its decoded parts. The lengths of lists are made right
/// again.
pub(super) fn edited(patch: &[u8], edit: impl FnOnce(&mut Parts)) -> Vec<u8> {
    let (mut parts, rest) = split(patch);
    let before = [parts.changes.clone(), parts.relocations.clone()];
    edit(&mut parts);
    let changes = compress(&parts.changes, 3).unwrap();
    let relocations = compress(&parts.relocations, 3).unwrap();
    let mut set = |at: usize, len: usize| {
        parts.header[at..at + 8].copy_from_slice(&(len as u64).to_le_bytes());
    };
    set(LENGTHS[0], changes.len());
    if parts.changes != before[0] {
        set(LENGTHS[1], parts.changes.len());
    }
    set(LENGTHS[2], relocations.len());
    let header = compress(&parts.header, 3).unwrap();
    let mut file = patch[..START].to_vec();
    file[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
    for part in [&header[..], &changes, &relocations, rest] {
        file.extend_from_slice(part);
    }
    let len = file.len() as u64 + 32;
    file[16..24].copy_from_slice(&len.to_le_bytes());
    with_digest(file)
}

pub(super) fn with_digest(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}
