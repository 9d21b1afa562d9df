//! Owners, times, labels and modes that replace those of the source.

use ferofs_format::inode::Timestamp;

use crate::options::fs_config::FsConfig;
use crate::options::labels::Labels;

/// Changes to the attributes of every file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AttributeOptions {
    /// The owner of every file.
    pub force_uid: Option<u32>,
    /// The group of every file.
    pub force_gid: Option<u32>,
    /// Added to each owner, also to [`Self::force_uid`]; wraps.
    pub uid_offset: u32,
    /// Added to each group, also to [`Self::force_gid`]; wraps.
    pub gid_offset: u32,
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
    /// The owner of a file that has `uid` in the source.
    pub(crate) fn uid(&self, uid: u32) -> u32 {
        self.force_uid.unwrap_or(uid).wrapping_add(self.uid_offset)
    }

    /// The group of a file that has `gid` in the source.
    pub(crate) fn gid(&self, gid: u32) -> u32 {
        self.force_gid.unwrap_or(gid).wrapping_add(self.gid_offset)
    }
}
