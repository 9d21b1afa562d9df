//! The options and the counters of an extraction.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use crate::select::Selection;
use ferofs_read::{Cancel, Count};

/// The options of an extraction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Threads that decode and write; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// The names to extract. Default: all.
    pub select: Selection,
    /// The treatment of files that exist already. Default: they stay, and are reported as failures.
    pub existing: Existing,
    /// Keep owners. Default: if the process is root. Without owners, setuid and setgid bits and
    /// capabilities are also left out: they would give others the rights of the user who extracts.
    pub owners: bool,
    /// Keep permissions, and ACLs among the extended attributes. Default: yes.
    pub permissions: bool,
    /// Keep extended attributes. Default: yes.
    pub xattrs: bool,
    /// Counters that another thread can read.
    pub progress: Arc<Progress>,
    /// Another thread ends the extraction by it, with
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            select: Selection::default(),
            existing: Existing::default(),
            #[cfg(feature = "extract")]
            owners: rustix::process::geteuid().is_root(),
            #[cfg(not(feature = "extract"))]
            owners: false,
            permissions: true,
            xattrs: true,
            progress: Arc::default(),
            cancel: Cancel::default(),
        }
    }
}

/// The treatment of an existing file with the name of an extracted one. A directory always stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// It stays, and is reported as a failure.
    #[default]
    Refuse,
    /// It is replaced.
    Replace,
    /// It stays if it has the type, size and modification time of the image's file, and the owner
    /// and permissions that the extraction sets; otherwise it is replaced.
    SkipSame,
}

/// The counters of an extraction.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Names that were created.
    pub names: Count,
    /// Files other than directories that were created, each once.
    pub files: Count,
    /// Directories that were created or existed, the first one included.
    pub directories: Count,
    /// Names that existed already and stayed.
    pub skipped: Count,
    /// Bytes of the content of regular files, holes included.
    pub bytes: Count,
    /// Names that could not be extracted, or only in part, and attributes that could not be set.
    pub failures: Count,
}

/// The counters at the end of an extraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Names that were created.
    pub names: u64,
    /// Files other than directories that were created, each once.
    pub files: u64,
    /// Directories that were created or existed, the first one included.
    pub directories: u64,
    /// Names that existed already and stayed.
    pub skipped: u64,
    /// Bytes of the content of regular files, holes included.
    pub bytes: u64,
    /// Names that could not be extracted, or only in part, and attributes that could not be set.
    pub failures: u64,
}

/// Called for each file that fails, with its path in the image.
pub type OnError<'a> = &'a (dyn Fn(&Path, &crate::error::Error) + Sync);

impl Progress {
    pub(super) fn summary(&self) -> Summary {
        Summary {
            names: self.names.get(),
            files: self.files.get(),
            directories: self.directories.get(),
            skipped: self.skipped.get(),
            bytes: self.bytes.get(),
            failures: self.failures.get(),
        }
    }
}
