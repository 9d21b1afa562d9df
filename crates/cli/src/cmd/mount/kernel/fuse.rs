//! Mounts the FUSE device as root.
//!
//! fuser would mount with the type `fuse`. At `mount -o remount DIR`, mount(8) then starts the
//! source of the mount, the image, as a program (mount.fuse(8)). With the type `fuse.NAME` it
//! starts the program NAME.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use ferofs_fuse::{Access, MountOptions};
use rustix::io::Errno;
use rustix::mount;

use crate::cmd::mount::kernel::Error;
use crate::cmd::mount::kernel::flags::Flags;
use crate::cmd::mount::options::InvalidOption;

/// The options of FUSE in Linux that this program does not set itself, and those of security
/// modules (mount(8), smack in the documentation of Linux).
const KNOWN: [&str; 9] = [
    "max_read",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
    "smackfsdef",
    "smackfsfloor",
    "smackfshat",
    "smackfsroot",
];

/// The options of a mount through FUSE, for mount(2) or for fusermount3.
#[derive(Debug)]
pub(crate) struct FuseOptions {
    flags: Flags,
    others: Vec<String>,
}

impl FuseOptions {
    /// Takes the options that the daemon itself does not have. `sloppy`: ignores unknown ones.
    ///
    /// # Errors
    /// An unknown option.
    pub(crate) fn parse(options: &[String], sloppy: bool) -> Result<Self, InvalidOption> {
        // As libfuse. A later option can remove them.
        let defaults = ["nosuid", "nodev"].map(str::to_owned);
        let options = [&defaults[..], options].concat();
        let (flags, mut others) = Flags::split(&options);
        let is_known = |option: &str| KNOWN.contains(&option.split('=').next().unwrap_or_default());
        if sloppy {
            others.retain(|option| is_known(option));
        }
        match others.iter().find(|option| !is_known(option)) {
            Some(unknown) => {
                Err(InvalidOption((*unknown).to_owned(), "FUSE has no such option".to_owned()))
            }
            None => Ok(Self { flags, others: others.into_iter().map(str::to_owned).collect() }),
        }
    }

    /// The options for fusermount3.
    pub(crate) fn for_fusermount(&self) -> Vec<String> {
        let mut options = self.flags.fusermount_options();
        options.extend(self.others.iter().cloned());
        options
    }
}

/// Mounts the FUSE device on `dir`, and returns it. `None` if this process may not mount, but
/// fusermount3 perhaps may.
///
/// # Errors
/// The reason of the kernel.
pub(crate) fn mount(
    dir: &Path,
    options: &MountOptions,
    own: &FuseOptions,
) -> Result<Option<OwnedFd>, Box<dyn std::error::Error>> {
    let device = ferofs_fuse::open_device()?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // The root is a directory (0o40000). Linux asks the daemon for its permissions.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions",
        device.as_raw_fd()
    );
    // For the owner and root, too: fuser refuses the others.
    if options.access != Access::Owner {
        data.push_str(",allow_other");
    }
    for option in &own.others {
        data.push(',');
        data.push_str(option);
    }
    let data = std::ffi::CString::new(data)?;
    let kind = format!("fuse.{}", options.subtype);
    match mount::mount(&*options.source, dir, kind, own.flags.mount_flags(), &*data) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(errno) => {
            let message = (!own.others.is_empty()).then(|| format!("-o {}", own.others.join(",")));
            Err(Error::Linux { errno, message }.into())
        }
    }
}

/// Sets how the mount on `dir` passes mounts on to other namespaces, if an option says so.
pub(crate) fn set_propagation(dir: &Path, own: &FuseOptions) -> Result<(), Error> {
    match own.flags.propagation {
        Some(propagation) => Ok(mount::mount_change(dir, propagation)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &[&str], sloppy: bool) -> Result<Vec<String>, String> {
        let list: Vec<String> = list.iter().map(|option| (*option).to_owned()).collect();
        let parsed = FuseOptions::parse(&list, sloppy).map_err(|error| error.to_string())?;
        Ok(parsed.for_fusermount())
    }

    #[test]
    fn options_of_mount_8_are_accepted_and_unknown_ones_are_named() {
        let options = ["relatime", "noexec", "sync", "exec", "noatime", "max_read=4096"];
        let expected = ["nosuid", "nodev", "noatime", "max_read=4096"].map(str::to_owned).to_vec();
        assert_eq!(parsed(&options, false), Ok(expected));
        assert_eq!(parsed(&["dev", "suid"], false), Ok(vec!["suid".to_owned(), "dev".to_owned()]));
        assert!(parsed(&["noatime", "nosuch=1"], false).unwrap_err().starts_with("-o nosuch=1: "));
        assert_eq!(parsed(&["nosuch=1"], true), parsed(&[], false));
    }
}
