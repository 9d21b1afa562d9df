//! The way of bytes from an object over the fetcher and the cache to a reader, with an object in
//! memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferofs_read::Source;

use crate::cache::{Cache, Claims, Entry, EntryInfo, UNIT};
use crate::channel::{self, Client};
use crate::error::{FetchError, FetchErrorKind};
use crate::fetch::{Check, Checked, FetchOptions, Fetcher};
use crate::object::{Answer, RemoteObject, Validator};
use crate::source::RemoteSource;

/// An object whose bytes follow from their position.
struct TestObject {
    size: u64,
    latency: Duration,
    requests: AtomicU64,
    bytes: AtomicU64,
    /// The bytes, if they do not follow from their position.
    content: Option<Vec<u8>>,
}

fn byte_at(pos: u64) -> u8 {
    (pos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8 ^ (pos >> 12) as u8
}

fn bytes_of(range: Range<u64>) -> Vec<u8> {
    range.map(byte_at).collect()
}

impl TestObject {
    fn new(size: u64) -> Self {
        Self {
            size,
            latency: Duration::ZERO,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            content: None,
        }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

impl RemoteObject for TestObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn validator(&self) -> &Validator {
        &Validator::None
    }

    fn location(&self) -> &str {
        "test:object"
    }

    fn ask(&self, range: Range<u64>, _: Instant) -> Result<Box<dyn Answer + '_>, FetchErrorKind> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.latency);
        let byte = |pos| self.content.as_ref().map_or(byte_at(pos), |bytes| bytes[pos as usize]);
        Ok(Box::new(TestAnswer { object: self, bytes: range.map(byte).collect() }))
    }
}

struct TestAnswer<'a> {
    object: &'a TestObject,
    bytes: VecDeque<u8>,
}

impl Answer for TestAnswer<'_> {
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), FetchError> {
        std::io::Read::read_exact(&mut self.bytes, buf).unwrap();
        self.object.bytes.fetch_add(buf.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

/// Knows the right bytes.
struct TestCheck;

impl Check for TestCheck {
    fn align(&self) -> u64 {
        4 * UNIT
    }

    fn needs(&self, _: &Range<u64>) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn check(&self, start: u64, bytes: &[u8]) -> Checked {
        assert!(start.is_multiple_of(self.align()));
        let is_right = bytes.iter().zip(start..).all(|(byte, pos)| *byte == byte_at(pos));
        if is_right { Checked::Right } else { Checked::Wrong }
    }
}

const SIZE: u64 = (40 << 20) + 1234;

/// A cache of at most `limit` bytes, and the temporary directory with it.
fn new_cache(limit: Option<u64>) -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&folder.path().join("cache"), limit).unwrap();
    (folder, cache)
}

/// What the cache knows of an object without a location and a root hash.
fn info(size: u64) -> EntryInfo {
    EntryInfo { size, location: String::new(), roothash: None }
}

fn entry(cache: &Cache, size: u64) -> Arc<Entry> {
    Arc::new(cache.entry("object", &info(size)).unwrap())
}

fn fetcher(object: &Arc<TestObject>, cache: &Cache, with_check: bool) -> Fetcher {
    let check = with_check.then(|| Box::new(TestCheck) as Box<dyn Check>);
    let entry = entry(cache, object.size);
    let options = FetchOptions::default();
    Fetcher::start(Arc::clone(object) as _, cache.clone(), entry, check, None, options).unwrap()
}

fn source(fetcher: Fetcher, patience: Duration) -> RemoteSource {
    let entry = Arc::clone(fetcher.entry());
    RemoteSource::new(entry, Arc::new(fetcher), patience)
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Pseudo-random ranges.
fn ranges(seed: u64, count: usize, longest: u64) -> Vec<Range<u64>> {
    let mut state = seed;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    let range =
        |(start, len): (u64, u64)| start % SIZE..(start % SIZE + len % longest + 1).min(SIZE);
    (0..count).map(|_| range((next(), next()))).collect()
}

fn assert_reads(source: &RemoteSource, range: Range<u64>) {
    let mut buf = vec![0; (range.end - range.start) as usize];
    source.read_exact_at(range.start, &mut buf).unwrap();
    assert!(buf == bytes_of(range.clone()), "{range:?}");
}

#[test]
fn readers_get_the_bytes_and_each_is_fetched_once() {
    let (_folder, cache) = new_cache(None);
    let object =
        Arc::new(TestObject { latency: Duration::from_millis(2), ..TestObject::new(SIZE) });
    let source = source(fetcher(&object, &cache, false), PATIENCE);
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let source = &source;
            // Two threads each read the same ranges.
            scope.spawn(move || {
                ranges(seed / 2, 100, 300_000)
                    .into_iter()
                    .for_each(|range| assert_reads(source, range))
            });
        }
    });
    assert_reads(&source, 0..SIZE);
    assert_eq!(object.bytes.load(Ordering::SeqCst), SIZE, "each byte was fetched once");
    let before = object.requests();
    assert_reads(&source, SIZE / 2..SIZE);
    assert_eq!(object.requests(), before);
    assert!(source.read_exact_at(SIZE - 1, &mut [0; 2]).is_err());
}

#[test]
fn two_processes_share_what_they_fetch() {
    let (_folder, cache) = new_cache(None);
    let object =
        Arc::new(TestObject { latency: Duration::from_millis(5), ..TestObject::new(SIZE) });
    // Each has open files and locks of its own, as in two processes.
    let sources: Vec<_> =
        (0..3).map(|_| source(fetcher(&object, &cache, true), PATIENCE)).collect();
    std::thread::scope(|scope| {
        for source in &sources {
            scope.spawn(move || {
                (0..SIZE)
                    .step_by(1 << 20)
                    .for_each(|at| assert_reads(source, at..SIZE.min(at + (1 << 20))))
            });
        }
    });
    assert_eq!(object.bytes.load(Ordering::SeqCst), SIZE, "each byte was fetched once");
}

/// A process that is stopped keeps its claims.
#[test]
fn readers_do_not_wait_for_ever_for_another_process() {
    let (_folder, cache) = new_cache(None);
    let fetcher = fetcher(&Arc::new(TestObject::new(SIZE)), &cache, true);
    let claims = Claims::open(fetcher.entry().path()).unwrap();
    let _all = claims.take(&(0..SIZE.div_ceil(UNIT))).unwrap().unwrap();
    assert_reads(&source(fetcher, Duration::from_secs(2)), 7_000_000..7_100_000);
}

#[test]
fn any_range_can_be_repaired() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Arc::new(TestObject::new(10 * UNIT + 7)));
    let cache = Cache::open(dir.path(), None).unwrap();
    let fetcher = fetcher(&object, &cache, true);
    fetcher.ensure(0..object.size, Instant::now() + Duration::from_secs(10)).unwrap();
    // A process that a hostile image has taken over can send any numbers.
    for range in [0..u64::MAX, u64::MAX - 1..u64::MAX, Range { start: u64::MAX, end: 0 }] {
        fetcher.remove_wrong(range).unwrap();
    }
    assert!(fetcher.entry().has(0..object.size).unwrap());
}

#[test]
fn evicted_parts_are_fetched_again_and_no_reader_sees_holes() {
    let (_folder, cache) = new_cache(None);
    let object = Arc::new(TestObject::new(SIZE));
    let source = source(fetcher(&object, &cache, true), PATIENCE);
    let evictor = entry(&cache, SIZE);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                cache.shrink_entry(&evictor, 8 << 20).unwrap();
            }
        });
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let source = &source;
                scope.spawn(move || {
                    ranges(seed, 300, 200_000)
                        .into_iter()
                        .for_each(|range| assert_reads(source, range));
                })
            })
            .collect();
        let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        ended.store(true, Ordering::SeqCst);
        assert!(results.into_iter().all(|result| result.is_ok()));
    });
    assert!(object.bytes.load(Ordering::SeqCst) > SIZE / 2);
}

#[test]
fn another_fetcher_continues_in_the_background() {
    let (_folder, cache) = new_cache(None);
    let object =
        Arc::new(TestObject { latency: Duration::from_millis(20), ..TestObject::new(SIZE) });
    let (own, other) = channel::pair().unwrap();
    let client = Client::new(own);
    // The first fetcher ends after the first message, of several.
    client
        .background(&(0..300).map(|number| number * 8192..number * 8192 + 4096).collect::<Vec<_>>())
        .unwrap();
    channel::serve_some(other.try_clone().unwrap(), &fetcher(&object, &cache, false), 1).unwrap();
    let fetcher = fetcher(&object, &cache, false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| channel::serve(other, &fetcher));
        let started = Instant::now();
        let is_stored =
            |number: u64| fetcher.entry().has(number * 8192..number * 8192 + 4096).unwrap();
        while !(0..300).all(is_stored) || client.stats().unwrap().background_left > 0 {
            assert!(started.elapsed() < PATIENCE, "{:?}", fetcher.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(client);
        serving.join().unwrap().unwrap();
    });
}

#[test]
fn without_a_fetcher_reads_fail_and_stored_bytes_stay() {
    let (_folder, cache) = new_cache(None);
    let object = Arc::new(TestObject::new(SIZE));
    assert_reads(&source(fetcher(&object, &cache, false), PATIENCE), 0..1 << 20);
    let (own, other) = channel::pair().unwrap();
    let source = RemoteSource::new(
        entry(&cache, SIZE),
        Arc::new(Client::new(own)),
        Duration::from_millis(300),
    );
    assert_reads(&source, 0..1 << 20);
    let error = source.read_exact_at(30 << 20, &mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    drop(other);
    let error = source.read_exact_at(30 << 20, &mut [0; 10]).unwrap_err();
    assert!(
        error.to_string().contains("the fetcher has ended")
            || error.to_string().contains("not answer"),
        "{error}"
    );
}

#[test]
fn the_cache_removes_the_least_recently_used_and_nothing_in_use() {
    let (_folder, cache) = new_cache(Some(3 << 20));
    let fill = |key: &str| {
        let entry = cache
            .entry(key, &EntryInfo { size: 2 << 20, location: key.into(), roothash: None })
            .unwrap();
        entry.store(0, &vec![1; 2 << 20]).unwrap();
        entry.sync().unwrap();
        entry
    };
    let first = fill("a");
    drop(fill("b"));
    std::thread::sleep(Duration::from_millis(20));
    drop(fill("c"));
    let keys = || cache.usage().unwrap().into_iter().map(|usage| usage.key).collect::<Vec<_>>();
    assert_eq!(keys().len(), 3);
    let collected = cache.collect(0).unwrap();
    assert_eq!((collected.entries, keys()), (2, vec!["a".to_owned()]));
    assert!(!cache.remove("a").unwrap());
    drop(first);
    assert!(cache.remove("a").unwrap());
    assert!(cache.entry("../a", &info(1)).is_err());
}

#[test]
fn the_limit_of_the_cache_is_kept_from_the_start() {
    let (_folder, large) = new_cache(None);
    large.entry("old", &info(30 << 20)).unwrap().store(0, &vec![1; 30 << 20]).unwrap();
    let small = Cache::open(large.folder(), Some(8 << 20)).unwrap();
    let stored = || small.usage().unwrap().iter().map(|usage| usage.stored).sum::<u64>();
    let object = Arc::new(TestObject::new(SIZE));
    let source = source(fetcher(&object, &small, true), PATIENCE);
    assert!(stored() < 8 << 20, "{}", stored());
    for start in (0..40u64 << 20).step_by(1 << 20) {
        assert_reads(&source, start..start + (1 << 20));
        // Read-ahead is under way at the same time.
        assert!(stored() < 32 << 20, "{}", stored());
    }
}

#[test]
fn images_in_use_share_the_limit_of_the_cache() {
    const IMAGES: u64 = 5;
    let (_folder, cache) = new_cache(Some(6 << 20));
    let stored = || cache.usage().unwrap().iter().map(|usage| usage.stored).sum::<u64>();
    let sources: Vec<_> = (0..IMAGES)
        .map(|number| {
            let entry = Arc::new(cache.entry(&format!("object{number}"), &info(SIZE)).unwrap());
            let object = Arc::new(TestObject::new(SIZE));
            let options = FetchOptions::default();
            let fetcher = Fetcher::start(object, cache.clone(), entry, None, None, options);
            source(fetcher.unwrap(), PATIENCE)
        })
        .collect();
    // Nothing is read ahead: the ranges are far apart.
    let mut most = 0;
    for start in ranges(7, 100, 1) {
        for source in &sources {
            assert_reads(source, start.clone());
        }
        most = most.max(stored());
    }
    assert!(most < 14 << 20, "{most}");
}

#[test]
fn hash_trees_of_all_shapes_are_fetched_once_and_nobody_waits_for_itself() {
    use ferofs_verity::{Params, Seal};
    // Data blocks, and the sizes of blocks: 1 to 5 levels, some of them in one MiB with each other
    // and with data.
    for (blocks, data_size, hash_size) in [
        (1, 4096, 4096),
        (700, 4096, 4096),
        (20_000, 512, 512),
        (3000, 4096, 512),
        (900, 16384, 4096),
        (600, 4096, 16384),
    ] {
        let mut params = Params::default();
        (params.data_block_size, params.hash_block_size) = (data_size, hash_size);
        let len = blocks * u64::from(data_size);
        let mut content = bytes_of(0..len);
        let position = len.next_multiple_of(16384);
        let file = tempfile::tempfile().unwrap();
        let (seal, root) =
            Seal::write(&content.as_slice(), len, params, None, 2, &file, position).unwrap();
        content.resize((position + seal.byte_len().unwrap()) as usize, 0);
        std::os::unix::fs::FileExt::read_exact_at(
            &file,
            &mut content[position as usize..],
            position,
        )
        .unwrap();
        let size = content.len() as u64;
        let object = TestObject {
            latency: Duration::from_millis(1),
            content: Some(content.clone()),
            ..TestObject::new(size)
        };
        let object = Arc::new(object);
        let (_folder, cache) = new_cache(None);
        let sources: Vec<_> = (0..2)
            .map(|_| {
                let entry = entry(&cache, size);
                let check: Box<dyn Check> =
                    Box::new(crate::fetch::TreeCheck::new(&entry, &seal, root).unwrap());
                let (object, options) = (Arc::clone(&object) as _, FetchOptions::default());
                let fetcher =
                    Fetcher::start(object, cache.clone(), entry, Some(check), None, options);
                source(fetcher.unwrap(), PATIENCE)
            })
            .collect();
        std::thread::scope(|scope| {
            for (seed, source) in (0..).zip(sources.iter().chain(&sources)) {
                let (content, size) = (&content, size);
                scope.spawn(move || {
                    for range in ranges(seed, 60, 40_000) {
                        let range = range.start % size
                            ..(range.start % size + range.end - range.start).min(size);
                        let mut buf = vec![0; (range.end - range.start) as usize];
                        source.read_exact_at(range.start, &mut buf).unwrap();
                        assert!(
                            buf == content[range.start as usize..range.end as usize],
                            "{range:?}"
                        );
                    }
                });
            }
        });
        let mut all = vec![0; size as usize];
        sources[0].read_exact_at(0, &mut all).unwrap();
        assert!(all == content);
        let fetched = object.bytes.load(Ordering::SeqCst);
        assert!(
            fetched < size + size / 4 + (1 << 20),
            "{blocks} {data_size} {hash_size}: {fetched} of {size}"
        );
    }
}
