//! Mounting, and serving until unmounted.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ferofs::read::Image;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::filesystem::ImageFilesystem;
use crate::neighbours::Neighbours;

/// Bytes that may be read around a small request.
const WINDOW: u64 = 1 << 20;
const LOW_WINDOW: u64 = 128 << 10;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the table of mounts names as the source: normally the image's path.
    pub source: String,
    /// Threads that answer requests.
    pub threads: usize,
    /// Let other users in; root always does.
    pub allow_other: bool,
    /// Keep buffers small.
    pub low_memory: bool,
    /// Further options for the kernel or for fusermount3, such as `nosuid`.
    pub extra: Vec<String>,
}

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
#[error("mount: {0}")]
pub struct MountError(#[from] io::Error);

/// A mounted image that is not served yet.
pub struct Mounted(Session<ImageFilesystem>);

/// Mounts `image` on `dir`. When this returns the mount is there; requests wait for [`Mounted::serve`].
///
/// # Errors
/// When the kernel, or fusermount3 without root, refuses.
pub fn mount(image: Image, dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
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
    config.clone_fd = true;
    let neighbours = Arc::new(Neighbours::new(threads, if options.low_memory { LOW_WINDOW } else { WINDOW }));
    let filesystem = ImageFilesystem::new(image, options.source.clone(), Arc::clone(&neighbours));
    let session = Session::new(filesystem, dir, &config)?;
    neighbours.connect(session.notifier());
    Ok(Mounted(session))
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
    /// Answers requests until the mount is gone.
    ///
    /// # Errors
    /// When the connection to the kernel fails.
    pub fn serve(self) -> Result<(), MountError> {
        Ok(self.0.run()?)
    }
}
