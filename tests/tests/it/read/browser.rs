//! The example in a browser: WebAssembly opens an image and lists it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use ferofs_tests::run::Run;
use ferofs_tests::web::{self, Server};
use ferofs_tests::{need, scratch};

use crate::common::fixture::Fixture;

const TARGET: &str = "wasm32-unknown-unknown";

/// Compiles the example; `None` if Rust's library for WebAssembly is not installed.
fn module() -> Option<PathBuf> {
    let program = |variable: &str, name: &str| env::var_os(variable).unwrap_or_else(|| name.into());
    let libraries = Run::new(program("RUSTC", "rustc"))
        .args(["--print", "target-libdir", "--target", TARGET])
        .run()
        .success()
        .stdout;
    if !Path::new(String::from_utf8(libraries).unwrap().trim()).is_dir() {
        need::lacks("the page in a browser", "rustup target add wasm32-unknown-unknown");
        return None;
    }
    let target = scratch::target_dir().join("browser");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/browser/Cargo.toml");
    Run::new(program("CARGO", "cargo"))
        .args(["build", "--quiet", "--profile", "small", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(manifest)
        .run()
        .success();
    Some(target.join(TARGET).join("small/ferofs_browser_example.wasm"))
}

#[test]
fn a_page_lists_an_image() {
    if need::is_quick() {
        return;
    }
    let Some(browser) = need::tool("chromium", "the page in a browser") else { return };
    let Some(module) = module() else { return };
    let fixture = Fixture::empty();
    fs::create_dir(fixture.source().join("docs")).unwrap();
    fs::write(fixture.source().join("docs/greeting"), "hello, browser\n".repeat(10_000)).unwrap();
    let root = fixture.path("root");
    fs::create_dir(&root).unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    fs::rename(image, root.join("tree.erofs")).unwrap();
    fs::write(root.join("damaged.erofs"), b"no image").unwrap();
    fs::copy(module, root.join("ferofs_browser_example.wasm")).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/browser/index.html");
    fs::copy(page, root.join("index.html")).unwrap();
    let Some(server) = Server::start(&fixture.path("."), &root, "the page in a browser") else { return };
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
