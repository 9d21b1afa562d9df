//! The programs in `examples`: the smallest one that reads an image, with how many crates it needs
//! and how large it is; and the one in a browser, where WebAssembly opens an image and lists it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use ferofs_tests::run::Run;
use ferofs_tests::web::{self, Server};
use ferofs_tests::{need, scratch};

use crate::common::fixture::Fixture;

/// Crates at most, this library's own ones and the program included. Five of them are
/// parking_lot's.
const MAX_CRATES: usize = 27;
/// Bytes of the stripped program at most.
const MAX_SIZE: u64 = 1_500_000;

fn cargo() -> Run {
    Run::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/minimal/Cargo.toml")
}

#[test]
fn a_reader_of_lz4_needs_few_crates_and_no_c() {
    let tree = cargo()
        .args(["tree", "--quiet", "--edges", "normal,build", "--prefix", "none", "--manifest-path"])
        .arg(manifest())
        .success()
        .stdout;
    let tree = String::from_utf8(tree).unwrap();
    // The name and the version: two versions of one crate are two crates.
    let crates: BTreeSet<String> = tree
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(crates.iter().any(|name| name.starts_with("ferofs-codec ")), "{tree}");
    assert!(crates.len() <= MAX_CRATES, "{} crates: {crates:?}", crates.len());
    // `linux-raw-sys` is Rust: numbers of system calls. `cc` compiles C.
    let is_c = |name: &String| {
        let name = name.split(' ').next().unwrap();
        name == "cc" || name.ends_with("-sys") && name != "linux-raw-sys"
    };
    assert!(!crates.iter().any(is_c), "{crates:?}");
}

#[test]
fn the_smallest_reader_is_small_and_reads() {
    if need::is_quick() {
        return;
    }
    let target = scratch::target_dir().join("minimal");
    cargo()
        .args(["build", "--quiet", "--release", "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(manifest())
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .success();
    let program = target.join("release/ferofs-minimal-example");
    let size = fs::metadata(&program).unwrap().len();
    assert!(size <= MAX_SIZE, "{size} bytes");
    let fixture = Fixture::empty();
    let content = "a line that compresses\n".repeat(10_000);
    fs::create_dir(fixture.source().join("docs")).unwrap();
    fixture.write("docs/text", &content);
    for algorithm in ["lz4", "zstd"] {
        let image = fixture.build(algorithm, ["--compress", algorithm]);
        let read = Run::new(&program).arg(image).arg("docs/text").run();
        if algorithm == "lz4" {
            assert!(read.success().stdout == content.as_bytes());
        } else {
            assert!(
                read.code == 1 && read.stderr.contains("NotBuilt"),
                "there is no decoder for it: {read:?}"
            );
        }
    }
}

const TARGET: &str = "wasm32-unknown-unknown";

/// Compiles the example; `None` if Rust's library for WebAssembly is not installed.
fn module() -> Option<PathBuf> {
    let program = |variable: &str, name: &str| env::var_os(variable).unwrap_or_else(|| name.into());
    let libraries = Run::new(program("RUSTC", "rustc"))
        .args(["--print", "target-libdir", "--target", TARGET])
        .success()
        .stdout;
    if !Path::new(String::from_utf8(libraries).unwrap().trim()).is_dir() {
        need::lacks("rustup target add wasm32-unknown-unknown");
        return None;
    }
    let target = scratch::target_dir().join("browser");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/browser/Cargo.toml");
    Run::new(program("CARGO", "cargo"))
        .args(["build", "--quiet", "--profile", "small", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(manifest)
        .success();
    Some(target.join(TARGET).join("small/ferofs_browser_example.wasm"))
}

#[test]
fn a_page_lists_an_image() {
    if need::is_quick() {
        return;
    }
    let Some(browser) = need::tool("chromium") else { return };
    let Some(module) = module() else { return };
    let fixture = Fixture::empty();
    fs::create_dir(fixture.source().join("docs")).unwrap();
    fixture.write("docs/greeting", "hello, browser\n".repeat(10_000));
    let root = fixture.path("root");
    fs::create_dir(&root).unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    fs::rename(image, root.join("tree.erofs")).unwrap();
    fs::write(root.join("damaged.erofs"), b"no image").unwrap();
    fs::copy(module, root.join("ferofs_browser_example.wasm")).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/browser/index.html");
    fs::copy(page, root.join("index.html")).unwrap();
    let Some(server) = Server::nginx(&fixture.path("."), &root, ["", ""]) else {
        return;
    };
    let dom = |image: &str| {
        let url = format!("http://{}/index.html?image={image}", server.address);
        web::page(&browser, &fixture.path("profile"), &url)
    };
    let tree = dom("tree.erofs");
    assert!(tree.contains("Directory 0755"), "{tree}");
    assert!(tree.contains("150000 /docs/greeting \"hello, browser"), "{tree}");
    let damaged = dom("damaged.erofs");
    assert!(damaged.contains("error: "), "{damaged}");
}
