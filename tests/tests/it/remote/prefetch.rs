//! What a mount fetches before readers need it, and the counters of the fetcher.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ferofs_test_server::Server;
use ferofs_tests::{Content, Mount, Rng, ferofs, ferofs_path, need};
use rustix::process::{Signal, kill_process};
use sha2::{Digest, Sha256};

use super::fetcher::processes;
use super::{isolated, sealed, sealed_image, serve};
use crate::common::fixture::{Fixture, counter, full, stats};

/// What takes longer never ends.
const LIMIT: Duration = Duration::from_secs(60);
/// The latency of the server.
const LATENCY: Duration = Duration::from_millis(10);
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A program that starts: it reads some files of a large tree.
struct Start {
    fixture: Fixture,
    server: Server,
    /// The files that it reads, from the root.
    files: Vec<PathBuf>,
    /// Bytes of them.
    touched: u64,
}

impl Start {
    /// A tree of 30 folders: 1,200 files of 60 MB, of which the program reads about 80; in a run of
    /// the slow tests 3,000 files of 300 MB and 200.
    fn new() -> Self {
        let (count, largest) = if full() { (3000, 200_000) } else { (1200, 100_000) };
        let (fixture, mut rng) = (Fixture::empty(), Rng::new(7));
        let (mut files, mut touched) = (Vec::new(), 0);
        for number in 0..count {
            let path = PathBuf::from(format!("folder{}/file{number}", number % 30));
            let len = 1 + rng.below(largest);
            let source = fixture.source().join(&path);
            std::fs::create_dir_all(source.parent().unwrap()).unwrap();
            std::fs::write(source, Content::Noise.bytes(len as usize, &mut rng)).unwrap();
            if rng.below(15) == 0 {
                touched += len;
                files.push(path);
            }
        }
        // Programs read in another order than that of names.
        for last in (1..files.len()).rev() {
            files.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let server = Server::start().unwrap();
        server.shape(LATENCY, 0);
        Self { fixture, server, files, touched }
    }

    /// Serves a sealed image of the tree, and mounts it with an empty cache. Returns where the
    /// image's data ends, too.
    fn mount(&self, name: &str, build: &[&OsStr], options: &[&OsStr]) -> (Mount, u64) {
        let (image, root) = self.fixture.build_sealed(&format!("{name}.erofs"), build);
        let bytes = std::fs::read(&image).unwrap();
        // The metadata follows the data: `meta_blkaddr` of the superblock.
        let data = u64::from(u32::from_le_bytes(bytes[1064..1068].try_into().unwrap())) * BLOCK;
        self.server.put("/image", bytes);
        std::fs::remove_file(image).unwrap();
        self.server.reset();
        let cache = self.fixture.path(&format!("{name}.cache"));
        let dir = self.fixture.directory(&format!("{name}.dir"));
        let always = [
            OsStr::new("--roothash"),
            OsStr::new(&root),
            OsStr::new("--cache-dir"),
            cache.as_os_str(),
        ];
        let all: Vec<&OsStr> = always.iter().chain(options).copied().collect();
        let location = self.server.url("/image");
        (Mount::fuse_with(ferofs_path(), &all, Path::new(&location), &dir).unwrap(), data)
    }

    /// Reads what the program reads.
    fn run(&self, mount: &Mount) {
        for file in &self.files {
            let (read, source) = (
                std::fs::read(mount.path().join(file)),
                std::fs::read(self.fixture.source().join(file)),
            );
            assert!(read.unwrap() == source.unwrap(), "{}: wrong bytes", file.display());
        }
    }

    /// Requests for data, all others, and the bytes of all. What is fetched around the superblock
    /// and the metadata is not a request for data.
    fn fetched(&self, data: u64) -> (u64, u64, u64) {
        let mut counts = self.server.counts();
        // Requests may be in flight.
        loop {
            sleep(LATENCY * 20);
            let later = self.server.counts();
            if later == std::mem::replace(&mut counts, later) {
                break;
            }
        }
        let is_data = |range: &&Range<u64>| range.end > 128 << 10 && range.end < data;
        let data = self.server.ranges("/image").iter().filter(is_data).count() as u64;
        (data, counts.requests - data, counts.bytes)
    }
}

/// Waits until nothing is left to be fetched in the background.
fn wait_for_background(mount: &Path) {
    let start = Instant::now();
    let is_done = |stats: &HashMap<String, String>| {
        stats["prefetch bytes"] != "0"
            && stats.get("fetcher background left bytes").is_some_and(|left| left == "0")
    };
    while !is_done(&stats(mount)) {
        assert!(start.elapsed() < LIMIT, "{:?}", stats(mount));
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_start_of_a_program_with_a_profile_needs_few_requests() {
    require!(need::fuse());
    let start = Start::new();
    let profile = start.fixture.path("profile");
    let (recorded, data) =
        start.mount("recorded", &[], &["--record-profile".as_ref(), profile.as_os_str()]);
    start.run(&recorded);
    let without = start.fetched(data);
    assert_eq!(recorded.unmount().unwrap().0, Some(0));
    let text = std::fs::read_to_string(&profile).unwrap();
    assert!(
        start.files.iter().all(|file| text.contains(&format!("/{}\n", file.display()))),
        "{text}"
    );
    assert!(text.lines().all(|line| line.starts_with('#')
        || start.files.iter().any(|file| line.ends_with(&format!("/{}", file.display())))));

    let prefetch = [OsStr::new("--prefetch"), profile.as_os_str()];
    let in_order = [OsStr::new("--profile"), profile.as_os_str()];
    let (mount, data) = start.mount("ordered", &in_order, &prefetch);
    wait_for_background(mount.path());
    let before = start.fetched(data);
    start.run(&mount);
    let ordered = start.fetched(data);
    let metadata = counter(mount.path(), "remote bytes") - data;
    assert_eq!(mount.unmount().unwrap().0, Some(0));

    let (mount, data) = start.mount("unordered", &[], &prefetch);
    wait_for_background(mount.path());
    let ranges = counter(mount.path(), "prefetch ranges");
    start.run(&mount);
    let unordered = start.fetched(data);
    assert_eq!(mount.unmount().unwrap().0, Some(0));

    let (mount, data) = start.mount("raced", &in_order, &prefetch);
    start.run(&mount);
    wait_for_background(mount.path());
    let raced = start.fetched(data);
    assert_eq!(mount.unmount().unwrap().0, Some(0));

    println!("data {data}, metadata {metadata}, touched {}", start.touched);
    println!(
        "requests for data, other requests, bytes: without prefetch {without:?}, ordered {ordered:?}, of which before the start {before:?}, unordered {unordered:?} ({ranges} ranges), started at once {raced:?}"
    );
    let few = |(data, others, bytes): (u64, u64, u64), most: u64| {
        assert!(data <= most.div_ceil(4 * MIB), "{data} requests for {most} bytes");
        // They are small as long as the latency is not known.
        assert!(
            others <= 8 + 2 * metadata.div_ceil(MIB),
            "{others} requests for {metadata} bytes of metadata"
        );
        assert!(bytes <= start.touched * 13 / 10 + metadata, "{bytes} bytes for {}", start.touched);
    };
    few(ordered, start.touched);
    assert!(unordered.2 <= start.touched * 13 / 10 + metadata, "{unordered:?}");
}

/// Mounts the image of [`sealed_image`] from a server, with the cache `cache`.
fn mount(fixture: &Fixture, root: &str, location: &str, name: &str, options: &[&str]) -> Mount {
    let (cache, dir) = (fixture.path("cache"), fixture.directory(name));
    let mut all: Vec<&OsStr> = vec!["--cache-dir".as_ref(), cache.as_os_str()];
    if !root.is_empty() {
        all.extend(["--roothash".as_ref(), OsStr::new(root)]);
    }
    all.extend(options.iter().map(OsStr::new));
    Mount::fuse_with(ferofs_path(), &all, Path::new(location), &dir).unwrap()
}

fn assert_reads(fixture: &Fixture, mount: &Mount) {
    for name in ["data", "greeting"] {
        let (read, source) =
            (std::fs::read(mount.path().join(name)), std::fs::read(fixture.source().join(name)));
        assert!(read.unwrap() == source.unwrap(), "{name}: wrong bytes");
    }
}

#[test]
fn a_mount_becomes_complete_or_fetches_nothing_before_it_is_read() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = Server::start().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    server.put("/image", bytes.clone());
    let location = server.url("/image");

    let lazy = mount(&fixture, &root, &location, "lazy", &["--prefetch", "none"]);
    let counters = stats(lazy.path());
    assert_eq!(
        (&*counters["remote mode"], &*counters["prefetch"]),
        ("lazy", "none"),
        "{counters:?}"
    );
    assert_eq!(&*counters["fetcher state"], "running");
    assert!(server.counts().bytes < 1 << 20, "{:?}", server.ranges("/image"));
    assert_eq!(std::fs::read(lazy.path().join("greeting")).unwrap(), b"hello\n");
    assert!(counter(lazy.path(), "remote stored bytes") < bytes.len() as u64);
    assert!(
        counter(lazy.path(), "remote ready bytes") > 0
            && counter(lazy.path(), "fetcher demanded bytes") > 0
    );
    lazy.unmount().unwrap();

    let all = mount(&fixture, &root, &location, "all", &["-o", "prefetch=all"]);
    wait_for_background(all.path());
    let json = ferofs().arg("stats").arg(all.path()).arg("--json").success();
    let json = json.text();
    for part in [
        "\"remote_mode\":\"complete\"".to_owned(),
        "\"fetcher_state\":\"running\"".to_owned(),
        format!("\"remote_stored_bytes\":{}", bytes.len()),
        "\"prefetch\":\"all\"".to_owned(),
    ] {
        assert!(json.contains(&part), "{json}");
    }
    assert!(
        counter(all.path(), "fetcher requests") > 0
            && counter(all.path(), "fetcher median microseconds") > 0
    );
    server.set_down(true);
    assert_reads(&fixture, &all);
    all.unmount().unwrap();
    let offline = mount(&fixture, &root, &location, "offline", &["--offline"]);
    assert_eq!(stats(offline.path())["remote mode"], "complete");
    assert_reads(&fixture, &offline);
}

#[test]
fn wrong_values_of_prefetch() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let dir = fixture.directory("dir");
    let fails = |image: &OsStr, options: &[&str], reason: &str| {
        let (options, cache) = (options.iter().map(OsStr::new), fixture.path("cache"));
        let run = isolated(&fixture)
            .args(["mount", "--roothash", &root, "--cache-dir"])
            .arg(cache)
            .args(options);
        let code = if reason == "images on servers" { 2 } else { 1 };
        run.arg(image).arg(&dir).failure(code).says(reason);
    };
    fails(image.as_os_str(), &["--prefetch", "all"], "images on servers");
    let location = server.url("/image");
    fails(
        location.as_ref(),
        &["--prefetch", "all", "--cache-size", "1M"],
        "--cache-size allows 1048576",
    );
    fails(location.as_ref(), &["--prefetch", "/none/such"], "/none/such");

    // What is not a profile, or names other files, makes nothing else fail.
    for (name, text) in [
        ("garbage", "x".repeat(100_000)),
        (
            "others",
            "# ferofs access profile 1\n9 0 65536 /none\n1 0 18446744073709551615 /\n".to_owned(),
        ),
    ] {
        let profile = fixture.path(&format!("{name}.profile"));
        std::fs::write(&profile, text).unwrap();
        let mount =
            mount(&fixture, &root, &location, name, &["--prefetch", profile.to_str().unwrap()]);
        assert_reads(&fixture, &mount);
        assert_eq!(mount.unmount().unwrap().0, Some(0));
    }
}

#[test]
fn stats_does_not_wait_for_a_fetcher_that_is_stopped() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let location = server.url("/image");
    let mount = mount(&fixture, &root, &location, "dir", &[]);
    assert_reads(&fixture, &mount);
    let before = stats(mount.path());
    let fetchers = || processes(&location, "fetcher");
    let [fetcher] = fetchers()[..] else { panic!("{:?}", fetchers()) };
    kill_process(fetcher, Signal::STOP).unwrap();
    let stopped = stats(mount.path());
    assert_eq!(stopped["fetcher state"], "silent");
    // What is known without the fetcher, and what was known last.
    assert_eq!(stopped["remote bytes"], before["remote bytes"]);
    assert_eq!(stopped["fetcher requests"], before["fetcher requests"]);
    assert_reads(&fixture, &mount);
    kill_process(fetcher, Signal::CONT).unwrap();
    let start = Instant::now();
    while stats(mount.path())["fetcher state"] != "running" {
        assert!(start.elapsed() < LIMIT);
    }
    // A fetcher that is killed is replaced.
    kill_process(fetcher, Signal::KILL).unwrap();
    while fetchers().iter().all(|now| *now == fetcher)
        || stats(mount.path())["fetcher state"] != "running"
    {
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(mount.unmount().unwrap().0, Some(0));
}

#[test]
fn the_profile_that_was_pushed_with_an_image_is_used() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    std::os::unix::fs::symlink("data", fixture.source().join("link")).unwrap();
    let (image, root) = sealed_image(&fixture);
    let layer = std::fs::read(&image).unwrap();
    // A program that follows a link reads it, too.
    let profile = b"# ferofs access profile 1\n1 0 65536 /data\n1 0 4 /link\n".to_vec();
    let digest = |bytes: &[u8]| {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"x","digest":"{0}","size":2}},
        "layers":[{{"mediaType":"application/vnd.erofs.layer.v1","digest":"{0}","size":{1},"annotations":{{"org.erofs.dmverity.root_digest":"sha256:{root}",
        "org.ferofs.profile.digest":"{2}","org.ferofs.profile.size":"{3}"}}}}]}}"#,
        digest(&layer),
        layer.len(),
        digest(&profile),
        profile.len(),
    );
    let server = Server::start().unwrap();
    let blob = format!("/v2/app/blobs/{}", digest(&profile));
    server.put("/v2/app/manifests/1", manifest.into_bytes());
    server.put(&format!("/v2/app/blobs/{}", digest(&layer)), layer);
    server.put(&blob, profile.clone());
    let location = format!("oci://{}/app:1", server.address());
    for number_of_mount in 1..=2 {
        let mount = mount(
            &fixture,
            "",
            &location,
            &format!("dir{number_of_mount}"),
            &["--on-error", "eio"],
        );
        wait_for_background(mount.path());
        let counters = stats(mount.path());
        assert_eq!(
            (&*counters["prefetch"], &*counters["prefetch missing files"]),
            ("image-profile", "0")
        );
        assert!(counter(mount.path(), "prefetch bytes") >= 65536);
        mount.unmount().unwrap();
        assert_eq!(server.ranges(&blob).len(), 1, "it is kept in the cache");
    }
    // Wrong bytes of the profile are not used, and nothing else fails.
    let mut wrong = profile;
    wrong[30] ^= 1;
    server.put(&blob, wrong);
    std::fs::remove_dir_all(fixture.path("cache")).unwrap();
    let mount = mount(&fixture, "", &location, "wrong", &[]);
    assert_eq!(stats(mount.path())["prefetch"], "metadata");
    assert_reads(&fixture, &mount);
}
