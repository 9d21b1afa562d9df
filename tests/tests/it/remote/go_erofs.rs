//! go-erofs, containerd's own reader, reads what `docs/FLEET.md` says: the image that its recipe
//! pushes, and each line of its table.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Run, need, scratch, tree};

use super::isolated;
use super::registry::registry;
use crate::common::fixture::Fixture;

/// The section for containerd.
fn section() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/FLEET.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split("\n## Run containers with containerd\n").nth(1).unwrap();
    section.split("\n## ").next().unwrap().to_owned()
}

/// The words of a command of the page without its name and comment.
fn words(command: &str) -> impl Iterator<Item = &str> {
    command.split(" #").next().unwrap().split_whitespace()
}

/// Builds the program of `tests/containerd/reader`, which compares an image as go-erofs reads it
/// with a tree.
fn reader() -> Option<PathBuf> {
    let lacks = || need::lacks(need::GO).then(PathBuf::new);
    let Some(go) = need::find_tool("go") else { return lacks() };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("containerd/reader");
    let run = |arguments: &[&str]| {
        Run::new(&go).env("GOTOOLCHAIN", "local").dir(&sources).args(arguments).run()
    };
    let version = String::from_utf8(run(&["env", "GOVERSION"]).stdout).unwrap();
    let minor = version.trim().strip_prefix("go1.").and_then(|version| version.split('.').next());
    let is_new = minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 23);
    if !is_new || run(&["mod", "download"]).code != 0 {
        return lacks();
    }
    let program = scratch::target_dir().join("containerd/reader");
    run(&["build", "-o", program.to_str().unwrap(), "."]).success();
    Some(program)
}

#[test]
fn containerds_reader_reads_what_the_page_says() {
    let Some(reader) = reader() else { return };
    let fixture = Fixture::new(&tree::Options::small());
    let Some(target) = registry(&fixture, "") else { return };
    let root = fixture.path("root");
    fs::rename(fixture.source(), &root).unwrap();
    let section = section();
    let read = |image: &Path| {
        let device = Some(fixture.path("data")).filter(|data| data.exists());
        Run::new(&reader).arg(image).arg(&root).args(device).run()
    };

    // The commands of the recipe, with the address of this registry.
    for start in ["ferofs build ", "ferofs push "] {
        let command = section.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        let command = command.replace("registry.example.org", &target.address.to_string());
        let run = isolated(&fixture).dir(fixture.path("")).arg(start.split(' ').nth(1).unwrap());
        run.args(words(&command)).success();
    }
    let pulled = fixture.path("pulled");
    let name = format!("oci://{}/team/root:1", target.address);
    isolated(&fixture).args(["pull", &name]).arg(&pulled).success();
    read(&pulled).success();

    let mut rows = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let expected = if cells[2].starts_with("yes") { 0 } else { 1 };
        for options in cells[1].split('`').skip(1).step_by(2) {
            let image = fixture.path("image");
            let run = isolated(&fixture).dir(fixture.path("")).arg("build").args(words(options));
            run.args(["--quiet", "--force", "root", "image"]).success();
            let found = read(&image);
            assert_eq!(found.code, expected, "{options}: {}", found.stderr);
            assert!(expected == 0 || found.stderr.contains("not implemented"), "{}", found.stderr);
            let _ = fs::remove_file(fixture.path("data"));
            rows += 1;
        }
    }
    assert!(rows > 20, "{rows}");
}
