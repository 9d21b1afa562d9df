use super::*;

#[test]
fn records_come_back_from_memory_and_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Records::new(dir.path());
    let record = |n: u32| Record {
        job: (!n.is_multiple_of(3)).then_some(n),
        fingerprint: ExtentFingerprint {
            anchor: u64::from(n) << 40 | 1,
            offset: n,
            len: n + 1,
            digest: [n as u8; 16],
        },
        stored: StoredExtent {
            at: BytePos::new(u64::from(n) << 33),
            size: (n + 2).into(),
            encoded: n.is_multiple_of(2),
            method: n as usize % 60,
            partial: n.is_multiple_of(5),
        },
    };
    for n in 0..100_000 {
        assert_eq!(records.push(&record(n)).unwrap(), Some(n));
    }
    assert!(records.written > 0 && !records.pending.is_empty());
    for n in (0..100_000).rev().step_by(7) {
        assert_eq!(records.get(n).unwrap(), record(n));
    }
    let huge = Record { stored: StoredExtent { size: 1 << 32, ..record(1).stored }, ..record(1) };
    assert_eq!(records.push(&huge).unwrap(), None);
    let of_method =
        |method| Record { stored: StoredExtent { method, ..record(1).stored }, ..record(1) };
    assert_eq!(records.push(&of_method(64)).unwrap(), None);
    assert_eq!(records.push(&of_method(63)).unwrap(), Some(100_000));
    assert_eq!(records.get(100_000).unwrap(), of_method(63));
}

#[test]
fn every_record_is_found() {
    let mut table = Table::default();
    let hash = |n: u32| u64::from(n).wrapping_mul(0x2545_f491_4f6c_dd1d) & !(0x3ff << 40);
    for n in 0..300_000 {
        table.insert(hash(n), n);
    }
    let mut others = 0;
    for n in 0..300_000 {
        let found: Vec<u32> = table.get(hash(n)).collect();
        assert!(found.contains(&n));
        others += found.len() - 1;
    }
    assert!(others < 10, "{others} records have the hash of another one");
    assert_eq!(table.get(hash(300_001)).count(), 0);
    assert_eq!(Table::default().get(0).count(), 0);
}

#[test]
fn a_hash_can_have_several_records() {
    let mut table = Table::default();
    for n in 0..100 {
        table.insert(7, n);
    }
    let mut found: Vec<u32> = table.get(7).collect();
    found.sort_unstable();
    assert_eq!(found, (0..100).collect::<Vec<_>>());
}
