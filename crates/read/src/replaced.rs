//! Files that replace others: the new file gets the access that the old one has, unless another user can have planted the old one.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

/// The attribute with the access control list (acl(5)) of a file.
const ACL: &str = "system.posix_acl_access";
/// The largest value of an attribute, in bytes.
const ACL_SIZE: usize = 1 << 16;

/// Gives `file` the access of the file that it will replace, if there is one: owner, group, permissions and access control list, so that a private
/// image stays private. `permissions` are those that a new file gets in that directory.
///
/// If other users can have planted the file that is replaced, for example in `/tmp`, its owner is not taken over, and of its permissions only
/// those that a new file has, too. Permissions of a group that `file` cannot have go to no other group.
///
/// # Errors
/// The reason why the permissions cannot be set. Only root can give files to others, so another owner is no error.
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
    /// Only the group that may write to the directory can have planted the file, which is of that group.
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

/// The file with this name, its list, and who can have planted it: whoever may write to its directory.
fn trusted(path: &Path) -> io::Result<(Metadata, List, Trust)> {
    // Another user may replace the file at any time: a second call with the name may find another one.
    let named = std::fs::symlink_metadata(path)?;
    let is_link = named.is_symlink();
    let (old, list) = if named.is_file() {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => (file.metadata()?, list_of(&file)),
            Err(_) => (named, List::Unknown),
        }
    } else {
        // To open a device can do something. Nothing is taken from the file behind a link.
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

/// The permissions of the owning group: its entry, as far as the mask allows it. The entries follow a version of 4 bytes; each has a tag, permissions,
/// and an id.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Owner, group and permissions of a new file of root with the permissions 644 that replaces this one.
    fn replace(dir: &Path, dir_owner: (u32, u32, u32), old: (u32, u32, u32)) -> (u32, u32, u32) {
        let (path, new) = (dir.join("image"), dir.join("new"));
        for (path, (uid, gid, mode)) in [(dir, dir_owner), (&path, old)] {
            if path != dir {
                std::fs::write(path, "old").unwrap();
            }
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let new = File::create(new).unwrap();
        set_permissions(&new, 0o600).unwrap();
        fchown(&new, Some(0), Some(0)).unwrap();
        keep_access(&new, &path, 0o644).unwrap();
        let new = new.metadata().unwrap();
        (new.uid(), new.gid(), new.mode() & 0o7777)
    }

    #[test]
    fn only_a_file_that_others_cannot_have_planted_gives_its_owner_and_permissions() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        // A directory of root, or of the owner of the file.
        assert_eq!(replace(dir, (0, 0, 0o755), (5, 6, 0o6664)), (5, 6, 0o664));
        assert_eq!(replace(dir, (5, 0, 0o755), (5, 6, 0o640)), (5, 6, 0o640));
        assert_eq!(replace(dir, (7, 0, 0o755), (5, 6, 0o666)), (0, 0, 0o644));
        // As /tmp.
        assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0o6777)), (0, 0, 0o644));
        assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0o640)), (0, 0, 0o600));
        assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0)), (0, 0, 0o600));
        assert_eq!(replace(dir, (0, 0, 0o1777), (0, 6, 0o660)), (0, 6, 0o660));
        // The directory of a group.
        assert_eq!(replace(dir, (0, 6, 0o2775), (5, 6, 0o660)), (0, 6, 0o640));
        assert_eq!(replace(dir, (0, 6, 0o2775), (5, 7, 0o664)), (0, 0, 0o644));
        // A link to a file of root, and a link that leads to one.
        std::fs::remove_file(dir.join("image")).unwrap();
        std::fs::write(dir.join("root's"), "").unwrap();
        std::fs::hard_link(dir.join("root's"), dir.join("image")).unwrap();
        assert_eq!(replace(dir, (0, 0, 0o1777), (0, 0, 0o666)), (0, 0, 0o644));
        std::fs::remove_file(dir.join("image")).unwrap();
        std::os::unix::fs::symlink("root's", dir.join("image")).unwrap();
        assert_eq!(replace(dir, (0, 0, 0o755), (0, 0, 0o666)), (0, 0, 0o644));
    }

    /// The owner: rw-, user 7: rw-, the group: ---, mask: rw-, others: ---.
    fn list() -> Vec<u8> {
        let entry = |tag: u8, permissions: u8, id: u32| {
            [[tag, 0, permissions, 0], id.to_le_bytes()].concat()
        };
        [
            vec![2, 0, 0, 0],
            entry(1, 6, u32::MAX),
            entry(2, 6, 7),
            entry(4, 0, u32::MAX),
            entry(16, 6, u32::MAX),
            entry(32, 0, u32::MAX),
        ]
        .concat()
    }

    #[test]
    fn a_file_that_takes_the_place_of_a_link_gives_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let [path, new, planted, link, own] =
            ["image", "new", "planted", "link", "own"].map(|name| dir.path().join(name));
        std::fs::write(&own, "").unwrap();
        let new = File::create(new).unwrap();
        std::fs::write(&planted, "").unwrap();
        if !rustix::process::geteuid().is_root()
            || rustix::fs::setxattr(&planted, ACL, &list(), XattrFlags::empty()).is_err()
        {
            return;
        }
        std::os::unix::fs::chown(&planted, Some(5), Some(6)).unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    std::os::unix::fs::symlink(&own, &link).unwrap();
                    std::fs::rename(&link, &path).unwrap();
                    std::fs::rename(&planted, &path).unwrap();
                    std::fs::rename(&path, &planted).unwrap();
                }
            });
            let fails = (0..300_000).find(|_| {
                let kept = keep_access(&new, &path, 0o644);
                kept.is_err() || rustix::fs::fgetxattr(&new, ACL, [0; 100].as_mut_slice()).is_ok()
            });
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(fails, None);
        });
    }

    #[test]
    fn an_access_control_list_is_kept_or_its_mask_gives_the_group_nothing() {
        let acl = list();
        assert_eq!(group_of_acl(&acl), 0);
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("image"), File::create(dir.path().join("new")).unwrap());
        std::fs::write(&path, "").unwrap();
        if rustix::fs::setxattr(&path, ACL, &acl, XattrFlags::empty()).is_err() {
            // The file system has none.
            return;
        }
        keep_access(&new, &path, 0o644).unwrap();
        assert_eq!(list_of(&new), List::Known(acl.clone()));
        assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o660);
        // Another name of the file: it can be of another user.
        std::fs::hard_link(&path, dir.path().join("link")).unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        rustix::fs::fremovexattr(&new, ACL).unwrap();
        keep_access(&new, &path, 0o644).unwrap();
        assert_eq!((list_of(&new), new.metadata().unwrap().mode() & 0o777), (List::None, 0o600));
        // The file that is replaced has none: neither has the new one.
        rustix::fs::removexattr(&path, ACL).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::fs::remove_file(dir.path().join("link")).unwrap();
        rustix::fs::fsetxattr(&new, ACL, &acl, XattrFlags::empty()).unwrap();
        keep_access(&new, &path, 0o644).unwrap();
        assert_eq!((list_of(&new), new.metadata().unwrap().mode() & 0o777), (List::None, 0o640));
    }
}
