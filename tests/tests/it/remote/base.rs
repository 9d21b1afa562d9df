//! `ferofs push --base`: a layer with the difference from an image that the registry has.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ferofs_tests::{Outcome, Run, ferofs, need, web};

use super::registry::registry;
use super::{assert_same_files, field, isolated};
use crate::common::fixture::{Fixture, chmod};

/// A tree with all kinds of changes between its versions 1 and 2.
fn write(root: &Path, version: u32) {
    let put = |path: &str, content: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("same/large", &"0123456789abcdef".repeat(100_000));
    put("same/link", "linked\n");
    fs::hard_link(root.join("same/link"), root.join("same/other link")).unwrap();
    put("dir/kept", "kept\n");
    put("dir/changed", if version == 1 { "one\n" } else { "two\n" });
    put("links/a", "a\n");
    if version == 1 {
        put("dir/gone", "gone\n");
        put("gone/deep/file", "gone\n");
        put("becomes dir", "file\n");
        put("becomes file/file", "file\n");
        fs::hard_link(root.join("links/a"), root.join("links/b")).unwrap();
        put("links/c", "a\n");
        symlink("kept", root.join("dir/symlink")).unwrap();
        put("mode", "mode\n");
    } else {
        put("dir/new", "new\n");
        put("new/deep/file", "new\n");
        put("becomes dir/file", "file\n");
        put("becomes file", "file\n");
        put("links/b", "a\n");
        fs::hard_link(root.join("links/a"), root.join("links/c")).unwrap();
        symlink("changed", root.join("dir/symlink")).unwrap();
        put("mode", "mode\n");
        chmod(root.join("mode"), 0o600);
    }
}

struct Versions {
    fixture: Fixture,
    registry: web::Server,
    images: [PathBuf; 2],
}

impl Versions {
    fn new() -> Option<Self> {
        let fixture = Fixture::empty();
        let registry = registry(&fixture, "")?;
        let images = [1, 2].map(|version| {
            let tree = fixture.directory(&format!("tree{version}"));
            write(&tree, version);
            let image = fixture.path(&format!("{version}.erofs"));
            // The same times in both trees.
            let options = ["-z", "none", "--verity", "--quiet", "-T", "0", "--all-time"];
            ferofs().arg("build").args(options).args([&tree, &image]).success();
            image
        });
        Some(Self { fixture, registry, images })
    }

    fn name(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.registry.address)
    }

    fn push(&self, image: &Path, to: &str, with: &[&str]) -> Run {
        let cache = self.fixture.path("cache");
        let run =
            isolated(&self.fixture).args(["push", "--json", "--cache-dir"]).arg(cache).args(with);
        run.arg(image).arg(self.name(to))
    }

    fn with_base(&self, image: &Path, to: &str, base: &str) -> Outcome {
        let outcome = self.push(image, to, &["--base", &self.name(base)]).success();
        let left: Vec<_> = fs::read_dir(self.fixture.path("cache")).unwrap().flatten().collect();
        assert!(
            left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("ferofs-layers"))
        );
        outcome
    }

    /// Fails unless the image in the registry has the tree of the file.
    fn assert_same(&self, name: &str, image: &Path) {
        let pulled = self.fixture.path("pulled");
        isolated(&self.fixture).args(["pull", &self.name(name)]).arg(&pulled).success();
        ferofs().arg("diff").args([pulled.as_path(), image]).success();
    }
}

fn sent(outcome: &Outcome) -> u64 {
    let text = outcome.text();
    let after = text.split("\"sent\":").nth(1).unwrap();
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn only_the_difference_is_sent() {
    let Some(versions) = Versions::new() else { return };
    let [first, second] = &versions.images;
    versions.push(first, "app:1", &[]).success();
    let done = versions.with_base(second, "app:2", "app:1");
    let size = fs::metadata(second).unwrap().len();
    assert!(size > 1_600_000 && sent(&done) < 20_000, "{} of {size}", sent(&done));
    versions.assert_same("app:2", second);
    // The same again has the same digest, and another repository takes the layers of the base.
    let again = versions.with_base(second, "app:again", "app:1");
    assert_eq!(
        (field(&again.stdout, "manifest"), sent(&again)),
        (field(&done.stdout, "manifest"), 0)
    );
    let other = versions.with_base(second, "other:2", "app:1");
    assert_eq!(field(&other.stdout, "manifest"), field(&done.stdout, "manifest"));
    versions.assert_same("other:2", second);
    // A base with several layers, and back to the first version.
    let third = versions.with_base(first, "app:3", "app:2");
    assert!(sent(&third) < 20_000, "{}", sent(&third));
    versions.assert_same("app:3", first);
    // Without a difference there is no layer.
    let none = versions.with_base(second, "app:4", "app:2");
    assert_eq!(
        (sent(&none), field(&none.stdout, "manifest")),
        (0, field(&done.stdout, "manifest"))
    );
}

#[test]
fn layers_are_chosen_by_number_also_from_the_cache() {
    let Some(versions) = Versions::new() else { return };
    let [first, second] = &versions.images;
    versions.push(first, "app:1", &[]).success();
    let done = versions.with_base(second, "app:2", "app:1");
    let pinned = versions.name(&format!("app@{}", field(&done.stdout, "manifest")));
    let list = |layer: &str| {
        let run = isolated(&versions.fixture)
            .args(["ls", "--cache-dir"])
            .arg(versions.fixture.path("cache"));
        let listed = run.args(["--oci-layer", layer, &pinned]).success();
        listed.text()
    };
    for _ in 0..2 {
        assert!(list("0").contains("same") && list("0").contains("gone"));
        assert!(!list("1").contains("same") && list("1").contains("new"));
    }
    let file = versions.fixture.path("layer");
    isolated(&versions.fixture).args(["pull", "--oci-layer", "0", &pinned]).arg(&file).success();
    assert_same_files(first, &file);
}

#[test]
fn overlayfs_shows_the_new_version() {
    require!(need::kernel_erofs());
    let Some(versions) = Versions::new() else { return };
    let [first, second] = &versions.images;
    versions.push(first, "app:1", &[]).success();
    versions.with_base(second, "app:2", "app:1");
    let fixture = &versions.fixture;
    let layer = fixture.path("layer");
    isolated(fixture)
        .args(["pull", "--oci-layer", "1", &versions.name("app:2")])
        .arg(&layer)
        .success();
    let lower = ferofs_tests::Mount::kernel(first, &fixture.directory("lower")).unwrap();
    let upper = ferofs_tests::Mount::kernel(&layer, &fixture.directory("upper")).unwrap();
    let merged = fixture.directory("merged");
    let options = format!("ro,lowerdir={}:{}", upper.path().display(), lower.path().display());
    let mounted = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .status();
    assert!(mounted.unwrap().success());
    let compared =
        ferofs().arg("diff").args(["--ignore", "xattrs"]).args([merged.as_path(), second]).run();
    let inode = |path: &str| {
        fs::metadata(merged.join(path)).map(|file| (file.ino(), file.nlink())).unwrap()
    };
    let links = ["links/a", "links/b", "links/c", "same/link", "same/other link"].map(inode);
    let unmounted = Command::new("umount").arg(&merged).status();
    assert!(unmounted.unwrap().success());
    compared.success();
    // In version 1, a and b are the same file, and c has the same content; in version 2, a and c
    // are.
    let [a, b, c, same, other] = links;
    assert!(
        a == c && a.1 == 2 && b.0 != a.0 && b.1 == 1 && same == other && same.1 == 2,
        "{links:?}"
    );
    upper.unmount().unwrap();
    lower.unmount().unwrap();
}

#[test]
fn layers_are_stacked_without_fetching_all_of_them() {
    require!(need::fuse() && rustix::process::geteuid().is_root());
    let Some(versions) = Versions::new() else { return };
    let [first, second] = &versions.images;
    versions.push(first, "app:1", &[]).success();
    versions.with_base(second, "app:2", "app:1");
    let fixture = &versions.fixture;
    let name = versions.name("app:2");
    isolated(fixture)
        .args(["mount", &name])
        .arg(fixture.directory("all"))
        .failure(1)
        .says("several EROFS layers");
    // As docs/FLEET.md says it.
    let layers = ["0", "1"].map(|number| {
        let dir = fixture.directory(&format!("layer{number}"));
        let run = isolated(fixture).args(["mount", "--cache-dir"]).arg(fixture.path("cache"));
        run.args(["--oci-layer", number, &name]).arg(&dir).success();
        dir
    });
    let merged = fixture.directory("merged");
    let options = format!("ro,lowerdir={}:{}", layers[1].display(), layers[0].display());
    let mount = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .status();
    let compared =
        ferofs().arg("diff").args(["--ignore", "xattrs"]).args([merged.as_path(), second]).run();
    let unmounted = [&merged, &layers[1], &layers[0]]
        .map(|dir| Command::new("umount").arg(dir).status().is_ok_and(|status| status.success()));
    assert!(mount.unwrap().success());
    compared.success();
    assert_eq!(unmounted, [true; 3]);
}

#[test]
fn bases_that_cannot_be_used() {
    let Some(versions) = Versions::new() else { return };
    let [first, second] = &versions.images;
    versions.push(first, "app:1", &[]).success();
    let fails = |with: &[&str], reason: &str| {
        versions.push(second, "app:2", with).failure(1).says(reason);
    };
    fails(&["--base", &versions.name("app:none")], "404");
    fails(&["--base", "https://host/image"], "same registry");
    fails(&["--base", "oci://127.0.0.1:1/app:1"], "same registry");
    let failed = versions
        .push(&versions.fixture.path("no"), "app:2", &["--base", &versions.name("app:1")])
        .run();
    assert!(failed.failure(1).stderr.contains("no: open"));
    // Whiteouts of its own would become whiteouts of the stack, also if the base has the same.
    let tree = versions.fixture.directory("whiteout");
    if rustix::process::geteuid().is_root() {
        let node = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, tree.join("node"), node, 0o600.into(), 0).unwrap();
        let image = versions.fixture.path("whiteout.erofs");
        ferofs().arg("build").args([&tree, &image]).success();
        versions.push(&image, "whiteout:1", &[]).success();
        for base in ["app:1", "whiteout:1"] {
            versions
                .push(&image, "app:2", &["--base", &versions.name(base)])
                .failure(1)
                .says("whiteout of overlayfs");
        }
    }
}
