//! The lock against other commands that change the same file or device: flock(2), which `udevadm
//! lock` and flock(1) use, too.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

/// The locks of files: proc_locks(5).
const LOCKS: &str = "/proc/locks";

/// Locks `file`, which was opened as `path`, until it is closed. File systems without locks do
/// without.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another process has the lock, except one that started this
/// one, or if another file got the name before this one was locked; those of stat(2).
pub fn lock_to_change(file: &File, path: &Path) -> io::Result<()> {
    let opened = file.metadata()?;
    let is_locked = flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    let locks = || std::fs::read_to_string(LOCKS).unwrap_or_default();
    let is_other = is_locked && !holders(&locks(), &opened).any(is_above);
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    if is_other || id(&opened) != id(&std::fs::metadata(path)?) {
        let reason = "another process is changing it: wait until that has ended";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
    }
    Ok(())
}

/// The processes that `locks` names for the file.
fn holders<'t>(locks: &'t str, file: &Metadata) -> impl Iterator<Item = u32> + 't {
    let (device, inode) = (file.dev(), file.ino());
    let id = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let process = words.next()?.parse().ok()?;
        (words.next()? == id).then_some(process)
    })
}

/// Whether the process started this one, or one that started it.
fn is_above(process: u32) -> bool {
    let parent = |child: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|parent| *parent != 0)
    };
    std::iter::successors(Some(std::os::unix::process::parent_id()), parent)
        .any(|above| above == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_locks_are_found() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        let (device, inode) = (file.dev(), file.ino());
        let id = format!("{:02x}:{:02x}", major(device), minor(device));
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 1 {id}:{inode} 0 EOF\n2: FLOCK  ADVISORY  WRITE 2 {id}:{inode} 0 EOF\n\
             2: -> FLOCK  ADVISORY  WRITE 3 {id}:{inode} 0 EOF\n3: FLOCK  ADVISORY  READ 4 {id}:1{inode} 0 EOF\n"
        );
        assert_eq!(holders(&locks, &file).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn the_parent_may_have_the_lock() {
        assert!(is_above(std::os::unix::process::parent_id()));
        assert!(!is_above(std::process::id()));
    }
}
