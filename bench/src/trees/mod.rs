//! The trees that benchmarks measure: those that users put into images, and many versions of the
//! same files. Each is made below target/bench-trees when a run first needs it; later runs use it
//! again.

/// Packages, and the Linux source, which one of them has.
pub(crate) mod packages;
mod systems;
pub(crate) mod updates;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_devtools::install::{self, DEBOOTSTRAP};
use ferofs_devtools::shell;
use ferofs_tests::scratch;

use crate::common::report::number;

/// Makes a tree in an empty directory.
type Make = fn(&Path) -> Result<()>;

/// A tree, and what it is.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    make: Make,
}

const fn tree(name: &'static str, about: &'static str, make: Make) -> Tree {
    Tree { name, about, make }
}

/// Trees that users put into images, the largest first.
pub(crate) const USERS: [Tree; 8] = [
    tree(
        "desktop",
        "a Debian with Xfce, LibreOffice, Firefox, compilers and a kernel",
        systems::desktop,
    ),
    tree("kernel", "Debian's source of Linux", systems::kernel),
    tree(
        "android",
        "libraries, programs, and archives of applications, as on a telephone",
        systems::android,
    ),
    tree("numpy", "Python with NumPy and SciPy, and the libraries that they need", systems::numpy),
    tree(
        "programs",
        "Python, Git, Perl, GCC and Vim, and the libraries that they need",
        systems::programs,
    ),
    tree("container", "a Debian as debootstrap --variant=minbase makes it", systems::container),
    tree("sqlalchemy", "8 releases of SQLAlchemy", versions::sqlalchemy),
    tree(
        "part",
        "a part of the tree container: settings, programs, Perl, translations",
        systems::part,
    ),
];

/// Trees with many versions of the same files.
pub(crate) const VERSIONS: [Tree; 5] = [
    tree("python", "6 releases of Django and 2 of NumPy", versions::python_releases),
    USERS[6],
    tree("headers", "the headers of 6 releases of Linux", versions::headers),
    tree("nightly", "a tree on thirty nights, generated", versions::nightly),
    tree(
        "layers",
        "8 layers of images that were built again each month, generated",
        versions::layers,
    ),
];

impl Tree {
    /// The directory.
    pub(crate) fn get(&self) -> Result<PathBuf> {
        complete(self.name, self.make)
    }

    /// What it is and how large it is. Reads all files, so that they are in the page cache
    /// afterwards.
    pub(crate) fn describe(&self) -> Result<String> {
        let (mut files, mut bytes) = (0.0, 0.0);
        each_file(&self.get()?, &mut |path, len| {
            (files, bytes) = (files + 1.0, bytes + len as f64 / 1e6);
            std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink())?;
            Ok(())
        })?;
        Ok(format!(
            "{}: {}, {} MB in {} files",
            self.name,
            self.about,
            number(bytes),
            number(files)
        ))
    }
}

pub(crate) fn named(name: &str) -> Result<Tree> {
    let mut all = USERS.iter().chain(&VERSIONS);
    all.find(|tree| tree.name == name).copied().with_context(|| format!("there is no tree {name}"))
}

/// The directory `name` below target/bench-trees, which `make` fills when it is first needed.
pub(crate) fn complete(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let trees = scratch::target_dir().join("bench-trees");
    let (tree, complete) = (trees.join(name), trees.join(format!("{name}.complete")));
    if !complete.exists() {
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&tree)?;
        println!("making the tree {name}");
        install::install(&[DEBOOTSTRAP])?;
        make(&tree).with_context(|| name.to_owned())?;
        fs::write(&complete, "")?;
    }
    Ok(tree)
}

/// Sets all times below `dir` to one second: otherwise they would be those of the fetching.
fn set_times(dir: &Path) -> Result<()> {
    shell::run(Command::new("find").arg(dir).args([
        "-exec",
        "touch",
        "-hd",
        "@1700000000",
        "{}",
        "+",
    ]))
}

/// Calls `visit` with the path and the size of each regular file below `dir`, sorted by name.
pub(crate) fn each_file(dir: &Path, visit: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let meta = entry.metadata()?;
        if meta.is_dir() {
            each_file(&entry.path(), visit)?;
        } else if meta.is_file() {
            visit(&entry.path(), meta.len())?;
        }
    }
    Ok(())
}
