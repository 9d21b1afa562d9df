//! Sources with a high latency: what is read together, and what is announced.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::{Access, Attempt, FetchedSource, ReadRange, Source};

/// Bytes that a sequential reader shall have announced ahead of it.
const DISTANCE: u64 = 4 << 20;

/// An image that records its calls.
struct Remote {
    bytes: Vec<u8>,
    announced: Mutex<Vec<Range<u64>>>,
    /// The ranges of each call of `read_ranges`.
    batches: Mutex<Vec<usize>>,
}

impl Remote {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, announced: Mutex::default(), batches: Mutex::default() })
    }

    fn is_announced(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        let mut announced = self.announced.lock().clone();
        announced.sort_by_key(|range| range.start);
        for range in announced {
            if range.contains(&at) {
                at = range.end;
            }
        }
        at >= range.end
    }
}

impl Source for Remote {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.read_exact_at(pos, buf)
    }

    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        self.batches.lock().push(ranges.len());
        self.bytes.read_ranges(ranges, access)
    }

    fn prefetch_distance(&self) -> u64 {
        DISTANCE
    }

    fn will_need(&self, pos: u64, len: u64) {
        self.announced.lock().push(pos..pos + len);
    }
}

/// Bytes that compress a little, and are different everywhere.
fn long_content() -> Vec<u8> {
    let words =
        (0..8_u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n & 7) & 0xffff_0fff);
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.extend_from_within(..);
    bytes
}

fn built(content: &[u8], compression: Option<Compression>) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), content).unwrap();
    let mut options = build::Options::new(source);
    options.data.compression = compression;
    build::build(&options, &image).unwrap();
    std::fs::read(&image).unwrap()
}

#[test]
fn sequential_reads_are_announced_4_mib_ahead() {
    let content = long_content();
    assert_eq!(content.len(), 64 << 20);
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let remote = Remote::new(built(&content, compression));
        let image = Image::open(Arc::clone(&remote)).unwrap();
        let inode = image.resolve("file".as_ref(), true).unwrap();
        let (mut buf, mut offset) = (vec![0; 128 << 10], 0);
        for number in 0.. {
            let len = image.read_at(&inode, FileOffset::new(offset), &mut buf).unwrap();
            if len == 0 {
                break;
            }
            assert!(buf[..len] == content[offset as usize..][..len]);
            offset += len as u64;
            // The distance grows with the first requests.
            let ahead = if number < 4 { 128 << 10 } else { DISTANCE };
            for range in image.data_ranges(&inode, FileOffset::new(offset), ahead).unwrap() {
                assert!(
                    remote.is_announced(range.start.get()..range.end()),
                    "at {offset}: {range:?}"
                );
            }
        }
        assert_eq!(offset, content.len() as u64);
        let announced = remote.announced.lock();
        let bytes: u64 = announced.iter().map(|range| range.end - range.start).sum();
        assert!(bytes <= remote.size() + (1 << 20), "nearly everything once: {bytes}");
        assert!(announced.len() < 100, "in large ranges: {}", announced.len());
        assert!(image.stats().hinted.bytes == bytes);
    }
}

#[test]
fn reads_at_random_announce_nothing() {
    let content = content();
    let remote = Remote::new(built(&content, Some(Compression::lz4(0).unwrap())));
    let image = Image::open(Arc::clone(&remote)).unwrap();
    let inode = image.resolve("file".as_ref(), true).unwrap();
    for number in (1..50).rev() {
        let offset = number * content.len() / 50;
        image.read_at(&inode, FileOffset::new(to_u64(offset)), &mut [0; 4096]).unwrap();
    }
    assert!(remote.announced.lock().is_empty());
}

#[test]
fn a_request_for_distant_clusters_takes_one_call() {
    const CHUNK: usize = 64 << 10;
    // The second half shares every second chunk with the first one.
    let half = &long_content()[..16 * CHUNK];
    let mut content = half.to_vec();
    for (number, chunk) in (100_u8..).zip(half.chunks(CHUNK)) {
        content.extend_from_slice(chunk);
        content.extend(chunk.iter().map(|byte| byte ^ number));
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), &content).unwrap();
    let mut options = build::Options::new(source);
    options.data.chunks = Some(build::ChunkOptions::new(to_u64(CHUNK)));
    build::build(&options, &path).unwrap();
    let remote = Remote::new(std::fs::read(&path).unwrap());
    let image = Image::open(Arc::clone(&remote)).unwrap();
    let inode = image.resolve("file".as_ref(), true).unwrap();
    let offset = half.len() + 10_000;
    let mut buf = vec![0; 400_000];
    image.read_at(&inode, FileOffset::new(to_u64(offset)), &mut buf).unwrap();
    assert!(buf == content[offset..][..buf.len()]);
    let batches = remote.batches.lock().clone();
    assert!(batches.len() == 1 && batches[0] > 4, "{batches:?}");
    assert_eq!(image.stats().data_io(), image.stats().batches);
    assert_eq!(image.stats().batches.reads, 1);
}

#[test]
fn a_caller_that_fetches_is_told_everything_at_once() {
    let expected = content();
    for bytes in images() {
        let source = Arc::new(FetchedSource::new(to_u64(bytes.len())));
        let fetch = |missing: Vec<Range<u64>>| {
            for range in missing {
                source.insert(range.start, &bytes[range.start as usize..range.end as usize]);
            }
        };
        let image = loop {
            match source.attempt(|| Image::open(Arc::clone(&source))).unwrap() {
                Attempt::Done(image) => break image,
                Attempt::Missing(missing) => fetch(missing),
            }
        };
        let resolve = || image.resolve("file".as_ref(), true);
        let inode = loop {
            match source.attempt(resolve).unwrap() {
                Attempt::Done(inode) => break inode,
                Attempt::Missing(missing) => fetch(missing),
            }
        };
        // All of the map, but no data.
        let list = || image.data_ranges(&inode, FileOffset::new(0), inode.size());
        while let Attempt::Missing(missing) = source.attempt(list).unwrap() {
            fetch(missing);
        }
        let mut attempts = 0;
        let read = || {
            let mut buf = vec![0; 500_000];
            image.read_at(&inode, FileOffset::new(100_000), &mut buf).map(|_| buf)
        };
        let read = loop {
            attempts += 1;
            match source.attempt(read).unwrap() {
                Attempt::Done(bytes) => break bytes,
                Attempt::Missing(missing) => fetch(missing),
            }
        };
        assert!(read == expected[100_000..600_000]);
        assert!(attempts <= 2, "{attempts}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_give_the_same_bytes(
        ranges in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..300_000, any::<bool>()), 1..12),
        options in options(),
        whole in any::<bool>(),
    ) {
        let expected = content();
        for bytes in images() {
            let options = OpenOptions { engine: options.clone(), ..OpenOptions::default() };
            let image = Image::open_with(Box::new(Remote::new(bytes.clone())), Vec::new(), &options).unwrap();
            let inode = image.resolve("file".as_ref(), true).unwrap();
            let mut next = 0;
            for (start, len, sequel) in &ranges {
                let start = if *sequel && next < expected.len() { next } else { start.index(expected.len()) };
                let mut buf = vec![0xa5; *len];
                let read = if whole {
                    image.read_whole_at(&inode, FileOffset::new(to_u64(start)), &mut buf).unwrap()
                } else {
                    image.read_at(&inode, FileOffset::new(to_u64(start)), &mut buf).unwrap()
                };
                prop_assert!(read > 0 && (whole || read == (*len).min(expected.len() - start)));
                prop_assert!(buf[..read] == expected[start..start + read]);
                next = start + read;
            }
        }
    }
}
