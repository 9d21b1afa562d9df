//! The keeper of a mount: takes it away when the FUSE daemon wants that, or is gone.
//!
//! The daemon gives up the right to unmount with all its other rights, so a second process, which reads
//! nothing of the image, keeps it. It waits for the end of its standard input, whose other end the daemon
//! holds: the kernel closes that for a daemon that was killed, too. It is there before the mount, so that no moment is
//! without it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
}

pub(crate) fn run(args: &Args) -> Outcome {
    let before = mount_at(&args.dir)?;
    answer()?;
    let is_mounted = io::stdin().read(&mut [0])? > 0;
    // A daemon that died may have mounted and not said so.
    let mine = mount_at(&args.dir)?.filter(|mount| is_mounted || before.as_ref() != Some(mount));
    if is_mounted {
        answer()?;
        io::stdin().read_to_end(&mut Vec::new())?;
    }
    if let Some(file) = args.pid_file.as_ref().filter(|_| is_mounted) {
        // It may be gone by now.
        let _ = std::fs::remove_file(file);
    }
    // Somebody may have unmounted it by now, and mounted something else.
    if mine.is_some() && mount_at(&args.dir)? == mine { detach(&args.dir) } else { Ok(0) }
}

fn answer() -> io::Result<()> {
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()
}

/// Starts the keeper of what will be mounted on `dir`, and waits until it knows what is there before. It unmounts when
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
    wait_for_answer(&mut keeper)?;
    Ok(keeper)
}

/// Tells the keeper that the mount is there, and waits until it knows it.
pub(crate) fn tell_mounted(keeper: &mut Child) -> io::Result<()> {
    if let Some(stdin) = &mut keeper.stdin {
        stdin.write_all(b"\n")?;
    }
    wait_for_answer(keeper)?;
    keeper.stdout = None;
    Ok(())
}

fn wait_for_answer(keeper: &mut Child) -> io::Result<()> {
    keeper.stdout.as_mut().map_or(Ok(()), |stdout| stdout.read_exact(&mut [0]))
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
