use super::*;

fn presence(units: u64, boot: u8) -> (Presence, File, File) {
    let (present, synced) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let again = (present.try_clone().unwrap(), synced.try_clone().unwrap());
    (Presence::open(present, synced, units * UNIT, [boot; 16]).unwrap(), again.0, again.1)
}

#[test]
fn runs_are_those_of_single_bits() {
    let (presence, ..) = presence(100_000, 1);
    let set = [0..1, 7..9, 16..40, 63..64, 1000..1001, 4096..70_000, 99_999..100_000];
    for range in set.clone() {
        presence.set(range, || Ok(())).unwrap();
    }
    let is_set = |unit| set.iter().any(|range| range.contains(&unit));
    for range in [0..100_000, 5..20, 8..8, 39..41, 4000..100_000, 99_990..200_000] {
        let missing = presence.missing(range.clone()).unwrap();
        let expected: Vec<u64> =
            range.clone().filter(|unit| *unit < 100_000 && !is_set(*unit)).collect();
        assert_eq!(missing.iter().cloned().flatten().collect::<Vec<_>>(), expected, "{range:?}");
        assert_eq!(presence.has_all(range.clone()).unwrap(), expected.is_empty(), "{range:?}");
        assert!(
            missing.windows(2).all(|pair| pair[0].end < pair[1].start),
            "runs are as long as possible"
        );
    }
}

/// The bits of 4 PiB are not read to their end.
#[test]
fn a_huge_object_is_known_to_be_incomplete() {
    let units = 1 << 40;
    let (presence, ..) = presence(units, 1);
    assert!(!presence.has_all(0..units).unwrap());
    presence.set(0..PIECE_UNITS + 9, || Ok(())).unwrap();
    assert!(presence.has_all(0..PIECE_UNITS + 9).unwrap() && !presence.has_all(0..units).unwrap());
}

#[test]
fn only_synced_units_survive_another_boot() {
    let (presence, present, synced) = presence(5000, 1);
    presence.set(10..2000, || Ok(())).unwrap();
    assert!(presence.set_synced(&[100..3000], || Ok(())).unwrap());
    let same = Presence::open(
        present.try_clone().unwrap(),
        synced.try_clone().unwrap(),
        5000 * UNIT,
        [1; 16],
    );
    assert_eq!(same.unwrap().missing(0..5000).unwrap(), [0..10, 2000..5000]);
    let next = Presence::open(present, synced, 5000 * UNIT, [2; 16]).unwrap();
    assert_eq!(next.missing(0..5000).unwrap(), [0..100, 2000..5000]);
}

/// Two threads' view of the same files: each has locks of its own.
fn two_views(units: u64) -> (tempfile::TempDir, [Presence; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.path().join(name))
            .unwrap()
    };
    let view = || Presence::open(open("present"), open("synced"), units * UNIT, [1; 16]).unwrap();
    let views = [view(), view()];
    (folder, views)
}

#[test]
fn what_is_stored_while_bytes_are_freed_is_written_after_that() {
    let (_folder, [remover, writer]) = two_views(100);
    let is_written = std::sync::atomic::AtomicBool::new(false);
    let store = || {
        writer.set(20..30, || {
            is_written.store(true, std::sync::atomic::Ordering::SeqCst);
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let mut storing = None;
        remover
            .remove(0..100, || {
                storing = Some(scope.spawn(store));
                std::thread::sleep(std::time::Duration::from_millis(100));
                // Here the bytes are freed.
                is_written.store(false, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        storing.unwrap().join().unwrap().unwrap();
    });
    assert!(is_written.into_inner());
    assert_eq!(remover.missing(0..100).unwrap(), [0..20, 30..100]);
}

#[test]
fn what_is_stored_after_a_sync_does_not_count_as_synced() {
    let (_folder, [syncer, writer]) = two_views(100);
    writer.set(0..10, || Ok(())).unwrap();
    assert!(syncer.set_synced(&[0..100], || writer.set(10..20, || Ok(()))).unwrap());
    let boot = Presence::open(
        syncer.present.try_clone().unwrap(),
        syncer.synced.try_clone().unwrap(),
        100 * UNIT,
        [2; 16],
    );
    assert_eq!(boot.unwrap().missing(0..100).unwrap(), [10..100]);
}

#[test]
fn removal_changes_the_generation_before_bytes_are_freed() {
    let (presence, ..) = presence(100, 1);
    presence.set(0..100, || Ok(())).unwrap();
    assert!(presence.set_synced(&[0..100], || Ok(())).unwrap());
    let before = presence.generation().unwrap();
    let mut during = None;
    presence
        .remove(20..30, || {
            during = Some((presence.generation()?, presence.missing(0..100)?));
            Ok(())
        })
        .unwrap();
    let (generation, missing) = during.unwrap();
    assert_ne!(generation, before);
    assert_eq!(missing, [20..30]);
}
