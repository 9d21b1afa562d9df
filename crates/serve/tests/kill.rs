//! A fetcher in another process is killed again and again while readers read: no wrong byte, each
//! read ends in time, and what was stored is not fetched again.
//!
//! The other process is this program again, with [`fetcher_process`] as its only test. With
//! FEROFS_TEST_FULL it is killed 1,000 times instead of 50 times.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Random, Sealed, quick, web};
use ferofs_serve::cache::{Cache, Entry, UNIT};
use ferofs_serve::channel::{self, Client};
use ferofs_serve::open::{OpenRemote, RemoteImage};
use ferofs_serve::source::{RemoteSource, Supply};
use ferofs_test_server::Server;

/// Names the image for the other process: address, folder of the cache, root hash, position of the
/// seal.
const IMAGE: &str = "FEROFS_TEST_FETCHER_IMAGE";
/// Kills while one image is fetched.
const KILLS: u64 = 50;
const LEN: u64 = 64 << 20;
/// Bytes a second: fetching takes about as long as the kills.
const BANDWIDTH: u64 = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);
/// What opening the object asks for in each process, to learn its size.
const OPENING: std::ops::Range<u64> = 0..12 << 10;

/// The other process: serves the channel at its standard input until the other end is closed, or it
/// is killed.
#[test]
#[ignore = "is started by the other test"]
fn fetcher_process() {
    let Ok(image) = std::env::var(IMAGE) else { return };
    let [url, folder, root, position] = image.split('\n').collect::<Vec<_>>()[..] else {
        panic!("{image}")
    };
    let mut options = OpenRemote::default();
    options.root = Some(root.parse().unwrap());
    options.hash_offset = Some(position.parse().unwrap());
    let cache = Cache::open(Path::new(folder), None).unwrap();
    let image = RemoteImage::open("test:image", web(url), cache, &options).unwrap();
    let fetcher = image.fetcher(quick()).unwrap();
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    channel::serve(socket, &fetcher).unwrap();
}

fn start(image: &str, socket: &OwnedFd) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fetcher_process", "--ignored", "--nocapture"])
        .env(IMAGE, image)
        .stdin(Stdio::from(socket.try_clone().unwrap()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn stored(entry: &Entry) -> Vec<bool> {
    (0..entry.size().div_ceil(UNIT))
        .map(|unit| entry.has(unit * UNIT..((unit + 1) * UNIT).min(entry.size())).unwrap())
        .collect()
}

/// Fetches one image with a fetcher that is killed [`KILLS`] times. Returns the bytes that were
/// asked for, and the bytes of the image.
fn kill_while_reading(seed: u64) -> (u64, u64) {
    let (sealed, server) = (Sealed::new(LEN, seed), Server::start().unwrap());
    server.put("/image", sealed.bytes.to_vec());
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("cache");
    let known = sealed.open(web(&server.url("/image")), &folder).unwrap();
    let entry =
        known.known().open_entry(&Cache::open(&folder, None).unwrap(), "test:image").unwrap();
    drop(known);
    server.reset();
    server.shape(Duration::from_millis(3), BANDWIDTH);
    let image = format!(
        "{}\n{}\n{}\n{}",
        server.url("/image"),
        folder.display(),
        sealed.root,
        sealed.position
    );
    let (own, other) = channel::pair().unwrap();
    let client = Arc::new(Client::new(own));
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let source =
        || RemoteSource::new(Arc::clone(&entry), Arc::clone(&client) as Arc<dyn Supply>, PATIENCE);
    let mut random = Random(seed);
    // What was stored at each kill, and the number of requests that the server had got.
    let mut kills: Vec<(usize, Vec<bool>)> = Vec::new();
    let mut child = start(&image, &other);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (source, sealed, ended, reads) = (source(), &sealed, &ended, &reads);
            scope.spawn(move || {
                let mut random = Random(seed + reader);
                while !ended.load(Ordering::SeqCst) {
                    sealed.read(&source, random.range(sealed.size(), 100_000), LIMIT).unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let (source, sealed, reads) = (source(), &sealed, &reads);
        let sequential = scope.spawn(move || {
            for start in (0..sealed.size()).step_by(128 << 10) {
                sealed
                    .read(&source, start..(start + (128 << 10)).min(sealed.size()), LIMIT)
                    .unwrap();
                reads.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_millis(random.next() % 200));
            child.kill().unwrap();
            child.wait().unwrap();
            kills.push((server.ranges("/image").len(), stored(&entry)));
            child = start(&image, &other);
        }
        server.shape(Duration::ZERO, 0);
        let sequential = sequential.join();
        ended.store(true, Ordering::SeqCst);
        sequential.unwrap();
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reads.load(Ordering::SeqCst) > 300, "{reads:?}");
    // All of it is in the cache, without a server and without a fetcher.
    let requests = server.ranges("/image");
    drop(server);
    assert_eq!(sealed.assert_stored_is_right(&entry), sealed.size().div_ceil(UNIT));
    for (before, stored) in &kills {
        for request in requests[*before..].iter().filter(|request| **request != OPENING) {
            let again = (request.start / UNIT..request.end.div_ceil(UNIT))
                .find(|unit| stored[*unit as usize]);
            assert_eq!(again, None, "{request:?} was stored before");
        }
    }
    let counts: Vec<usize> =
        kills.iter().map(|(_, stored)| stored.iter().filter(|stored| **stored).count()).collect();
    // The units that were stored when it was killed.
    let growing = counts.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(growing > 15, "the kills did not fall into the time of fetching: {counts:?}");
    let asked = requests.iter().filter(|request| **request != OPENING);
    println!("units stored at each kill: {counts:?}");
    (asked.map(|request| request.end - request.start).sum(), sealed.size())
}

#[test]
fn killed_fetchers_lose_only_what_was_in_flight() {
    let rounds = if std::env::var_os("FEROFS_TEST_FULL").is_some() { 1000 / KILLS } else { 1 };
    for round in 0..rounds {
        let (asked, size) = kill_while_reading(round + 1);
        println!(
            "{KILLS} kills: {:.2} times the image's bytes were asked for",
            asked as f64 / size as f64
        );
    }
}
