use std::sync::Arc;

use super::*;

const MIB: u64 = 1 << 20;
/// Bytes of a read: a page on the processors with the largest ones. Systems read twice this ahead,
/// or more.
const LEN: u64 = 64 << 10;

/// 4 MiB that are only on a disk.
fn on_disk() -> FileSource {
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    io::Write::write_all(&mut file, &[7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    FileSource::new(file, 0).unwrap()
}

/// Bytes for which this thread has asked disks so far; `None` if the system does not tell.
fn asked() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// Bytes for which `work` asks the disk. `None` if the system does not tell, or the file is in
/// memory.
fn asked_by(work: impl FnOnce()) -> Option<u64> {
    let before = asked()?;
    work();
    Some(asked()? - before).filter(|bytes| *bytes > 0)
}

#[test]
fn adjacent_sparse_reads_read_nothing_ahead() {
    let source = on_disk();
    let reads = |start: u64| [0, LEN, 2 * LEN].map(|offset| (start + offset, [0; LEN as usize]));
    let ahead = asked_by(|| {
        reads(0).iter_mut().for_each(|(pos, buf)| source.read_exact_at(*pos, buf).unwrap());
    });
    // Otherwise this system reads nothing ahead.
    if ahead.is_some_and(|ahead| ahead > 3 * LEN) {
        let sparse = asked_by(|| {
            reads(2 * MIB)
                .iter_mut()
                .for_each(|(pos, buf)| source.read_sparse_at(*pos, buf).unwrap());
        });
        assert!(sparse <= Some(3 * LEN), "{sparse:?}, {ahead:?} ahead");
    }
}

#[test]
fn announced_bytes_are_read_ahead() {
    let source = on_disk();
    let announced = asked_by(|| source.will_need(2 * MIB, 2 * LEN));
    if asked_by(|| source.read_exact_at(0, &mut [0]).unwrap()).is_some() {
        assert!(announced.is_some());
    }
}

#[test]
fn the_source_starts_where_the_image_starts() {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, b"..image").unwrap();
    let source = FileSource::new(file, 2).unwrap();
    let mut buf = [0; 3];
    assert_eq!(source.size(), 5);
    source.read_exact_at(2, &mut buf).unwrap();
    assert_eq!(&buf, b"age");
    assert!(source.read_exact_at(3, &mut buf).is_err());
    assert!(source.read_exact_at(u64::MAX, &mut buf).is_err());
}

#[test]
fn only_files_with_a_size_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for path in [&fifo, Path::new("/dev/null")] {
        let error = FileSource::open(path, 0).unwrap_err().to_string();
        assert!(error.ends_with("open: not a regular file or block device"), "{error}");
    }
    assert!(FileSource::open(dir.path(), 0).is_err());
}

#[test]
fn holes_are_known_through_references() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 30).unwrap();
    let source = Arc::new(FileSource::new(file, 0).unwrap());
    assert_eq!((source.stored(), source.next_stored(0)), (0, 1 << 30));
    let reference: &dyn Source = &&*source;
    assert_eq!((reference.stored(), reference.next_stored(0)), (0, 1 << 30));
}
