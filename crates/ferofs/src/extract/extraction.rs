//! The state that all threads of an extraction share.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_read::{Image, Inode, Nid};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::options::{OnError, Options};
use super::target::{FileId, Target};
use crate::error::{Error, IoError, Result};

/// The state that all threads of an extraction share.
pub(super) struct Extraction<'a> {
    pub(super) image: &'a Image,
    pub(super) options: &'a Options,
    pub(super) on_error: OnError<'a>,
    pub(super) target: Target,
    /// For permissions that are not those of the image.
    pub(super) umask: u16,
    /// The error that ended the extraction: a limit was reached, or nothing can be written to the
    /// target.
    pub(super) stopped: OnceLock<Error>,
    /// Attributes that could not be set here, by name.
    pub(super) lost_xattrs: Mutex<BTreeMap<CString, Unsupported>>,
    /// The files that inodes with several names were extracted to.
    pub(super) made: Mutex<HashSet<(Nid, FileId)>>,
    /// A thread panicked: the others end.
    pub(super) panicked: AtomicBool,
}

/// What the target does not support, although nothing is wrong with the files: an attribute, or
/// hard links.
pub(super) struct Unsupported {
    /// The first file without it.
    pub(super) path: PathBuf,
    /// The number of these files.
    pub(super) files: u64,
    pub(super) error: Errno,
}

impl Unsupported {
    pub(super) fn new(path: &Path, error: Errno) -> Self {
        Self { path: path.to_owned(), files: 0, error }
    }
}

impl Extraction<'_> {
    /// Records the file of an inode with several names, so that the other names are linked to this
    /// file only.
    pub(super) fn record_file(&self, inode: &Inode, stat: &rustix::fs::Stat) {
        if inode.on_disk().nlink > 1 {
            let mut made = self.made.lock();
            made.insert((inode.nid(), FileId::of(stat)));
        }
    }

    /// Whether inode `nid` was extracted to `file`.
    pub(super) fn is_extracted(&self, nid: Nid, file: FileId) -> bool {
        self.made.lock().contains(&(nid, file))
    }

    /// Counts a file that was created (`true`), existed already (`false`), or failed.
    pub(super) fn count_file(&self, path: &Path, made: Result<bool>) {
        if matches!(made, Ok(true)) {
            self.options.progress.files.add(1);
        }
        self.count(path, made);
    }

    /// The same for any name.
    pub(super) fn count(&self, path: &Path, made: Result<bool>) {
        let progress = &self.options.progress;
        match made {
            Ok(true) => progress.names.add(1),
            Ok(false) => progress.skipped.add(1),
            Err(error) => self.report(path, Err(error)),
        }
    }

    /// Whether the extraction is to end.
    pub(super) fn is_stopped(&self) -> bool {
        let panicked = self.panicked.load(Ordering::Relaxed);
        panicked || self.options.cancel.is_cancelled() || self.stopped.get().is_some()
    }

    /// Charges the work of creating a name in the directory `dir`: about 10 us, and 0.1 us for each
    /// directory on the path.
    pub(super) fn charge_name(&self, dir: &Path) -> Result<()> {
        let steps = u64::try_from(dir.as_os_str().len() / 64).unwrap_or(u64::MAX);
        Ok(self.image.budget().charge(steps.saturating_add(100))?)
    }

    /// Counts and reports a failure; one that ends all work ends the extraction.
    pub(super) fn report(&self, path: &Path, result: Result<()>) {
        if let Err(error) = result {
            if error.ends_all() || is_lasting(&error) {
                // Reported once, and not for each file.
                let _ = self.stopped.set(error);
                return;
            }
            self.options.progress.failures.add(1);
            (self.on_error)(path, &error);
        }
    }
}

/// Whether all other files would also fail: the target is full, read-only or broken, or too many
/// files are open.
fn is_lasting(error: &Error) -> bool {
    // The image is only read.
    let Error::Io(IoError { action, source, .. }) = error else { return false };
    let errno = source.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::MFILE | Errno::NFILE) => true,
        // Servers of FUSE return it for what they do not support, such as an attribute, a symbolic
        // link or a FIFO.
        Some(Errno::IO) => matches!(*action, "create" | "set size of" | "write"),
        _ => false,
    }
}
