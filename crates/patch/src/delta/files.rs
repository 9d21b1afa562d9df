//! Applies a delta to files with names: each error names the file that it is about.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ferofs_read::{FileSource, KnownFormat, Source, open_device};
use rustix::io::Errno;

use super::{Applied, Delta, DeltaOutput, Role, Tagged, of};
use crate::error::{Error, Result};

/// What is wrong if [`names_missing_device`].
const MISSING_DEVICE: &str = "there is no such device: a file in /dev would only take memory";
/// Symbolic links that are followed at most, as in Linux.
const LINKS_MAX: usize = 40;

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
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
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

    /// Makes the image `new`, a file or a device, standard output for `-`, or a named pipe, from the image `old`, as [`Delta::apply_to_file`]. A new
    /// file of which nothing was written is removed after an error. Only with `force`, a file or device with other data than an EROFS image is replaced.
    ///
    /// # Errors
    /// As [`Delta::apply_to_file`]; [`Error::Io`] if `new` is a stream that is to be resumed, `old`, the delta, a mounted device, [a device that is
    /// missing](names_missing_device), or has other data. Each names its file.
    pub fn apply(
        self,
        old: &Path,
        new: &Path,
        resume: bool,
        force: bool,
        written: impl FnMut(u64),
        cancel: &AtomicBool,
    ) -> Result<Applied> {
        let Self { delta, name } = self;
        let is_stdout = new.as_os_str() == "-";
        let new_name = if is_stdout { Path::new("standard output") } else { new };
        let refused = |problem: &str| {
            Err(of(Role::New)(Error::io("write", new_name, io::Error::other(problem))))
        };
        let applied = match is_stdout || takes_bytes_in_order(new) {
            true if resume => refused("what a stream got cannot be read again: leave out --resume"),
            true => source(old).and_then(|source| {
                let mut stream = stream(new)?;
                delta.apply_tagged(&source, DeltaOutput::Stream(&mut *stream), written, cancel)
            }),
            false if [old, &name].iter().any(|input| is_same(new, input)) => {
                refused("it is also the old image or the delta")
            }
            false if names_missing_device(new) => refused(MISSING_DEVICE),
            false => match if force { Ok(None) } else { other_data(new, resume) } {
                Ok(None) => source(old)
                    .and_then(|source| make(delta, &source, new, resume, written, cancel)),
                Ok(Some(data)) => {
                    refused(&format!("it has {data}, which would be lost: --force replaces it"))
                }
                Err(error) => refused(&format!(
                    "what would be lost cannot be read ({error}): --force replaces it"
                )),
            },
        };
        applied.map_err(|(role, error)| {
            error.in_file(match role {
                Role::Old => old,
                Role::Delta => &name,
                Role::New => new_name,
            })
        })
    }
}

impl std::fmt::Debug for DeltaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaFile").field("name", &self.name).field("delta", &self.delta).finish()
    }
}

/// What a file or device has that is no EROFS image, and that replacing it would lose. A power cut can lose the first page of an image that was begun:
/// `resume` accepts data behind it, but no file system.
fn other_data(path: &Path, resume: bool) -> io::Result<Option<&'static str>> {
    /// Bytes in which file systems have their superblocks.
    const START: u64 = 128 << 10;
    const SUPERBLOCK: usize = 1024;
    const MAGIC: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();
    let kind = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?.file_type(),
    };
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let mut start = Vec::new();
    (&file).take(if resume { 4096 } else { START }).read_to_end(&mut start)?;
    if start.get(SUPERBLOCK..).is_some_and(|superblock| superblock.starts_with(&MAGIC)) {
        return Ok(None);
    }
    let known = KnownFormat::of_file(&file, 0)?.map(|format| format.name());
    let is_unknown = start.iter().any(|byte| *byte != 0);
    Ok(known.or(is_unknown.then_some("other data than an EROFS image")))
}

/// Whether `path` is a pipe or another file to which bytes are written in order, as to standard output.
fn takes_bytes_in_order(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device() && !kind.is_dir())
}

/// Standard output for `-`, or a file that takes bytes in order. Opening a pipe waits for its reader.
fn stream(path: &Path) -> Tagged<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let file = OpenOptions::new().write(true).open(path);
    Ok(Box::new(file.map_err(|e| of(Role::New)(Error::io("open", path, e)))?))
}

/// Whether `path` does not exist, and a file of this name would be on the file system of /dev. Such a file is a mistake: the name is misspelt, or the
/// device is missing.
pub fn names_missing_device(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = directory_of(&path).join(target);
    }
    let file_system = |dir: &Path| std::fs::metadata(dir).ok().map(|metadata| metadata.dev());
    let devices = file_system(Path::new("/dev"));
    let is_missing =
        std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    is_missing
        && devices.is_some()
        && devices != file_system(Path::new("/"))
        && devices == file_system(directory_of(&path))
}

/// The directory that has the name `path`.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether both are the same file or block device, perhaps by different names. A loop device is the same as its file.
fn is_same(path: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let own = identity(path)?;
        Some(backing_file(own).unwrap_or((own, 0)))
    };
    place(path).is_some_and(|own| place(other) == Some(own))
}

/// Whether it is a block device, and its numbers.
fn identity(path: &Path) -> Option<(bool, u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    Some(if is_device {
        (true, metadata.rdev(), 0)
    } else {
        (false, metadata.dev(), metadata.ino())
    })
}

/// The file that a loop device shows, and the offset there. Two slots can be in one file.
fn backing_file((is_device, number, _): (bool, u64, u64)) -> Option<((bool, u64, u64), u64)> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let read = |name: &str| {
        let path = format!("/sys/dev/block/{major}:{minor}/loop/{name}");
        std::fs::read(path).ok().filter(|_| is_device)
    };
    let (file, offset) = (read("backing_file")?, String::from_utf8(read("offset")?).ok()?);
    let file = Path::new(std::ffi::OsStr::from_bytes(file.strip_suffix(b"\n")?));
    Some((identity(file)?, offset.trim().parse().ok()?))
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
    // What cannot be looked at may be a device.
    let is_device = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type().is_block_device(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(of(Role::New)(Error::io("stat", path, error))),
    };
    let file = match is_device {
        true => open_device(path),
        // Bytes of a longer file are cut off at the end only: an old image that is another one changes nothing.
        false => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path),
    };
    let file = file.map_err(|e| of(Role::New)(Error::io("open", path, e)))?;
    let applied = delta.apply_to_tagged(old, &file, resume, written, cancel);
    if applied.is_err() && is_new && file.metadata().is_ok_and(|meta| meta.len() == 0) {
        // Nothing was written that could be continued. The error comes first.
        let _ = std::fs::remove_file(path);
    }
    if applied.is_ok() && !is_device {
        sync_name(path)?;
    }
    applied
}

/// Makes the name of a file durable that this run created, or an interrupted one. Not every directory can be opened, and not every file system can
/// sync one: only errors of storage count.
fn sync_name(path: &Path) -> Tagged<()> {
    let dir = directory_of(path);
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::IO | Errno::NOSPC | Errno::DQUOT)
            ) =>
        {
            Err(of(Role::New)(Error::io("sync", dir, error)))
        }
        _ => Ok(()),
    }
}
