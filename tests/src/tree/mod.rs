//! A directory tree with every oddity that a file system can hold, the same one for the same seed.
//!
//! Each oddity has its room: `files` sizes and contents, `sparse` holes, `kinds` file types and links, `names`,
//! `meta` (modes, owners, times), `attrs` (xattrs and ACLs), `deep` (long ways down and wide directories). All of
//! them write through a [`Plot`], which works beneath an open directory, so that no path is ever too long.

mod attrs;
mod deep;
mod files;
mod kinds;
mod meta;
mod names;
mod plot;
mod sparse;

use std::io;
use std::path::Path;

pub use attrs::plant_large as plant_large_xattrs;
pub use plot::Plot;

use crate::need;
use crate::rng::Rng;

/// What to plant. The default is everything that is quick; see [`Options::full`] for the rest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Trees of one seed are equal, times included.
    pub seed: u64,
    /// Whether to plant what only root may: devices, owners, `trusted.` and `security.` xattrs.
    pub root: bool,
    /// Size of the largest file, in bytes.
    pub largest: usize,
    /// Number of entries of the widest directory.
    pub wide: usize,
    /// Directories below each other on the longest way down.
    pub deep: usize,
    /// Whether to plant a sparse file of over 4 GiB. Comparing reads all of it.
    pub huge: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, root: need::is_root(), largest: 3_000_017, wide: 3_000, deep: 1_000, huge: false }
    }
}

impl Options {
    /// A few hundred small files, for tests that make many images.
    pub fn small() -> Self {
        Self { largest: 70_001, wide: 0, deep: 0, ..Self::default() }
    }

    /// All of it: a directory of 200,000 entries and a file of many segments.
    pub fn full() -> Self {
        Self { largest: 40_000_003, wide: 200_000, huge: true, ..Self::default() }
    }
}

/// Plants the tree in `dir`, which must exist and be empty.
///
/// # Errors
/// When the file system beneath refuses something; what it merely lacks (ACLs, xattrs on a symlink) is left out.
pub fn plant(dir: &Path, options: &Options) -> io::Result<()> {
    need::many_open_files();
    let root = Plot::open(dir, Rng::new(options.seed), options.root)?;
    root.sub(b"empty", |_| Ok(()))?;
    root.sub(b"files", |plot| files::plant(plot, options.largest))?;
    root.sub(b"sparse", |plot| sparse::plant(plot, options.huge))?;
    root.sub(b"kinds", kinds::plant)?;
    root.sub(b"names", names::plant)?;
    root.sub(b"meta", meta::plant)?;
    root.sub(b"attrs", attrs::plant)?;
    if options.deep > 0 {
        root.sub(b"deep", |plot| deep::plant_deep(plot, options.deep))?;
    }
    if options.wide > 0 {
        root.sub(b"wide", |plot| deep::plant_wide(plot, options.wide))?;
    }
    root.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare;

    fn planted(options: &Options) -> tempfile::TempDir {
        let dir = crate::scratch();
        plant(dir.path(), options).unwrap();
        dir
    }

    #[test]
    fn one_seed_gives_one_tree_and_another_seed_another() {
        let options = Options { deep: 1_000, ..Options::small() };
        let (one, same) = (planted(&options), planted(&options));
        let other = planted(&Options { seed: 2, ..options });
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
