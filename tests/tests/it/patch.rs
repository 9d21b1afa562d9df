//! Patches: the patched image is the new tree, for Linux, for FUSE, and laid over the old image in memory; and whatever
//! goes wrong leaves the image as it was.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Mount, compare, ferofs, need, tree, update};

use crate::mkfs::sound;
use crate::stage::{Stage, full, same};

/// Ways to encode, as options of `ferofs build`.
const SETTINGS: [(&str, &str); 10] = [
    ("none", "-z none"),
    ("lz4", "-z lz4"),
    ("lz4-64k", "-z lz4 -C 64K"),
    ("lzma", "-z lzma -C 64K"),
    ("zstd", "-z zstd -C 64K"),
    ("deflate", "-z deflate -C 64K"),
    ("fragments", "-z lz4 -C 16K -E fragments"),
    ("ztailpacking", "-z lz4 -E ztailpacking"),
    ("dedupe", "-z lz4 -E dedupe"),
    ("48bit", "-z zstd -C 64K -E 48bit"),
];

/// A tree that is small, has every oddity, a large file, and a wide directory. Holes are read for long, again and again.
fn stage() -> Stage {
    let stage =
        Stage::new(&tree::Options { largest: 70_001, wide: 400, deep: 0, ..tree::Options::default() });
    for (content, len) in [(Content::Text, 900_000), (Content::Mixed, 300_000)] {
        let bytes = content.bytes(len, &mut Rng::new(3));
        fs::write(stage.source().join(format!("{content:?}")), bytes).unwrap();
    }
    if !full() {
        fs::remove_dir_all(stage.source().join("sparse")).unwrap();
    }
    stage
}

fn create(old: &Path, new: &Path, patch: &Path) {
    ferofs().args(["patch", "create"]).args([old, new]).arg("-o").arg(patch).run().success();
}

fn apply(image: &Path, patch: &Path) {
    ferofs().args(["patch", "apply"]).args([image, patch]).run().success();
}

/// Fails unless the image shows `tree`, through Linux and through FUSE.
fn assert_shows(stage: &Stage, image: &Path, tree: &Path) {
    let dir = stage.path("shown");
    fs::create_dir_all(&dir).unwrap();
    let mount = Mount::kernel(image, &dir).unwrap();
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
    let mount = Mount::fuse(ferofs_path(), image, &dir).unwrap();
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
}

#[test]
fn chains_of_updates_show_each_tree() {
    if !need::kernel_erofs("patched images through the kernel") || !need::fuse("patched images through FUSE")
    {
        return;
    }
    for (name, options) in SETTINGS {
        let stage = stage();
        let steps = match (full(), name) {
            (true, _) => 20,
            (false, "lz4") => 4,
            (false, _) => 1,
        };
        chain(&stage, options, steps);
    }
}

fn chain(stage: &Stage, options: &str, steps: u64) {
    let image = stage.build("image", options.split(' '));
    let mut trees: Vec<PathBuf> = vec![stage.path("tree-0")];
    update::copy(&stage.source(), &trees[0]).unwrap();
    for step in 1..=steps {
        eprintln!("{options}: update {step}");
        update::update(&stage.source(), step, 2).unwrap();
        let tree = stage.path(&format!("tree-{step}"));
        update::copy(&stage.source(), &tree).unwrap();
        let patch = stage.path("patch");
        create(&image, &stage.source(), &patch);
        apply(&image, &patch);
        sound(&image);
        assert_shows(stage, &image, &tree);
        trees.push(tree);
    }
}
