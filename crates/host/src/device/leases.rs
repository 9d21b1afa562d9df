//! Finds what has a file or a device open, under any name and in any mount namespace: Linux, for a
//! mount or a loop device, or the daemon of a FUSE mount.
//!
//! Linux grants a write lease (fcntl(2), `F_SETLEASE`) only if the file has no other open file
//! description, and counts its own. /proc shows which processes have the others.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, makedev, statx};

use crate::replaced::is_descriptor;
use ferofs_read::escape::Escaped;

/// fcntl(2): chooses the signal for the end of a lease. The crate libc does not have it, and only
/// PA-RISC has another number.
const F_SETSIG: libc::c_int = 10;
/// The numbers of /dev/fuse.
const FUSE: (u32, u32) = (10, 229);
/// How often to look, each time after a pause: after an unmount, Linux or a daemon may close the
/// file a moment later.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// What uses the regular file `path`, and how to end that. `None` also if nothing can tell: on file
/// systems without leases, for files of other users, without /proc, or with several descriptors of
/// the file in this process. Another program that has it open can hide a use by Linux.
pub(super) fn user_of(path: &Path) -> io::Result<Option<String>> {
    let metadata = std::fs::metadata(path)?;
    let id = (metadata.dev(), metadata.ino());
    let (mut own, _) = open_files(Path::new("/proc/self"), is_file(id));
    let file: File;
    let descriptor = match (own.pop(), own.is_empty()) {
        (None, _) => {
            file = OpenOptions::new().read(true).write(true).open(path)?;
            file.as_raw_fd()
        }
        (Some(one), true) => one,
        _ => return Ok(None),
    };
    // The program that passed the descriptor has it with the same number.
    let passed = is_descriptor(path).then_some(descriptor);
    let mut user = None;
    for _ in 0..TRIES {
        user = if is_shared(descriptor) { user_of_shared(id, passed) } else { None };
        if user.is_none() {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(user)
}

/// Whether the file has other open file descriptions than that of `descriptor`, if leases can tell.
fn is_shared(descriptor: RawFd) -> bool {
    // SAFETY: these commands take an int, and access no memory of this process (fcntl(2)).
    let set = |command, value: libc::c_int| unsafe { libc::fcntl(descriptor, command, value) };
    // A process that opens the file at this moment ends the lease by a signal: the usual one would
    // end this process, and this one is ignored.
    if set(F_SETSIG, libc::SIGURG) == -1 {
        return false;
    }
    let refused = set(libc::F_SETLEASE, libc::F_WRLCK) == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    set(libc::F_SETLEASE, libc::F_UNLCK);
    set(F_SETSIG, 0);
    refused
}

/// The user of a file that is open elsewhere, too. `None` if other programs explain that.
fn user_of_shared(id: (u64, u64), passed: Option<RawFd>) -> Option<String> {
    let mut has_program = false;
    for process in processes()? {
        let (mut files, serves_fuse) = open_files(&process, is_file(id));
        files.retain(|file| Some(*file) != passed);
        if serves_fuse && !files.is_empty() {
            return Some(serves(&process) + "file");
        }
        has_program |= !files.is_empty();
    }
    let by_linux = "is in use by Linux or a hidden process, for example as a mount or loop device of another mount namespace: end that first, or \
                    write to another file";
    (!has_program).then(|| by_linux.to_owned())
}

/// The daemon of a FUSE mount that has the block device with this number open, and how to end
/// that; the last word is missing. What Linux mounts itself, it refuses to open.
pub(super) fn daemon_of(number: u64) -> Option<String> {
    let is_device = |found: &Statx| {
        FileType::from_raw_mode(found.stx_mode.into()).is_block_device()
            && makedev(found.stx_rdev_major, found.stx_rdev_minor) == number
    };
    let has_it = |process: &PathBuf| {
        let (files, serves_fuse) = open_files(process, is_device);
        serves_fuse && !files.is_empty()
    };
    processes()?.find(has_it).map(|process| serves(&process))
}

/// That the process serves a mount, and how to end that; the last word is missing.
fn serves(process: &Path) -> String {
    let program = std::fs::read(process.join("comm")).unwrap_or_default();
    let program = Escaped(program.trim_ascii_end());
    let number = process.file_name().unwrap_or_default().display();
    format!(
        "is open in {program} ({number}), which serves a mount through FUSE: unmount it first, or write to another "
    )
}

/// The directories of the other processes in /proc.
fn processes() -> Option<impl Iterator<Item = PathBuf>> {
    let own = std::fs::read_link("/proc/self").ok()?;
    // Others, as the links to this process, have no numbers.
    let is_process =
        move |name: &str| name.parse::<u32>().is_ok() && Path::new(name) != own.as_path();
    Some(entries(Path::new("/proc")).filter(move |path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(&is_process)
    }))
}

/// Whether what is open is the file with this device and inode number.
fn is_file(id: (u64, u64)) -> impl Fn(&Statx) -> bool {
    move |found| (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino) == id
}

/// The descriptors of what `is_it` finds in a process, and whether the process has /dev/fuse open.
fn open_files(process: &Path, is_it: impl Fn(&Statx) -> bool) -> (Vec<RawFd>, bool) {
    let (mut files, mut has_fuse) = (Vec::new(), false);
    for open in entries(&process.join("fd")) {
        // Pipes and sockets have no path. The file system is not asked: it may not answer.
        let is_path = std::fs::read_link(&open).is_ok_and(|target| target.is_absolute());
        let found = is_path
            .then(|| {
                statx(CWD, &open, AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE)
            })
            .and_then(Result::ok);
        let Some(found) = found else { continue };
        has_fuse |= (found.stx_rdev_major, found.stx_rdev_minor) == FUSE;
        if is_it(&found) {
            let number = open.file_name().and_then(|name| name.to_str()?.parse::<RawFd>().ok());
            files.extend(number);
        }
    }
    (files, has_fuse)
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}
