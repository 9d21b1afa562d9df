//! `ferofs umount`: unmounts what ferofs has mounted, and EROFS. It leaves other file systems alone: a mistyped directory must not cost
//! the data of a tmpfs.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ferofs::build::host::open::follow_links;
use ferofs::escape::Escaped;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::cmd::mount::daemon::record::Record;
use crate::cmd::mount::unmount_helper;
use crate::exit::{Failure, Outcome};

/// Types of mounts that ferofs unmounts and changes.
pub(super) const OWN_TYPES: [&str; 3] = ["erofs", "fuse.ferofs", "fuse.erofsfuse"];

/// How often a mount is looked at. Two suffice if no other process uses it at the same time.
const ATTEMPTS: usize = 16;

/// Unmount an image
#[derive(clap::Args)]
pub(crate) struct UmountArgs {
    /// The directory on which the image is mounted, by ferofs or by the kernel's EROFS driver
    pub(crate) dir: PathBuf,
}

pub(crate) fn umount(args: &UmountArgs) -> Outcome {
    let dir = absolute(&args.dir).map_err(|e| Failure::about(&args.dir, e))?;
    let outcome = unmount_own(&dir, &args.dir);
    if matches!(outcome, Ok(0)) {
        // The unmount helper has removed the record, unless it was killed.
        drop(Record::take(&dir));
    }
    outcome
}

/// Unmounts `dir`, which messages call `shown`.
fn unmount_own(dir: &Path, shown: &Path) -> Outcome {
    // No call unmounts a certain mount only. But with MNT_EXPIRE a call marks a mount that nobody uses, and the next one unmounts what has the
    // mark. So a mount that another process makes on `dir` after the look at its type stays.
    for _ in 0..ATTEMPTS {
        check_type(dir, shown)?;
        match unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::EXPIRE) {
            Err(Errno::AGAIN) => {}
            result => return finish(dir, shown, result),
        }
    }
    // Another process uses the mount again and again, which removes the mark.
    check_type(dir, shown)?;
    finish(dir, shown, unmount(dir, UnmountFlags::NOFOLLOW))
}

fn check_type(dir: &Path, shown: &Path) -> Result<(), Failure> {
    let mount = mount_at(dir).map_err(|e| Failure::about(shown, e))?;
    let kind = mount.ok_or_else(|| Failure::about(shown, "not a mount point"))?.kind;
    if OWN_TYPES.contains(&kind.as_str()) {
        return Ok(());
    }
    let kind = Escaped(kind.as_bytes());
    let reason = format!("a mount of type {kind}, which ferofs has not made; umount(8) can unmount it");
    Err(Failure::about(shown, reason))
}

fn finish(dir: &Path, shown: &Path, result: rustix::io::Result<()>) -> Outcome {
    let is_dead = || ferofs_fuse::has_no_daemon(dir);
    match result {
        Ok(()) => Ok(0),
        // Nobody can use what has lost its daemon, so nobody is disturbed.
        Err(Errno::BUSY) if is_dead() => unmount_helper::detach(dir),
        Err(Errno::PERM) if is_dead() => unmount_helper::fusermount(dir, &["-u", "-z", "--"]),
        Err(Errno::PERM) => unmount_helper::fusermount(dir, &["-u", "--"]),
        Err(Errno::BUSY) => {
            let reason = format!(
                "{}: `fuser -vm` names the processes that use it; `umount -l` removes it now, and for them when they end",
                io::Error::from(Errno::BUSY)
            );
            Err(Failure::about(shown, reason))
        }
        Err(error) => Err(Failure::about(shown, io::Error::from(error))),
    }
}

/// The path of a directory without symbolic links. The directory itself may be a mount that cannot be asked for anything.
pub(super) fn absolute(dir: &Path) -> io::Result<PathBuf> {
    // readlink(2) sends no request to a daemon, which may not answer any more. mount follows links, too.
    let dir = follow_links(dir);
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match dir.file_name() {
        Some(name) => Ok(std::fs::canonicalize(parent)?.join(name)),
        None => std::fs::canonicalize(dir),
    }
}

const TABLE: &str = "/proc/self/mountinfo";

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The number of the mount. Linux may give it to another mount after the unmount.
    id: Vec<u8>,
    /// The type of the file system, for example `fuse.ferofs`.
    pub(crate) kind: String,
    /// Its source: for a mount by ferofs, the image, or a device with it.
    pub(crate) source: PathBuf,
    /// The flags of the mount, for example `ro,nosuid`.
    pub(crate) flags: String,
    /// The options of the file system, for example `ro,user_id=0`.
    pub(crate) options: String,
}

/// The mount on top of `dir`, an absolute path without symbolic links, in /proc/self/mountinfo (proc(5)): stat(2) would send a request to the FUSE
/// daemon of the mount, which may not answer any more.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    match std::fs::read(TABLE) {
        Ok(table) => Ok(find(&table, dir)),
        Err(error) => Err(io::Error::new(error.kind(), format!("{TABLE}: {error}; is /proc mounted?"))),
    }
}

/// The last line of `table` whose mount point is `dir`.
fn find(table: &[u8], dir: &Path) -> Option<MountEntry> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, point) = (fields.next(), fields.nth(3));
        if point == Some(wanted.as_slice()) {
            let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
            let flags = text(fields.next());
            // Before the mark are any number of optional fields.
            let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
            let (kind, source) = (text(fields.next()), unescaped(fields.next().unwrap_or_default()));
            let options = text(fields.next());
            found = id.map(|id| MountEntry { id: id.to_vec(), kind, source, flags, options });
        }
    }
    found
}

/// The path in the form of mountinfo: some characters are octal escapes.
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

/// The path of which the table has this form.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                text = rest.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                text = rest;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_topmost_mount_of_a_directory() {
        let table: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            31 22 0:41 / /mnt/a\\040b rw shared:1 master:2 - fuse.ferofs x.erofs ro\n\
            32 31 0:42 / /mnt/a\\040b ro - tmpfs y\\040z\\134.erofs rw,a=1\n\
            33 22 0:43 / /mnt/a ro shared:3 - fuse.ferofs z.erofs rw,a=1\n";
        let mount = |id: &[u8], kind: &str, source: &str| {
            let (id, source) = (id.to_vec(), source.into());
            Some(MountEntry {
                id,
                kind: kind.to_owned(),
                source,
                flags: "ro".into(),
                options: "rw,a=1".into(),
            })
        };
        assert_eq!(find(table, Path::new("/mnt/a b")), mount(b"32", "tmpfs", "y z\\.erofs"));
        assert_eq!(find(table, Path::new("/mnt/a")), mount(b"33", "fuse.ferofs", "z.erofs"));
        assert_eq!(find(table, Path::new("/mnt")), None);
    }
}
