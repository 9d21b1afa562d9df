//! What most tests begin with: a source tree, and an image of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ferofs_tests::{compare, ferofs, need, scratch, tree};
use tempfile::TempDir;

/// The ways to store data.
pub(crate) const COMPRESSIONS: [&str; 2] = ["none", "lz4"];

/// A scratch directory with a source tree in it, and room for images and mounts.
pub(crate) struct Fixture {
    dir: TempDir,
}

impl Fixture {
    /// With this tree as the source.
    pub(crate) fn new(options: &tree::Options) -> Self {
        let fixture = Self::empty();
        tree::create(&fixture.source(), options).unwrap();
        fixture
    }

    /// With an empty source.
    pub(crate) fn empty() -> Self {
        let fixture = Self { dir: scratch() };
        std::fs::create_dir(fixture.source()).unwrap();
        fixture
    }

    /// The source.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// Any name in the scratch directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new empty directory.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// An image of the source, built with these options.
    #[track_caller]
    pub(crate) fn build<A: AsRef<OsStr>>(&self, name: &str, options: impl IntoIterator<Item = A>) -> PathBuf {
        let image = self.path(name);
        ferofs().arg("build").args(options).arg(self.source()).arg(&image).run().success();
        image
    }

    /// What `ferofs extract` makes of an image.
    #[track_caller]
    pub(crate) fn extract(&self, image: &Path, name: &str) -> PathBuf {
        let target = self.path(name);
        ferofs().arg("extract").arg(image).arg(&target).run().success();
        target
    }

    /// Fails unless `tree` is what the source is.
    #[track_caller]
    pub(crate) fn assert_same_as_source(&self, tree: &Path) {
        compare(&self.source(), tree, &same()).unwrap().assert_same();
    }
}

/// How copies are compared: fully by root, without owners by others.
pub(crate) fn same() -> compare::Options {
    if need::is_root() { compare::Options::default() } else { compare::Options::unprivileged() }
}

/// Whether the slow tests are asked for: `cargo xtask test --full`.
pub(crate) fn full() -> bool {
    std::env::var_os("FEROFS_TEST_FULL").is_some()
}

/// The usual tree, or all there is when the slow tests are asked for.
pub(crate) fn usual_tree() -> tree::Options {
    if full() { tree::Options::full() } else { tree::Options::default() }
}
