//! Files that replace others: the new file gets the access that the old one has, unless another
//! user can have planted the old one.

#[cfg(test)]
mod tests;

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

/// The attribute with the access control list (acl(5)) of a file.
const ACL: &str = "system.posix_acl_access";
/// The largest value of an attribute, in bytes.
const ACL_SIZE: usize = 1 << 16;

/// Where the symbolic link `path` leads to, also if nothing is there yet. Asks for no other file
/// than links.
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

/// Whether `path` is a descriptor of this process, for example `/dev/fd/3` or `/dev/stdout`.
#[must_use]
pub fn is_descriptor(path: &Path) -> bool {
    let is_among_descriptors = |path: &Path| {
        let dir = path.parent().and_then(|dir| std::fs::canonicalize(dir).ok());
        dir.is_some_and(|dir| dir.starts_with("/proc") && dir.ends_with("fd"))
    };
    is_among_descriptors(path)
        || std::fs::read_link(path).is_ok_and(|target| is_among_descriptors(&target))
}

/// Gives `file` the access of the file that it will replace, if there is one: owner, group,
/// permissions and access control list, so that a private image stays private. `permissions` are
/// those that a new file gets in that directory.
///
/// If other users can have planted the file that is replaced, for example in `/tmp`, its owner is
/// not taken over, and of its permissions only those that a new file has, too. Permissions of a
/// group that `file` cannot have go to no other group.
///
/// # Errors
/// The reason why the permissions cannot be set. Only root can give files to others, so another
/// owner is not an error.
pub fn keep_access(file: &File, replaced: &Path, permissions: u32) -> io::Result<()> {
    let Ok((old, list, trust)) = trusted(replaced) else {
        return set_permissions(file, permissions & 0o777);
    };
    // Each id by itself: a user may give a file to another group, but not to another owner.
    let group = file.metadata()?.gid();
    let keeps_group = group == old.gid()
        || (trust >= Trust::Group && fchown(file, None, Some(old.gid())).is_ok());
    let mut kept = old.mode() & 0o777;
    // With an access control list, these bits of the mode are not those of the group, but its mask.
    kept &= match &list {
        List::None => 0o777,
        List::Unknown => 0o707,
        List::Known(acl) => !0o070 | group_of_acl(acl) << 3,
    };
    if !keeps_group {
        // Members of the old group are others now, and others may be members of the new one.
        let common = kept >> 3 & kept & 0o7;
        kept = kept & 0o700 | common << 3 | common;
    }
    if trust < Trust::All {
        return set_permissions(file, permissions & (kept | 0o700) & 0o777);
    }
    let has_acl = match list {
        // It sets the permissions, too.
        List::Known(acl) if keeps_group => {
            rustix::fs::fsetxattr(file, ACL, &acl, XattrFlags::empty()).is_ok()
        }
        _ => false,
    };
    if !has_acl {
        // The one that the directory gives to new files. Most files have none.
        let _ = rustix::fs::fremovexattr(file, ACL);
        set_permissions(file, kept)?;
    }
    if file.metadata()?.uid() != old.uid() {
        // At the end: who is not the owner may not change the rest.
        let _ = fchown(file, Some(old.uid()), None);
    }
    Ok(())
}

/// What a new file may take over from the file that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// Any user can have planted the file.
    Nothing,
    /// Only the group that may write to the directory can have planted the file, which is of that
    /// group.
    Group,
    All,
}

/// The access control list of a file.
#[derive(Debug, PartialEq, Eq)]
enum List {
    None,
    /// It cannot be read.
    Unknown,
    /// As the kernel gives it.
    Known(Vec<u8>),
}

/// The file with this name, its list, and who can have planted it: whoever may write to its
/// directory.
fn trusted(path: &Path) -> io::Result<(Metadata, List, Trust)> {
    // Another user may replace the file at any time: a second call with the name may find another
    // one.
    let named = std::fs::symlink_metadata(path)?;
    let is_link = named.is_symlink();
    let (old, list) = if named.is_file() {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => (file.metadata()?, list_of(&file)),
            Err(_) => (named, List::Unknown),
        }
    } else {
        // To open a device can do something. Nothing is taken from the file that a link leads to.
        (if is_link { std::fs::metadata(path)? } else { named }, List::None)
    };
    let user = rustix::process::geteuid().as_raw();
    // Other names could be links that others have made to a file that is somewhere else.
    if old.uid() == user && old.nlink() == 1 && !is_link {
        return Ok((old, list, Trust::All));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let trust = match std::fs::metadata(dir) {
        Ok(dir)
            if is_link || dir.mode() & 0o002 != 0 || ![0, user, old.uid()].contains(&dir.uid()) =>
        {
            Trust::Nothing
        }
        Ok(dir) if dir.mode() & 0o020 == 0 => Trust::All,
        Ok(dir) if dir.gid() == old.gid() => Trust::Group,
        _ => Trust::Nothing,
    };
    Ok((old, list, trust))
}

/// Sets the permissions unless the file has them: some file systems refuse each call.
fn set_permissions(file: &File, permissions: u32) -> io::Result<()> {
    if file.metadata()?.mode() & 0o777 == permissions {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(permissions))
}

fn list_of(file: &File) -> List {
    let mut value = vec![0; ACL_SIZE];
    loop {
        match rustix::fs::fgetxattr(file, ACL, value.as_mut_slice()) {
            Err(Errno::INTR) => {}
            // The second: the file system has no lists.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return List::None,
            Err(_) => return List::Unknown,
            Ok(len) => {
                value.truncate(len);
                return List::Known(value);
            }
        }
    }
}

/// The permissions of the owning group: its entry, as far as the mask allows it. The entries follow
/// a version of 4 bytes; each has a tag, permissions, and an id.
fn group_of_acl(acl: &[u8]) -> u32 {
    const GROUP: u16 = 0x04;
    const MASK: u16 = 0x10;
    let entries = acl.get(4..).unwrap_or_default().as_chunks::<8>().0;
    let of = |wanted| {
        let found = entries.iter().find(|[t0, t1, ..]| u16::from_le_bytes([*t0, *t1]) == wanted);
        found.map(|[_, _, p0, p1, ..]| u32::from(u16::from_le_bytes([*p0, *p1])) & 0o7)
    };
    of(GROUP).unwrap_or(0) & of(MASK).unwrap_or(0o7)
}
