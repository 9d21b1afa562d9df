//! The unmount helper: a process that removes the mount when the FUSE daemon ends.
//!
//! The daemon drops all privileges, so it cannot unmount. The helper keeps them; it never reads the
//! image. It waits for the end of its standard input, a pipe from the daemon: the kernel closes the
//! pipe even if the daemon is killed. The helper starts before the mount, so that a daemon that is
//! killed right after mounting leaves no mount either.
//!
//! It also stores the access profile that the daemon sends through the pipe: the daemon cannot give
//! a file a name.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use ferofs::NewFile;
use ferofs::read::Profile;
use rustix::process::Pid;

use crate::args::hidden;
use crate::cmd::mount::mount_table::mount_at;
use crate::exit::{About, Concerning, FAILURE, Failure, Outcome};
use crate::print::output::message;

/// The name of the subcommand.
const COMMAND: &str = "unmount-helper";

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

    /// The file for the access profile that the daemon sends at its end
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

/// The byte that the daemon sends when it has mounted.
const MOUNTED: u8 = b'\n';
/// The byte that asks for an unmount. Several processes may send it; a profile does not have it.
const UNMOUNT: u8 = 0;
/// The end of a complete profile: no other line of it is empty.
const PROFILE_END: &[u8] = b"\n\n";
/// The longest profile, in bytes: as `ferofs push` takes it. A longer one is not stored.
const PROFILE_MAX: usize = 64 << 20;
/// Bytes that are read from the pipe at a time.
const BUFFER: usize = 1 << 16;

pub(crate) fn run(args: &Args) -> Outcome {
    // Ctrl-C in the terminal, and its end, must reach only the daemon. The daemon waits for the
    // answer below.
    rustix::process::setsid().map_err(io::Error::from)?;
    let mount_at = |dir| mount_at(dir).concerning(dir);
    let before = mount_at(&args.dir)?;
    // It waits for this answer.
    let daemon = rustix::process::getppid();
    send_answer()?;
    let is_mounted = io::stdin().read(&mut [0])? > 0;
    // A daemon that died may have mounted without reporting it.
    let own_mount =
        mount_at(&args.dir)?.filter(|mount| is_mounted || before.as_ref() != Some(mount));
    // Somebody else may have unmounted it, and mounted another file system there.
    let is_own = || Ok::<_, Failure>(own_mount.is_some() && mount_at(&args.dir)? == own_mount);
    let mut profile = Vec::new();
    if is_mounted {
        send_answer()?;
        // Other processes of the mount may have the pipe open, too.
        profile = receive(&mut io::stdin().lock(), || {
            let outcome =
                is_own().and_then(|is_own| if is_own { detach(&args.dir) } else { Ok(0) });
            if let Err(failure) = outcome {
                message!("{failure}");
            }
        })?;
    }
    if let Some(file) = args.pid_file.as_ref().filter(|_| is_mounted) {
        remove_pid_file(file, daemon);
    }
    if let Some(file) = &args.record {
        // There is none if it could not be written.
        let _ = std::fs::remove_file(file);
    }
    let stored = args.profile.as_ref().map_or(Ok(()), |file| store_profile(file, &profile));
    let code =
        if is_own()? && ferofs_fuse::has_no_daemon(&args.dir) { detach(&args.dir)? } else { 0 };
    stored.map(|()| code)
}

/// Receives a profile until all processes of the mount have closed the pipe. Calls `unmount` at the
/// first request.
fn receive(pipe: &mut impl Read, unmount: impl FnOnce()) -> io::Result<Vec<u8>> {
    let (mut profile, mut buffer, mut unmount) = (Vec::new(), vec![0; BUFFER], Some(unmount));
    loop {
        let received = match pipe.read(&mut buffer) {
            Ok(0) => return Ok(profile),
            Ok(len) => &buffer[..len],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if received.contains(&UNMOUNT)
            && let Some(unmount) = unmount.take()
        {
            unmount();
        }
        if profile.len() < PROFILE_MAX {
            profile.extend(received.iter().filter(|byte| **byte != UNMOUNT));
        }
    }
}

/// Stores a profile. One that is incomplete, as that of a daemon that was killed, leaves the old
/// file.
fn store_profile(file: &Path, profile: &[u8]) -> Result<(), Failure> {
    if profile.len() >= PROFILE_MAX {
        return Err(Failure::about(file, "the access profile is longer than 64 MiB"));
    }
    let Some(lines) = profile.strip_suffix(PROFILE_END) else { return Ok(()) };
    let mut new = NewFile::create(file).without_subject()?;
    new.write_all(lines).and_then(|()| new.write_all(b"\n")).concerning(file)?;
    new.finish().without_subject()
}

/// The file of the option `--profile` if `words` are the arguments of an unmount helper for `dir`;
/// `None` if they are not.
pub(super) fn profile_of<'a>(words: &[&'a OsStr], dir: &Path) -> Option<Option<&'a Path>> {
    let [_, command, options @ .., separator, last] = words else { return None };
    if *command != COMMAND || *separator != "--" || Path::new(last) != dir {
        return None;
    }
    let mut pairs = options.chunks_exact(2);
    Some(pairs.find_map(|pair| (pair[0] == "--profile").then(|| Path::new(pair[1]))))
}

/// Removes the file that names `daemon`. The next daemon may have replaced it, or somebody else
/// have removed it.
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

/// Starts the unmount helper for `dir`, and waits until it has read which mount is on `dir` now.
/// The helper unmounts when the standard input of the returned process is closed. Its messages go
/// to `messages`.
pub(crate) fn start(
    dir: &Path,
    pid_file: Option<&Path>,
    record: Option<&Path>,
    profile: Option<&Path>,
    messages: Stdio,
) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    hidden::forget(&mut command)
        // The name selects the command line with subcommands.
        .arg0("ferofs")
        .arg(COMMAND)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(messages);
    for (option, file) in [("--pid-file", pid_file), ("--record", record), ("--profile", profile)] {
        if let Some(file) = file {
            command.arg(option).arg(file);
        }
    }
    let mut helper = command.args([OsStr::new("--"), dir.as_os_str()]).spawn()?;
    wait_for_answer(&mut helper)?;
    Ok(helper)
}

/// Tells the unmount helper that the image is mounted, and waits until it has read the number of
/// the mount.
pub(crate) fn tell_mounted(helper: &mut Child) -> io::Result<()> {
    if let Some(stdin) = &mut helper.stdin {
        stdin.write_all(&[MOUNTED])?;
    }
    wait_for_answer(helper)?;
    helper.stdout = None;
    Ok(())
}

/// Makes the unmount helper detach the mount while the daemon still serves it.
pub(crate) fn request_unmount(helper_input: &mut ChildStdin) {
    // If it fails, the helper has ended.
    let _ = helper_input.write_all(&[UNMOUNT]);
}

/// Sends a profile to the unmount helper, which stores it.
pub(crate) fn send_profile(profile: &Profile, helper_input: impl Write) -> io::Result<()> {
    let mut pipe = BufWriter::new(helper_input);
    profile.write(&mut pipe)?;
    pipe.write_all(b"\n")?;
    pipe.flush()
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
    let run = |program| Command::new(program).args(options).arg(dir).status();
    // libfuse 2 has the other name.
    let status = run("fusermount3").or_else(|error| run("fusermount").map_err(|_| error));
    let status = status.map_err(|error| {
        let reason =
            format!("{error}; only root can unmount without it; install the package fuse3");
        Failure::about(Path::new("fusermount3"), reason)
    })?;
    Ok(if status.success() { 0 } else { FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_the_profile() {
        let mut requests = 0;
        let mut pipe: &[u8] = b"\0# head\n1 0\0 4 /a\n\0\n";
        assert_eq!(receive(&mut pipe, || requests += 1).unwrap(), b"# head\n1 0 4 /a\n\n");
        assert_eq!(requests, 1);
        assert_eq!(receive(&mut io::empty(), || panic!()).unwrap(), b"");
    }

    #[test]
    fn only_a_complete_profile_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile");
        let mut text = Vec::new();
        Profile::default().write(&mut text).unwrap();
        text.extend(b"1 0 4 /a\n\n");
        for len in 0..text.len() {
            store_profile(&file, &text[..len]).unwrap();
            assert!(!file.exists(), "{len}");
        }
        store_profile(&file, &text).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), text[..text.len() - 1]);
    }

    #[test]
    fn helpers_are_known_by_their_arguments() {
        let profile = |words: &[&'static str]| {
            let words: Vec<&OsStr> = words.iter().map(|word| OsStr::new(*word)).collect();
            profile_of(&words, Path::new("/mnt"))
        };
        let found =
            ["ferofs", "unmount-helper", "--pid-file", "/p", "--profile", "/f", "--", "/mnt"];
        assert_eq!(profile(&found), Some(Some(Path::new("/f"))));
        assert_eq!(
            profile(&["ferofs", "unmount-helper", "--record", "--profile", "--", "/mnt"]),
            Some(None)
        );
        assert_eq!(profile(&["ferofs", "unmount-helper", "--", "/mnt/a"]), None);
        assert_eq!(profile(&["ferofs", "mount", "--", "/mnt"]), None);
        assert_eq!(profile(&["sh"]), None);
    }
}
