//! Files of this machine, for all that reads or writes trees (sources, extraction, comparison): opened by directory and name, by paths of any
//! length, without following symbolic links.
//!
//! Libraries in `LD_PRELOAD` (fakeroot, fakechroot, pseudo) show a process other owners, types and attributes of files. They see calls of
//! libc only. So files of the system are read and written with functions that these libraries replace, and a program that has
//! not loaded the one that the environment asks for refuses to work.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use ferofs_format::inode::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, Stat, seek};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// The longest path that one system call is given: `PATH_MAX` with its final NUL is 4096.
const PIECE: usize = 4095;

/// Opens the directory `path`, relative to `root`; empty for `root` itself.
pub fn open_dir(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut rest = if path.is_empty() { b"." } else { path };
    let mut at: Option<OwnedFd> = None;
    loop {
        let (piece, after) = split(rest);
        let here = at.as_ref().map_or(root, AsFd::as_fd);
        let flags = if after.is_empty() { flags } else { flags | OFlags::PATH };
        let next = open_piece(here, piece, flags)?;
        if after.is_empty() {
            return Ok(next);
        }
        (at, rest) = (Some(next), after);
    }
}

/// Where the symbolic link `path` leads to, also if nothing is there yet. Asks for no other file than links.
#[must_use]
pub fn follow_links(path: &Path) -> PathBuf {
    /// More links than Linux follows.
    const LINKS: usize = 41;
    let next = |path: &PathBuf| {
        let target = std::fs::read_link(path).ok()?;
        Some(path.parent().unwrap_or(Path::new("")).join(target).components().collect())
    };
    // Without a slash at the end, which would lead through the link.
    let first = path.components().collect();
    std::iter::successors(Some(first), next).take(LINKS).last().unwrap_or_else(|| path.to_owned())
}

/// Opens the regular file `name` for reading. Fails if it is a symbolic link now, and does not wait if it is a pipe.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE {
        return (path, &[]);
    }
    // Names have at most 255 bytes, so there is a slash.
    let slash = path[..PIECE].iter().rposition(|&b| b == b'/').unwrap_or(PIECE);
    (&path[..slash], &path[(slash + 1).min(path.len())..])
}

fn open_piece(at: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // pseudo would not know the directory: libc has no function for this call.
    if has_preload() {
        return open_each_name(at, piece, flags);
    }
    loop {
        match rustix::fs::openat2(at, piece, flags, Mode::empty(), resolve) {
            // The kernel could not exclude a race with a rename, or a signal arrived: try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Linux before 5.6 does not have the call, and some sandboxes refuse it.
            Err(Errno::NOSYS | Errno::PERM) => return open_each_name(at, piece, flags),
            result => return result,
        }
    }
}

/// Opens a directory one name after the other, so that no name is a symbolic link.
fn open_each_name(at: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut here: Option<OwnedFd> = None;
    let mut names = piece.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        // Such a name could leave the directory; openat2(2) returns this error then.
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let dir = here.as_ref().map_or(at, AsFd::as_fd);
        let flags = if names.peek().is_some() { flags | OFlags::PATH } else { flags };
        here = Some(retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?);
    }
    here.ok_or(Errno::NOENT)
}

/// Calls fstatat(2) for `name` in the directory `dir`. Not statx(2), which not all preloaded libraries see.
pub fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Calls fstat(2) for the open file `fd`.
pub fn stat_fd(fd: BorrowedFd<'_>) -> Result<Stat, Errno> {
    rustix::fs::fstat(fd)
}

/// Bytes of the file.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Bytes of the file's blocks: fewer than its size if it is sparse.
pub fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The time of the last change of the content.
pub fn mtime(stat: &Stat) -> Timestamp {
    // Less than a second.
    Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

/// The libraries, by a part of the name of their file.
const LIBRARIES: [&str; 3] = ["libfakeroot", "libfakechroot", "libpseudo"];

/// Whether such a library may be loaded. Then descriptors come only from calls that it sees, and files are named by directory
/// and name: it does not know a path in `/proc`.
pub fn has_preload() -> bool {
    static ACTIVE: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("LD_PRELOAD").is_some_and(|list| !list.is_empty()));
    *ACTIVE
}

/// Fails if the environment asks for one of these libraries and the program cannot have it: it would see the real owners and types.
///
/// # Errors
/// [`Error::StaticProgram`], [`Error::PreloadLost`].
pub fn check_preload() -> Result<()> {
    refuse(cfg!(target_feature = "crt-static"), |name| std::env::var_os(name))
}

fn refuse(is_static: bool, variable: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
    let list = variable("LD_PRELOAD").unwrap_or_default();
    let is_listed = LIBRARIES.iter().any(|library| list.to_string_lossy().contains(library));
    let is_pseudo = is_set("PSEUDO_PREFIX")
        && !is_set("PSEUDO_DISABLED")
        && variable("PSEUDO_UNLOAD").is_none();
    let is_wanted = is_listed || is_set("FAKEROOTKEY") || is_pseudo;
    match (is_wanted, is_static, is_listed) {
        (true, true, _) => Err(Error::StaticProgram),
        (true, false, false) => Err(Error::PreloadLost),
        _ => Ok(()),
    }
}

/// The most ranges that are listed, to limit memory and system calls. A file with more is read as if it had no holes.
const RANGES_MAX: usize = 1 << 20;

/// Ranges of bytes, ascending, each with its start and end.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The ranges of `file` that hold data; `None` if the file system does not report them, or there are more than
/// [`RANGES_MAX`].
pub(crate) fn data_ranges(file: impl AsFd, size: u64) -> Option<Ranges> {
    let mut ranges = Ranges::new();
    let mut pos = 0;
    while pos < size && ranges.len() < RANGES_MAX {
        let start = match seek(&file, SeekFrom::Data(pos)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => return Some(ranges),
            Err(_) => return None,
        };
        let end = seek(&file, SeekFrom::Hole(start)).ok()?.min(size);
        if end <= start {
            return None;
        }
        ranges.push((start, end));
        pos = end;
    }
    (pos >= size).then_some(ranges)
}

/// Fills `bytes`.
pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .map(|_| ())
        .map_err(|e| Error::io_unnamed("get random bytes", e))
}

/// The largest tick of file systems that store whole seconds only: 2 s on FAT.
const COARSE: Duration = Duration::from_secs(2);
/// Twice the longest tick, that of a kernel with 100 Hz. A `ctime` that is further ahead comes from another machine's clock, so
/// that waiting would not help.
const TICKS: Duration = Duration::from_millis(20);
/// Time between two reads of the clock: the shortest tick, that of a kernel with 1000 Hz.
const STEP: Duration = Duration::from_millis(1);

/// Waits until the next change of a file would give it a `ctime` other than this one. A file system takes `ctime` from a clock that moves in
/// ticks of up to 10 ms, or stores whole seconds. A second change within one tick does not change `ctime`, so the build could not
/// detect it.
pub(crate) fn wait_for_tick(ctime: Timestamp) {
    while is_within_tick(ctime, now()) {
        std::thread::sleep(STEP);
    }
}

/// The clock that file systems take times from.
fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    // The kernel returns less than 10^9 nanoseconds.
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec.try_into().unwrap_or(0) }
}

/// Whether a change at `now` could give a file the time `ctime`.
fn is_within_tick(ctime: Timestamp, now: Timestamp) -> bool {
    let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let tick = if ctime.nanos == 0 { COARSE } else { Duration::ZERO };
    let left = nanos(ctime) + tick.as_nanos() as i128 - nanos(now);
    (0..=(tick + TICKS).as_nanos() as i128).contains(&left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_names_without_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, target) in [("a", "b"), ("b", "none"), ("loop", "again"), ("again", "loop")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        assert_eq!(follow_links(&path("a")), path("none"));
        assert_eq!(follow_links(&path("a/")), path("none"));
        assert_eq!(follow_links(&path("x/../none")), path("x/../none"));
        assert!(["loop", "again"].map(path).contains(&follow_links(&path("loop"))));
    }

    /// Both ways to open a directory, because Linux before 5.6 and preloaded libraries need the second.
    #[test]
    fn no_name_of_a_path_is_a_link_or_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for open in [open_piece, open_each_name] {
            let open = |path: &str| open(root.as_fd(), path.as_bytes(), flags);
            let inode = |path: &str| stat_fd(open(path).unwrap().as_fd()).unwrap().st_ino;
            let expected = stat_at(root.as_fd(), b"a/b/c").unwrap().st_ino;
            assert_eq!((inode("a/b/c"), inode("./a//b/c")), (expected, expected));
            assert_eq!(inode("."), stat_fd(root.as_fd()).unwrap().st_ino);
            for path in ["link", "link/b", "../x", "none", ""] {
                assert!(open(path).is_err(), "{path}");
            }
        }
        assert_eq!(open_each_name(root.as_fd(), b"a/../../..", flags).unwrap_err(), Errno::XDEV);
    }

    fn refusal(is_static: bool, set: &[(&str, &str)]) -> Option<Error> {
        let value =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        refuse(is_static, value).err()
    }

    #[test]
    fn a_program_that_lost_the_library_refuses() {
        let lost = |set: &[(&str, &str)]| matches!(refusal(false, set), Some(Error::PreloadLost));
        assert!(lost(&[("FAKEROOTKEY", "1877")]));
        assert!(lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libjemalloc.so")]));
        assert!(lost(&[("PSEUDO_PREFIX", "/usr")]));
        assert!(!lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libfakeroot-sysv.so")]));
        assert!(!lost(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
        assert!(!lost(&[]));
    }

    #[test]
    fn a_static_program_refuses_to_work_below_these_libraries() {
        let refused =
            |set: &[(&str, &str)]| matches!(refusal(true, set), Some(Error::StaticProgram));
        assert!(refused(&[("FAKEROOTKEY", "1877")]));
        assert!(refused(&[("LD_PRELOAD", "libfakeroot-sysv.so")]));
        assert!(refused(&[("LD_PRELOAD", "/lib/libm.so /usr/lib/pseudo/libpseudo.so")]));
        assert!(refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "0")]));
        assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
        assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_UNLOAD", "1")]));
        assert!(!refused(&[("LD_PRELOAD", "libjemalloc.so")]));
        assert!(!refused(&[("FAKEROOTKEY", "")]));
        assert!(!refused(&[]));
    }

    #[test]
    fn a_change_within_the_tick_is_waited_for() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        assert!(is_within_tick(time(5, 100), time(5, 100)));
        assert!(!is_within_tick(time(5, 100), time(5, 4_000_100)));
        assert!(is_within_tick(time(5, 0), time(6, 999_999_999)), "whole seconds");
        assert!(!is_within_tick(time(5, 0), time(7, 1)));
        assert!(!is_within_tick(time(9, 100), time(5, 100)), "another machine's clock");
        assert!(!is_within_tick(time(-5, 100), time(5, 100)));
    }

    #[test]
    fn a_new_file_is_old_enough_after_it() {
        let file = tempfile::tempfile().unwrap();
        let stat = crate::host::stat_fd(std::os::fd::AsFd::as_fd(&file)).unwrap();
        let ctime = crate::tree::Identity::of_file(&stat).ctime();
        wait_for_tick(ctime);
        assert!(now() > ctime);
    }
}
