//! What readers get when servers fail: requests over real sockets, through the fetcher and the
//! cache, each byte compared.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use common::{LIMIT, Random, Sealed, Setup, quick, source, web};
use ferofs_test_server::{Auth, Fault, Handle, Object, Rule, Server};

const LEN: u64 = 24 << 20;
/// How long readers wait: much longer than the retries take, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn setup() -> Setup {
    Setup::new(LEN, quick())
}

/// The server works again: so do the same readers, and the cache is right.
fn assert_recovers(setup: &Setup) {
    setup.server.clear();
    let Setup { sealed, fetcher, .. } = setup;
    sealed.read(&source(fetcher, PATIENCE), 0..sealed.size(), LIMIT).unwrap();
    assert_eq!(sealed.assert_stored_is_right(fetcher.entry()), sealed.size().div_ceil(4096));
    setup.wait_until_idle();
}

#[test]
fn faults_that_pass_cost_time_only() {
    let setup = setup();
    let status = |status| Rule::new(Fault::Status(status)).times(2);
    let some = |fault| Rule::new(fault).times(2);
    let second = Duration::from_secs(1);
    let faults = [
        status(429).header("Retry-After", "1").times(1),
        status(500),
        status(503).header("Retry-After", "0"),
        status(502),
        some(Fault::Short(10_000)),
        some(Fault::Short(0)),
        some(Fault::WrongRange(4096)),
        some(Fault::StallBeforeHeaders(60 * second)),
        some(Fault::StallInBody(5000, 60 * second)),
        some(Fault::Reset),
        some(Fault::ResetInBody(20_000)),
        some(Fault::SlowBytes(2000)),
        some(Fault::Garbage),
    ];
    for (number, rule) in faults.into_iter().enumerate() {
        let shown = format!("{rule:?}");
        let before = (setup.server.counts().faults, setup.fetcher.stats().retries);
        setup.server.add(rule);
        setup
            .read(number as u64 * 1_000_000, PATIENCE)
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert!(setup.server.counts().faults > before.0, "{shown}");
        assert!(setup.fetcher.stats().retries > before.1, "{shown}");
        setup.server.clear();
    }
    assert_recovers(&setup);
}

#[test]
fn flipped_bits_of_data_and_of_hashes_are_never_stored() {
    let setup = setup();
    // The lowest level of the tree, which is not fetched when the image is opened, and data.
    let tree = setup.sealed.size() - 30_000;
    for (number, flipped) in [(3_000_000, 3_000_000), (20_000_000, tree)].into_iter().enumerate() {
        let (start, byte) = flipped;
        setup.server.add(Rule::new(Fault::FlippedBit(byte)).covering(byte));
        let errors = setup.fetcher.stats().digest_errors;
        let error = setup.read(start, PATIENCE).unwrap_err();
        assert!(error.to_string().contains("digest"), "{number}: {error}");
        assert!(setup.fetcher.stats().digest_errors > errors);
        assert!(!setup.fetcher.entry().has(byte..byte + 1).unwrap());
        setup.sealed.assert_stored_is_right(setup.fetcher.entry());
        setup.server.clear();
        let before = (setup.server.counts().faults, setup.fetcher.stats().digest_errors);
        setup.server.add(Rule::new(Fault::FlippedBit(byte)).covering(byte).times(1));
        setup.read(start, PATIENCE).unwrap();
        let after = (setup.server.counts().faults, setup.fetcher.stats().digest_errors);
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (1, 1),
            "one wrong answer, which was noticed"
        );
        setup.server.clear();
    }
    assert_recovers(&setup);
}

#[test]
fn faults_that_stay_are_errors_in_time() {
    let setup = setup();
    let here = setup.server.url("/image");
    let (second, other) = (Duration::from_secs(1), Server::start().unwrap());
    let faults = [
        (Fault::Status(401), "401"),
        (Fault::Status(403), "403"),
        (Fault::Status(404), "404"),
        (Fault::Status(410), "410"),
        (Fault::Status(412), "changed"),
        (Fault::Status(418), "418"),
        (Fault::Status(500), "500"),
        (Fault::Status(429), "429"),
        (Fault::Status(503), "503"),
        (Fault::Complete, "200 instead of 206"),
        (Fault::WrongSize(1), "changed"),
        (Fault::OtherTag("\"other\"".into()), "changed"),
        (Fault::WrongRange(1), "another range"),
        (Fault::Short(0), "early"),
        (Fault::Reset, "connection"),
        (Fault::StallBeforeHeaders(60 * second), "in time"),
        (Fault::StallInBody(10, 60 * second), "in time"),
        (Fault::Redirect(302, here), "redirects"),
        (Fault::Redirect(307, other.url("/image")), "404"),
        (Fault::Redirect(302, "http://[".into()), "wrong address"),
        (Fault::Redirect(302, "file:///etc/passwd".into()), ""),
    ];
    for (number, (fault, expected)) in faults.into_iter().enumerate() {
        let start = number as u64 * 1_000_000;
        setup.server.add(Rule::new(fault.clone()));
        let range = start..start + 70_000;
        let patient = source(&setup.fetcher, Duration::from_secs(2));
        let error = setup.sealed.read(&patient, range.clone(), LIMIT).unwrap_err();
        assert!(error.to_string().contains(expected), "{fault:?}: {error}");
        assert!(
            error.to_string().contains(&setup.server.url("/image"))
                || error.to_string().contains("test:")
        );
        assert!(!setup.fetcher.entry().has(range).unwrap(), "{fault:?}");
        setup.server.clear();
        setup.read(start, PATIENCE).unwrap_or_else(|error| panic!("after {fault:?}: {error}"));
    }
    assert_recovers(&setup);
}

#[test]
fn a_changed_object_is_an_error_until_it_is_the_old_one_again() {
    let setup = setup();
    setup.server.put("/image", Sealed::new(LEN, 2).bytes.to_vec());
    let error = setup.read(5_000_000, PATIENCE).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    // With the old ETag only the hash tree tells.
    let old = Object::new(setup.sealed.bytes.to_vec());
    let lies = Object::new(Sealed::new(LEN, 2).bytes.to_vec()).with_etag(old.etag.as_deref());
    setup.server.put("/image", lies);
    let error = setup.read(6_000_000, PATIENCE).unwrap_err();
    assert!(error.to_string().contains("digest"), "{error}");
    setup.sealed.assert_stored_is_right(setup.fetcher.entry());
    setup.server.put("/image", old);
    assert_recovers(&setup);
}

#[test]
fn redirects_to_addresses_that_expire_are_followed_anew_by_all_readers() {
    let (sealed, server, storage) =
        (Sealed::new(LEN, 1), Server::start().unwrap(), Server::start().unwrap());
    storage.put("/blob", sealed.bytes.to_vec());
    storage.set_auth("/blob", Some(Auth::Expires));
    let lifetime = Duration::from_millis(300);
    server.add(Rule::new(Fault::ExpiringRedirect(307, storage.url("/blob"), lifetime)));
    let folder = tempfile::tempdir().unwrap();
    let image = sealed.open(web(&server.url("/image")), &folder.path().join("cache")).unwrap();
    let fetcher = Arc::new(image.fetcher(quick()).unwrap());
    let (source, sealed) = (source(&fetcher, PATIENCE), &sealed);
    storage.shape(Duration::from_millis(5), 0);
    for step in 0..4_u64 {
        // The address that is known has expired now, and many requests find out at the same time.
        std::thread::sleep(lifetime + Duration::from_millis(30));
        let barrier = Barrier::new(12);
        std::thread::scope(|scope| {
            for reader in 0..12 {
                let (source, barrier) = (&source, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let start = (step * 12 + reader) * 500_000;
                    sealed.read(source, start..start + 5000, LIMIT).unwrap();
                });
            }
        });
    }
    assert_eq!(fetcher.stats().failures, 0);
    assert!(
        server.counts().requests > 4 && server.counts().requests < 100,
        "{:?}",
        server.counts()
    );
}

#[test]
fn names_that_cannot_be_resolved_and_servers_that_are_not_there() {
    let (sealed, server) = (Sealed::new(LEN, 1), Server::start().unwrap());
    server.put("/image", sealed.bytes.to_vec());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    // Opened once, so that it is known. The next ones connect when they need a byte.
    let image = sealed.open(web(&server.url("/image")), &folder).unwrap();
    let fetcher = Arc::new(image.fetcher(quick()).unwrap());
    sealed.read(&source(&fetcher, PATIENCE), 0..10_000, LIMIT).unwrap();
    drop(fetcher);
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let address = Arc::new(Mutex::new(String::new()));
    let cases = [
        ("http://no-such-host.invalid/image".to_owned(), "resolved", 10_000_000),
        (format!("http://{closed}/image"), "refused", 15_000_000),
    ];
    for (url, expected, start) in cases {
        *address.lock().unwrap() = url;
        let current = Arc::clone(&address);
        let connect = Box::new(move || web(&current.lock().unwrap())());
        let image = sealed.open(connect, &folder).unwrap();
        let fetcher = Arc::new(image.fetcher(quick()).unwrap());
        let reader = source(&fetcher, Duration::from_secs(2));
        // What is stored needs no server.
        sealed.read(&reader, 0..10_000, LIMIT).unwrap();
        let error = sealed.read(&reader, start..start + 10, LIMIT).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        // The network is back.
        *address.lock().unwrap() = server.url("/image");
        sealed.read(&reader, start..start + 10, LIMIT).unwrap();
    }
}

/// Binds the address again: the connections of the server before may still be in TIME_WAIT.
fn bind_again(address: SocketAddr, sealed: &Sealed) -> Server {
    let started = Instant::now();
    loop {
        let prepare = |handle: &Handle| {
            handle.put("/image", sealed.bytes.to_vec());
            handle.shape(Duration::from_millis(10), 0);
        };
        match Server::bind_prepared(&address.to_string(), prepare) {
            Ok(server) => return server,
            Err(error) => assert!(started.elapsed() < LIMIT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn readers_do_not_notice_that_the_server_restarts() {
    let Setup { sealed, server, folder: _folder, fetcher } = setup();
    let (sealed, address, ended) = (&sealed, server.address(), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    // The last one answers until all readers have ended.
    let mut server = Some(server);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (source, ended, reads) = (source(&fetcher, PATIENCE), &ended, &reads);
            scope.spawn(move || {
                let mut random = Random(reader);
                while !ended.load(Ordering::SeqCst) {
                    sealed.read(&source, random.range(sealed.size(), 60_000), LIMIT).unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..6 {
                std::thread::sleep(Duration::from_millis(100));
                drop(server.take());
                std::thread::sleep(Duration::from_millis(150));
                server = Some(bind_again(address, sealed));
            }
            std::thread::sleep(Duration::from_millis(300));
            ended.store(true, Ordering::SeqCst);
        });
    });
    assert!(reads.load(Ordering::SeqCst) > 100, "{reads:?}");
    sealed.assert_stored_is_right(fetcher.entry());
}

#[test]
fn a_fetcher_continues_what_another_one_left_unfinished() {
    let setup = setup();
    let cache = setup.folder.path().join("cache");
    let image = setup.sealed.open(web(&setup.server.url("/image")), &cache).unwrap();
    let other = Arc::new(image.fetcher(quick()).unwrap());
    assert!(!Arc::ptr_eq(other.entry(), setup.fetcher.entry()));
    setup.server.shape(Duration::from_millis(20), 0);
    // The other one waits for bytes that do not come.
    setup.server.add(Rule::new(Fault::StallInBody(100, Duration::from_secs(60))).times(8));
    other.prefetch(0..setup.sealed.size());
    let started = Instant::now();
    while setup.server.counts().faults == 0 {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(other);
    // The requests that stall go on doing so.
    setup.server.clear();
    let reader = source(&setup.fetcher, PATIENCE);
    for start in (0..LEN).step_by(3 << 20) {
        setup.sealed.read(&reader, start..start + 100_000, LIMIT).unwrap();
    }
    assert_recovers(&setup);
}

#[test]
fn random_faults_give_right_bytes_or_errors() {
    let setup = setup();
    let often = |fault| Rule::new(fault).probability(0.04);
    let second = Duration::from_secs(1);
    for fault in [
        Fault::Status(503),
        Fault::Status(429),
        Fault::Short(3000),
        Fault::WrongRange(4096),
        Fault::Reset,
        Fault::ResetInBody(9000),
        Fault::StallInBody(2000, second / 10),
        Fault::StallBeforeHeaders(3 * second),
        Fault::Garbage,
        Fault::OtherTag("\"x\"".into()),
        Fault::Complete,
        Fault::Status(404),
    ] {
        setup.server.add(often(fault));
    }
    for byte in [1_000_000, 9_000_000, LEN + 20_000, LEN + 150_000] {
        setup.server.add(Rule::new(Fault::FlippedBit(byte)).covering(byte).probability(0.5));
    }
    let (right, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    let setup = &setup;
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let (right, wrong) = (&right, &wrong);
            scope.spawn(move || {
                let (source, mut random) = (source(&setup.fetcher, second), Random(reader));
                // Not for a time: a loaded machine reads less in it.
                while right.load(Ordering::SeqCst) < 200 || setup.server.counts().faults < 20 {
                    let range = random.range(setup.sealed.size(), 200_000);
                    let counter = match setup.sealed.read(&source, range, LIMIT) {
                        Ok(()) => right,
                        Err(_) => wrong,
                    };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let (right, wrong) = (right.into_inner(), wrong.into_inner());
    println!("{right} reads with the right bytes, {wrong} errors, {:?}", setup.server.counts());
    setup.sealed.assert_stored_is_right(setup.fetcher.entry());
    assert_recovers(setup);
}

/// A folder on a file system of 9 MiB; `None` without the right to mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        use rustix::mount::{MountFlags, mount};
        let folder = tempfile::tempdir().unwrap();
        let options = Some(c"size=9m,mode=700");
        match mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                eprintln!("skipped: a file system in memory cannot be mounted: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_costs_requests_and_gives_no_wrong_bytes() {
    let Some(disk) = SmallDisk::new() else { return };
    let (sealed, server) = (Sealed::new(LEN, 1), Server::start().unwrap());
    server.put("/image", sealed.bytes.to_vec());
    let image = sealed.open(web(&server.url("/image")), &disk.0.path().join("cache")).unwrap();
    let fetcher = Arc::new(image.fetcher(quick()).unwrap());
    let reader = source(&fetcher, PATIENCE);
    for start in (0..sealed.size()).step_by(100_000) {
        sealed.read(&reader, start..(start + 100_000).min(sealed.size()), LIMIT).unwrap();
    }
    sealed.assert_stored_is_right(fetcher.entry());
    // Somebody else fills the disk.
    let mut random = Random(3);
    std::fs::write(disk.0.path().join("other"), vec![1; 9 << 20]).unwrap_err();
    for _ in 0..20 {
        let range = random.range(sealed.size(), 50_000);
        // Right bytes or an error, in time.
        let _ = sealed.read(&source(&fetcher, Duration::from_secs(1)), range, LIMIT);
    }
    std::fs::remove_file(disk.0.path().join("other")).unwrap();
    sealed.read(&reader, 3_000_000..3_100_000, LIMIT).unwrap();
    let started = Instant::now();
    while !fetcher.is_idle() {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let stored = sealed.assert_stored_is_right(fetcher.entry()) * 4096;
    let used = std::fs::metadata(fetcher.entry().path().join("data")).unwrap();
    let used = std::os::unix::fs::MetadataExt::blocks(&used) * 512;
    assert!(used <= stored, "{used} bytes of the disk hold {stored} stored bytes");
}
