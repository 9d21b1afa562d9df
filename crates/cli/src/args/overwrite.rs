//! `--force`, and the decision what an output may replace without it: a file of the kind that the
//! command writes, and a device without a file system.

#[cfg(test)]
mod tests;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use ferofs::build::{FsConfig, KnownFormat, Labels};
use ferofs::patch::names_missing_device;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::args::other_format::is_tar;
use crate::exit::Failure;
use crate::print::output::OUTPUT;

/// Bytes in which the kind of a file shows.
const START: usize = 4096;
/// Bytes of an EROFS superblock's position, and its magic number. Source: FORMAT.md 1.
const SUPERBLOCK: u64 = 1024;
const EROFS: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();
/// Bytes of the largest archive without members.
const EMPTY_TAR_MAX: u64 = 10 << 10;
/// The largest table of Android that is read to recognise it.
const TABLE_MAX: u64 = 64 << 20;

#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct OverwriteArgs {
    /// Replace a file of any kind
    ///
    /// Also a device with a file system. Without it, an output replaces only files of its own kind.
    #[arg(help_heading = OUTPUT, long)]
    force: bool,
}

/// The kind of file that a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// An EROFS image at this position, in bytes.
    Image {
        offset: u64,
    },
    /// Data without a mark: any other data looks like it.
    Chunks,
    Patch,
    Delta,
    Tar,
    Html,
    HashTree,
    /// The text of a root hash, or JSON with it.
    RootHash,
    Signature,
    Json,
    FsConfig,
    FileContexts,
    ManPage,
}

impl OverwriteArgs {
    /// Whether --force is given.
    pub(crate) fn is_forced(self) -> bool {
        self.force
    }

    /// Fails if writing `path` would replace something of another kind than `kind`, and --force is
    /// not given.
    pub(crate) fn check(self, path: &Path, kind: OutputKind) -> Result<(), Failure> {
        if path == Path::new("-") {
            let reason = "this option writes to a file, not to standard output; ./- is a file with this name";
            return if kind.may_be_standard_output() {
                Ok(())
            } else {
                Err(Failure::about(path, reason))
            };
        }
        if names_missing_device(path) {
            let reason = "there is no such device: a file in /dev would only take memory";
            return Err(Failure::about(path, reason));
        }
        if self.force {
            return Ok(());
        }
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Failure::about(path, format!("stat: {error}"))),
        };
        let is_device = metadata.file_type().is_block_device();
        // Nothing is replaced by writing into a pipe. Directories are refused when the file is
        // created.
        if !is_device && !metadata.is_file() {
            return Ok(());
        }
        let found = found(path, &metadata, kind);
        let found = found.map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::MFILE) {
                return Failure::about(path, error);
            }
            let reason = format!(
                "cannot be read, so that nothing tells what would be lost ({error}): --force replaces it"
            );
            Failure::about(path, reason)
        })?;
        match found {
            None => Ok(()),
            Some(name) if is_device => Err(Failure::about(
                path,
                format!("has {name}, which would be lost: --force writes over it"),
            )),
            Some(name) => {
                let kind = kind.name();
                Err(Failure::about(
                    path,
                    format!("exists and is {name}, not {kind}: --force replaces it"),
                ))
            }
        }
    }
}

/// The mode of new files that a mount writes, without the bits of the umask: others never write to
/// them.
pub(crate) const OUTPUT_MODE: u32 = 0o644;

/// Opens a file that a mount writes, without waiting for a program that reads it. Writing to it
/// does not wait either. In a directory that others can write to, it follows no symbolic link and
/// takes no file of another user.
pub(crate) fn open_without_waiting(
    options: &mut OpenOptions,
    path: &Path,
) -> Result<File, Failure> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Opening the file reports errors.
    let is_shared = std::fs::metadata(parent).is_ok_and(|parent| parent.mode() & 0o002 != 0);
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, is_shared);
    let file = options.mode(OUTPUT_MODE).custom_flags(flags.bits() as i32).open(path);
    let is_own =
        |file: &Metadata| !file.is_file() || file.uid() == rustix::process::geteuid().as_raw();
    if let Ok(file) = &file
        && is_shared
        && !file.metadata().is_ok_and(|file| is_own(&file))
    {
        let reason =
            "belongs to another user, in a directory that others can write to: choose another name";
        return Err(Failure::about(path, reason));
    }
    file.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP) if is_shared => Failure::about(
            path,
            "a symbolic link in a directory that others can write to: give the file that it names",
        ),
        Some(Errno::NXIO) => {
            Failure::about(path, "a FIFO that no program reads, or a socket: give a regular file")
        }
        _ => Failure::about(path, error),
    })
}

/// The name of what would be lost; `None` for nothing, or a file of the same kind.
fn found(path: &Path, metadata: &Metadata, kind: OutputKind) -> io::Result<Option<&'static str>> {
    let offset = if let OutputKind::Image { offset } = kind { offset } else { 0 };
    if metadata.is_file() && metadata.len() <= offset {
        return Ok(None);
    }
    let file = File::open(path)?;
    let mut start = Vec::with_capacity(START);
    (&file).take(START as u64).read_to_end(&mut start)?;
    if kind.is_that_of(&file, &start)? {
        return Ok(None);
    }
    if is_image(&file, offset)? {
        return Ok(Some("an EROFS image"));
    }
    let here = KnownFormat::of_file(&file, offset)?;
    if metadata.is_file() {
        let known =
            if is_tar(&start) { Some("a tar archive") } else { here.map(|format| format.name()) };
        return Ok(Some(known.unwrap_or("a file of another kind")));
    }
    // An image after a partition table leaves the table as it is.
    let whole = KnownFormat::of_file(&file, 0)?
        .filter(|format| offset == 0 || !format.is_partition_table());
    Ok(here.or(whole).filter(KnownFormat::is_storage).map(|format| format.name()))
}

fn is_image(file: &File, offset: u64) -> io::Result<bool> {
    let mut magic = [0; EROFS.len()];
    match file.read_exact_at(&mut magic, offset.saturating_add(SUPERBLOCK)) {
        Ok(()) => Ok(magic == EROFS),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// An archive without members: zeroes only.
fn is_empty_tar(file: &File, start: &[u8]) -> io::Result<bool> {
    Ok(file.metadata()?.len() <= EMPTY_TAR_MAX && start.iter().all(|byte| *byte == 0))
}

impl OutputKind {
    /// Its name with an article.
    const fn name(self) -> &'static str {
        match self {
            Self::Image { .. } => "an EROFS image",
            Self::Chunks => "known to be data of chunks",
            Self::Patch => "a patch",
            Self::Delta => "a delta",
            Self::Tar => "a tar archive",
            Self::Html => "an HTML page",
            Self::HashTree => "a hash tree",
            Self::RootHash => "a root hash",
            Self::Signature => "a signature in DER",
            Self::Json => "JSON",
            Self::FsConfig => "an fs_config file",
            Self::FileContexts => "a file_contexts file",
            Self::ManPage => "a manual page of ferofs",
        }
    }

    /// Whether the commands that write it take `-` for standard output.
    const fn may_be_standard_output(self) -> bool {
        matches!(self, Self::Image { .. } | Self::Tar | Self::Json | Self::Html)
    }

    /// Whether `file`, which begins with `start`, is of this kind. An empty file is of every kind.
    fn is_that_of(self, file: &File, start: &[u8]) -> io::Result<bool> {
        if start.is_empty() {
            return Ok(true);
        }
        let text = || start.trim_ascii();
        let is_json = || text().starts_with(b"{") || text().starts_with(b"[");
        Ok(match self {
            Self::Image { offset } => is_image(file, offset)?,
            Self::Chunks => false,
            Self::Patch => start.starts_with(b"ferofspt"),
            Self::Delta => start.starts_with(b"ferofsdl"),
            Self::Tar => is_tar(start) || is_empty_tar(file, start)?,
            Self::Html => {
                text().get(..14).is_some_and(|head| head.eq_ignore_ascii_case(b"<!doctype html"))
            }
            Self::HashTree => start.starts_with(b"verity\0\0"),
            Self::RootHash => is_json() || text().iter().all(u8::is_ascii_hexdigit),
            // A SEQUENCE of more than 127 bytes, as every signature is.
            Self::Signature => matches!(start, [0x30, 0x80..=0xff, ..]),
            Self::Json => is_json(),
            // Pages that people write start with a comment or the title.
            Self::ManPage => start.starts_with(b".ie \\n(.g .ds Aq"),
            Self::FsConfig => FsConfig::parse(&table(file)?).is_ok(),
            Self::FileContexts => {
                std::str::from_utf8(&table(file)?).is_ok_and(|text| Labels::parse(text).is_ok())
            }
        })
    }
}

/// All bytes of a table of Android.
fn table(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at = 0;
    let mut piece = vec![0; 1 << 16];
    while at < TABLE_MAX {
        match file.read_at(&mut piece, at)? {
            0 => break,
            len => {
                bytes.extend_from_slice(&piece[..len]);
                at += len as u64;
            }
        }
    }
    Ok(bytes)
}
