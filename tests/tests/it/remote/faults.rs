//! `ferofs pull` and `ferofs cat` from a server that does everything wrong once.
//!
//! Bytes that change in the cache after they were verified and stored.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferofs_test_server::{Auth, Fault, Object, Rule, Server};
use ferofs_tests::{Mount, ferofs_path, need};
use rustix::fs::{Advice, fadvise};

use super::{assert_same_files, isolated, sealed, serve};
use crate::common::fixture::{Fixture, chmod, counter};

#[test]
fn a_pull_survives_each_fault() {
    let (fixture, image, root) = sealed();
    let bytes = std::fs::read(&image).unwrap();
    let faults = [
        Rule::new(Fault::Status(429)).header("Retry-After", "1"),
        Rule::new(Fault::Status(500)),
        Rule::new(Fault::Status(503)),
        Rule::new(Fault::Short(100_000)),
        Rule::new(Fault::WrongRange(4096)),
        Rule::new(Fault::Reset),
        Rule::new(Fault::ResetInBody(100_000)),
        Rule::new(Fault::Garbage),
        Rule::new(Fault::StallInBody(100_000, Duration::from_millis(300))),
    ];
    // The first request opens the image, and the next one fetches the start of its hash tree.
    let faults = faults.into_iter().flat_map(|rule| [rule.clone().after(1), rule.after(2)]);
    for (number, rule) in faults.enumerate() {
        let server = Server::start().unwrap();
        server.put("/image", bytes.clone());
        server.add(rule.times(1));
        let target = fixture.path(&format!("pulled{number}"));
        isolated(&fixture)
            .args(["pull", &server.url("/image")])
            .arg(&target)
            .args(["--roothash", &root])
            .success();
        assert_eq!(server.counts().faults, 1);
        assert_same_files(&image, &target);
    }
}

#[test]
fn a_pull_fails_where_it_must() {
    let (fixture, image, root) = sealed();
    let bytes = std::fs::read(&image).unwrap();
    let target = fixture.path("pulled");
    let fails = |rule: Rule, with: &[&str], reason: &str| {
        let server = Server::start().unwrap();
        server.put("/image", bytes.clone());
        server.add(rule);
        let url = server.url("/image?signature=secret");
        let outcome = isolated(&fixture).args(["pull", &url]).arg(&target).args(with).failure(1);
        outcome.says(reason);
        assert!(!outcome.stderr.contains("secret"), "{}", outcome.stderr);
        let left: Vec<_> = std::fs::read_dir(fixture.path("."))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("pulled")), "{left:?}");
    };
    fails(Rule::new(Fault::Status(401)), &[], "401");
    fails(Rule::new(Fault::Status(403)).after(1), &[], "403");
    fails(Rule::new(Fault::Status(404)), &[], "404");
    fails(Rule::new(Fault::Complete), &[], "ranges");
    fails(Rule::new(Fault::OtherTag("\"other\"".into())).after(1), &[], "changed");
    fails(
        Rule::new(Fault::StallBeforeHeaders(Duration::from_secs(3600))).after(1),
        &["--timeout", "1"],
        "in time",
    );
    fails(Rule::new(Fault::FlippedBit(2_000_000)), &["--roothash", &root], "digest");
}

/// Others may write to the directory: what they plant gives them neither the file nor its content.
#[test]
fn a_pull_takes_no_access_from_a_planted_file() {
    use std::os::unix::fs::{MetadataExt, chown};

    require!(need::root());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let directory = fixture.directory("shared");
    chmod(&directory, 0o1777);
    let target = directory.join("pulled");
    let pull = |target: &std::path::Path| {
        isolated(&fixture)
            .args(["pull", &server.url("/image")])
            .arg(target)
            .args(["--roothash", &root])
            .run()
    };
    std::fs::copy(&image, &target).unwrap();
    chmod(&target, 0o666);
    chown(&target, Some(1), Some(1)).unwrap();
    pull(&target).success();
    let pulled = std::fs::metadata(&target).unwrap();
    assert_eq!((pulled.uid(), pulled.mode() & 0o022), (0, 0));
    pull(&fixture.path("none/pulled")).failure(1).says("none: create a file in this directory: ");
}

#[test]
fn a_pull_continues_where_it_stopped() {
    let fixture = Fixture::empty();
    // Less than 16 MiB are not kept.
    let bytes: Vec<u8> =
        (0..40_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let server = Server::start().unwrap();
    server.put("/image", bytes.clone());
    server.add(Rule::new(Fault::Status(403)).covering(36_000_000));
    let target = fixture.path("pulled");
    let pull =
        || isolated(&fixture).args(["pull", "--json", &server.url("/image")]).arg(&target).run();
    pull().failure(1);
    server.clear();
    server.reset();
    let outcome = pull().success();
    let json = outcome.text();
    assert!(super::field_number(json.as_bytes(), "resumed") >= 8 << 22, "{json}");
    assert!(server.counts().bytes < 8_000_000, "{:?}", server.counts());
    assert!(std::fs::read(&target).unwrap() == bytes, "wrong bytes");
}

#[test]
fn a_server_without_validators_is_named() {
    let (fixture, image, _) = sealed();
    let server = Server::start().unwrap();
    server.put("/image", Object::new(std::fs::read(&image).unwrap()).with_etag(None));
    let url = server.url("/image");
    let target = fixture.path("pulled");
    isolated(&fixture).args(["pull", &url]).arg(&target).success().says("no strong ETag");
    let read = || isolated(&fixture).args(["cat", "--insecure-no-verify", &url, "/greeting"]).run();
    assert!(read().success().stderr.contains("no strong ETag"));
    server.put("/image", Object::new(std::fs::read(&image).unwrap()));
    assert_eq!(read().success().stderr, "");
}

/// The names of the entries in the cache.
fn entries(fixture: &Fixture) -> Vec<std::ffi::OsString> {
    let names = std::fs::read_dir(fixture.path("cache")).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).filter(|name| name != ".known").collect()
}

#[test]
fn an_image_that_cannot_be_opened_leaves_nothing_in_the_cache() {
    let (fixture, image, root) = sealed();
    let bytes = std::fs::read(&image).unwrap();
    let sparse = |name: &str, start: &[u8]| {
        let file = File::create(fixture.path(name)).unwrap();
        file.write_all_at(start, 0).unwrap();
        file.set_len(8 << 40).unwrap();
        Object::file(&fixture.path(name)).unwrap()
    };
    let server = Server::start().unwrap();
    server.put("/zeroes", sparse("zeroes", &[]));
    server.put("/unsealed", sparse("unsealed", &bytes[..4096]));
    let ls = |name: &str, option: &[&str]| {
        let run = isolated(&fixture).arg("ls").args(option).arg(server.url(name)).run();
        assert_ne!(run.code, 0, "{name}");
        run.says(server.url(name));
        assert_eq!(entries(&fixture), Vec::<std::ffi::OsString>::new(), "{name}: {}", run.stderr);
    };
    ls("/zeroes", &["--insecure-no-verify"]);
    ls("/unsealed", &["--roothash", &root]);
}

#[test]
fn a_known_root_hash_does_not_hide_a_wrong_address() {
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let cat = |name: &str, options: &[&str]| {
        let run = isolated(&fixture).args(["cat", "--roothash", &root]).args(options);
        run.args([&server.url(name), "/greeting"]).run()
    };
    cat("/image", &[]).success();
    let requests = server.counts().requests;
    cat("/image", &[]).success();
    assert_eq!(server.counts().requests, requests, "a known address needs no request");
    let wrong = cat("/other", &[]);
    assert_ne!(wrong.code, 0);
    assert!(
        wrong.stderr.contains("404") && wrong.stderr.contains("--offline uses it"),
        "{}",
        wrong.stderr
    );
    cat("/other", &["--offline"]).success();
    server.put("/other", std::fs::read(&image).unwrap());
    cat("/other", &[]).success();
}

#[test]
fn what_replaces_an_image_is_an_image() {
    let (fixture, image, root) = sealed();
    let before = std::fs::read(&image).unwrap();
    let server = Server::start().unwrap();
    server.put("/page", "<html>404</html>".repeat(1000).into_bytes());
    let pull = || isolated(&fixture).args(["pull", &server.url("/page")]).arg(&image);
    pull().failure(1).says("not an EROFS image");
    // Errors of the hash tree name the file.
    pull().args(["--roothash", &root]).failure(1).says("image.erofs: no superblock of EROFS");
    assert!(std::fs::read(&image).unwrap() == before);
    pull().arg("--force").success().says("has no superblock of EROFS");
}

#[test]
fn a_cache_that_stays_too_large_says_why() {
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let read = ["cat", "--roothash", &root, &server.url("/image"), "/data"];
    isolated(&fixture).args(read).success();
    let folders =
        std::fs::read_dir(fixture.path("cache")).unwrap().map(|entry| entry.unwrap().path());
    let used = folders.map(|folder| folder.join("use.lock")).find(|path| path.exists()).unwrap();
    let used = std::fs::File::open(used).unwrap();
    rustix::fs::flock(&used, rustix::fs::FlockOperation::LockShared).unwrap();
    let collect = || isolated(&fixture).args(["cache", "gc", "--cache-size", "1M"]).success();
    let kept = collect();
    kept.says("1 images in use");
    drop(used);
    assert_eq!(collect().stderr, "");
}

#[test]
fn commands_take_addresses_with_credentials() {
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    server.set_auth(
        "/image",
        Some(Auth::Header { value: "Bearer t0ken".into(), challenge: "Bearer".into() }),
    );
    let token = fixture.path("token");
    std::fs::write(&token, "t0ken\n").unwrap();
    let cat = |with: &[&str]| {
        let cache = fixture.path("cache");
        isolated(&fixture)
            .args(["cat", "--cache-dir"])
            .arg(cache)
            .args(["--roothash", &root])
            .args(with)
            .args([&server.url("/image"), "/greeting"])
            .run()
    };
    assert!(cat(&[]).failure(1).stderr.contains("401"));
    assert_eq!(cat(&["--token-file", token.to_str().unwrap()]).success().stdout, b"hello\n");
}

/// The file of the cache with the bytes of the only image.
fn stored_data(fixture: &Fixture) -> PathBuf {
    let entries =
        std::fs::read_dir(fixture.path("cache")).unwrap().map(|entry| entry.unwrap().path());
    let mut data = entries.map(|entry| entry.join("data")).filter(|data| data.exists());
    let found = data.next().unwrap();
    assert!(data.next().is_none());
    found
}

/// Changes a byte in each `step` bytes of what is stored.
fn damage(fixture: &Fixture, step: usize) {
    let file = File::options().read(true).write(true).open(stored_data(fixture)).unwrap();
    for at in (0..file.metadata().unwrap().len()).step_by(step) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
}

/// Reads a file of the mount, not from the kernel's cache.
fn read_again(mount: &Mount, name: &str) -> std::io::Result<Vec<u8>> {
    let path = mount.path().join(name);
    fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
    std::fs::read(path)
}

fn mount(fixture: &Fixture, location: &str, root: &str, options: &[&str]) -> Mount {
    let cache = fixture.path("cache");
    let always =
        ["--roothash".as_ref(), OsStr::new(root), "--cache-dir".as_ref(), cache.as_os_str()];
    let options: Vec<&OsStr> = always.into_iter().chain(options.iter().map(OsStr::new)).collect();
    Mount::fuse_with(ferofs_path(), &options, Path::new(location), &fixture.directory("mount"))
        .unwrap()
}

#[test]
fn what_changes_in_the_cache_is_fetched_again_by_the_same_mount() {
    require!(need::fuse());
    let (fixture, image, root) = sealed();
    let server = serve(&image);
    let mount = mount(&fixture, &server.url("/image"), &root, &["--on-error", "wait=2"]);
    let source = std::fs::read(fixture.source().join("data")).unwrap();
    assert!(read_again(&mount, "data").unwrap() == source);
    assert_eq!(counter(mount.path(), "fetcher removed bytes"), 0);
    for step in [1_000_000, 4096] {
        damage(&fixture, step);
        assert!(read_again(&mount, "data").unwrap() == source, "a change each {step} bytes");
    }
    assert!(counter(mount.path(), "fetcher removed bytes") >= source.len() as u64);
    // Without the server, a read fails, and no wrong byte is read.
    server.set_down(true);
    assert!(read_again(&mount, "data").unwrap() == source);
    damage(&fixture, 1_000_000);
    assert!(read_again(&mount, "data").is_err());
    server.set_down(false);
    assert!(read_again(&mount, "data").unwrap() == source);
}
