//! Sources with a high latency: what is read together.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::{Access, Attempt, FetchedSource, ReadRange, Source};

/// An image that records its calls.
struct Remote {
    bytes: Vec<u8>,
    /// The ranges of each call of `read_ranges`.
    batches: Mutex<Vec<usize>>,
}

impl Remote {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, batches: Mutex::default() })
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

    fn prefers_batches(&self) -> bool {
        true
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
