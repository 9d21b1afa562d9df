//! Writes that fail, changes that are killed, and data behind the image.

use super::*;
use crate::{Error, Left};

/// Bytes of a file that makes the root go into free slots.
const LARGE: usize = 3 << 20;

/// A room with two patches for the same image: "patch" to "new", and "other" to "third".
fn room(large: usize) -> Room {
    let room = Room::with(None, large);
    let third = room.path("third");
    std::fs::create_dir_all(&third).unwrap();
    std::fs::write(third.join("alone"), text(40_000)).unwrap();
    room.create("third", "other").unwrap();
    room
}

/// The image after each number of writes, as if the program had been killed; the last one is complete.
fn killed(image: &[u8], change: impl FnOnce(&Recorder)) -> Vec<Vec<u8>> {
    let recorder = Recorder::new(image.to_vec());
    change(&recorder);
    let mut states = vec![image.to_vec()];
    let mut now = image.to_vec();
    for event in recorder.events.into_inner().unwrap() {
        if let Event::Write(pos, bytes) = event {
            // A note at the end of a file, and then room for everything.
            write(&mut now, pos, &bytes);
            states.push(now.clone());
        }
    }
    states
}

/// The image that `patch` makes of `image`.
fn applied(image: &[u8], patch: &Patch) -> crate::Result<Vec<u8>> {
    let medium = Recorder::new(image.to_vec());
    apply(&medium, patch, Beyond::Keep, &AtomicBool::new(false))?;
    Ok(medium.bytes.into_inner().unwrap())
}

#[test]
fn killed_changes_give_way_to_any_patch() {
    for large in [0, LARGE] {
        let room = room(large);
        let (image, patch) = (room.image(), room.patch());
        assert_eq!(patch.header().root.is_some(), large > 0);
        let other = Patch::open(&room.path("other")).unwrap();
        let (old, expected) = (shown(image.clone()), applied(&image, &other).unwrap());
        let states = killed(&image, |medium| {
            apply(medium, &patch, Beyond::Keep, &AtomicBool::new(false)).unwrap();
        });
        assert!(states.len() >= 5, "{}", states.len());
        let (new, interrupted) = states.split_last().unwrap();
        for (number, state) in interrupted.iter().enumerate() {
            assert_eq!(shown(state.clone()), old, "{large} {number}");
            assert!(applied(state, &other).unwrap() == expected, "{large} {number}");
            assert!(applied(state, &patch).unwrap() == *new, "{large} {number}");
            // In memory, and as the base of a new patch.
            let over = overlay(Arc::new(state.clone()), &other, &AtomicBool::new(false)).unwrap();
            assert_eq!(over.size(), expected.len() as u64);
            std::fs::write(room.path("image"), state).unwrap();
            room.create("third", "again").unwrap();
            assert_eq!(Patch::open(&room.path("again")).unwrap().base_digest(), other.base_digest());
            // And it can be cleaned.
            let medium = Recorder::new(state.clone());
            let repaired = repair(&medium).unwrap();
            assert_eq!(repaired, if number == 0 { Repaired::Nothing } else { Repaired::Remains });
            assert!(*medium.bytes.lock().unwrap() == image, "{large} {number}");
        }
    }
}

#[test]
fn killed_rollbacks_give_way_too() {
    let room = room(LARGE);
    let patched = applied(&room.image(), &room.patch()).unwrap();
    let back = |medium: &Recorder| {
        rollback(medium, None, Beyond::Keep, 7).unwrap();
    };
    let states = killed(&patched, back);
    let (done, interrupted) = states.split_last().unwrap();
    assert_eq!(shown(done.clone()), shown(room.image()));
    for state in interrupted {
        assert_eq!(shown(state.clone()), shown(patched.clone()));
        let again = Recorder::new(state.clone());
        back(&again);
        assert!(*again.bytes.lock().unwrap() == *done);
    }
}

#[test]
fn failed_writes_leave_the_old_image_or_say_what_is_left() {
    let go = AtomicBool::new(false);
    for large in [0, LARGE] {
        let room = room(large);
        let (image, patch) = (room.image(), room.patch());
        let other = Patch::open(&room.path("other")).unwrap();
        let (old, new) = (shown(image.clone()), shown(applied(&image, &patch).unwrap()));
        // In a file, and on a device that is larger.
        for room_behind in [0, 4 << 20] {
            let mut before = image.clone();
            before.resize(image.len() + room_behind, 0);
            let (mut failures, mut seen) = (0, Vec::new());
            for fails_once in [true, false] {
                for number in 0.. {
                    let writes = Mutex::new(number);
                    let medium = Recorder { writes, fails_once, ..Recorder::new(before.clone()) };
                    let Err(error) = apply(&medium, &patch, Beyond::Keep, &go) else { break };
                    failures += 1;
                    let after = medium.bytes.into_inner().unwrap();
                    let Error::Unfinished { left, .. } = error else { panic!("{error}") };
                    seen.push(left);
                    let what = format!("{large} {room_behind} {fails_once} {number} {left:?}");
                    match left {
                        Left::AsBefore => assert!(after == before, "{what}"),
                        Left::Remains => assert_eq!(shown(after.clone()), old, "{what}"),
                        Left::EitherSuperblock => {
                            let now = shown(after.clone());
                            assert!(now == old || now == new, "{what}");
                        }
                    }
                    if fails_once {
                        assert_eq!(left, Left::AsBefore, "{what}");
                    }
                    if shown(after.clone()) == old {
                        assert_eq!(shown(applied(&after, &patch).unwrap()), new, "{what}");
                        applied(&after, &other).unwrap();
                    }
                }
            }
            assert!(failures >= 12, "{failures}");
            assert!(seen.contains(&Left::Remains) && seen.contains(&Left::EitherSuperblock), "{seen:?}");
        }
    }
}

#[test]
fn data_behind_the_image_stays() {
    let go = AtomicBool::new(false);
    let room = room(0);
    let (image, patch) = (room.image(), room.patch());
    for (zeroes, footer) in [(0, 64), (64, 64), (5000, 1)] {
        let mut with_footer = image.clone();
        with_footer.resize(image.len() + zeroes, 0);
        with_footer.resize(image.len() + zeroes + footer, 0x5a);
        let medium = Recorder::new(with_footer.clone());
        let (end, pos) = (image.len() as u64, (image.len() + zeroes) as u64);
        let refused = apply(&medium, &patch, Beyond::Keep, &go).unwrap_err();
        let expected = PatchFault::Beyond { end, pos };
        assert!(matches!(&refused, Error::Patch(fault) if *fault == expected), "{refused}");
        assert!(*medium.bytes.lock().unwrap() == with_footer);
        apply(&medium, &patch, Beyond::Overwrite, &go).unwrap();
        let patched = medium.bytes.into_inner().unwrap();
        assert_eq!(shown(patched.clone()), shown(applied(&image, &patch).unwrap()));
        // The same for going back.
        let mut with_footer = patched.clone();
        with_footer.push(1);
        let medium = Recorder::new(with_footer.clone());
        assert!(rollback(&medium, None, Beyond::Keep, 0).is_err());
        assert!(*medium.bytes.lock().unwrap() == with_footer);
        rollback(&medium, None, Beyond::Overwrite, 0).unwrap();
    }
    // Behind the room that is needed, it stays in any case.
    let mut far = image.clone();
    far.resize(image.len() + (8 << 20), 0);
    far.extend_from_slice(b"footer");
    let patched = applied(&far, &patch).unwrap();
    assert!(patched.len() == far.len() && patched.ends_with(b"footer"));
}

#[test]
fn torn_superblocks_are_restored() {
    let room = room(LARGE);
    let (image, patch) = (room.image(), room.patch());
    let states = killed(&image, |medium| {
        apply(medium, &patch, Beyond::Keep, &AtomicBool::new(false)).unwrap();
    });
    let [.., last, new] = &states[..] else { panic!("{}", states.len()) };
    let back = |medium: &Recorder| {
        rollback(medium, None, Beyond::Keep, 7).unwrap();
    };
    let rolled = killed(new, back);
    for (before, after, state) in [(last, new, 2), (&rolled[rolled.len() - 2], &rolled[rolled.len() - 1], 3)]
    {
        for cut in (1024..1536).step_by(4) {
            let mut torn = before.clone();
            torn[1024..cut].copy_from_slice(&after[1024..cut]);
            let medium = Recorder::new(torn.clone());
            let repaired = repair(&medium).unwrap();
            let now = medium.bytes.into_inner().unwrap();
            match repaired {
                Repaired::Superblock(number) => assert_eq!((number, &now == after), (state, true), "{cut}"),
                Repaired::Nothing => assert!(now == *after, "{cut}"),
                Repaired::Remains => assert!(torn == *before, "{cut}"),
            }
        }
        // Lost.
        for lost in [0, 0xff, 0x5a] {
            let mut torn = after.clone();
            torn[1024..1536].fill(lost);
            let medium = Recorder::new(torn);
            assert_eq!(repair(&medium).unwrap(), Repaired::Superblock(state));
            assert!(*medium.bytes.lock().unwrap() == *after, "{lost}");
        }
    }
    // Nothing tells what it was.
    let mut torn = Room::new(None).image();
    torn[1024..1536].fill(0);
    let medium = Recorder::new(torn.clone());
    assert!(matches!(repair(&medium), Err(Error::Patch(PatchFault::NoRecord))));
    assert!(*medium.bytes.lock().unwrap() == torn);
}
