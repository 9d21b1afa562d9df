//! Owners, times, labels and modes that replace those of the source.

use ferofs_format::inode::Timestamp;
use ferofs_format::xattr::acl;

use crate::error::entry::EntryFault;
use crate::options::fs_config::FsConfig;
use crate::options::labels::Labels;

/// Changes to the attributes of every file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AttributeOptions {
    /// The owner of every file, less than [`u32::MAX`], which is no user for Linux.
    pub force_uid: Option<u32>,
    /// The group of every file, less than [`u32::MAX`].
    pub force_gid: Option<u32>,
    /// Added to each owner, also to [`Self::force_uid`], and to the users that ACLs name. A result that is no user ID is an error.
    pub uid_offset: i64,
    /// Added to each group, also to [`Self::force_gid`], and to the groups that ACLs name. A result that is no group ID is an error.
    pub gid_offset: i64,
    /// The modification time of every file.
    pub all_time: Option<Timestamp>,
    /// Later modification times are reduced to this one, in seconds since 1970.
    pub newest_time: Option<i64>,
    /// Attributes that depend on where the image will be mounted.
    pub target: Target,
}

/// Attributes by the path that a file has on the system where the image will be mounted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Target {
    /// The mount point, which [`Self::labels`] and [`Self::fs_config`] put before each path; without slashes around it.
    pub mount_point: Vec<u8>,
    /// SELinux labels, which replace the source's.
    pub labels: Option<Labels>,
    /// Android's owners, modes and capabilities. A file without an entry is an error.
    pub fs_config: Option<FsConfig>,
}

impl AttributeOptions {
    /// The owner and the group of a file that has these in the source.
    ///
    /// # Errors
    /// [`EntryFault::Owner`].
    pub(crate) fn owner(&self, uid: u32, gid: u32) -> Result<(u32, u32), EntryFault> {
        Ok((changed(uid, self.force_uid, self.uid_offset)?, changed(gid, self.force_gid, self.gid_offset)?))
    }

    /// Adds the offsets to the IDs in the ACLs among `attributes`, names and values.
    ///
    /// # Errors
    /// [`EntryFault::Owner`].
    pub(crate) fn change_acls(&self, attributes: &mut [(Vec<u8>, Vec<u8>)]) -> Result<(), EntryFault> {
        if self.uid_offset == 0 && self.gid_offset == 0 {
            return Ok(());
        }
        let offset = |is_user| if is_user { self.uid_offset } else { self.gid_offset };
        attributes.iter_mut().try_for_each(|(name, value)| {
            acl::change_ids(name, value, |is_user, id| shifted(id, offset(is_user)))
        })
    }
}

/// The ID that replaces `id`. Without options it stays, even if it is no ID for Linux.
fn changed(id: u32, forced: Option<u32>, offset: i64) -> Result<u32, EntryFault> {
    if forced.is_none() && offset == 0 {
        return Ok(id);
    }
    shifted(forced.unwrap_or(id), offset)
}

/// `id` plus an offset.
fn shifted(id: u32, offset: i64) -> Result<u32, EntryFault> {
    let sum = i64::from(id).saturating_add(offset);
    u32::try_from(sum).ok().filter(|id| *id != u32::MAX).ok_or(EntryFault::Owner(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_wrap() {
        let offset = |uid_offset| AttributeOptions { uid_offset, ..AttributeOptions::default() };
        assert_eq!(offset(100_000).owner(1000, 7), Ok((101_000, 7)));
        assert_eq!(offset(-1000).owner(1000, 7), Ok((0, 7)));
        assert_eq!(offset(-1001).owner(1000, 7), Err(EntryFault::Owner(-1)));
        assert_eq!(offset(1 << 32).owner(0, 7), Err(EntryFault::Owner(1 << 32)));
        assert_eq!(offset(i64::MAX).owner(1, 7), Err(EntryFault::Owner(i64::MAX)));
        assert_eq!(offset(u32::MAX.into()).owner(0, 7), Err(EntryFault::Owner(u32::MAX.into())));
        let forced = AttributeOptions { force_gid: Some(u32::MAX), ..AttributeOptions::default() };
        assert_eq!(forced.owner(0, 0), Err(EntryFault::Owner(u32::MAX.into())));
        // An image with such an owner can still be rebuilt.
        assert_eq!(AttributeOptions::default().owner(u32::MAX, 7), Ok((u32::MAX, 7)));
    }
}
