//! Creates a directory tree with all kinds of inodes, names and attributes that a file system
//! supports. The same seed gives the same tree.
//!
//! One module for each topic: `files` (sizes, content and holes), `kinds` (file types, links,
//! modes, owners and times), `names` (also deep and wide directories), `attrs` (xattrs and ACLs).
//! All use a [`DirWriter`], which works with an open directory, so that no path is too long.

mod attrs;
mod files;
mod kinds;
mod names;
mod writer;

use std::io;
use std::path::Path;

pub use attrs::create_large as create_large_xattrs;
pub use writer::DirWriter;

use crate::need;
use crate::rng::Rng;

/// What to create. The default is everything that is fast; see [`Options::full`] for the rest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Trees of one seed are equal, times included.
    pub seed: u64,
    /// Whether to create what only root may create: devices, owners, `trusted.` and `security.`
    /// xattrs.
    pub root: bool,
    /// Size of the largest file, in bytes.
    pub largest: usize,
    /// Number of entries of the widest directory.
    pub wide: usize,
    /// Directories nested in each other.
    pub deep: usize,
    /// Whether to create a sparse file of over 4 GiB. Comparing reads all of it.
    pub huge: bool,
}

impl Default for Options {
    fn default() -> Self {
        // The quick tree still has directories of several blocks, files of several clusters, and
        // paths longer than PATH_MAX.
        let (largest, wide, deep) =
            if need::is_quick() { (300_017, 300, 300) } else { (3_000_017, 3_000, 1_000) };
        Self { seed: 1, root: need::is_root(), largest, wide, deep, huge: false }
    }
}

impl Options {
    /// A few hundred small files, for tests that make many images.
    pub fn small() -> Self {
        Self { largest: 70_001, wide: 0, deep: 0, ..Self::default() }
    }

    /// Everything: a directory of 200,000 entries and a file of many segments.
    pub fn full() -> Self {
        Self { largest: 40_000_003, wide: 200_000, huge: true, ..Self::default() }
    }
}

/// Creates the tree in `dir`, which must exist and be empty.
///
/// # Errors
/// When the file system refuses something. What it does not support (ACLs, xattrs on a symlink) is
/// left out.
pub fn create(dir: &Path, options: &Options) -> io::Result<()> {
    need::many_open_files();
    let root = DirWriter::open(dir, Rng::new(options.seed), options.root)?;
    root.sub(b"empty", |_| Ok(()))?;
    root.sub(b"files", |writer| files::create(writer, options.largest))?;
    root.sub(b"sparse", |writer| files::create_sparse(writer, options.huge))?;
    root.sub(b"kinds", kinds::create)?;
    root.sub(b"names", names::create)?;
    root.sub(b"meta", kinds::create_metadata)?;
    root.sub(b"attrs", attrs::create)?;
    if options.deep > 0 {
        root.sub(b"deep", |writer| names::create_deep(writer, options.deep))?;
    }
    if options.wide > 0 {
        root.sub(b"wide", |writer| names::create_wide(writer, options.wide))?;
    }
    root.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare;

    fn created(options: &Options) -> tempfile::TempDir {
        let dir = crate::scratch();
        create(dir.path(), options).unwrap();
        dir
    }

    #[test]
    fn one_seed_gives_one_tree_and_another_seed_another() {
        let options = Options { deep: 1_000, ..Options::small() };
        let (one, same) = (created(&options), created(&options));
        let other = created(&Options { seed: 2, ..options });
        let report = compare(one.path(), same.path(), &compare::Options::default()).unwrap();
        assert_eq!(report.differences, []);
        assert!(report.entries > 1_400, "{}", report.entries);
        let report = compare(one.path(), other.path(), &compare::Options::default()).unwrap();
        assert!(
            report
                .differences
                .iter()
                .any(|difference| matches!(difference.field, compare::Field::Content(_)))
        );
    }
}
