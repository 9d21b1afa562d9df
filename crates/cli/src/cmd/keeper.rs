//! The keeper of a mount: takes it away when the FUSE daemon wants that, or is gone.
//!
//! The daemon gives up the right to unmount with all its other rights, so a second process, which reads
//! nothing of the image, keeps it. It waits for the end of its standard input, whose other end the daemon
//! holds: the kernel closes that for a daemon that was killed, too.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::exit::{FAILURE, Failure, Outcome};

/// Keep a mount until standard input ends, then take it away
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where it is mounted: an absolute path without symbolic links
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mine = mount_at(&args.dir)?;
    io::stdout().write_all(b"\n")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    // Somebody may have unmounted it by now, and mounted something else.
    if mine.is_some() && mount_at(&args.dir)? == mine { detach(&args.dir) } else { Ok(0) }
}

/// Starts the keeper of what is mounted on `dir`, and waits until it knows its mount. It unmounts when
/// the returned process's standard input is closed.
pub(crate) fn start(dir: &Path, quiet: bool) -> io::Result<Child> {
    let mut keeper = Command::new(std::env::current_exe()?)
        // By this name the program has subcommands.
        .arg0("ferofs")
        .args([OsStr::new("keeper"), OsStr::new("--"), dir.as_os_str()])
        .current_dir("/")
        // A terminal's signals are for the daemon.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(if quiet { Stdio::null() } else { Stdio::inherit() })
        .spawn()?;
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

/// The number of the mount on top of `dir`.
fn mount_at(dir: &Path) -> io::Result<Option<Vec<u8>>> {
    Ok(find_mount(&std::fs::read("/proc/self/mountinfo")?, dir))
}

/// The first field of the last line of `mountinfo` (see proc(5)) whose mount point is `dir`.
fn find_mount(mountinfo: &[u8], dir: &Path) -> Option<Vec<u8>> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, point) = (fields.next(), fields.nth(3));
        if point == Some(wanted.as_slice()) {
            found = id.map(<[u8]>::to_vec);
        }
    }
    found
}

/// A path as the kernel's tables of mounts write it.
fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => bytes.extend(format!("\\{byte:03o}").into_bytes()),
            byte => bytes.push(*byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_topmost_mount_of_a_directory() {
        let table: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            31 22 0:41 / /mnt/a\\040b rw - fuse x.erofs ro\n\
            32 31 0:42 / /mnt/a\\040b ro - fuse y.erofs ro\n\
            33 22 0:43 / /mnt/a ro - fuse z.erofs ro\n";
        assert_eq!(find_mount(table, Path::new("/mnt/a b")), Some(b"32".to_vec()));
        assert_eq!(find_mount(table, Path::new("/mnt/a")), Some(b"33".to_vec()));
        assert_eq!(find_mount(table, Path::new("/mnt")), None);
    }
}
