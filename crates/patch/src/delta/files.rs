//! Applies a delta to files with names: each error names the file that it is about.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs_read::{FileSource, Source};
use rustix::fs::OFlags;

use super::{Applied, Delta, DeltaOutput, Role, Tagged, of};
use crate::error::{Error, Result};

/// A delta in a file, or from standard input, whose header was read.
pub struct DeltaFile {
    delta: Delta<Box<dyn Read>>,
    name: PathBuf,
}

impl DeltaFile {
    /// Opens the delta `path`, or standard input for `-`, and reads its header.
    ///
    /// # Errors
    /// As [`Delta::read`], and [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let (name, stream): (_, Box<dyn Read>) = match path.as_os_str() == "-" {
            true => (Path::new("standard input"), Box::new(std::io::stdin().lock())),
            false => {
                let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
                (path, Box::new(BufReader::new(file)))
            }
        };
        let delta = Delta::read(stream).map_err(|e| e.in_file(name))?;
        Ok(Self { delta, name: name.to_owned() })
    }

    /// The delta.
    pub const fn delta(&self) -> &Delta<Box<dyn Read>> {
        &self.delta
    }

    /// Makes the image `new`, a file or a device, or standard output for `-`, from the image `old`, as [`Delta::apply_to_file`]. A new file of
    /// which nothing was written is removed after an error.
    ///
    /// # Errors
    /// As [`Delta::apply_to_file`]; [`Error::Io`] if `new` is `old`, the delta, or a mounted device. Each names its file.
    pub fn apply(
        self,
        old: &Path,
        new: &Path,
        resume: bool,
        written: impl FnMut(u64),
        cancel: &AtomicBool,
    ) -> Result<Applied> {
        let Self { delta, name } = self;
        let is_stream = new.as_os_str() == "-";
        let applied = match is_stream {
            true => {
                let mut stdout = std::io::stdout().lock();
                source(old).and_then(|source| {
                    delta.apply_tagged(&source, DeltaOutput::Stream(&mut stdout), written, cancel)
                })
            }
            false if [old, &name].iter().any(|input| is_same(new, input)) => {
                let problem = "it is also the old image or the delta";
                Err(of(Role::New)(Error::io("write", new, io::Error::other(problem))))
            }
            false => source(old).and_then(|source| make(delta, &source, new, resume, written, cancel)),
        };
        applied.map_err(|(role, error)| {
            error.in_file(match role {
                Role::Old => old,
                Role::Delta => &name,
                Role::New if is_stream => Path::new("standard output"),
                Role::New => new,
            })
        })
    }
}

impl std::fmt::Debug for DeltaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaFile").field("name", &self.name).field("delta", &self.delta).finish()
    }
}

/// Whether both are the same file or block device, perhaps by different names.
fn is_same(path: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        Some(if is_device { (true, metadata.rdev(), 0) } else { (false, metadata.dev(), metadata.ino()) })
    };
    identity(path).is_some_and(|own| identity(other) == Some(own))
}

fn source(old: &Path) -> Tagged<Arc<dyn Source>> {
    let source = FileSource::open(old, 0).map_err(|e| of(Role::Old)(e.into()))?;
    Ok(Arc::new(source))
}

/// Makes the file or device `path`.
fn make(
    delta: Delta<Box<dyn Read>>,
    old: &Arc<dyn Source>,
    path: &Path,
    resume: bool,
    written: impl FnMut(u64),
    cancel: &AtomicBool,
) -> Tagged<Applied> {
    let is_new = std::fs::symlink_metadata(path).is_err();
    let mut options = OpenOptions::new();
    // Bytes of a longer file are cut off at the end only: an old image that is another one changes nothing.
    options.read(true).write(true).truncate(false);
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        // Linux refuses to open a mounted device exclusively.
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    } else {
        options.create(true);
    }
    let file = options.open(path);
    let file = file.map_err(|e| of(Role::New)(Error::io("open", path, e)))?;
    let applied = delta.apply_to_tagged(old, &file, resume, written, cancel);
    if applied.is_err() && is_new && file.metadata().is_ok_and(|meta| meta.len() == 0) {
        // Nothing was written that could be continued. The error comes first.
        let _ = std::fs::remove_file(path);
    }
    applied
}
