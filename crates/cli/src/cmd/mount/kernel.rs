//! Mounts with the kernel's EROFS driver (FUSE: [`fuse`]), through fsopen(2), fsmount(2) and
//! move_mount(2) (Linux 5.2).
//!
//! Never starts mount(8): mount(8) starts `/sbin/mount.erofs` for EROFS, which may be this program,
//! without end.

pub(crate) mod flags;
pub(crate) mod fuse;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountFlags, MoveMountFlags};

use crate::cmd::mount::kernel::flags::Flags;
use crate::cmd::mount::loop_device::LoopDevice;
use crate::cmd::mount::options::unquoted;

/// Bytes of a kernel message that are read. Messages of EROFS are shorter; a longer message is cut.
const MESSAGE: usize = 1024;
/// The number of messages that the kernel keeps for a mount at most (`struct fc_log`).
const MESSAGES: usize = 8;

/// The parameters of a mount.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The image: a file or a block device.
    pub(crate) image: &'a Path,
    /// Start of the image in its file, in bytes.
    pub(crate) offset: u64,
    /// Length of the image in its file, in bytes; `None`: up to the end of the file.
    pub(crate) size_limit: Option<u64>,
    /// Extra devices, files or block devices, in the order of the image's device table.
    pub(crate) devices: &'a [PathBuf],
    /// Mount options: flags of the mount, and options of EROFS and of security modules.
    pub(crate) options: &'a [String],
    /// Use a loop device even if EROFS can read the file directly.
    pub(crate) force_loop: bool,
    /// Ignore options that the kernel does not know.
    pub(crate) sloppy: bool,
    /// The directory to mount on.
    pub(crate) dir: &'a Path,
}

/// Why nothing was mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A source cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The kernel refuses the mount.
    #[error("{}{}", io::Error::from(*errno), message.as_ref().map_or(String::new(), |text| format!(" ({text})")))]
    Linux {
        /// The error number.
        errno: Errno,
        /// The message of the kernel, if there is one.
        message: Option<String>,
    },
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Linux { errno, message: None }
    }
}

impl Error {
    /// Whether a block device may work although EROFS refused the file: Linux before 6.12 does not
    /// read files, and later versions cannot read files of all file systems.
    fn may_need_block_device(&self) -> bool {
        matches!(self, Self::Linux { errno: Errno::NOTBLK | Errno::INVAL | Errno::OPNOTSUPP, .. })
    }
}

/// Mounts the image. Returns how, for a message.
///
/// # Errors
/// The reason of the kernel. After an error no loop device stays attached.
pub(crate) fn mount(request: &Request<'_>) -> Result<&'static str, Error> {
    let image = Source::of(request.image)?;
    let devices =
        request.devices.iter().map(|path| Source::of(path)).collect::<io::Result<Vec<_>>>()?;
    let part = request.offset != 0 || request.size_limit.is_some();
    let paths = || devices.iter().map(|device| device.path.as_path());
    let all_are_blocks = image.is_block && devices.iter().all(|device| device.is_block);
    if all_are_blocks && !part {
        mount_sources(request, &image.path, paths())?;
        return Ok("from a block device");
    }
    // EROFS reads regular files without loop devices if all of its sources are files.
    let all_are_files = !image.is_block && devices.iter().all(|device| !device.is_block);
    let mut refusal = None;
    if all_are_files && !part && !request.force_loop {
        match mount_sources(request, &image.path, paths()) {
            Ok(()) => return Ok("from a file"),
            Err(error) if error.may_need_block_device() => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    // If loop devices fail too, the first error is the more helpful one.
    let (image, devices) =
        attach(request, &image, &devices).map_err(|e| refusal.unwrap_or(e.into()))?;
    mount_sources(request, image.path(), devices.iter().map(Backing::path))?;
    Ok("from a loop device")
}

/// Attaches loop devices to all sources that are not block devices.
fn attach(
    request: &Request<'_>,
    image: &Source,
    devices: &[Source],
) -> io::Result<(Backing, Vec<Backing>)> {
    let attach = |source: &Source, offset: u64, limit: Option<u64>| -> io::Result<Backing> {
        if source.is_block && offset == 0 && limit.is_none() {
            return Ok(Backing::Block(source.path.clone()));
        }
        Ok(Backing::Loop(LoopDevice::attach(&source.path, offset, limit)?))
    };
    let image = attach(image, request.offset, request.size_limit)?;
    let devices = devices.iter().map(|device| attach(device, 0, None));
    Ok((image, devices.collect::<io::Result<_>>()?))
}

/// Changes the flags of the mount on `dir`, and gives `options` to its file system, which then has
/// no others. Without any, it keeps those it has.
///
/// # Errors
/// The reason of the kernel.
pub(crate) fn remount(dir: &Path, flags: Flags, options: &[&str]) -> Result<(), Error> {
    // This changes the flags only.
    let only_flags = if options.is_empty() { MountFlags::BIND } else { MountFlags::empty() };
    mount::mount_remount(dir, flags.mount_flags() | only_flags, options.join(",").as_str())?;
    if let Some(propagation) = flags.propagation {
        mount::mount_change(dir, propagation)?;
    }
    Ok(())
}

/// The file or block device of the image, or an extra device.
struct Source {
    path: PathBuf,
    is_block: bool,
}

impl Source {
    fn of(path: &Path) -> io::Result<Self> {
        let name = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        // The kernel shows this path in its mount table, so it must be absolute.
        let path = std::fs::canonicalize(path).map_err(name)?;
        let is_block = std::fs::metadata(&path).map_err(name)?.file_type().is_block_device();
        Ok(Self { path, is_block })
    }
}

/// The block device that EROFS gets for a source.
enum Backing {
    Block(PathBuf),
    Loop(LoopDevice),
}

impl Backing {
    fn path(&self) -> &Path {
        match self {
            Self::Block(path) => path,
            Self::Loop(device) => device.path(),
        }
    }
}

/// Mounts `image` with the extra devices `devices`. The kernel opens all of them by their paths.
fn mount_sources<'a>(
    request: &Request<'_>,
    image: &Path,
    devices: impl Iterator<Item = &'a Path>,
) -> Result<(), Error> {
    let (flags, options) = Flags::split(request.options);
    let context = mount::fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let explain = |errno| explained(&context, errno);
    mount::fsconfig_set_string(&context, "source", image).map_err(explain)?;
    mount::fsconfig_set_flag(&context, "ro").map_err(explain)?;
    for device in devices {
        mount::fsconfig_set_string(&context, "device", device).map_err(explain)?;
    }
    for option in options {
        let set = match option.split_once('=') {
            Some((name, value)) => mount::fsconfig_set_string(&context, name, unquoted(value)),
            None => mount::fsconfig_set_flag(&context, option),
        };
        match set {
            Err(Errno::INVAL) if request.sloppy => {}
            set => set.map_err(explain)?,
        }
    }
    mount::fsconfig_create(&context).map_err(explain)?;
    let mounted = mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags.attributes)
        .map_err(explain)?;
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    mount::move_mount(mounted.as_fd(), "", CWD, request.dir, how)?;
    if let Some(propagation) = flags.propagation {
        mount::mount_change(request.dir, propagation)?;
    }
    Ok(())
}

/// Adds the last error message in `context` to `errno`. Each read(2) returns one message, for
/// example "e erofs: Unknown parameter 'x'".
fn explained(context: &OwnedFd, errno: Errno) -> Error {
    let mut buffer = [0; MESSAGE];
    let mut message = None;
    for _ in 0..MESSAGES {
        let Ok(len @ 1..) = rustix::io::read(context, &mut buffer) else { break };
        let text = String::from_utf8_lossy(buffer.get(..len).unwrap_or_default()).into_owned();
        if let Some(error) = text.strip_prefix("e ") {
            message = Some(error.trim_end().to_owned());
        }
    }
    Error::Linux { errno, message }
}
