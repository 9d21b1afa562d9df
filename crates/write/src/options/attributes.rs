//! Owners, times, labels and modes that replace those of the source, and how extended attributes
//! are stored (FORMAT.md 4).
//!
//! Android's `fs_config` files are one way to give them: owner, group, mode and capabilities by
//! path, one file a line. Lines of symbolic links may end with the target, which is ignored, as
//! Android's readers do.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ferofs_format::inode::Timestamp;
use ferofs_format::xattr::{LongPrefix, NAME_MAX, NamePrefix, acl};

use crate::error::faults::EntryFault;
use crate::options::labels::Labels;

/// Changes to the attributes of every file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AttributeOptions {
    /// The owner of every file, less than [`u32::MAX`], which is not a user for Linux.
    pub force_uid: Option<u32>,
    /// The group of every file, less than [`u32::MAX`].
    pub force_gid: Option<u32>,
    /// Added to each owner, also to [`Self::force_uid`], and to the users that ACLs name. A result
    /// that is not a user ID is an error.
    pub uid_offset: i64,
    /// Added to each group, also to [`Self::force_gid`], and to the groups that ACLs name. A result
    /// that is not a group ID is an error.
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
    /// The mount point, which [`Self::labels`] and [`Self::fs_config`] put before each path;
    /// without slashes around it.
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
        Ok((
            changed(uid, self.force_uid, self.uid_offset)?,
            changed(gid, self.force_gid, self.gid_offset)?,
        ))
    }

    /// Adds the offsets to the IDs in the ACLs among `attributes`, names and values.
    ///
    /// # Errors
    /// [`EntryFault::Owner`].
    pub(crate) fn change_acls(
        &self,
        attributes: &mut [(Vec<u8>, Vec<u8>)],
    ) -> Result<(), EntryFault> {
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
    // No offset makes it an ID.
    if forced == Some(u32::MAX) {
        return Err(EntryFault::Owner(u32::MAX.into()));
    }
    shifted(forced.unwrap_or(id), offset)
}

/// `id` plus an offset.
fn shifted(id: u32, offset: i64) -> Result<u32, EntryFault> {
    let sum = i64::from(id).saturating_add(offset);
    u32::try_from(sum).ok().filter(|id| *id != u32::MAX).ok_or(EntryFault::Owner(sum))
}

/// The default name of the attribute that holds the digest of a file's content. Linux does not show
/// attributes with this prefix.
pub const DIGEST_NAME: &[u8] = b"erofs.fingerprint.v1";

/// How extended attributes are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct XattrOptions {
    /// Store the source's attributes. Attributes that [`crate::options::AttributeOptions`] adds are
    /// stored in any case.
    pub keep: bool,
    /// The image shares an attribute if more inodes than this have it; `None`: if sharing saves
    /// bytes.
    pub inline_limit: Option<u32>,
    /// Long name prefixes, such as `trusted.overlay.`, stored once for the image (Linux 6.4).
    pub prefixes: Vec<LongPrefix>,
    /// Store a filter of names with each inode, so that Linux (6.6) need not read attributes to
    /// find that one is absent.
    pub name_filter: bool,
    /// The root directory's attributes take at least this many bytes, so that they can be changed
    /// in place.
    pub root_min: usize,
    /// Store the digest of each regular file's content in an attribute with this name. Newer
    /// kernels use it to share page cache between images.
    pub digest: Option<LongPrefix>,
}

impl Default for XattrOptions {
    fn default() -> Self {
        Self {
            keep: true,
            inline_limit: None,
            prefixes: Vec::new(),
            name_filter: true,
            root_min: 0,
            digest: None,
        }
    }
}

impl XattrOptions {
    /// A long prefix of names, such as `trusted.overlay.`. `None` unless `text` starts with a
    /// prefix that EROFS defines, and 1 to 255 more bytes follow.
    #[must_use]
    pub fn prefix(text: &[u8]) -> Option<LongPrefix> {
        let (base, infix) = NamePrefix::split(text)?;
        let fits = !infix.is_empty() && infix.len() <= NAME_MAX;
        fits.then(|| LongPrefix { base: base.index(), infix: infix.to_vec() })
    }

    /// A name for [`Self::digest`]. Linux shows the attribute only if `text` starts with a prefix
    /// that EROFS defines. `None` if `text` is empty or too long.
    #[must_use]
    pub fn digest_name(text: &[u8]) -> Option<LongPrefix> {
        let hidden = || LongPrefix { base: 0, infix: text.to_vec() };
        let name = Self::prefix(text).unwrap_or_else(hidden);
        (!name.infix.is_empty() && name.infix.len() <= NAME_MAX).then_some(name)
    }

    /// The image's table of long prefixes. The name of digests is the first prefix: the entry then
    /// has an empty name.
    pub fn table(&self) -> Vec<LongPrefix> {
        self.digest.iter().chain(&self.prefixes).cloned().collect()
    }
}

/// A parsed `fs_config` file.
#[derive(Clone, Debug, Default)]
pub struct FsConfig(HashMap<Vec<u8>, FsEntry>);

/// The entry of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEntry {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// Permitted and effective capabilities of the program; 0 for none.
    pub capabilities: u64,
}

/// A malformed line of an `fs_config` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not a path, a user, a group, a mode in octal and perhaps capabilities=N")]
#[non_exhaustive]
pub struct FsConfigError {
    /// Its number, from 1.
    pub line: usize,
}

impl FsConfig {
    /// Reads the text of an `fs_config` file.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn parse(text: &[u8]) -> Result<Self, FsConfigError> {
        let mut entries = HashMap::new();
        for (number, line) in text.split(|b| *b == b'\n').enumerate() {
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (path, entry) = parse_line(line).ok_or(FsConfigError { line: number + 1 })?;
            entries.insert(path, entry);
        }
        Ok(Self(entries))
    }

    /// The entry of `path`, which has no leading slash. The root has an empty path, and may be in
    /// the file as an empty path or as `/`.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<FsEntry> {
        self.0
            .get(path.trim_ascii_start())
            .or_else(|| self.0.get(b"/".as_slice()).filter(|_| path.is_empty()))
            .copied()
    }
}

fn parse_line(line: &[u8]) -> Option<(Vec<u8>, FsEntry)> {
    let fields: Vec<&[u8]> = line.trim_ascii_end().split(|b| *b == b' ' || *b == b'\t').collect();
    // The numbers are the last three in a row: the path may have spaces, or be empty for the root,
    // and other fields may follow.
    let (at, [uid, gid, permissions]) = (1..fields.len()).rev().find_map(|at| {
        let [uid, gid, mode] = fields.get(at..at + 3)? else { return None };
        let mode = number(mode, 8).filter(|mode| *mode <= 0o7777)?;
        // Linux has no user 2^32 - 1.
        let id = |field| number(field, 10).filter(|id| *id != u32::MAX);
        Some((at, [id(uid)?, id(gid)?, mode]))
    })?;
    let mut capabilities = 0;
    for value in fields[at + 3..].iter().filter_map(|field| field.strip_prefix(b"capabilities=")) {
        let value = std::str::from_utf8(value).ok()?;
        capabilities = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
    }
    let path = fields[..at].join(&b' ');
    let path = path.strip_prefix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(&path).to_vec();
    Some((path, FsEntry { uid, gid, permissions: permissions as u16, capabilities }))
}

fn number(field: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(field).ok()?, radix).ok()
}

/// The value of the attribute `security.capability` (revision 2) for these `capabilities`.
pub(crate) fn capability_xattr(capabilities: u64) -> Vec<u8> {
    const REVISION_2: u32 = 0x0200_0000;
    const EFFECTIVE: u32 = 1;
    let [low, high] = [capabilities as u32, (capabilities >> 32) as u32];
    [REVISION_2 | EFFECTIVE, low, 0, high, 0].into_iter().flat_map(u32::to_le_bytes).collect()
}
