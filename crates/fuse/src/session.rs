//! Mounts, and answers requests until the unmount.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ferofs_read::{Image, IoError};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use crate::filesystem::{Access, ImageFilesystem, Opened};
use crate::page_store::PageStore;
use crate::read_around::ReadAround;
use crate::sandbox::FUSE_DEVICE;
use crate::stats::MoreStats;
use crate::waiting_threads::WaitingThreads;

/// The largest window around a small read, in bytes: decoding more would delay the reply.
const MAX_WINDOW: u64 = 1 << 20;
/// The same with `low_memory`: the kernel would evict more pages before a program reads them.
const MAX_WINDOW_LOW_MEMORY: u64 = 128 << 10;

/// How to mount. The default is a mount for the user who makes it, with a thread for each
/// processor, and at least four.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in the mount table, normally the path of the image.
    pub source: String,
    /// The type in the mount table is `fuse.` and this. mount(8) starts the program of this name,
    /// or of the source if it is empty.
    pub subtype: String,
    /// Threads that answer requests.
    pub threads: usize,
    /// The users who may use the mount.
    pub access: Access,
    /// [`restrict`](crate::restrict) will be called before [`Mounted::serve`].
    pub confined: bool,
    /// Requests must be answered although this process ends: copies of this process (fork(2))
    /// answer them, one after the other. Needs [`can_survive_process`].
    pub survives_process: bool,
    /// Use small windows.
    pub low_memory: bool,
    /// Further options for fusermount3, for example `nosuid`.
    pub extra: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "ferofs".to_owned(),
            subtype: "ferofs".to_owned(),
            // Most of them wait for the device when several programs read.
            threads: std::thread::available_parallelism().map_or(4, |threads| threads.get().max(4)),
            access: Access::Owner,
            confined: false,
            survives_process: false,
            low_memory: false,
            extra: Vec::new(),
        }
    }
}

/// The failure of a mount.
fn failed(error: io::Error) -> IoError {
    IoError::unnamed("mount", error)
}

/// Opens the FUSE device, which a mount(2) of type `fuse` needs.
///
/// # Errors
/// If it is missing, or this user may not open it.
pub fn open_device() -> Result<OwnedFd, IoError> {
    match File::options().read(true).write(true).open(FUSE_DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) => Err(failed(device_error(&error))),
    }
}

fn device_error(error: &io::Error) -> io::Error {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => "; this user, or this container, may not open it",
        _ => "; load the module fuse (modprobe fuse), or give the device to the container",
    };
    io::Error::new(error.kind(), format!("{FUSE_DEVICE}: {error}{help}"))
}

/// A mount whose requests are not answered yet.
pub struct Mounted {
    session: Session<ImageFilesystem>,
    opened: Arc<OnceLock<Opened>>,
    page_store: Arc<PageStore>,
}

/// Mounts on `dir` with fusermount3, as users who are not root must. Requests wait until
/// [`Mounted::serve`] gets the image. In between, a process can drop its privileges before it
/// decodes any byte of the image.
///
/// # Errors
/// If fusermount3 is missing or refuses the mount.
pub fn mount(dir: impl AsRef<Path>, options: &MountOptions) -> Result<Mounted, IoError> {
    connect(options, |filesystem, config| {
        Session::new(filesystem, dir, config).map_err(|error| fusermount_error(&error))
    })
}

/// As [`mount`], for a mount that the caller has made with `device`, from [`open_device`].
///
/// # Errors
/// If the kernel does not answer as expected.
pub fn attach(device: OwnedFd, options: &MountOptions) -> Result<Mounted, IoError> {
    connect(options, |filesystem, config| {
        Session::from_fd(filesystem, device, config.acl, config.clone())
    })
}

fn connect(
    options: &MountOptions,
    start: impl FnOnce(ImageFilesystem, &Config) -> io::Result<Session<ImageFilesystem>>,
) -> Result<Mounted, IoError> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(escaped(&options.source)),
        MountOption::Subtype(options.subtype.clone()),
        MountOption::RO,
        MountOption::DefaultPermissions,
    ];
    config.mount_options.extend(options.extra.iter().map(|text| mount_option(text)));
    config.acl = match options.access {
        Access::Owner => SessionACL::Owner,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::All => SessionACL::All,
    };
    let threads = options.threads.max(1);
    config.n_threads = Some(threads);
    // The kernel ends the requests that were read from a descriptor when it is closed, and only
    // this one is open in other processes.
    config.clone_fd = !options.survives_process && (!options.confined || anyone_may_open_device());
    let page_store = Arc::new(PageStore::new(
        threads,
        if options.low_memory { MAX_WINDOW_LOW_MEMORY } else { MAX_WINDOW },
    ));
    let opened = Arc::new(OnceLock::new());
    let threads = Arc::new(WaitingThreads::new(threads));
    let (name, to_open) = (options.source.clone(), Arc::clone(&opened));
    let filesystem = ImageFilesystem::new(
        to_open,
        name,
        options.access,
        Arc::clone(&page_store),
        Arc::clone(&threads),
    );
    let session = start(filesystem, &config).map_err(failed)?;
    // Without another descriptor (the limit is reached), threads park too often if a reader sends
    // several requests at a time.
    if let Ok(device) = session.as_fd().try_clone_to_owned() {
        threads.watch(device);
    }
    page_store.connect(session.notifier());
    Ok(Mounted { session, opened, page_store })
}

/// The source for fusermount3, where a comma separates options and a backslash escapes.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

/// fuser returns the complete output of fusermount3, or an error that does not name the file.
fn fusermount_error(error: &io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound if !Path::new(FUSE_DEVICE).exists() => return device_error(error),
        io::ErrorKind::NotFound => {
            "fusermount3 is missing, and only root can mount without it; install the package fuse3".to_owned()
        }
        // Its own refusals are text. A search in PATH ends so if one of the directories is closed
        // to the user.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "fusermount3 is missing, or this user may not run it, and only root can mount without it; install the \
             package fuse3"
                .to_owned()
        }
        _ => error.to_string().trim_end().replace('\n', "; "),
    };
    io::Error::new(error.kind(), text)
}

/// Whether a mount can survive the process that answers its requests: since version 6.9, Linux
/// sends requests again.
pub fn can_survive_process() -> bool {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().unwrap_or_default().split('.').map(|number| {
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        number[..digits].parse::<u32>().unwrap_or(0)
    });
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

/// Allocates once what `threads` threads need to answer requests. A process without this memory
/// ends here, before it says that it has mounted.
pub fn check_memory(threads: usize) {
    /// Bytes of a buffer of fuser, and of the stack of a thread.
    const OF_THREAD: usize = (16 << 20) + (2 << 20);
    let buffers: Vec<Vec<u8>> = (0..threads.max(1)).map(|_| vec![0; OF_THREAD]).collect();
    std::hint::black_box(&buffers);
}

/// Whether the daemon of the FUSE mount on `dir` has ended. The number of a mount is not enough:
/// Linux gives it to the next mount.
pub fn has_no_daemon(dir: &Path) -> bool {
    // A request to the daemon: Linux refuses it if nobody can answer. rustix does not have this
    // flag for musl.
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC.cast_unsigned())
        | AtFlags::SYMLINK_NOFOLLOW
        | AtFlags::NO_AUTOMOUNT;
    // Refused: the daemon ended before it answered the first request of the mount, and while this
    // one waited for that.
    let is_over = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CONNREFUSED];
    statx(CWD, dir, flags, StatxFlags::SIZE).is_err_and(|error| is_over.contains(&error))
}

/// Whether every user may open the FUSE device. Each thread of a session opens it for itself; if
/// only root may open it, a process that dropped its privileges shares one descriptor between its
/// threads.
fn anyone_may_open_device() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(FUSE_DEVICE).is_ok_and(|device| device.mode() & 0o006 == 0o006)
}

/// Converts an option: fuser has own values for some flags of mount(2), and passes other options on
/// as text.
fn mount_option(text: &str) -> MountOption {
    match text {
        "dev" => MountOption::Dev,
        "suid" => MountOption::Suid,
        "noexec" => MountOption::NoExec,
        "noatime" => MountOption::NoAtime,
        other => MountOption::CUSTOM(other.to_owned()),
    }
}

/// `struct fuse_out_header` with the code of `FUSE_NOTIFY_RESEND` (linux/fuse.h).
fn resend_message() -> [u8; 16] {
    const LEN: u32 = 16;
    const FUSE_NOTIFY_RESEND: u32 = 7;
    let mut message = [0; 16];
    message[..4].copy_from_slice(&LEN.to_ne_bytes());
    message[4..8].copy_from_slice(&FUSE_NOTIFY_RESEND.to_ne_bytes());
    message
}

impl Mounted {
    /// Makes the kernel send the requests again that another process has read and not answered.
    ///
    /// # Errors
    /// If the kernel does not support it, or nothing is mounted any more.
    pub fn ask_again(&self) -> Result<(), IoError> {
        let sent = rustix::io::write(self.session.as_fd(), &resend_message());
        sent.map(drop).map_err(|error| failed(error.into()))
    }

    /// Answers requests from `image` until the unmount. `more_stats` adds to the
    /// [counters](crate::STATS_XATTR).
    ///
    /// # Errors
    /// If the connection to the kernel fails.
    pub fn serve(self, image: Image, more_stats: Option<MoreStats>) -> Result<(), IoError> {
        // Cannot fail: only this line sets it, and `serve` consumes `self`.
        let _ = self.opened.set(Opened::new(image, more_stats));
        let _read_around = ReadAround::start(self.opened, self.page_store);
        self.session.run().map_err(failed)
    }
}
