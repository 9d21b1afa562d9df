//! What general compression makes of a tree: compressed archives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use ferofs_tests::{Run, scratch};

use crate::common::programs::{TIMEOUT, succeed};
use crate::common::walk;

/// Windows of zstd for archives, as powers of two.
pub(super) const ARCHIVE_WINDOWS: [u32; 2] = [23, 27];

/// A compressed stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressed {
    pub(super) size: u64,
    pub(super) cpu: Duration,
    pub(super) peak: u64,
}

/// What was measured for a tree.
pub(super) struct Content {
    /// Bytes of all files.
    pub(super) all: u64,
    /// The order of files that gives the smaller archive with the first of [`ARCHIVE_WINDOWS`].
    pub(super) best_order: &'static str,
    /// Archives in that order, by window.
    pub(super) archives: BTreeMap<u32, Compressed>,
}

/// Measures `tree`, whose versions are its directories.
pub(super) fn measure(tree: &Path) -> Result<Content> {
    let mut paths = Vec::new();
    let mut all = 0;
    walk::each_file(tree, &mut |path, len| {
        all += len;
        paths.push(path.strip_prefix(tree)?.to_owned());
        Ok(())
    })?;
    let mut without_version = paths.clone();
    without_version.sort_by_cached_key(|path| path_without_version(path));
    let [first, later @ ..] = ARCHIVE_WINDOWS;
    let of_tree = compressed(tree, &paths, first)?;
    let of_paths = compressed(tree, &without_version, first)?;
    let (best_order, order, best) = match of_tree.size < of_paths.size {
        true => ("of the tree", &paths, of_tree),
        false => ("of paths without the version", &without_version, of_paths),
    };
    let mut archives = BTreeMap::from([(first, best)]);
    for window in later {
        archives.insert(window, compressed(tree, order, window)?);
    }
    Ok(Content { all, best_order, archives })
}

/// The path below the directory of the version, without other components that are the version's name.
fn path_without_version(path: &Path) -> PathBuf {
    let mut components = path.components();
    let version = components.next();
    components.filter(|component| Some(*component) != version).collect()
}

/// Compresses an archive of a list of paths. The measured time and memory are those of zstd alone.
fn compressed(tree: &Path, paths: &[PathBuf], window: u32) -> Result<Compressed> {
    let dir = scratch();
    let (list, stream, archive) =
        (dir.path().join("list"), dir.path().join("stream"), dir.path().join("archive"));
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(path.as_os_str().as_encoded_bytes());
        names.push(0);
    }
    fs::write(&list, names)?;
    let tar = Run::limited("tar", None, TIMEOUT).args(["--null", "--no-recursion", "-cf"]).arg(&stream);
    succeed("tar", tar.arg("-T").arg(&list).dir(tree))?;
    let window = format!("--long={window}");
    let run = Run::limited("zstd", None, TIMEOUT).args(["-q", "-15", &window, "-o"]);
    let outcome = succeed("zstd", run.arg(&archive).arg(&stream))?;
    let size = fs::metadata(&archive)?.len();
    Ok(Compressed { size, cpu: outcome.cpu, peak: outcome.peak })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::path_without_version;

    #[test]
    fn versions_of_a_file_have_the_same_path() {
        for version in ["v1", "v2"] {
            let path = format!("{version}/usr/src/{version}/include/x.h");
            assert_eq!(path_without_version(Path::new(&path)), Path::new("usr/src/include/x.h"));
        }
    }
}
