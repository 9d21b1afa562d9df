//! The judge: walks two trees beneath open directories (so that depth and path length do not matter) and lists each
//! difference, by path and field.
//!
//! The left tree is the source, the right one what ferofs made of it. Compared are type, bytes, size, mode, owner,
//! time of modification with nanoseconds, link count, device number, symlink target, all xattrs, which names are hard
//! links of each other, and that what a directory lists agrees with what its entries are. Link counts are held against
//! what lies in the left tree, since a source may be linked from outside, and not every file system counts directories.
//!
//! `entry` compares one name, `links` sees names that are one file, `walk` spreads the work over threads.

mod entry;
mod links;
mod walk;

use std::fmt;
use std::io;
use std::path::Path;

/// How to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// What need not agree; an [`Field::Xattr`] or [`Field::Content`] stands for all of them.
    pub ignore: Vec<Field>,
    /// Number of threads that read.
    pub threads: usize,
    /// Differences to list at most; further ones are only counted.
    pub limit: usize,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { ignore: Vec::new(), threads, limit: 1_000 }
    }
}

impl Options {
    /// All that must agree in a copy made by somebody who is not root.
    pub fn unprivileged() -> Self {
        Self { ignore: vec![Field::Uid, Field::Gid], ..Self::default() }
    }

    fn ignores(&self, field: &Field) -> bool {
        self.ignore.iter().any(|ignored| std::mem::discriminant(ignored) == std::mem::discriminant(field))
    }
}

/// In what two files differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The name is on the left only.
    Missing,
    /// The name is on the right only.
    Unexpected,
    /// One side could not be read.
    Unreadable,
    /// File type.
    Type,
    /// Permission bits.
    Mode,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Size in bytes, of files and symlinks.
    Size,
    /// Time of modification.
    Mtime,
    /// Link count.
    Links,
    /// Device number.
    Device,
    /// Symlink target.
    Target,
    /// Bytes, from this offset on.
    Content(u64),
    /// The xattr of this name.
    Xattr(String),
    /// Two names are one file on one side only.
    HardLink,
    /// The type or inode number in the directory's listing is not that of the file.
    Listing,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path below both roots; odd bytes are escaped, very long ones shortened in the middle.
    pub path: String,
    /// In what they differ.
    pub field: Field,
    /// What the left side has.
    pub left: String,
    /// What the right side has.
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {} | {}", self.path, self.field, self.left, self.right)
    }
}

/// What came of comparing.
#[derive(Debug, Default)]
pub struct Report {
    /// All differences up to the limit, by path.
    pub differences: Vec<Difference>,
    /// Number of all differences.
    pub count: u64,
    /// Names that both sides have, without the roots.
    pub entries: u64,
    /// Bytes of file contents that both sides have.
    pub bytes: u64,
}

impl Report {
    /// Nothing if the trees agree.
    ///
    /// # Panics
    /// With the differences, if they do not.
    #[track_caller]
    pub fn assert_same(&self) {
        let shown: Vec<String> = self.differences.iter().take(20).map(ToString::to_string).collect();
        assert!(self.count == 0, "{} differences (left | right):\n{}", self.count, shown.join("\n"));
    }
}

/// Compares the trees below two directories, the directories themselves included.
///
/// # Errors
/// Only when one of the two cannot be opened; all else is a difference.
pub fn compare(left: &Path, right: &Path, options: &Options) -> io::Result<Report> {
    crate::need::many_open_files();
    walk::walk(left, right, options)
}

#[cfg(test)]
mod tests;
