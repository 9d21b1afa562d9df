//! Mounting, and serving until unmounted.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ferofs_read::Image;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::filesystem::{ImageFilesystem, Opened};
use crate::page_store::PageStore;
use crate::sandbox::FUSE_DEVICE;

/// Bytes at most that are read around a small request: a larger range would delay the answer.
const WINDOW: u64 = 1 << 20;
/// The same while memory is short: the kernel would evict more before it is read.
const LOW_WINDOW: u64 = 128 << 10;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in the table of mounts: normally the image's path.
    pub source: String,
    /// Threads that answer requests.
    pub threads: usize,
    /// Allow access to other users; a mount by root always does.
    pub allow_other: bool,
    /// [`restrict`](crate::restrict) will be called before [`Mounted::serve`].
    pub confined: bool,
    /// Keep buffers small.
    pub low_memory: bool,
    /// Further options for the kernel or for fusermount3, such as `nosuid`.
    pub extra: Vec<String>,
}

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
#[error("mount: {0}")]
pub struct MountError(#[from] io::Error);

/// A mount for an image that is not served yet.
pub struct Mounted {
    session: Session<ImageFilesystem>,
    opened: Arc<OnceLock<Opened>>,
}

/// Makes a mount on `dir`. When this returns the mount is there; requests wait for [`Mounted::serve`], which gets the
/// image: in between, a process can give up its rights before it decodes any byte of the image.
///
/// # Errors
/// When the kernel, or fusermount3 without root, refuses.
pub fn mount(dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("ferofs".into()),
        MountOption::RO,
        MountOption::DefaultPermissions,
    ];
    config.mount_options.extend(options.extra.iter().map(|text| mount_option(text)));
    if options.allow_other || rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    let threads = options.threads.max(1);
    config.n_threads = Some(threads);
    config.clone_fd = !options.confined || device_is_for_all();
    let page_store = Arc::new(PageStore::new(threads, if options.low_memory { LOW_WINDOW } else { WINDOW }));
    let opened = Arc::new(OnceLock::new());
    let filesystem =
        ImageFilesystem::new(Arc::clone(&opened), options.source.clone(), Arc::clone(&page_store));
    let session = Session::new(filesystem, dir, &config)?;
    page_store.connect(session.notifier());
    Ok(Mounted { session, opened })
}

/// Whether each user may open the FUSE device, as each thread of a session does for itself. Where only root may, a
/// process that gave up root's rights shares one descriptor among its threads.
fn device_is_for_all() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(FUSE_DEVICE).is_ok_and(|device| device.mode() & 0o006 == 0o006)
}

/// Options that are flags of mount(2) have a type of their own; others are passed on as they are.
fn mount_option(text: &str) -> MountOption {
    match text {
        "dev" => MountOption::Dev,
        "nodev" => MountOption::NoDev,
        "suid" => MountOption::Suid,
        "nosuid" => MountOption::NoSuid,
        "exec" => MountOption::Exec,
        "noexec" => MountOption::NoExec,
        "atime" => MountOption::Atime,
        "noatime" => MountOption::NoAtime,
        "auto_unmount" => MountOption::AutoUnmount,
        other => MountOption::CUSTOM(other.to_owned()),
    }
}

impl Mounted {
    /// Answers requests from `image` until the mount is gone.
    ///
    /// # Errors
    /// When the connection to the kernel fails.
    pub fn serve(self, image: Image) -> Result<(), MountError> {
        // It is set once, here.
        let _ = self.opened.set(Opened::new(image));
        Ok(self.session.run()?)
    }
}
