use super::*;

const ORIGINS: [Origin; 6] = [
    Origin::Patch,
    Origin::Patch,
    Origin::Rollback(1),
    Origin::Patch,
    Origin::Rollback(0),
    Origin::Patch,
];

fn record(number: u64, origin: Origin) -> Record {
    let [before, after] = [number - 1, number].map(|state| [state as u8; SECTOR]);
    let (start, end) = (number * 8192, number * 8192 + 4096);
    let previous = if number == 1 { 0 } else { end - 8192 };
    let root = (number * 64, 32);
    Record { origin, number, time: -5, start, end, previous, before, after, root }
}

fn history(numbers: std::ops::RangeInclusive<u64>) -> History {
    let records = numbers.map(|number| record(number, ORIGINS[number as usize - 1]));
    History { records: records.collect() }
}

#[test]
fn patches_and_rollbacks_show_trees() {
    let all = history(1..=6);
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|state| all.shown(state)), [0, 1, 2, 1, 4, 0, 6]);
    let included = |last| {
        let history = history(1..=last);
        (0..=6).filter(|state| history.includes(*state)).collect::<Vec<_>>()
    };
    assert_eq!([3, 4, 5, 6].map(included), [vec![0, 1], vec![0, 1, 4], vec![0], vec![0, 6]]);
    // The records of the first states can be lost.
    let late = history(3..=4);
    assert_eq!((late.current(), late.end(), History::default().end()), (4, 4 * 8192 + 4096, 0));
    let sectors = [1, 2, 3, 4, 5].map(|state| late.sector(state).map(|sector| sector[0]));
    assert_eq!(sectors, [None, Some(2), Some(3), Some(4), None]);
    assert_eq!([2, 3, 4].map(|state| late.shown(state)), [2, 1, 4]);
}

#[test]
fn only_records_that_can_be_are_read() {
    let read = |record: &Record| {
        let mut image = vec![0; record.end as usize - RECORD as usize];
        image.extend(record.to_bytes());
        assert!(Record::read(&image, record.end - 1).unwrap().is_none());
        image.push(0);
        Record::read(&image, record.end).unwrap()
    };
    for origin in [Origin::Patch, Origin::Rollback(7)] {
        let (read, record) = (read(&record(2, origin)).unwrap(), record(2, origin));
        assert_eq!(
            (read.origin, read.number, read.time),
            (record.origin, record.number, record.time)
        );
        assert_eq!(
            (read.start, read.end, read.previous),
            (record.start, record.end, record.previous)
        );
        assert_eq!(
            (read.before, read.after, read.root),
            (record.before, record.after, record.root)
        );
    }
    let record = record(2, Origin::Patch);
    let pos = record.end - RECORD;
    assert!(read(&Record { start: pos, ..record.clone() }).is_some());
    assert!(read(&Record { start: pos + 1, ..record.clone() }).is_none());
    assert!(read(&Record { previous: record.start, ..record.clone() }).is_some());
    assert!(read(&Record { previous: record.start + 1, ..record.clone() }).is_none());
    assert!(read(&Record { number: u64::MAX - 1, ..record.clone() }).is_some());
    assert!(read(&Record { number: u64::MAX, ..record }).is_none());
}
