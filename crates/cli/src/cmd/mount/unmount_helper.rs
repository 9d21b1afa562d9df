//! The unmount helper: a process that removes the mount when the FUSE daemon ends.
//!
//! The daemon drops all privileges, so it cannot unmount. The helper keeps them; it never reads the image. It waits for the
//! end of its standard input, a pipe from the daemon: the kernel closes the pipe even if the daemon is killed. The helper
//! starts before the mount, so that a daemon that is killed right after mounting leaves no mount either.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

use crate::args::hidden;
use crate::cmd::mount::mount_table::mount_at;
use crate::exit::{FAILURE, Failure, Outcome};

/// Wait until standard input ends, then unmount the image
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The mount point: an absolute path without symbolic links
    dir: PathBuf,

    /// A file to remove when the daemon has ended
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// The record of the mount, to remove at the same time
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // Ctrl-C in the terminal, and its end, must reach only the daemon. The daemon waits for the answer below.
    rustix::process::setsid().map_err(io::Error::from)?;
    let mount_at = |dir| mount_at(dir).map_err(|e| Failure::about(dir, e));
    let before = mount_at(&args.dir)?;
    // It waits for this answer.
    let daemon = rustix::process::getppid();
    send_answer()?;
    let is_mounted = io::stdin().read(&mut [0])? > 0;
    // A daemon that died may have mounted without reporting it.
    let own_mount = mount_at(&args.dir)?.filter(|mount| is_mounted || before.as_ref() != Some(mount));
    let mut is_requested = false;
    if is_mounted {
        send_answer()?;
        // Other processes of the mount may have the pipe open, too.
        is_requested = io::stdin().read(&mut [0])? > 0;
    }
    if let Some(file) = args.pid_file.as_ref().filter(|_| is_mounted) {
        remove_pid_file(file, daemon);
    }
    if let Some(file) = &args.record {
        // There is none if it could not be written.
        let _ = std::fs::remove_file(file);
    }
    // Somebody else may have unmounted it, and mounted another file system there.
    let is_own = own_mount.is_some() && mount_at(&args.dir)? == own_mount;
    if is_own && (is_requested || ferofs_fuse::has_no_daemon(&args.dir)) { detach(&args.dir) } else { Ok(0) }
}

/// Removes the file that names `daemon`. The next daemon may have replaced it, or somebody else have removed it.
fn remove_pid_file(file: &Path, daemon: Option<Pid>) {
    let named = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    if daemon.is_some_and(|daemon| named == Some(daemon.as_raw_nonzero().get())) {
        let _ = std::fs::remove_file(file);
    }
}

fn send_answer() -> io::Result<()> {
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()
}

/// Starts the unmount helper for `dir`, and waits until it has read which mount is on `dir` now. The helper unmounts when
/// the standard input of the returned process is closed.
pub(crate) fn start(
    dir: &Path,
    pid_file: Option<&Path>,
    record: Option<&Path>,
    quiet: bool,
) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    hidden::forget(&mut command)
        // The name selects the command line with subcommands.
        .arg0("ferofs")
        .arg("unmount-helper")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(if quiet { Stdio::null() } else { Stdio::inherit() });
    if let Some(file) = pid_file {
        command.arg("--pid-file").arg(file);
    }
    if let Some(file) = record {
        command.arg("--record").arg(file);
    }
    let mut helper = command.args([OsStr::new("--"), dir.as_os_str()]).spawn()?;
    wait_for_answer(&mut helper)?;
    Ok(helper)
}

/// Tells the unmount helper that the image is mounted, and waits until it has read the number of the mount.
pub(crate) fn tell_mounted(helper: &mut Child) -> io::Result<()> {
    if let Some(stdin) = &mut helper.stdin {
        stdin.write_all(b"\n")?;
    }
    wait_for_answer(helper)?;
    helper.stdout = None;
    Ok(())
}

/// Makes the unmount helper detach the mount while the daemon still serves it.
pub(crate) fn request_unmount(mut helper_input: ChildStdin) {
    // If it fails, the helper has ended.
    let _ = helper_input.write_all(b"\n");
}

fn wait_for_answer(helper: &mut Child) -> io::Result<()> {
    helper.stdout.as_mut().map_or(Ok(()), |stdout| stdout.read_exact(&mut [0]))
}

/// Detaches the mount from `dir`; processes that use files on it can continue.
pub(super) fn detach(dir: &Path) -> Outcome {
    use rustix::mount::UnmountFlags;
    match rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(0),
        Err(rustix::io::Errno::PERM) => fusermount(dir, &["-u", "-z", "--"]),
        Err(error) => Err(Failure::about(dir, io::Error::from(error))),
    }
}

/// Unmounts without root: only fusermount3 can, because it made the mount.
pub(super) fn fusermount(dir: &Path, options: &[&str]) -> Outcome {
    let status = Command::new("fusermount3").args(options).arg(dir).status();
    let status = status.map_err(|error| {
        let reason = format!("{error}; only root can unmount without it; install the package fuse3");
        Failure::about(Path::new("fusermount3"), reason)
    })?;
    Ok(if status.success() { 0 } else { FAILURE })
}
