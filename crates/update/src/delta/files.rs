//! Applies a delta to files with names: each error names the file that it is about.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_host::{
    KnownFormat, follow_links, hidden_beside, is_descriptor, keep_access, open_in_place, sync_name,
};
use ferofs_read::{Cancel, FileSource, Source};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Applied, Delta, DeltaOutput, Role, Tagged, of};
use crate::error::{Error, Result};

/// What is wrong if [`names_missing_device`].
const MISSING_DEVICE: &str = "there is no such device: a file in /dev would only take memory";

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
        let mut delta = Delta::read(stream).map_err(|e| e.in_file(name))?;
        delta.is_whole_stream = true;
        Ok(Self { delta, name: name.to_owned() })
    }

    /// The delta.
    pub const fn delta(&self) -> &Delta<Box<dyn Read>> {
        &self.delta
    }

    /// Reads the rest of the file, which cannot be applied afterwards.
    ///
    /// # Errors
    /// As [`Delta::check_length`], with the name of the file.
    pub fn check_length(&mut self) -> Result<()> {
        self.delta.check_length().map_err(|e| e.in_file(&self.name))
    }

    /// Makes the image `new`, a file or a device, standard output for `-`, or a named pipe, from
    /// the image `old`, as [`Delta::apply_to_file`]. The bytes of a file go to its [part
    /// file](part_file), which replaces `new` when it is complete, with its access rights. After an
    /// error it stays for `resume`, unless nothing was written or no space is left. Only with
    /// `force`, a file or device with other data than an EROFS image is replaced.
    ///
    /// # Errors
    /// As [`Delta::apply_to_file`]; [`Error::Io`] if `new` is a stream that is to be resumed,
    /// `old`, the delta, a mounted device, [a device that is missing](names_missing_device), or has
    /// other data. Each names its file.
    pub fn apply(
        self,
        old: &Path,
        new: &Path,
        resume: bool,
        force: bool,
        written: impl FnMut(u64),
        cancel: &Cancel,
    ) -> Result<Applied> {
        let Self { delta, name } = self;
        let is_stdout = new.as_os_str() == "-";
        let new_name = if is_stdout { Path::new("standard output") } else { new };
        let refused = |problem: &str| {
            Err(of(Role::New)(Error::io("write", new_name, io::Error::other(problem))))
        };
        let part = if is_stdout { None } else { part_file(new) };
        let is_input = |path: &Path| [old, &name].iter().any(|input| is_same(path, input));
        let applied = match is_stdout || takes_bytes_in_order(new) {
            true if resume => refused("what a stream got cannot be read again: leave out --resume"),
            true => source(old).and_then(|source| {
                let mut stream = stream(new)?;
                delta.apply_tagged(&source, DeltaOutput::Stream(&mut *stream), written, cancel)
            }),
            false if is_input(new) => refused("it is also the old image or the delta"),
            false if part.as_deref().is_some_and(is_input) => {
                refused("its part file is also the old image or the delta")
            }
            false if names_missing_device(new) => refused(MISSING_DEVICE),
            false => match if force { Ok(None) } else { other_data(new, resume && part.is_none()) }
            {
                Ok(None) => source(old)
                    .and_then(|source| make(delta, &source, new, resume, written, cancel)),
                Ok(Some(data)) => {
                    refused(&format!("it has {data}, which would be lost: --force replaces it"))
                }
                Err(error) if lacks_resources(&error) => {
                    Err(of(Role::New)(Error::io("open", new_name, error)))
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

/// What a file or device has that is not an EROFS image, and that replacing it would lose. A power
/// cut can lose the first page of an image that was begun: `resume` accepts data after it, but no
/// file system.
pub(crate) fn other_data(path: &Path, resume: bool) -> io::Result<Option<&'static str>> {
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

/// Whether `path` is a pipe or another file to which bytes are written in order, as to standard
/// output.
fn takes_bytes_in_order(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device() && !kind.is_dir())
}

/// Standard output for `-`, or a file that takes bytes in order. Opening a pipe waits for its
/// reader.
fn stream(path: &Path) -> Tagged<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let file = OpenOptions::new().write(true).open(path);
    Ok(Box::new(file.map_err(|e| of(Role::New)(Error::io("open", path, e)))?))
}

/// Whether `path` does not exist, and a file of this name would be on the file system of /dev. Such
/// a file is a mistake: the name is misspelt, or the device is missing.
pub fn names_missing_device(path: &Path) -> bool {
    let path = follow_links(path);
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

/// Whether both are the same file or block device, perhaps by different names. A loop device is the
/// same as its file.
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
    cancel: &Cancel,
) -> Tagged<Applied> {
    let new = |action| move |e: io::Error| of(Role::New)(Error::io(action, path, e));
    // What cannot be looked at may be a device.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(new("open")(io::ErrorKind::IsADirectory.into())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(new("stat")(error)),
        _ => Ok(()),
    }?;
    let Some(part) = part_file(path) else {
        let file = open_in_place(path).map_err(new("open"))?;
        return delta.apply_to_tagged(old, &file, resume, written, cancel);
    };
    let file = open_part(&part, resume).map_err(|e| of(Role::New)(Error::io("write", &part, e)))?;
    let path = follow_links(path);
    let applied = delta.apply_to_tagged(old, &file, resume, written, cancel);
    let applied = applied.map_err(|(role, error)| {
        let is_replaced = path.exists();
        let full = match &error {
            Error::Io(error) if role == Role::New => {
                Some(error.source.kind()).filter(|kind| is_full(*kind))
            }
            _ => None,
        };
        if full.is_some() || file.metadata().is_ok_and(|meta| meta.len() == 0) {
            // The space is free again. The error comes first.
            let _ = std::fs::remove_file(&part);
        }
        match (error, full) {
            (Error::Io(mut error), Some(kind)) => {
                let state = match is_replaced {
                    true => "NEW is as before, and needs space beside the new image",
                    false => "nothing of NEW is left",
                };
                error.source = io::Error::new(kind, format!("{}; {state}", error.source));
                (role, error.into())
            }
            (error, _) => (role, error),
        }
    })?;
    let io = |action, e| of(Role::New)(Error::io(action, &path, e));
    // Changes the mask of this process for a moment: other new files of it could only be more
    // private.
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    keep_access(&file, &path, 0o666 & !mask.bits()).map_err(|e| io("set the permissions of", e))?;
    file.sync_all().map_err(|e| io("sync", e))?;
    std::fs::rename(&part, &path).map_err(|e| {
        // It would be refused again: in a directory such as /tmp, NEW can belong to another user.
        let _ = std::fs::remove_file(&part);
        io("rename", e)
    })?;
    sync_name(&path).map_err(|e| of(Role::New)(e.into()))?;
    Ok(applied)
}

/// The file `.NAME.part` beside the new image, which gets this name when it is complete; a digest
/// takes the place of a long name. None if `new` is written in place: a device, a pipe or a
/// descriptor.
pub fn part_file(new: &Path) -> Option<PathBuf> {
    let is_other = std::fs::metadata(new).is_ok_and(|metadata| !metadata.is_file());
    if is_other || is_descriptor(new) {
        return None;
    }
    hidden_beside(&follow_links(new), "part", |name| blake3::hash(name).to_hex().to_string())
}

/// Opens the part file `path`, which only this process writes, and only its user can read. With
/// `resume`, it keeps its content.
fn open_part(path: &Path, resume: bool) -> io::Result<File> {
    let is_locked = |file: &File| {
        // Other errors mean that the file system has no locks.
        let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        match locked == Err(Errno::WOULDBLOCK) {
            true => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process makes the same image",
            )),
            false => Ok(()),
        }
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // Links and pipes of other users lead nowhere.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if lacks_resources(&error) => return Err(error),
        Err(_) => std::fs::remove_file(path)?,
        Ok(file) => {
            is_locked(&file)?;
            let (own, named) = (file.metadata()?, std::fs::symlink_metadata(path)?);
            // Another user could write to the file after its bytes were compared.
            let is_own = own.is_file()
                && own.nlink() == 1
                && own.uid() == rustix::process::geteuid().as_raw();
            if (own.dev(), own.ino()) != (named.dev(), named.ino()) {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another process made the same image",
                ));
            }
            if resume && is_own {
                return Ok(file);
            }
            std::fs::remove_file(path)?;
        }
    }
    let file = options.create_new(true).open(path)?;
    is_locked(&file)?;
    Ok(file)
}

/// Whether the process cannot open any file.
fn lacks_resources(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether the file system, or a limit, has no space for more.
fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
