//! Mounting, serving until unmounted, and stopping on request.

use std::io;
use std::path::Path;

use ferofs::read::Image;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use crate::filesystem::ImageFilesystem;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the table of mounts names as the source: normally the image's path.
    pub source: String,
    /// Threads that answer requests.
    pub threads: usize,
    /// Let other users in; root always does.
    pub allow_other: bool,
    /// Further options for the kernel or for fusermount3, such as `nosuid`.
    pub extra: Vec<String>,
}

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
#[error("mount: {0}")]
pub struct MountError(#[from] io::Error);

/// A mounted image that is not served yet.
pub struct Mounted(Session<ImageFilesystem>);

/// Unmounts from another thread.
pub struct Stopper(SessionUnmounter);

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
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    let filesystem = ImageFilesystem::new(image, options.source.clone());
    Ok(Mounted(Session::new(filesystem, dir, &config)?))
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
    /// What unmounts this from another thread.
    pub fn stopper(&mut self) -> Stopper {
        Stopper(self.0.unmount_callable())
    }

    /// Answers requests until the mount is gone.
    ///
    /// # Errors
    /// When the connection to the kernel fails.
    pub fn serve(self) -> Result<(), MountError> {
        Ok(self.0.run()?)
    }
}

impl Stopper {
    /// Unmounts.
    ///
    /// # Errors
    /// When the kernel, or fusermount3 without root, refuses.
    pub fn stop(&mut self) -> Result<(), MountError> {
        Ok(self.0.unmount()?)
    }
}
