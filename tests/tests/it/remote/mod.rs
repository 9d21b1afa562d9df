//! Images on servers, with real servers: `ferofs push`, `ferofs pull`, and commands that take
//! addresses.
//!
//! - `base`: `ferofs push --base`.
//! - `convert`: images of tar archives become images of EROFS images.
//! - `faults`: a web server that fails in all ways, and `ferofs pull`.
//! - `fetcher`: the processes beside the daemon of a mount.
//! - `go_erofs`: containerd's reader reads what the recipe of `docs/FLEET.md` pushes.
//! - `mount_erofs`: `mount.erofs` with the options of erofs-utils.
//! - `prefetch`: what a mount fetches before readers need it, by `ferofs-test-server`.
//! - `registry`: docker-registry with passwords and with tokens; skopeo judges what was pushed.
//! - `reuse`: a second version of an image, when the first one is on this machine.
//! - `web`: nginx with TLS, client certificates and passwords.

mod base;
mod convert;
mod faults;
mod fetcher;
mod go_erofs;
mod mount_erofs;
mod prefetch;
mod registry;
mod reuse;
mod web;

use std::path::{Path, PathBuf};

use ferofs_test_server::Server;
use ferofs_tests::{Content, Rng, Run, ferofs};

use crate::common::fixture::Fixture;

/// A command with an empty home and a cache of its own, so that it finds no credentials and no
/// images of the user who runs the tests.
fn isolated(fixture: &Fixture) -> Run {
    let home = fixture.path("home");
    std::fs::create_dir_all(&home).unwrap();
    let run = ferofs().env("HOME", &home).env("FEROFS_CACHE_DIR", fixture.path("cache"));
    // Without it, podman's folder in /run would be looked into.
    let run = run.env("XDG_RUNTIME_DIR", &home);
    [
        "REGISTRY_AUTH_FILE",
        "DOCKER_CONFIG",
        "XDG_CONFIG_HOME",
        "AWS_PROFILE",
        "http_proxy",
        "HTTP_PROXY",
        "ALL_PROXY",
    ]
    .into_iter()
    .fold(run, |run, name| run.env(name, ""))
}

/// A sealed image of at least 5 MB, and its root hash.
fn sealed_image(fixture: &Fixture) -> (PathBuf, String) {
    fixture.write("data", Content::Noise.bytes(5_000_000, &mut Rng::new(1)));
    fixture.write("greeting", "hello\n");
    fixture.build_sealed("image.erofs", &[])
}

/// The same with the fixture.
fn sealed() -> (Fixture, PathBuf, String) {
    let fixture = Fixture::empty();
    let (image, root) = sealed_image(&fixture);
    (fixture, image, root)
}

/// A server that has this file as `/image`.
fn serve(image: &Path) -> Server {
    let server = Server::start().unwrap();
    server.put("/image", std::fs::read(image).unwrap());
    server
}

fn assert_same_files(a: &Path, b: &Path) {
    assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "{} differs", b.display());
}

/// The value of a text field in the JSON object that a command printed.
fn field(stdout: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(stdout);
    let after =
        text.split(&format!("\"{name}\":\"")).nth(1).unwrap_or_else(|| panic!("no {name}: {text}"));
    after.split('"').next().unwrap().to_owned()
}

/// The value of a number in the JSON object that a command printed.
fn field_number(stdout: &[u8], name: &str) -> u64 {
    let text = String::from_utf8_lossy(stdout);
    let after =
        text.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name}: {text}"));
    after.split([',', '}']).next().unwrap().parse().unwrap()
}
