//! A second version of an image, when the first one is on this machine: only what differs is
//! fetched, and no byte is wrong, whatever becomes of the first one.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Random, Sealed, quick, source, web};
use ferofs_serve::cache::Cache;
use ferofs_serve::fetch::Fetcher;
use ferofs_test_server::Server;
use ferofs_verity::Params;

const BLOCK: usize = 4096;
const LEN: u64 = 24 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// Two versions on a server, and a cache.
struct Setup {
    old: Sealed,
    new: Sealed,
    server: Server,
    folder: tempfile::TempDir,
}

/// A version of `image` with parts that moved, and about one block in `one_in` changed, most of
/// them next to each other.
fn next_version(image: &[u8], one_in: u64, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let block = |random: &mut Random| -> Vec<u8> {
        (0..BLOCK / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    };
    let mut blocks: Vec<Vec<u8>> = image.chunks(BLOCK).map(<[u8]>::to_vec).collect();
    let len = blocks.len();
    // Something is new near the start, and all that follows moves; something is gone; a part is in
    // another place.
    blocks.splice(len / 7..len / 7, (0..7).map(|_| block(&mut random)).collect::<Vec<_>>());
    blocks.drain(len / 2..len / 2 + 20);
    blocks.rotate_left(len / 3);
    let mut changed = 0;
    while changed < blocks.len() as u64 / one_in {
        let run = random.range(blocks.len() as u64, 20);
        changed += run.end - run.start;
        for number in run {
            blocks[number as usize] = block(&mut random);
        }
    }
    blocks.concat()
}

impl Setup {
    fn new(params: Params) -> Self {
        Self::with_changes(params, 16)
    }

    fn with_changes(params: Params, one_in: u64) -> Self {
        let first = Sealed::new(LEN, 1);
        let image = first.bytes[..LEN as usize].to_vec();
        let new = Sealed::of(next_version(&image, one_in, 2), Params::default());
        let old = Sealed::of(image, params);
        let server = Server::start().unwrap();
        server.put("/old", old.bytes.to_vec());
        server.put("/new", new.bytes.to_vec());
        Self { old, new, server, folder: tempfile::tempdir().unwrap() }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The folder of the old version in the cache.
    fn old_entry(&self) -> PathBuf {
        let start = format!("verity-{}", self.old.root);
        let mut folders =
            std::fs::read_dir(self.cache()).unwrap().map(|entry| entry.unwrap().path());
        folders
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&start))
            .unwrap()
    }

    /// Fetches all of the old version.
    fn fetch_old(&self) {
        let image = self.old.open(web(&self.server.url("/old")), &self.cache()).unwrap();
        let fetcher = Arc::new(image.fetcher(quick()).unwrap());
        self.old.read(&source(&fetcher, LIMIT), 0..self.old.size(), LIMIT).unwrap();
    }

    /// Opens the new version, and waits for the index.
    fn open_new(&self, files: &[PathBuf]) -> Arc<Fetcher> {
        self.server.reset();
        let image =
            self.new.open_with(web(&self.server.url("/new")), &self.cache(), files).unwrap();
        let fetcher = Arc::new(image.fetcher(quick()).unwrap());
        let started = Instant::now();
        while !fetcher.has_index() {
            assert!(started.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
        fetcher
    }

    /// Reads all of the new version from start to end; each byte is compared. Returns the bytes
    /// that the server sent.
    fn read_new(&self, fetcher: &Arc<Fetcher>) -> u64 {
        let source = source(fetcher, LIMIT);
        for start in (0..self.new.size()).step_by(300_000) {
            self.new.read(&source, start..self.new.size().min(start + 300_000), LIMIT).unwrap();
        }
        self.new.assert_stored_is_right(fetcher.entry());
        self.server.counts().bytes
    }

    /// Bytes of the blocks of the new version that the old one does not have, and bytes of the new
    /// hash tree.
    fn changed(&self) -> (u64, u64) {
        let old: HashSet<&[u8]> = self.old.bytes.chunks(BLOCK).collect();
        let data = &self.new.bytes[..self.new.position as usize];
        let changed = data.chunks(BLOCK).filter(|block| !old.contains(block)).count() * BLOCK;
        (changed as u64, self.new.size() - self.new.position)
    }

    fn assert_only_changes(&self, fetched: u64, share: u64) {
        let (changed, tree) = self.changed();
        assert!(
            fetched <= changed + changed / share + tree,
            "{fetched} bytes were fetched; {changed} have changed, and {tree} are the hash tree"
        );
    }
}

#[test]
fn only_changed_blocks_are_fetched() {
    for one_in in [16, 200] {
        let setup = Setup::with_changes(Params::default(), one_in);
        setup.fetch_old();
        let fetcher = setup.open_new(&[]);
        let fetched = setup.read_new(&fetcher);
        setup.assert_only_changes(fetched, 10);
        let stats = fetcher.stats();
        assert!(
            stats.reused > LEN * 4 / 5 && stats.reused + fetched >= setup.new.size(),
            "{stats:?}"
        );
        assert_eq!((stats.failures, stats.digest_errors), (0, 0));
    }
}

#[test]
fn blocks_are_found_without_a_tree_with_the_same_salt() {
    let mut params = Params::default();
    params.salt = b"another".to_vec();
    let setup = Setup::new(params);
    setup.fetch_old();
    let fetcher = setup.open_new(&[]);
    setup.assert_only_changes(setup.read_new(&fetcher), 10);
}

#[test]
fn files_are_used_with_and_without_their_tree() {
    let setup = Setup::new(Params::default());
    let file = setup.folder.path().join("file");
    for len in [setup.old.size(), setup.old.position] {
        std::fs::write(&file, &setup.old.bytes[..len as usize]).unwrap();
        let fetcher = setup.open_new(std::slice::from_ref(&file));
        setup.assert_only_changes(setup.read_new(&fetcher), 10);
        drop(fetcher);
        std::fs::remove_dir_all(setup.cache()).unwrap();
    }
    let missing = setup.folder.path().join("missing");
    let opened = setup.new.open_with(web(&setup.server.url("/new")), &setup.cache(), &[missing]);
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("missing: open: "), "{error}");
}

#[test]
fn a_part_of_the_old_version_is_used() {
    let setup = Setup::new(Params::default());
    let image = setup.old.open(web(&setup.server.url("/old")), &setup.cache()).unwrap();
    let fetcher = Arc::new(image.fetcher(quick()).unwrap());
    let source = source(&fetcher, LIMIT);
    let mut random = Random(3);
    for _ in 0..20 {
        setup.old.read(&source, random.range(LEN, 1_000_000), LIMIT).unwrap();
    }
    fetcher.forget_prefetches();
    drop((source, fetcher));
    let fetcher = setup.open_new(&[]);
    let fetched = setup.read_new(&fetcher);
    let reused = fetcher.stats().reused;
    assert!(reused > 3 << 20, "{reused}");
    assert!(fetched + reused < setup.new.size() + setup.new.size() / 10, "{fetched} and {reused}");
}

#[test]
fn changed_bytes_on_the_disk_are_fetched_instead() {
    let setup = Setup::new(Params::default());
    setup.fetch_old();
    let data = std::fs::File::options()
        .read(true)
        .write(true)
        .open(setup.old_entry().join("data"))
        .unwrap();
    let flip = |position: u64| {
        let mut byte = [0];
        data.read_exact_at(&mut byte, position).unwrap();
        data.write_all_at(&[byte[0] ^ 16], position).unwrap();
    };
    let mut random = Random(4);
    // Before the index is made, and after: data, and digests.
    (0..30).for_each(|_| flip(random.next() % setup.old.size()));
    let fetcher = setup.open_new(&[]);
    (0..30).for_each(|_| flip(random.next() % setup.old.size()));
    let fetched = setup.read_new(&fetcher);
    // 60 changed blocks, and the blocks of which the digest was changed.
    setup.assert_only_changes(fetched.saturating_sub(70 * BLOCK as u64), 10);
    assert_eq!(fetcher.stats().digest_errors, 0);
}

#[test]
fn an_index_of_wrong_digests_costs_only_time() {
    let setup = Setup::new(Params::default());
    // The tree says that all blocks of the new version are there, in its order.
    let (old, new) = (&setup.old, &setup.new);
    let len = old.position.min(new.position) as usize;
    let mut bytes = old.bytes[..len].to_vec();
    bytes.resize(new.position as usize, 7);
    bytes.extend_from_slice(&new.bytes[new.position as usize..]);
    // The superblock of EROFS tells where the tree is.
    bytes[1024..1024 + 128].fill(0);
    bytes[1024..1028].copy_from_slice(&0xe0f5_e1e2_u32.to_le_bytes());
    bytes[1024 + 12] = 12;
    bytes[1024 + 36..1024 + 40].copy_from_slice(&((new.position / 4096) as u32).to_le_bytes());
    let file = setup.folder.path().join("file");
    std::fs::write(&file, &bytes).unwrap();
    let fetcher = setup.open_new(std::slice::from_ref(&file));
    let fetched = setup.read_new(&fetcher);
    // The hash tree is the right one.
    let tree = new.size() - new.position;
    assert!(fetched >= new.position - 70_000 && fetched < new.position + tree, "{fetched}");
    assert!(fetcher.stats().reused > tree / 2, "{:?}", fetcher.stats());
}

#[test]
fn evicted_versions_are_not_used() {
    let setup = Setup::new(Params::default());
    setup.fetch_old();
    let cache = Cache::open(&setup.cache(), None).unwrap();
    let key = setup.old_entry().file_name().unwrap().to_str().unwrap().to_owned();
    let fetcher = setup.open_new(&[]);
    let half = setup.new.size() / 2;
    let source = source(&fetcher, LIMIT);
    setup.new.read(&source, 0..half, LIMIT).unwrap();
    let before = fetcher.stats().reused;
    assert!(before > half / 2, "{before}");
    assert!(cache.remove(&key).unwrap(), "a version whose blocks are used can be evicted");
    fetcher.forget_prefetches();
    setup.new.read(&source, half..setup.new.size(), LIMIT).unwrap();
    setup.new.assert_stored_is_right(fetcher.entry());
}

#[test]
fn evictions_at_any_time_never_give_wrong_bytes() {
    let setup = Setup::new(Params::default());
    for round in 0..5 {
        setup.fetch_old();
        let cache = Cache::open(&setup.cache(), None).unwrap();
        let old = setup.old_entry();
        let key = old.file_name().unwrap().to_str().unwrap();
        let fetcher = setup.open_new(&[]);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(round * 7));
                while !ended.load(Ordering::SeqCst) {
                    cache.remove(key).unwrap();
                }
            });
            setup.read_new(&fetcher);
            ended.store(true, Ordering::SeqCst);
        });
        drop(fetcher);
        cache.collect_to(0).unwrap();
    }
}

#[test]
fn the_same_places_of_an_appended_image_give_its_hashes() {
    let mut setup = Setup::new(Params::default());
    // As after a patch: all stays in its place, and new blocks follow.
    let mut image = setup.old.bytes[..LEN as usize].to_vec();
    image[5000] ^= 1;
    let mut random = Random(9);
    image.extend((0..BLOCK / 8 * 20).flat_map(|_| random.next().to_le_bytes()));
    setup.new = Sealed::of(image, Params::default());
    setup.server.put("/new", setup.new.bytes.to_vec());
    setup.fetch_old();
    let fetcher = setup.open_new(&[]);
    let fetched = setup.read_new(&fetcher);
    let (changed, tree) = setup.changed();
    assert_eq!(changed, 21 * 4096);
    // What is fetched to open an image is in it.
    assert!(fetched < changed + changed / 10 + tree / 2, "{fetched}: {changed} of {tree}");
}
