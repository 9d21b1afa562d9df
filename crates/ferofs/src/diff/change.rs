//! The options of a comparison, and the differences that it reports.

use std::path::PathBuf;
use std::sync::Arc;

use ferofs_read::{Count, FileType, Rdev, Timestamp};

use crate::error::Error;
use crate::select::Selection;

/// The properties that are compared. By default: all of them.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub struct Options {
    pub content: bool,
    pub mode: bool,
    pub owner: bool,
    pub times: bool,
    pub xattrs: bool,
    pub links: bool,
    /// The names to leave out, in both trees.
    pub select: Selection,
    /// Counts the names that were compared; other threads may read it meanwhile.
    pub compared: Arc<Count>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            content: true,
            mode: true,
            owner: true,
            times: true,
            xattrs: true,
            links: true,
            select: Selection::default(),
            compared: Arc::default(),
        }
    }
}

/// A result of the comparison.
#[derive(Debug)]
pub enum Event {
    /// A difference.
    Change(Change),
    /// A file that could not be compared. The others still are.
    Failed {
        /// The path within the trees.
        path: PathBuf,
        /// The reason.
        error: Error,
    },
}

/// A difference.
#[derive(Debug)]
#[non_exhaustive]
pub struct Change {
    /// The path within the trees; empty for their roots.
    pub path: PathBuf,
    /// The difference.
    pub kind: ChangeKind,
}

/// The kind of a difference.
#[derive(Debug)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added(Stat),
    /// Only the first tree has it.
    Removed(Stat),
    /// Both have it.
    Changed(Differences),
}

/// A file's type, owner, size and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in stat(2)")]
#[non_exhaustive]
pub struct Stat {
    pub file_type: FileType,
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of a regular file or symbolic link; otherwise 0.
    pub size: u64,
    pub mtime: Timestamp,
    pub rdev: Rdev,
}

/// How a file differs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Differences {
    /// Both files.
    pub stat: [Stat; 2],
    /// The type differs; then nothing else was compared.
    pub file_type: bool,
    /// The content of a regular file, the target of a symbolic link, or the number of a device
    /// differs.
    pub content: bool,
    /// Permissions differ.
    pub mode: bool,
    /// User or group differ.
    pub owner: bool,
    /// Modification times differ.
    pub mtime: bool,
    /// Names of attributes that differ, or that only one file has.
    pub xattrs: Vec<Vec<u8>>,
    /// In one tree the name is a hard link to a file that has another name, and in the other tree
    /// these names are separate files.
    pub links: bool,
}

impl Differences {
    pub(super) fn is_same(&self) -> bool {
        let Self { file_type, content, mode, owner, mtime, xattrs, links, .. } = self;
        !(*file_type || *content || *mode || *owner || *mtime || *links) && xattrs.is_empty()
    }
}
