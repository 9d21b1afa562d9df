use super::*;

const FILE: Nid = Nid::new(70);

#[test]
fn units_of_a_table_half_full_keep_their_counts() {
    let patterns = Patterns::default();
    let units = (0..UNITS as u64 / 2).map(|number| number << 18);
    let counts = || units.clone().map(|start| patterns.count_read(FILE, start));
    counts().for_each(drop);
    let kept = counts().filter(|reads| *reads == 2).count();
    assert!(kept > UNITS / 2 * 9 / 10, "{kept}");
}

#[test]
fn equal_steps_are_a_stride() {
    let patterns = Patterns::default();
    let random = Pattern::Random;
    for number in 0..20 {
        assert!(matches!(patterns.note(FILE, number << 17), Pattern::Stride(_)));
    }
    for offset in [4096, 1 << 20, 3 << 20, 2 << 20, 4 << 20] {
        assert_eq!(patterns.note(FILE, offset), random);
    }
    assert_eq!(patterns.note(FILE, 6 << 20), Pattern::Stride(None));
    assert_eq!(patterns.note(FILE, 7 << 20), random);
    for number in 2..20 {
        assert_eq!(patterns.note(FILE, number << 13), random, "small steps");
    }
}

#[test]
fn a_trusted_stride_gets_more_steps_ahead_until_it_ends() {
    let patterns = Patterns::default();
    let step = 1 << 17;
    let mut at = 0;
    for _ in 0..=TRUSTED {
        assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
        at += step;
    }
    for count in [2, 4, 8, 16, 32, 32] {
        let ahead = Ahead { step, count };
        assert_eq!(patterns.note(FILE, at), Pattern::Stride(Some(ahead)));
        patterns.stored_ahead(FILE, at, ahead);
        at += step * u64::from(count + 1);
    }
    // A read of stored pages: the kernel evicted them.
    assert_eq!(patterns.note(FILE, at - 2 * step), Pattern::Random);
    assert_eq!(patterns.note(FILE, at - step), Pattern::Random);
    assert_eq!(patterns.note(FILE, at), Pattern::Stride(None));
    // Steps that were not stored are read one by one.
    for number in 1..10 {
        assert!(matches!(patterns.note(FILE, at + number * step), Pattern::Stride(_)));
    }
}

#[test]
fn reads_of_a_unit_are_counted() {
    let patterns = Patterns::default();
    for round in 0..3 {
        for n in 1..10 {
            assert_eq!(patterns.count_read(FILE, 1 << 20), n, "{round}");
        }
        patterns.forget_reads(FILE, 1 << 20);
    }
    assert_eq!(patterns.count_read(FILE, 2 << 20), 1, "another unit");
    assert_eq!(patterns.count_read(Nid::new(71), 2 << 20), 1, "another file");
    assert_eq!(patterns.count_read(FILE, 2 << 20), 2);
}

#[test]
fn old_reads_are_forgotten() {
    let patterns = Patterns::default();
    for n in 1..=8 {
        assert_eq!(patterns.count_read(FILE, 0), n);
    }
    patterns.reads.fetch_add(PERIOD, Relaxed);
    assert_eq!(patterns.count_read(FILE, 0), 5, "half of 8 are left");
    patterns.reads.fetch_add(100 * PERIOD, Relaxed);
    assert_eq!(patterns.count_read(FILE, 0), 1);
}

#[test]
fn evicted_pages_end_storing() {
    let patterns = Patterns::default();
    let random = |offset| matches!(patterns.note(FILE, offset), Pattern::Random);
    // All is stored, and read again: each read adds to the score.
    patterns.note(FILE, 0);
    let mut rounds = 0;
    while random(rounds % 64 * PART) {
        patterns.stored(FILE, &(0..REGION));
        rounds += 1;
        assert!(rounds < 10_000);
    }
    assert!(rounds > 200, "{rounds}");
    // No stored page is read any more.
    let mut rounds = 0;
    while !random(REGION + rounds % 256 * 4096) {
        rounds += 1;
        assert!(rounds < 10_000);
    }
}

#[test]
fn offsets_of_all_sizes_do_no_harm() {
    let patterns = Patterns::default();
    for nid in [0, 1, u64::MAX] {
        for offset in [0, 1, u64::MAX / 2, u64::MAX, 0, u64::MAX] {
            patterns.note(Nid::new(nid), offset);
            patterns.stored(Nid::new(nid), &(offset..u64::MAX));
        }
    }
}
