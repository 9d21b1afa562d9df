//! Owners that this user namespace does not map: stat(2) gives the ID of "nobody" for all of them,
//! and ACLs give no ID at all.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result, Warning};
use crate::options::Options;
use ferofs_format::xattr::acl;

/// The IDs that stand for all those that the namespace does not map; `None` if the namespace maps
/// that ID, too, or the image gets other ones.
pub(super) struct UnmappedIds {
    uid: Option<u32>,
    gid: Option<u32>,
    /// One warning is enough.
    warned: AtomicBool,
}

impl UnmappedIds {
    pub(super) fn of_this_process(options: &Options) -> Self {
        let ids = &options.attributes;
        Self {
            uid: overflow_id("uid").filter(|_| ids.force_uid.is_none()),
            gid: overflow_id("gid").filter(|_| ids.force_gid.is_none()),
            warned: AtomicBool::new(false),
        }
    }

    /// The warning, for the first file whose owner or group is one of them.
    pub(super) fn warning(&self, uid: u32, gid: u32, path: &Path) -> Option<Warning> {
        let is_unmapped = self.uid == Some(uid) || self.gid == Some(gid);
        let is_first = is_unmapped && !self.warned.swap(true, Ordering::Relaxed);
        is_first.then(|| Warning::UnmappedOwner { path: path.to_owned(), uid, gid })
    }
}

/// Fails if an attribute of `path` is an ACL for users or groups without an ID: Linux would refuse
/// to use it.
pub(super) fn check_acls(attributes: &[(Vec<u8>, Vec<u8>)], path: &Path) -> Result<()> {
    match attributes.iter().any(|(name, value)| acl::lacks_ids(name, value)) {
        true => Err(Error::InvalidSource {
            path: path.to_owned(),
            problem: "its ACL names users or groups that this user namespace does not map; build outside of the \
                      namespace, or without attributes (--no-xattrs)",
        }),
        false => Ok(()),
    }
}

/// The ID that stat(2) gives for unmapped ones of this `kind`. `None` if the namespace maps it to a
/// real one.
fn overflow_id(kind: &str) -> Option<u32> {
    let id: u32 =
        fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}")).ok()?.trim().parse().ok()?;
    let map = fs::read_to_string(format!("/proc/self/{kind}_map")).ok()?;
    (!maps(&map, id)).then_some(id)
}

/// Whether a map of the kernel, with lines of first ID, first ID outside, and count, contains `id`.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), Some(_), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        id.checked_sub(first).is_some_and(|at| at < count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_the_kernel_are_read() {
        assert!(maps("         0          0 4294967295\n", 65534));
        assert!(!maps("0 1000 1\n", 65534));
        assert!(maps("0 1000 1\n1 100000 65536\n", 65534));
        assert!(!maps("0 1000 1\n1 100000 65533\n", 65534));
    }
}
