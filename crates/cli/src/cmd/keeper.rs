//! The keeper of a mount: takes it away when the FUSE daemon wants that, or is gone.
//!
//! The daemon gives up the right to unmount with all its other rights, so a second process, which reads
//! nothing of the image, keeps it. It waits for the end of its standard input, whose other end the daemon
//! holds: the kernel closes that for a daemon that was killed, too.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::mountinfo::mount_at;
use crate::exit::{FAILURE, Failure, Outcome};

/// Keep a mount until standard input ends, then take it away
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where it is mounted: an absolute path without symbolic links
    dir: PathBuf,

    /// A file to remove when the daemon is gone
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mine = mount_at(&args.dir)?;
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    if let Some(file) = &args.pid_file {
        // It may be gone by now.
        let _ = std::fs::remove_file(file);
    }
    // Somebody may have unmounted it by now, and mounted something else.
    if mine.is_some() && mount_at(&args.dir)? == mine { detach(&args.dir) } else { Ok(0) }
}

/// Starts the keeper of what is mounted on `dir`, and waits until it knows its mount. It unmounts when
/// the returned process's standard input is closed.
pub(crate) fn start(dir: &Path, pid_file: Option<&Path>, quiet: bool) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        // By this name the program has subcommands.
        .arg0("ferofs")
        .arg("keeper")
        .current_dir("/")
        // A terminal's signals are for the daemon.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(if quiet { Stdio::null() } else { Stdio::inherit() });
    if let Some(file) = pid_file {
        command.arg("--pid-file").arg(file);
    }
    let mut keeper = command.args([OsStr::new("--"), dir.as_os_str()]).spawn()?;
    if let Some(mut stdout) = keeper.stdout.take() {
        stdout.read_exact(&mut [0])?;
    }
    Ok(keeper)
}

/// Takes the mount away from `dir`; who still uses it may go on until done.
fn detach(dir: &Path) -> Outcome {
    use rustix::mount::UnmountFlags;
    match rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(0),
        // Without root, fusermount3 takes away what it mounted.
        Err(rustix::io::Errno::PERM) => {
            let status = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(dir).status();
            let status = status.map_err(|e| Failure::about(Path::new("fusermount3"), e))?;
            Ok(if status.success() { 0 } else { FAILURE })
        }
        Err(error) => Err(Failure::about(dir, io::Error::from(error))),
    }
}
