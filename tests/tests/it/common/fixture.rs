//! The start of most tests: a source tree, an image of it, and the counters of its mount.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ferofs_tests::{compare, ferofs, need, scratch, scratch_in_memory, tree};
use tempfile::TempDir;

/// Values of `--compress` that most tests use.
pub(crate) const COMPRESSIONS: [&str; 2] = ["none", "lz4"];

/// A temporary directory with a source tree, for images and mounts.
pub(crate) struct Fixture {
    dir: TempDir,
}

impl Fixture {
    /// A fixture with this tree as the source.
    pub(crate) fn new(options: &tree::Options) -> Self {
        let fixture = Self::empty();
        tree::create(&fixture.source(), options).unwrap();
        fixture
    }

    /// A fixture with this tree as the source, and its image with LZ4.
    pub(crate) fn with_image(options: &tree::Options) -> (Self, PathBuf) {
        let fixture = Self::new(options);
        let image = fixture.build("image", ["--compress", "lz4"]);
        (fixture, image)
    }

    /// A fixture with an empty source.
    pub(crate) fn empty() -> Self {
        Self::within(scratch_in_memory())
    }

    /// A fixture on disk with this tree as the source, for what tmpfs cannot do.
    pub(crate) fn on_disk(options: &tree::Options) -> Self {
        let fixture = Self::within(scratch());
        tree::create(&fixture.source(), options).unwrap();
        fixture
    }

    fn within(dir: TempDir) -> Self {
        let fixture = Self { dir };
        std::fs::create_dir(fixture.source()).unwrap();
        fixture
    }

    /// The path of the source.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// The path of `name` in the temporary directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates an empty directory.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Builds an image of the source with these options, and nothing of the default preset: uncompressed unless an option compresses,
    /// pclusters of one block unless an option has another size, no fragments.
    #[track_caller]
    pub(crate) fn build<A: AsRef<OsStr>>(
        &self,
        name: &str,
        options: impl IntoIterator<Item = A>,
    ) -> PathBuf {
        let image = self.path(name);
        let options: Vec<OsString> =
            options.into_iter().map(|option| option.as_ref().to_owned()).collect();
        let has = |names: &[&str]| {
            let begins = |option: &OsString, name: &str| {
                option.as_encoded_bytes().starts_with(name.as_bytes())
            };
            options.iter().any(|option| names.iter().any(|name| begins(option, name)))
        };
        let plain: &[&str] = if has(&["--preset", "--chunk-size", "--index-only"]) {
            &[]
        } else if has(&["-z", "--compress"]) {
            &["--preset", "fast"]
        } else {
            &["-z", "none"]
        };
        ferofs()
            .arg("build")
            .args(plain)
            .args(options)
            .arg(self.source())
            .arg(&image)
            .run()
            .success();
        image
    }

    /// The same, sealed. Returns the root hash, too.
    #[track_caller]
    pub(crate) fn build_sealed(&self, name: &str, options: &[&OsStr]) -> (PathBuf, String) {
        let root = self.path(&format!("{name}.root"));
        let sealed = [OsStr::new("--verity"), OsStr::new("--roothash-file"), root.as_os_str()];
        let image = self.build(name, sealed.iter().chain(options));
        (image, std::fs::read_to_string(root).unwrap().trim().to_owned())
    }

    /// Extracts an image with `ferofs extract`.
    #[track_caller]
    pub(crate) fn extract(&self, image: &Path, name: &str) -> PathBuf {
        let target = self.path(name);
        ferofs().arg("extract").arg(image).arg(&target).run().success();
        target
    }

    /// Fails if `tree` differs from the source.
    #[track_caller]
    pub(crate) fn assert_same_as_source(&self, tree: &Path) {
        compare(&self.source(), tree, &same()).unwrap().assert_same();
    }
}

/// The options to compare copies: root compares everything, other users ignore owners.
pub(crate) fn same() -> compare::Options {
    if need::is_root() { compare::Options::default() } else { compare::Options::unprivileged() }
}

/// Whether to run the slow tests: `cargo xtask test --full`.
pub(crate) fn full() -> bool {
    std::env::var_os("FEROFS_TEST_FULL").is_some()
}

/// The default tree, or the full one in a run of the slow tests.
pub(crate) fn usual_tree() -> tree::Options {
    if full() { tree::Options::full() } else { tree::Options::default() }
}

/// The counters of a mount, by name: numbers, and words.
pub(crate) fn stats(mount: &Path) -> HashMap<String, String> {
    let text = String::from_utf8(ferofs().arg("stats").arg(mount).run().success().stdout).unwrap();
    let of = |line: &str| {
        line.trim_end()
            .rsplit_once(' ')
            .map(|(name, value)| (name.trim_end().to_owned(), value.to_owned()))
    };
    text.lines().filter_map(of).collect()
}

/// The number that a mount has counted.
#[track_caller]
pub(crate) fn counter(mount: &Path, name: &str) -> u64 {
    let stats = stats(mount);
    stats.get(name).unwrap_or_else(|| panic!("no {name}: {stats:?}")).parse().unwrap()
}
