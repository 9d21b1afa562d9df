//! Compares two trees and lists each difference, with path and field. It uses directory
//! descriptors, so that depth and path length do not matter.
//!
//! The left tree is the source; the right one is the result of ferofs. The comparison includes
//! type, content, size, mode, owner, modification time with nanoseconds, link count, device number,
//! symlink target, all xattrs, and which names are hard links of each other. The type and inode
//! number that a directory lists must agree with the entry itself. The link counts of the right
//! tree are compared with the number of names in the left tree, because the source may have links
//! from outside, and some file systems do not count directories.
//!
//! `entry` compares one name, `walk` divides the work between threads and checks hard links.

mod entry;
mod walk;

use std::fmt;
use std::io;
use std::path::Path;

/// How to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fields to ignore. One [`Field::Xattr`] or [`Field::Content`] stands for all of its kind.
    pub ignore: Vec<Field>,
    /// Number of threads that read.
    pub threads: usize,
    /// The largest number of differences to list; more are only counted.
    pub limit: usize,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { ignore: Vec::new(), threads, limit: 1_000 }
    }
}

impl Options {
    /// The options for a copy made without root: owners may differ.
    pub fn unprivileged() -> Self {
        Self { ignore: vec![Field::Uid, Field::Gid], ..Self::default() }
    }

    fn ignores(&self, field: &Field) -> bool {
        self.ignore
            .iter()
            .any(|ignored| std::mem::discriminant(ignored) == std::mem::discriminant(field))
    }
}

/// A field in which two files differ.
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
    /// Two names share an inode in one tree only.
    HardLink,
    /// The directory lists another type or inode number than the entry has.
    Listing,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path below both roots; non-printable bytes are escaped, very long paths are shortened.
    pub path: String,
    /// The field that differs.
    pub field: Field,
    /// The value in the left tree.
    pub left: String,
    /// The value in the right tree.
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {} | {}", self.path, self.field, self.left, self.right)
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// All differences up to the limit, by path.
    pub differences: Vec<Difference>,
    /// Number of all differences.
    pub count: u64,
    /// Entries that exist in both trees, without the roots.
    pub entries: u64,
    /// Bytes of file content that are equal.
    pub bytes: u64,
}

impl Report {
    /// Checks that there is no difference.
    ///
    /// # Panics
    /// If the trees differ; the message lists the differences.
    #[track_caller]
    pub fn assert_same(&self) {
        let shown: Vec<String> =
            self.differences.iter().take(20).map(ToString::to_string).collect();
        assert!(
            self.count == 0,
            "{} differences (left | right):\n{}",
            self.count,
            shown.join("\n")
        );
    }
}

/// Compares the trees below two directories, the directories themselves included.
///
/// # Errors
/// Only when one of the two cannot be opened; other errors are reported as differences.
pub fn compare(left: &Path, right: &Path, options: &Options) -> io::Result<Report> {
    crate::need::many_open_files();
    walk::walk(left, right, options)
}

#[cfg(test)]
mod tests;
