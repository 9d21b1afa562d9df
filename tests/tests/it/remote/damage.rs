//! Bytes that change in the cache after they were verified and stored.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferofs_test_server::Server;
use ferofs_tests::mount::Mount;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{ferofs, need};
use rustix::fs::{Advice, fadvise};

use super::sealed_image;
use crate::common::fixture::Fixture;

/// The file of the cache with the bytes of the only image.
fn stored_data(fixture: &Fixture) -> PathBuf {
    let entries = std::fs::read_dir(fixture.path("cache")).unwrap().map(|entry| entry.unwrap().path());
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

fn counter(mount: &Path, name: &str) -> u64 {
    let stats = ferofs().arg("stats").arg(mount).run().success().stdout;
    let text = String::from_utf8(stats).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
    line.trim().parse().unwrap()
}

fn mount(fixture: &Fixture, location: &str, root: &str, options: &[&str]) -> Mount {
    let cache = fixture.path("cache");
    let always = ["--roothash".as_ref(), OsStr::new(root), "--cache-dir".as_ref(), cache.as_os_str()];
    let options: Vec<&OsStr> = always.into_iter().chain(options.iter().map(OsStr::new)).collect();
    Mount::fuse_with(ferofs_path(), &options, Path::new(location), &fixture.directory("mount")).unwrap()
}

#[test]
fn what_changes_in_the_cache_is_fetched_again_by_the_same_mount() {
    require!(need::fuse("damage in the cache"));
    let fixture = Fixture::empty();
    let (image, root) = sealed_image(&fixture);
    let server = Server::start().unwrap();
    server.put("/image", std::fs::read(&image).unwrap());
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
