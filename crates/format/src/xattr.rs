//! Extended attributes: the region after an inode and the shared entries, and names. Source:
//! FORMAT.md 4.
//!
//! An entry holds a name and a value. It is in the inode's region, or shared by many inodes. An
//! attribute's full name, such as `user.mime_type`, is stored as the index of a prefix and the
//! rest. A prefix is one of the five [`NamePrefix`]es, or a [`LongPrefix`] of the image's table,
//! which is one of the five and an infix.

pub mod acl;
mod region;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use xxhash_rust::xxh32::xxh32;
use zerocopy::little_endian::U16;

use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::to_u64;
use crate::view::View;
pub use crate::xattr::region::{
    ENTRY_HEADER_SIZE, Entries, Entry, HEADER_SIZE, Region, SHARED_MAX, VALUE_MAX, icount,
    region_size, shared_pos,
};

/// Entries, prefixes and shared ids are aligned to this many bytes; sizes and ids count units of
/// it.
pub const UNIT: usize = 4;
/// The longest name after its prefix, in bytes.
pub const NAME_MAX: usize = 255;

/// Zero bytes after `len` bytes up to a multiple of [`UNIT`].
const fn padding_after(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Appends the padding of `len` bytes to `out`.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(core::iter::repeat_n(0, padding_after(len)));
}

/// `len` as 16 bits.
///
/// # Errors
/// [`Fault::OutOfRange`] if it exceeds `max`.
fn check_len(structure: Structure, field: &'static str, len: usize, max: usize) -> Result<u16> {
    let fault =
        Fault::OutOfRange { field, value: to_u64(len), limit: to_u64(max).saturating_add(1) };
    u16::try_from(len).ok().filter(|_| len <= max).ok_or_else(|| FormatError::new(structure, fault))
}

/// The most long prefixes that an image can have.
pub const LONG_PREFIXES_MAX: usize = 128;

const LONG_BIT: u8 = 0x80;
const FILTER_SEED: u32 = 0x25bb_e08f;

/// A prefix that the format defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamePrefix {
    /// `user.`
    User,
    /// `system.posix_acl_access`, a whole name.
    PosixAclAccess,
    /// `system.posix_acl_default`, a whole name.
    PosixAclDefault,
    /// `trusted.`
    Trusted,
    /// `security.`
    Security,
}

impl NamePrefix {
    /// Every prefix, in ascending order of its index.
    pub const ALL: [Self; 5] =
        [Self::User, Self::PosixAclAccess, Self::PosixAclDefault, Self::Trusted, Self::Security];

    /// The prefix with this index.
    #[must_use]
    pub const fn from_index(index: u8) -> Option<Self> {
        match index {
            1 => Some(Self::User),
            2 => Some(Self::PosixAclAccess),
            3 => Some(Self::PosixAclDefault),
            4 => Some(Self::Trusted),
            6 => Some(Self::Security),
            _ => None,
        }
    }

    /// The index on disk.
    #[must_use]
    pub const fn index(self) -> u8 {
        match self {
            Self::User => 1,
            Self::PosixAclAccess => 2,
            Self::PosixAclDefault => 3,
            Self::Trusted => 4,
            Self::Security => 6,
        }
    }

    /// The prefix as text.
    #[must_use]
    pub const fn text(self) -> &'static [u8] {
        match self {
            Self::User => b"user.",
            Self::PosixAclAccess => b"system.posix_acl_access",
            Self::PosixAclDefault => b"system.posix_acl_default",
            Self::Trusted => b"trusted.",
            Self::Security => b"security.",
        }
    }

    /// Whether the prefix is a whole name.
    #[must_use]
    pub const fn is_whole_name(self) -> bool {
        matches!(self, Self::PosixAclAccess | Self::PosixAclDefault)
    }

    /// Splits a full name into its prefix and the rest; `None` for names that EROFS cannot store.
    #[must_use]
    pub fn split(name: &[u8]) -> Option<(Self, &[u8])> {
        Self::ALL.into_iter().find_map(|prefix| {
            let rest = name.strip_prefix(prefix.text())?;
            (rest.is_empty() == prefix.is_whole_name()).then_some((prefix, rest))
        })
    }
}

/// A prefix that the image defines: a [`NamePrefix`] and an infix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPrefix {
    /// The index of the [`NamePrefix`]. If it is unknown, names with this prefix are unreadable,
    /// but the image is valid.
    pub base: u8,
    /// The bytes after it: at most [`NAME_MAX`].
    pub infix: Vec<u8>,
}

impl LongPrefix {
    /// Reads a table of `count` records from `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// A record that is truncated or has an impossible size.
    pub fn parse_table(bytes: &[u8], count: u8) -> Result<Vec<Self>> {
        let mut view = View::new(bytes, Structure::XattrPrefix);
        let mut table = Vec::new();
        for _ in 0..count {
            let size = view.read::<U16>()?.get();
            if !(1..=256).contains(&size) {
                return Err(view.fault(Fault::Field { field: "size", value: size.into() }));
            }
            let record = view.take(size.into())?;
            let Some((&base, infix)) = record.split_first() else { break };
            table.push(Self { base, infix: infix.to_vec() });
            // The last record's padding may be missing.
            let padding = padding_after(usize::from(size).saturating_add(2)).min(view.rest().len());
            view.take(padding)?;
        }
        Ok(table)
    }

    /// Appends the on-disk form of `table` to `out`, whose end must be at a multiple of 4 on disk.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for a table or an infix that is too long.
    pub fn write_table(table: &[Self], out: &mut Vec<u8>) -> Result<()> {
        let limit = LONG_PREFIXES_MAX;
        check_len(Structure::XattrPrefix, "xattr_prefix_count", table.len(), limit)?;
        for prefix in table {
            let len = check_len(Structure::XattrPrefix, "size", prefix.infix.len(), NAME_MAX)?;
            out.extend_from_slice(&len.saturating_add(1).to_le_bytes());
            out.push(prefix.base);
            out.extend_from_slice(&prefix.infix);
            pad(out, prefix.infix.len().saturating_add(3));
        }
        Ok(())
    }
}

/// An entry's `e_name_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(u8);

impl NameIndex {
    /// From the byte on disk.
    #[must_use]
    pub const fn new(raw: u8) -> Self {
        Self(raw)
    }

    /// Record `number` of the image's table of long prefixes; `None` past [`LONG_PREFIXES_MAX`].
    #[must_use]
    pub const fn long(number: u8) -> Option<Self> {
        if number < LONG_BIT { Some(Self(number | LONG_BIT)) } else { None }
    }

    /// The byte on disk.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// The number of the long prefix; `None` for the index of a short prefix.
    #[must_use]
    pub fn long_number(self) -> Option<usize> {
        (self.0 & LONG_BIT != 0).then(|| usize::from(self.0 & !LONG_BIT))
    }

    /// The short prefix and the infix that this index stands for; `None` if there is no such
    /// prefix.
    #[must_use]
    pub fn resolve(self, table: &[LongPrefix]) -> Option<(NamePrefix, &[u8])> {
        if self.0 & LONG_BIT == 0 {
            return Some((NamePrefix::from_index(self.0)?, &[]));
        }
        let long = table.get(usize::from(self.0 & !LONG_BIT))?;
        Some((NamePrefix::from_index(long.base)?, &long.infix))
    }
}

impl From<NamePrefix> for NameIndex {
    fn from(prefix: NamePrefix) -> Self {
        Self(prefix.index())
    }
}

/// Splits a full name into an index and the rest, by the longest prefix that matches; `None` for
/// names that EROFS cannot store.
#[must_use]
pub fn split_name<'a>(name: &'a [u8], table: &[LongPrefix]) -> Option<(NameIndex, &'a [u8])> {
    let (prefix, rest) = NamePrefix::split(name)?;
    let long = (0u8..)
        .map_while(NameIndex::long)
        .zip(table)
        .filter(|(_, long)| long.base == prefix.index() && !long.infix.is_empty())
        .filter_map(|(index, long)| Some((index, rest.strip_prefix(long.infix.as_slice())?)))
        .min_by_key(|(_, rest)| rest.len());
    Some(long.unwrap_or((prefix.into(), rest)))
}

/// A Bloom filter over an inode's attribute names, inverted: a set bit means that names with this
/// hash are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFilter(u32);

impl NameFilter {
    /// The filter of no names.
    pub const EMPTY: Self = Self(u32::MAX);

    /// From the field `h_name_filter`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The field `h_name_filter`.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Adds the name `prefix` and `rest`; `rest` includes any infix.
    #[must_use]
    pub fn with(self, prefix: NamePrefix, rest: &[u8]) -> Self {
        self.with_base(prefix.index(), rest)
    }

    /// Adds a name by the index of its short prefix, which may be unknown: see
    /// [`LongPrefix::base`].
    #[must_use]
    pub fn with_base(self, base: u8, rest: &[u8]) -> Self {
        Self(self.0 & !Self::bit(base, rest))
    }

    /// Whether the name may have been added; `false` is certain.
    #[must_use]
    pub fn may_contain(self, prefix: NamePrefix, rest: &[u8]) -> bool {
        self.0 & Self::bit(prefix.index(), rest) == 0
    }

    fn bit(base: u8, rest: &[u8]) -> u32 {
        1u32.rotate_left(xxh32(rest, FILTER_SEED.wrapping_add(base.into())))
    }
}
