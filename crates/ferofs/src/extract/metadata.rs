//! Sets owners, permissions, extended attributes and times of extracted files.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use rustix::fs::{Gid, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::extraction::{Extraction, Unsupported};
use super::target::{Address, NO_PROC};
use crate::error::{Error, Result};
use ferofs_read::escape::Escaped;
use ferofs_read::{FileType, Inode, Xattr};

/// The setuid and setgid bits.
const SET_IDS: u16 = 0o6000;
/// The attribute for a program's capabilities: like a setuid bit, they give rights.
const CAPABILITIES: &[u8] = b"security.capability";
/// The prefix of the attributes for POSIX ACLs. An ACL is part of the permissions.
const ACLS: &[u8] = b"system.posix_acl_";

impl Extraction<'_> {
    /// Sets all attributes of a file. One that fails is reported, and the others are still set. The
    /// order matters: changing the owner clears setuid bits and capabilities, `user.*` attributes
    /// need the permission to write, changing permissions changes an ACL, and all other changes may
    /// change times. What the system left out without an error is reported last.
    pub(super) fn set_metadata(&self, file: &Address<'_>, inode: &Inode, path: &Path) {
        let set = |result: Result<()>| {
            let is_set = result.is_ok();
            self.report(path, result);
            is_set
        };
        let has_owner = !self.options.owners
            || set(owner(inode, path).and_then(|(uid, gid)| {
                file.set_owner(uid, gid).map_err(|e| Error::io("chown", path, e))
            }));
        let mut xattrs = Vec::new();
        if self.options.xattrs {
            set(self.image.xattrs(inode).map(|all| xattrs = all).map_err(Error::from));
        }
        let (acls, xattrs): (Vec<_>, Vec<_>) =
            xattrs.into_iter().partition(|xattr| xattr.name.starts_with(ACLS));
        let is_symlink = inode.file_type() == FileType::Symlink;
        let mut is_complete = is_symlink || self.remove_acls(file, inode, path);
        is_complete &= self.set_xattrs(file, inode, path, xattrs);
        let mut wanted = None;
        if !is_symlink {
            let bits = self.permissions(inode);
            // With another owner, setuid and setgid bits would give that owner's rights.
            let allowed = if has_owner { bits } else { bits & !SET_IDS };
            wanted = set(file.set_mode(allowed).map_err(|e| Error::io("chmod", path, e)))
                .then_some(bits);
        }
        is_complete &= self.set_xattrs(file, inode, path, acls);
        if self.stopped.get().is_some() || !is_complete {
            // Without the image's time, the file is replaced when the extraction is continued.
            return;
        }
        let has_times =
            set(file.set_times(&times(inode)).map_err(|e| Error::io("set times", path, e)));
        if let Some(bits) = wanted {
            set(check_set_ids(bits, path, || file.stat()));
        }
        if has_times {
            set(check_time(inode, path, || file.stat()));
        }
    }

    /// The image's permissions, or those that the umask allows. Without the image's owner, setuid
    /// and setgid bits would give the rights of the user who extracts.
    fn permissions(&self, inode: &Inode) -> u16 {
        let mut bits = inode.on_disk().permissions;
        if !self.options.owners {
            bits &= !SET_IDS;
        }
        if self.options.permissions { bits } else { bits & 0o777 & !self.umask }
    }

    /// Whether an existing file has the owner and the permissions that the extraction would set:
    /// another user, or other options, may have extracted it.
    pub(super) fn has_owner_and_mode(&self, stat: &Stat, inode: &Inode) -> bool {
        let disk = inode.on_disk();
        let has_owner = !self.options.owners || (stat.st_uid, stat.st_gid) == (disk.uid, disk.gid);
        let is_symlink = inode.file_type() == FileType::Symlink;
        has_owner && (is_symlink || stat.st_mode & 0o7777 == u32::from(self.permissions(inode)))
    }

    /// Whether an attribute of this name is left out, because the options leave out the rights that
    /// it gives.
    fn is_left_out(&self, name: &[u8]) -> bool {
        !self.options.owners && name == CAPABILITIES
            || !self.options.permissions && name.starts_with(ACLS)
    }

    /// Removes the ACLs that a new file inherits from its directory. Those of the image are set
    /// afterwards. Returns whether none failed.
    fn remove_acls(&self, file: &Address<'_>, inode: &Inode, path: &Path) -> bool {
        if !self.options.xattrs || !self.options.permissions {
            return true;
        }
        let mut is_complete = true;
        let of_directory = inode.is_dir().then_some(c"system.posix_acl_default");
        for name in std::iter::once(c"system.posix_acl_access").chain(of_directory) {
            match file.remove_xattr(name) {
                // There is no ACL, or the file system does not support them.
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | NO_PROC) => {}
                Err(error) => {
                    is_complete = false;
                    self.report(path, Err(xattr_error(path, name, error)));
                }
            }
        }
        is_complete
    }

    fn lose_xattr(&self, path: &Path, name: CString, error: Errno) {
        let mut lost = self.lost_xattrs.lock();
        let lost = lost.entry(name).or_insert_with(|| Unsupported::new(path, error));
        lost.files = lost.files.saturating_add(1);
    }

    /// Reports each attribute that could not be set here, once. Without its capabilities a program
    /// does not work, so this is a failure.
    pub(super) fn report_lost_xattrs(&self) {
        let lost = std::mem::take(&mut *self.lost_xattrs.lock());
        for (name, Unsupported { path, files, error }) in lost {
            if name.as_bytes() == CAPABILITIES {
                self.options.progress.failures.add(1);
            }
            let name = Escaped(name.as_bytes()).to_string();
            let source = match error {
                NO_PROC => {
                    io::Error::other("links and special files need /proc, which is not mounted")
                }
                error => error.into(),
            };
            (self.on_error)(&path, &Error::XattrLost { path: path.clone(), name, files, source });
        }
    }

    /// Sets extended attributes, and reports each that fails. Returns whether none failed, except
    /// those that the target does not support.
    fn set_xattrs(
        &self,
        file: &Address<'_>,
        inode: &Inode,
        path: &Path,
        xattrs: Vec<Xattr>,
    ) -> bool {
        let mut is_complete = true;
        for xattr in xattrs {
            if self.is_left_out(&xattr.name) {
                continue;
            }
            let Ok(name) = CString::new(xattr.name) else { continue };
            let result = match file.set_xattr(&name, &xattr.value) {
                // A directory that existed before.
                Err(Errno::ACCESS)
                    if inode.file_type() != FileType::Symlink && file.set_mode(0o700).is_ok() =>
                {
                    file.set_xattr(&name, &xattr.value)
                }
                result => result,
            };
            match result {
                Ok(()) => {}
                // Only root can set some attributes, and some file systems support none: this is
                // reported at the end.
                Err(error)
                    if matches!(error, Errno::OPNOTSUPP | NO_PROC)
                        || error == Errno::PERM && !is_root() =>
                {
                    self.lose_xattr(path, name, error);
                }
                Err(error) => {
                    is_complete = false;
                    self.report(path, Err(xattr_error(path, &name, error)));
                }
            }
        }
        is_complete
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn xattr_error(path: &Path, name: &CStr, error: Errno) -> Error {
    let name = Escaped(name.to_bytes()).to_string();
    Error::Xattr { path: path.to_owned(), name, source: error.into() }
}

/// The largest ID means "do not change" to the system: a setuid program would keep the owner who
/// extracts it.
fn owner(inode: &Inode, path: &Path) -> Result<(Uid, Gid)> {
    let disk = inode.on_disk();
    if disk.uid == u32::MAX || disk.gid == u32::MAX {
        return Err(Error::io(
            "chown",
            path,
            io::Error::other("the image has 4294967295 as an ID, which Linux refuses"),
        ));
    }
    Ok((Uid::from_raw(disk.uid), Gid::from_raw(disk.gid)))
}

/// The process's umask. It is read from /proc: umask(2) would change it for a moment, also for
/// other threads.
pub(super) fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    // If it is unknown, a strict one is safe.
    mask.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Linux leaves out the setgid bit, and gives no error, if the process may not set it
/// (`CAP_FSETID`).
fn check_set_ids(bits: u16, path: &Path, stat: impl FnOnce() -> Result<Stat, Errno>) -> Result<()> {
    if bits & SET_IDS == 0 {
        return Ok(());
    }
    let stored = stat().map_err(|e| Error::io("stat", path, e))?.st_mode;
    match (stored ^ u32::from(bits)) & u32::from(SET_IDS) {
        0 => Ok(()),
        _ => Err(Error::io("chmod", path, io::Error::other("the setuid or setgid bit is not set"))),
    }
}

/// Linux replaces a time that the file system cannot store by the nearest one, and gives no error.
pub(super) fn check_time(
    inode: &Inode,
    path: &Path,
    stat: impl FnOnce() -> Result<Stat, Errno>,
) -> Result<()> {
    let wanted = inode.mtime().secs;
    // All file systems store the times in which a signed number of 32 bits is not negative.
    if i32::try_from(wanted).is_ok_and(|secs| secs >= 0) {
        return Ok(());
    }
    let stored = stat().map_err(|e| Error::io("stat", path, e))?.st_mtime;
    match stored == wanted {
        true => Ok(()),
        false => {
            let reason =
                format!("the file system stores {stored} instead of {wanted} seconds since 1970");
            Err(Error::io("set times", path, io::Error::other(reason)))
        }
    }
}

fn times(inode: &Inode) -> Timestamps {
    let time = inode.mtime();
    let time = Timespec { tv_sec: time.secs, tv_nsec: time.nanos.min(999_999_999).into() };
    Timestamps { last_access: time, last_modification: time }
}
