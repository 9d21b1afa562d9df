//! How extended attributes are stored. Source: FORMAT.md 4.

use ferofs_format::xattr::{LongPrefix, NAME_MAX, NamePrefix};

/// The default name of the attribute that holds the digest of a file's content. Linux does not show attributes with this
/// prefix.
pub const DIGEST_NAME: &[u8] = b"erofs.fingerprint.v1";

/// How extended attributes are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct XattrOptions {
    /// Store the source's attributes. Attributes that [`super::AttributeOptions`] adds are stored in any case.
    pub keep: bool,
    /// The image shares an attribute if more inodes than this have it; `None`: if sharing saves bytes.
    pub inline_limit: Option<u32>,
    /// Long name prefixes, such as `trusted.overlay.`, stored once for the image (Linux 6.4).
    pub prefixes: Vec<LongPrefix>,
    /// Store a filter of names with each inode, so that Linux (6.6) need not read attributes to find that one is absent.
    pub name_filter: bool,
    /// The root directory's attributes take at least this many bytes, so that they can be changed in place.
    pub root_min: usize,
    /// Store the digest of each regular file's content in an attribute with this name. Newer kernels use it to share page
    /// cache between images.
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
    /// A long prefix of names, such as `trusted.overlay.`. `None` unless `text` starts with a prefix that EROFS defines, and 1
    /// to 255 more bytes follow.
    #[must_use]
    pub fn prefix(text: &[u8]) -> Option<LongPrefix> {
        let (base, infix) = NamePrefix::split(text)?;
        let fits = !infix.is_empty() && infix.len() <= NAME_MAX;
        fits.then(|| LongPrefix { base: base.index(), infix: infix.to_vec() })
    }

    /// A name for [`Self::digest`]. Linux shows the attribute only if `text` starts with a prefix that EROFS defines. `None` if
    /// `text` is empty or too long.
    #[must_use]
    pub fn digest_name(text: &[u8]) -> Option<LongPrefix> {
        let hidden = || LongPrefix { base: 0, infix: text.to_vec() };
        let name = Self::prefix(text).unwrap_or_else(hidden);
        (!name.infix.is_empty() && name.infix.len() <= NAME_MAX).then_some(name)
    }

    /// The image's table of long prefixes. The name of digests is the first prefix: the entry then has an empty name.
    pub fn table(&self) -> Vec<LongPrefix> {
        self.digest.iter().chain(&self.prefixes).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_must_be_prefixes() {
        for text in ["", "user", "user.", "other.x", "system.posix_acl_access"] {
            assert_eq!(XattrOptions::prefix(text.as_bytes()), None, "{text}");
        }
        assert_eq!(XattrOptions::prefix(&[b"user.".as_slice(), &[b'x'; 256]].concat()), None);
        assert_eq!(XattrOptions::digest_name(b"trusted.x").unwrap().base, 4);
        assert_eq!(XattrOptions::digest_name(b""), None);
    }
}
