//! The start of most tests: a source tree, an image of it, and the counters of its mount.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ferofs_tests::{
    Run, compare, ferofs, ferofs_path, need, run, scratch, scratch_in_memory, tree,
};
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

    /// A fixture with a small tree as the source.
    pub(crate) fn small() -> Self {
        Self::new(&tree::Options::small())
    }

    /// The same, and its image with LZ4.
    pub(crate) fn small_image() -> (Self, PathBuf) {
        Self::with_image(&tree::Options::small())
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

    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// Writes the file `name` of the source, in a new directory if there is none.
    #[track_caller]
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        write(&self.source().join(name), content);
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

    /// A command line of ferofs, in which `@NAME` is the path of NAME here.
    pub(crate) fn line(&self, words: &str) -> Run {
        ferofs().args(self.words(words))
    }

    /// A command line of ferofs by another of its names: the first word.
    pub(crate) fn tool(&self, words: &str) -> Run {
        let (name, words) = words.split_once(' ').unwrap_or((words, ""));
        let program = self.path(name);
        if !program.exists() {
            symlink(ferofs_path(), &program).unwrap();
        }
        Run::new(program).args(self.words(words))
    }

    /// Words of a command line, in which `@NAME` is the path of NAME here.
    pub(crate) fn words(&self, words: &str) -> Vec<String> {
        let word = |word: &str| match word.split_once('@') {
            Some((before, name)) => format!("{before}{}", self.path(name).display()),
            None => word.to_owned(),
        };
        words.split_whitespace().map(word).collect()
    }

    /// The names in the temporary directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.dir.path())
    }

    /// A directory with the other names of the program.
    pub(crate) fn links(&self) -> PathBuf {
        let links = self.directory("links");
        ferofs!("links", &links).success();
        links
    }

    /// Builds an image of the source with these options, and nothing of the default preset:
    /// uncompressed unless an option compresses, pclusters of one block unless an option has
    /// another size, no fragments.
    #[track_caller]
    pub(crate) fn build<A: AsRef<OsStr>>(
        &self,
        name: &str,
        options: impl IntoIterator<Item = A>,
    ) -> PathBuf {
        self.build_from(&self.source(), name, options)
    }

    /// The same of another source.
    #[track_caller]
    pub(crate) fn build_from<A: AsRef<OsStr>>(
        &self,
        source: &Path,
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
        ferofs!("build").args(plain).args(options).arg(source).arg(&image).success();
        image
    }

    /// Lets all users enter the temporary directory, and write to `dir` in it, as to /tmp.
    pub(crate) fn for_all_users(&self, dir: &Path) {
        chmod(self.dir.path(), 0o755);
        chmod(dir, 0o1777);
    }

    /// A copy of the ferofs under test, which an ordinary user can reach, run by one.
    pub(crate) fn as_user(&self) -> Run {
        std::fs::copy(ferofs_path(), self.path("ferofs")).unwrap();
        run!("setpriv --reuid=65534 --regid=65534 --clear-groups --", self.path("ferofs"))
    }

    /// Builds the image `name` of the source as [`Self::build`], sealed. Returns the root hash, too.
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
        ferofs!("extract", image, &target).success();
        target
    }

    /// Fails if `tree` differs from the source.
    #[track_caller]
    pub(crate) fn assert_same_as_source(&self, tree: &Path) {
        compare(&self.source(), tree, &same()).unwrap().assert_same();
    }
}

/// Writes a file, in a new directory if there is none.
#[track_caller]
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// The names in a directory, sorted.
#[track_caller]
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The paths of all files below a directory, sorted.
#[track_caller]
pub(crate) fn tree_names(dir: &Path) -> Vec<String> {
    let (mut paths, mut pending) = (Vec::new(), vec![String::new()]);
    while let Some(below) = pending.pop() {
        for name in names(&dir.join(&below)) {
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            let found = dir.join(&path);
            if found.is_dir() && !found.is_symlink() {
                pending.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

/// Sets the permissions of a file.
#[track_caller]
pub(crate) fn chmod(path: impl AsRef<Path>, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Sets the size of a file, and makes it if there is none.
#[track_caller]
pub(crate) fn set_len(path: impl AsRef<Path>, len: u64) {
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path);
    file.unwrap().set_len(len).unwrap();
}

/// Copies a tree, with everything that `cp -a` keeps.
#[track_caller]
pub(crate) fn copy(from: &Path, to: &Path) {
    run!("cp -a --", from, to).success();
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
    let text = ferofs!("stats", mount).success().text();
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
