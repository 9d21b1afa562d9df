//! Changes that continue after an interruption: what is there and right is not made again, and the
//! result is the same.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::faults::killed_apply;
use super::in_memory::{fixture, random};
use super::*;
use crate::apply::repair::ApplyProgress;
use crate::image::SECTOR;
use crate::{AfterFailure, Error};

/// Applying a patch to an image: the result, the bytes that were found, and the bytes that were
/// written after the image.
struct Applied {
    result: Vec<u8>,
    found: u64,
    written: u64,
}

fn apply_again(image: Vec<u8>, patch: &Patch) -> Applied {
    let (medium, progress) = (Recorder::new(image), ApplyProgress::default());
    apply_with(&medium, patch, TrailingData::Keep, &progress, &Cancel::default()).unwrap();
    let appended = patch.result_size() - patch.base_size();
    assert_eq!(progress.appended.get(), appended);
    assert_eq!(progress.written.get(), appended);
    let lens = medium.events.into_inner().unwrap().into_iter().map(|event| match event {
        Event::Write(pos, bytes) if pos >= patch.base_size() => bytes.len() as u64,
        _ => 0,
    });
    let written = lens.sum();
    Applied { result: medium.bytes.into_inner().unwrap(), found: progress.resumed.get(), written }
}

/// The pieces of `patch` that can be found: all but the first, which begins under the journal.
fn pieces(patch: &Patch) -> Vec<Range<usize>> {
    let ranges: Vec<_> = patch
        .appended()
        .map(|(range, _)| range.start as usize..range.end as usize)
        .skip(1)
        .collect();
    assert!(ranges.len() >= 3, "{ranges:?}");
    ranges
}

#[test]
fn pieces_that_are_written_are_not_made_again() {
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let fixture = fixture(compression);
        let (image, patch) = (fixture.image(), fixture.patch());
        let states = killed_apply(&image, &patch);
        let (whole, interrupted) = states.split_last().unwrap();
        let appended = patch.result_size() - patch.base_size();
        let mut most = 0;
        for (number, state) in interrupted.iter().enumerate() {
            let Applied { result, found, written } = apply_again(state.clone(), &patch);
            assert!(result == *whole, "{number}");
            let is_there =
                |piece: &&Range<usize>| state.get((*piece).clone()) == whole.get((*piece).clone());
            let there: usize = pieces(&patch).iter().filter(is_there).map(Range::len).sum();
            assert_eq!(found, there as u64, "{number}");
            // The journal, and all pieces that were not found.
            assert_eq!(written, appended - found + SECTOR as u64, "{number}");
            assert!(found >= most, "{number}");
            most = found;
        }
        let all: usize = pieces(&patch).iter().map(Range::len).sum();
        assert_eq!(most, all as u64);
        // Without an interruption nothing is found.
        assert_eq!(apply_again(image, &patch).found, 0);
    }
}

#[test]
fn pieces_with_another_byte_are_made_again() {
    let fixture = fixture(Some(Compression::lz4(0).unwrap()));
    let (image, patch) = (fixture.image(), fixture.patch());
    let states = killed_apply(&image, &patch);
    // The last state with the journal: without it, another byte in the record hides that the change
    // was interrupted.
    let [.., state, _, whole] = &states[..] else { panic!("{}", states.len()) };
    let pieces = pieces(&patch);
    let all: usize = pieces.iter().map(Range::len).sum();
    for piece in &pieces {
        for at in [piece.start, piece.start + piece.len() / 2, piece.end - 1] {
            let mut wrong = state.clone();
            wrong[at] ^= 1;
            let Applied { result, found, .. } = apply_again(wrong, &patch);
            assert!(result == *whole, "{at}");
            assert_eq!(found, (all - piece.len()) as u64, "{at}");
        }
    }
    // Sectors that never reached the disk.
    let mut seed = 1;
    for round in 0..8 {
        let mut torn = state.clone();
        let mut lost = vec![false; pieces.len()];
        for _ in 0..round {
            let at = pieces[0].start + random(&mut seed) % (torn.len() - pieces[0].start);
            let sector = at / SECTOR * SECTOR..(at / SECTOR + 1) * SECTOR;
            let before = torn[sector.clone()].to_vec();
            torn[sector.clone()].fill(0);
            for (lost, piece) in lost.iter_mut().zip(&pieces) {
                let touches = sector.start < piece.end && piece.start < sector.end;
                *lost |= touches && before.iter().any(|byte| *byte != 0);
            }
        }
        let Applied { result, found, .. } = apply_again(torn, &patch);
        assert!(result == *whole, "{round}");
        let least =
            pieces.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(piece, _)| piece.len());
        assert!(found >= least.sum::<usize>() as u64, "{round}");
    }
    // A file system that lost the end of the file.
    for len in [pieces[1].start, pieces[1].end, pieces[1].end + 5, image.len() + SECTOR] {
        let Applied { result, found, .. } = apply_again(state[..len].to_vec(), &patch);
        let there = pieces.iter().filter(|piece| piece.end <= len).map(Range::len).sum::<usize>();
        assert!(result == *whole, "{len}");
        assert_eq!(found, there as u64, "{len}");
    }
}

#[test]
fn of_another_patch_only_equal_pieces_are_kept() {
    // Stored files of the same length: the journals of both patches are equal.
    let fixture = fixture(None);
    let (image, patch) = (fixture.image(), fixture.patch());
    let mut changed = std::fs::read(fixture.path("new/large4")).unwrap();
    changed.reverse();
    std::fs::write(fixture.path("new/large4"), changed).unwrap();
    fixture.create("new", "other").unwrap();
    let other = Patch::open(fixture.path("other")).unwrap();
    assert_eq!(patch.result_size(), other.result_size());
    let whole = killed_apply(&image, &other).pop().unwrap();
    let pieces = pieces(&other);
    let mut found_some = false;
    for state in killed_apply(&image, &patch).split_last().unwrap().1 {
        let Applied { result, found, .. } = apply_again(state.clone(), &other);
        assert!(result == whole);
        let equal = pieces
            .iter()
            .filter(|piece| state.get((*piece).clone()) == whole.get((*piece).clone()));
        assert_eq!(found, equal.map(Range::len).sum::<usize>() as u64);
        found_some |= found > 0;
    }
    assert!(
        found_some
            && !pieces.iter().all(|piece| image.get(piece.clone()) == whole.get(piece.clone()))
    );
}

#[test]
fn a_cancelled_change_continues_or_is_removed() {
    // The root goes into free slots of the image.
    for large in [0, 3 << 20] {
        let fixture = Fixture::with(None, large);
        for number in 0..3 {
            let bytes: Vec<u8> =
                text(4_500_000).into_iter().map(|byte| byte ^ number as u8).collect();
            std::fs::write(fixture.path("new").join(format!("more{number}")), bytes).unwrap();
        }
        fixture.create_at(Some(1), "new", "patch").unwrap();
        let (image, patch) = (fixture.image(), fixture.patch());
        assert_eq!(patch.header().root.is_some(), large > 0);
        let whole = apply_again(image.clone(), &patch).result;
        let (old, mut cancelled, mut most) = (shown(image.clone()), 0, 0);
        for writes in 1..20 {
            // Somebody cancels the change after a number of writes.
            let (cancel, left) = (Cancel::default(), AtomicUsize::new(writes));
            let flag = cancel.clone();
            let on_write = move || {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    flag.cancel();
                }
            };
            let medium = Recorder { on_write: Box::new(on_write), ..Recorder::new(image.clone()) };
            let Err(error) = apply(&medium, &patch, TrailingData::Keep, &cancel) else { continue };
            assert!(
                matches!(error, Error::Unfinished { image: AfterFailure::Resumable, .. }),
                "{error}"
            );
            let after = medium.bytes.into_inner().unwrap();
            assert_eq!(shown(after.clone()), old, "{writes}");
            let Applied { result, found, .. } = apply_again(after.clone(), &patch);
            assert!(result == whole, "{writes}");
            let medium = Recorder::new(after);
            assert_eq!(repair(&medium).unwrap(), Repaired::Leftovers);
            assert!(*medium.bytes.lock().unwrap() == image, "{writes}");
            (cancelled, most) = (cancelled + 1, found.max(most));
        }
        assert!(cancelled >= 4 && most > 4 << 20, "{cancelled} {most}");
    }
}

#[test]
fn a_large_change_is_made_durable_in_parts() {
    let fixture = Fixture::new(None);
    for number in 0..5 {
        let bytes: Vec<u8> = text(9_000_000).into_iter().map(|byte| byte ^ number as u8).collect();
        std::fs::write(fixture.path("new").join(format!("large{number}")), bytes).unwrap();
    }
    fixture.create_at(Some(1), "new", "patch").unwrap();
    let patch = fixture.patch();
    let medium = Recorder::new(fixture.image());
    apply_to(&medium, &patch).unwrap();
    let (mut unsynced, mut most) = (0, 0);
    for event in medium.events.into_inner().unwrap() {
        match event {
            Event::Write(_, bytes) => unsynced += bytes.len(),
            Event::Sync => unsynced = 0,
        }
        most = most.max(unsynced);
    }
    assert!(patch.result_size() - patch.base_size() > 40_000_000);
    assert!((32 << 20..40 << 20).contains(&most), "{most}");
}
