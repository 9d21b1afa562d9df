//! Failing writes, killed changes, and other data after the image.

use super::*;
use crate::{AfterFailure, Error};

/// Bytes of a file: the root then goes into free slots.
const LARGE: usize = 3 << 20;

/// A fixture with two patches for the same image: "patch" to "new", and "other" to "third".
fn fixture(large: usize) -> Fixture {
    let fixture = Fixture::with(None, large);
    let third = fixture.path("third");
    std::fs::create_dir_all(&third).unwrap();
    std::fs::write(third.join("alone"), text(40_000)).unwrap();
    fixture.create("third", "other").unwrap();
    fixture
}

/// The image after each number of writes, as if the program had been killed; the last one is
/// complete.
pub(super) fn killed(image: &[u8], change: impl FnOnce(&Recorder)) -> Vec<Vec<u8>> {
    let recorder = Recorder::new(image.to_vec());
    change(&recorder);
    let mut states = vec![image.to_vec()];
    let mut now = image.to_vec();
    for event in recorder.events.into_inner().unwrap() {
        if let Event::Write(pos, bytes) = event {
            // The journal makes the file longer, and then the space for everything else is
            // reserved.
            write(&mut now, pos, &bytes);
            states.push(now.clone());
        }
    }
    states
}

/// [`killed`], while `patch` is applied.
pub(super) fn killed_apply(image: &[u8], patch: &Patch) -> Vec<Vec<u8>> {
    killed(image, |medium| apply_to(medium, patch).unwrap())
}

#[test]
fn any_patch_can_follow_a_killed_change() {
    for large in [0, LARGE] {
        let fixture = fixture(large);
        let (image, patch) = (fixture.image(), fixture.patch());
        assert_eq!(patch.header().root.is_some(), large > 0);
        let other = Patch::open(fixture.path("other")).unwrap();
        let (old, expected) = (shown(image.clone()), applied(&image, &other));
        let states = killed_apply(&image, &patch);
        assert!(states.len() >= 5, "{}", states.len());
        let (new, interrupted) = states.split_last().unwrap();
        for (number, state) in interrupted.iter().enumerate() {
            assert_eq!(shown(state.clone()), old, "{large} {number}");
            assert!(applied(state, &other) == expected, "{large} {number}");
            assert!(applied(state, &patch) == *new, "{large} {number}");
            // The image can be patched in memory, and can be the base of a new patch.
            let over = overlay(Arc::new(state.clone()), &other, &Cancel::default()).unwrap();
            assert_eq!(over.size(), expected.len() as u64);
            std::fs::write(fixture.path("image"), state).unwrap();
            fixture.create("third", "again").unwrap();
            assert_eq!(
                Patch::open(fixture.path("again")).unwrap().base_digest(),
                other.base_digest()
            );
            // It can be repaired.
            let medium = Recorder::new(state.clone());
            let repaired = repair(&medium).unwrap();
            assert_eq!(repaired, if number == 0 { Repaired::Nothing } else { Repaired::Leftovers });
            assert!(*medium.bytes.lock().unwrap() == image, "{large} {number}");
        }
    }
}

#[test]
fn a_patch_can_follow_a_killed_rollback() {
    let fixture = fixture(LARGE);
    let patched = applied(&fixture.image(), &fixture.patch());
    let back = |medium: &Recorder| {
        rollback(medium, None, TrailingData::Keep, 7).unwrap();
    };
    let states = killed(&patched, back);
    let (done, interrupted) = states.split_last().unwrap();
    assert_eq!(shown(done.clone()), shown(fixture.image()));
    for state in interrupted {
        assert_eq!(shown(state.clone()), shown(patched.clone()));
        let again = Recorder::new(state.clone());
        back(&again);
        assert!(*again.bytes.lock().unwrap() == *done);
    }
}

#[test]
fn failed_writes_leave_the_old_image_or_say_what_is_left() {
    for large in [0, LARGE] {
        let fixture = fixture(large);
        let (image, patch) = (fixture.image(), fixture.patch());
        let other = Patch::open(fixture.path("other")).unwrap();
        let (old, new) = (shown(image.clone()), shown(applied(&image, &patch)));
        // A file ends with the image; a device is larger.
        for space_after in [0, 4 << 20] {
            let mut before = image.clone();
            before.resize(image.len() + space_after, 0);
            let (mut failures, mut seen) = (0, Vec::new());
            for fails_once in [true, false] {
                for number in 0.. {
                    let writes = Mutex::new(number);
                    let medium = Recorder { writes, fails_once, ..Recorder::new(before.clone()) };
                    let Err(error) = apply_to(&medium, &patch) else { break };
                    failures += 1;
                    let after = medium.bytes.into_inner().unwrap();
                    let Error::Unfinished { image: state, .. } = error else { panic!("{error}") };
                    seen.push(state);
                    let what = format!("{large} {space_after} {fails_once} {number} {state:?}");
                    match state {
                        AfterFailure::Unchanged => assert!(after == before, "{what}"),
                        AfterFailure::Resumable => panic!("{what}"),
                        AfterFailure::Leftovers => assert_eq!(shown(after.clone()), old, "{what}"),
                        AfterFailure::UncertainSuperblock => {
                            let now = shown(after.clone());
                            assert!(now == old || now == new, "{what}");
                        }
                    }
                    if fails_once {
                        assert_eq!(state, AfterFailure::Unchanged, "{what}");
                    }
                    if shown(after.clone()) == old {
                        assert_eq!(shown(applied(&after, &patch)), new, "{what}");
                        applied(&after, &other);
                    }
                }
            }
            assert!(failures >= 12, "{failures}");
            assert!(
                seen.contains(&AfterFailure::Leftovers)
                    && seen.contains(&AfterFailure::UncertainSuperblock),
                "{seen:?}"
            );
        }
    }
}

#[test]
fn data_after_the_image_stays() {
    let fixture = fixture(0);
    let (image, patch) = (fixture.image(), fixture.patch());
    for (zeroes, footer) in [(0, 64), (64, 64), (5000, 1)] {
        let mut with_footer = image.clone();
        with_footer.resize(image.len() + zeroes, 0);
        with_footer.resize(image.len() + zeroes + footer, 0x5a);
        let medium = Recorder::new(with_footer.clone());
        let (end, pos) = (image.len() as u64, (image.len() + zeroes) as u64);
        let refused = apply_to(&medium, &patch).unwrap_err();
        let expected = PatchFault::TrailingData { end, pos };
        assert!(matches!(&refused, Error::Patch(fault) if *fault == expected), "{refused}");
        assert!(*medium.bytes.lock().unwrap() == with_footer);
        apply(&medium, &patch, TrailingData::Overwrite, &Cancel::default()).unwrap();
        let patched = medium.bytes.into_inner().unwrap();
        assert_eq!(shown(patched.clone()), shown(applied(&image, &patch)));
        // The same for a rollback.
        let mut with_footer = patched.clone();
        with_footer.push(1);
        let medium = Recorder::new(with_footer.clone());
        assert!(rollback(&medium, None, TrailingData::Keep, 0).is_err());
        assert!(*medium.bytes.lock().unwrap() == with_footer);
        rollback(&medium, None, TrailingData::Overwrite, 0).unwrap();
    }
    // Data after the space that the change needs stays in any case.
    let mut far = image.clone();
    far.resize(image.len() + (8 << 20), 0);
    far.extend_from_slice(b"footer");
    let patched = applied(&far, &patch);
    assert!(patched.len() == far.len() && patched.ends_with(b"footer"));
}

#[test]
fn torn_superblocks_are_restored() {
    let fixture = fixture(LARGE);
    let (image, patch) = (fixture.image(), fixture.patch());
    let states = killed_apply(&image, &patch);
    let [.., last, new] = &states[..] else { panic!("{}", states.len()) };
    let back = |medium: &Recorder| {
        rollback(medium, None, TrailingData::Keep, 7).unwrap();
    };
    let rolled = killed(new, back);
    for (before, after, state) in
        [(last, new, 2), (&rolled[rolled.len() - 2], &rolled[rolled.len() - 1], 3)]
    {
        for cut in (1024..1536).step_by(4) {
            let mut torn = before.clone();
            torn[1024..cut].copy_from_slice(&after[1024..cut]);
            let medium = Recorder::new(torn.clone());
            let repaired = repair(&medium).unwrap();
            let now = medium.bytes.into_inner().unwrap();
            match repaired {
                Repaired::Superblock(number) => {
                    assert_eq!((number, &now == after), (state, true), "{cut}")
                }
                Repaired::Nothing => assert!(now == *after, "{cut}"),
                Repaired::Leftovers => assert!(torn == *before, "{cut}"),
            }
        }
        // A part of the sector is lost, with the UUID.
        let mut torn = after.clone();
        torn[1036..1096].fill(0);
        let medium = Recorder::new(torn);
        assert_eq!(repair(&medium).unwrap(), Repaired::Superblock(state));
        assert!(*medium.bytes.lock().unwrap() == *after);
        // The sector is lost.
        for lost in [0, 0xff, 0x5a] {
            let mut torn = after.clone();
            torn[1024..1536].fill(lost);
            let medium = Recorder::new(torn);
            assert_eq!(repair(&medium).unwrap(), Repaired::Superblock(state));
            assert!(*medium.bytes.lock().unwrap() == *after, "{lost}");
        }
    }
    let small = Fixture::new(None);
    // One bit is wrong: any bit of the fields, and of the rest one of each byte.
    let patched = applied(&small.image(), &small.patch());
    for bit in (0..128 * 8).chain((128 * 8..512 * 8).step_by(8)) {
        let mut torn = patched.clone();
        torn[1024 + bit / 8] ^= 1 << (bit % 8);
        let medium = Recorder::new(torn);
        assert_eq!(repair(&medium).unwrap(), Repaired::Superblock(1), "{bit}");
        assert!(*medium.bytes.lock().unwrap() == patched, "{bit}");
    }
    // No record has the superblock.
    let mut torn = small.image();
    torn[1024..1536].fill(0);
    let medium = Recorder::new(torn.clone());
    assert!(matches!(repair(&medium), Err(Error::Patch(PatchFault::NoRecord))));
    assert!(*medium.bytes.lock().unwrap() == torn);
}
