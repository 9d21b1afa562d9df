//! `mount`: mounts an image with FUSE, and answers requests in the foreground.
//!
//! Two processes share the work. The first mounts, starts the second with the FUSE device as its
//! standard input, and unmounts when a signal arrives or the second ends. It never decodes a byte
//! of the image. The second gives up all rights before it decodes the first byte.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ferofs::patch::{PatchReader, PieceCache};
use ferofs::read::{Cancel, FileSource, Image, OpenOptions, PressureFile, Source};
use ferofs_fuse::{Access, MountOptions};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::MountArgs;
use crate::check::OpenSeal;
use crate::failure::{About, FAILURE, Failure, Outcome};

/// Mounts, and waits until the process that answers requests has ended.
pub(crate) fn run(args: &MountArgs) -> Outcome {
    // Errors come before the mount.
    drop(Files::open(args)?);
    let fail = |error: io::Error| Failure::about(&args.dir, error);
    // Without a slash at its end, which would start an automount on it: both would wait for each
    // other.
    let dir = std::fs::canonicalize(args.dir.components().as_path()).map_err(fail)?;
    let device = ferofs_fuse::open_device().map_err(|error| Failure::about(&args.dir, error))?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(fail)?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let data = std::ffi::CString::new(data).map_err(|error| Failure::about(&args.dir, error))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(&*source(args), &dir, "fuse.ferofs", flags, &*data).map_err(|error| {
        match error {
            Errno::PERM => Failure::about(
                &args.dir,
                "mount: only root can; `ferofs mount` can use fusermount3",
            ),
            error => fail(error.into()),
        }
    })?;
    let served = start(Stdio::from(device)).map_err(fail).and_then(|mut child| {
        let handle = signals.handle();
        let (mount_point, id) = (dir.clone(), Pid::from_child(&child));
        let stop = std::thread::Builder::new().spawn(move || {
            // The mount is this process's own as long as the child lives. The child ends when
            // nobody uses the mount any more.
            let mut signals = signals.forever();
            if signals.next().is_some() {
                unmount(&mount_point);
            }
            // A second signal ends it at once.
            if signals.next().is_some() {
                let _ = kill_process(id, Signal::TERM);
            }
        });
        let status = child.wait();
        handle.close();
        // A thread that could not be started leaves only the unmount by hand.
        let _ = stop.map(std::thread::JoinHandle::join);
        status.map_err(fail)
    });
    // Somebody else may have unmounted it, and mounted another file system.
    if ferofs_fuse::has_no_daemon(&dir) {
        unmount(&dir);
    }
    Ok(served?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE))
}

/// Starts this program again, to answer the requests from `device`.
fn start(device: Stdio) -> io::Result<Child> {
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(command) = words.first_mut() {
        *command = "serve".into();
    }
    // Ctrl-C in the terminal must reach only the first process, which unmounts.
    Command::new(std::env::current_exe()?).args(words).stdin(device).process_group(0).spawn()
}

/// Answers the requests from standard input, which is the FUSE device.
pub(crate) fn serve(args: &MountArgs) -> Outcome {
    let files = Files::open(args)?;
    let fail = |error: Box<dyn std::error::Error>| Failure::about(&args.dir, error);
    let device = io::stdin().as_fd().try_clone_to_owned().map_err(|error| fail(error.into()))?;
    let mut open_options = OpenOptions::default();
    open_options.pressure = PressureFile::open();
    let options = MountOptions {
        source: source(args).to_string_lossy().into_owned(),
        access: Access::All,
        confined: true,
        low_memory: args.low_memory,
        ..MountOptions::default()
    };
    let mounted = ferofs_fuse::attach(device, &options).map_err(|error| fail(error.into()))?;
    ferofs_fuse::restrict().map_err(|error| fail(error.into()))?;
    let image = files.decode(args, &open_options)?;
    mounted.serve(image, None).map_err(|error| fail(error.into()))?;
    Ok(0)
}

/// The source in the mount table.
fn source(args: &MountArgs) -> PathBuf {
    std::fs::canonicalize(&args.image).unwrap_or_else(|_| args.image.clone())
}

/// Open files that are not decoded yet.
struct Files {
    image: FileSource,
    seal: Option<OpenSeal>,
    patches: Vec<FileSource>,
}

impl Files {
    fn open(args: &MountArgs) -> Result<Self, Failure> {
        let image = FileSource::open(&args.image, 0).about(&args.image)?;
        let seal = args.seal.as_ref().map(|seal| OpenSeal::open(&args.image, seal)).transpose()?;
        let patches = args.patches.iter().map(|path| FileSource::open(path, 0).about(path));
        Ok(Self { image, seal, patches: patches.collect::<Result<_, _>>()? })
    }

    fn decode(self, args: &MountArgs, options: &OpenOptions) -> Result<Image, Failure> {
        let mut image: Arc<dyn Source> = match self.seal {
            Some(seal) => Arc::new(seal.verified(self.image)?),
            None => Arc::new(self.image),
        };
        // One for all patches, so that the number of patches does not count.
        let cache = PieceCache::default();
        for (path, file) in args.patches.iter().zip(self.patches) {
            let mut patches = PatchReader::new(Arc::new(file)).about(path)?;
            (image, _) = patches.overlay(image, &cache, &Cancel::default()).about(path)?;
        }
        Image::open_with(Box::new(image), Vec::new(), options).about(&args.image)
    }
}

/// Detaches the mount. Processes that use files on it can continue as long as it is answered.
fn unmount(dir: &Path) {
    // If it fails, the mount is gone already.
    let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}
