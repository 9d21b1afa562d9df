//! Extended attributes: the region after an inode, shared entries, name prefixes, the name filter.
//! Source: FORMAT.md 4.
//!
//! An attribute's full name, such as `user.mime_type`, is stored as the index of a prefix and the rest.
//! A prefix is one of the five [`NamePrefix`]es, or a [`LongPrefix`] of the image's own table: one of
//! the five and an infix.

use alloc::vec::Vec;

use xxhash_rust::xxh32::xxh32;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::BytePos;
use crate::view::{View, to_u64};

/// Bytes of the region's header, without shared ids.
pub const HEADER_SIZE: usize = 12;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER_SIZE: usize = 4;
/// Entries, prefixes and shared ids count in these.
pub const UNIT: usize = 4;
/// The longest name after its prefix, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest value in bytes.
pub const VALUE_MAX: usize = 65535;
/// The most shared ids that an inode can have.
pub const SHARED_MAX: usize = 255;
/// The most long prefixes that an image can have.
pub const LONG_PREFIXES_MAX: usize = 128;

const LONG_BIT: u8 = 0x80;
const FILTER_SEED: u32 = 0x25bb_e08f;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    h_name_filter: U32,
    h_shared_count: u8,
    h_reserved2: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_name_len: u8,
    e_name_index: u8,
    e_value_size: U16,
}

const _: () = assert!(core::mem::size_of::<RawHeader>() == HEADER_SIZE);
const _: () = assert!(core::mem::size_of::<RawEntry>() == ENTRY_HEADER_SIZE);

/// A prefix that the format itself knows.
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

    /// What names with this prefix start with.
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

    /// Whether the prefix is a whole name already.
    #[must_use]
    pub const fn is_whole_name(self) -> bool {
        matches!(self, Self::PosixAclAccess | Self::PosixAclDefault)
    }

    /// Splits a full name into its prefix and the rest; `None` for names that EROFS cannot hold.
    #[must_use]
    pub fn split(name: &[u8]) -> Option<(Self, &[u8])> {
        Self::ALL.into_iter().find_map(|prefix| {
            let rest = name.strip_prefix(prefix.text())?;
            (rest.is_empty() == prefix.is_whole_name()).then_some((prefix, rest))
        })
    }
}

/// A prefix of the image's own: a [`NamePrefix`] and an infix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPrefix {
    /// Index of the [`NamePrefix`]; one that is not known makes names unreadable, but not the image.
    pub base: u8,
    /// What follows it: at most [`NAME_MAX`] bytes.
    pub infix: Vec<u8>,
}

impl LongPrefix {
    /// Reads a table of `count` records from `bytes`, which may run on.
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

    /// Appends `table` as it stands on disk to `out`, whose end must be a multiple of [`UNIT`] there.
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

    /// The short prefix and the infix that this index stands for; `None` when there is no such prefix.
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

/// Splits a full name into an index and the rest, by the longest prefix that fits; `None` for names that
/// EROFS cannot hold.
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

/// An attribute as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Which prefix the name has.
    pub index: NameIndex,
    /// The name after its prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads an entry at the start of `bytes`, which may run on: how shared entries are read.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Self::read(&mut View::new(bytes, Structure::Xattr))
    }

    fn read(view: &mut View<'a>) -> Result<Self> {
        let raw = view.read::<RawEntry>()?;
        let name = view.take(raw.e_name_len.into())?;
        let value = view.take(raw.e_value_size.get().into())?;
        Ok(Self { index: NameIndex::new(raw.e_name_index), name, value })
    }

    /// Bytes of the entry, with its padding, that starts with `header`, the first [`ENTRY_HEADER_SIZE`]
    /// of them.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when `header` is shorter.
    pub fn size_from_header(header: &[u8]) -> Result<usize> {
        let raw = View::new(header, Structure::Xattr).read::<RawEntry>()?;
        Ok(entry_size(raw.e_name_len.into(), raw.e_value_size.get().into()))
    }

    /// Bytes on disk, with padding.
    #[must_use]
    pub const fn size(&self) -> usize {
        entry_size(self.name.len(), self.value.len())
    }

    /// The full name; `None` when the index stands for no prefix.
    #[must_use]
    pub fn full_name(&self, table: &[LongPrefix]) -> Option<Vec<u8>> {
        let (prefix, infix) = self.index.resolve(table)?;
        Some([prefix.text(), infix, self.name].concat())
    }

    /// Whether this entry's full name is `prefix` and `rest`, without building it.
    #[must_use]
    pub fn is_named(&self, prefix: NamePrefix, rest: &[u8], table: &[LongPrefix]) -> bool {
        self.index.resolve(table).is_some_and(|(own, infix)| {
            own == prefix && rest.strip_prefix(infix).is_some_and(|rest| rest == self.name)
        })
    }

    /// Appends the entry and its padding to `out`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for a name beyond [`NAME_MAX`] or a value beyond [`VALUE_MAX`] bytes.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let name_len = check_len(Structure::Xattr, "e_name_len", self.name.len(), NAME_MAX)?;
        let value_size = check_len(Structure::Xattr, "e_value_size", self.value.len(), VALUE_MAX)?;
        let [e_name_len, _] = name_len.to_le_bytes();
        let raw = RawEntry { e_name_len, e_name_index: self.index.raw(), e_value_size: value_size.into() };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
        pad(out, self.name.len().saturating_add(self.value.len()));
        Ok(())
    }
}

/// The position of shared entry `id`, when shared entries start at `area`; `None` when past 2^64.
#[must_use]
pub fn shared_pos(area: BytePos, id: u32) -> Option<BytePos> {
    area.checked_add(u64::from(id).checked_mul(to_u64(UNIT))?)
}

/// Bytes of the region of an inode with this `i_xattr_icount`.
#[must_use]
pub fn region_size(icount: u16) -> usize {
    match icount.checked_sub(1) {
        Some(units) => usize::from(units).saturating_mul(UNIT).saturating_add(HEADER_SIZE),
        None => 0,
    }
}

/// The `i_xattr_icount` of a region of `size` bytes.
///
/// # Errors
/// [`Fault::Field`] for a size that no region has.
pub fn icount(size: usize) -> Result<u16> {
    let count = match size {
        0 => Some(0),
        _ => size
            .checked_sub(HEADER_SIZE)
            .filter(|units| units.is_multiple_of(UNIT))
            .and_then(|units| u16::try_from(units.checked_div(UNIT)?).ok())
            .and_then(|units| units.checked_add(1)),
    };
    let fault = Fault::Field { field: "xattr region size", value: to_u64(size) };
    count.ok_or_else(|| FormatError::new(Structure::Xattr, fault))
}

/// The xattr region of an inode.
#[derive(Clone, Debug)]
pub struct Region<'a> {
    /// Which names are surely absent; only where the superblock announces filters.
    pub filter: NameFilter,
    shared: &'a [U32],
    inline: View<'a>,
}

impl<'a> Region<'a> {
    /// Reads the region that fills `bytes`, [`region_size`] of them; no bytes are an empty region.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when the shared ids do not fit.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut view = View::new(bytes, Structure::Xattr);
        if bytes.is_empty() {
            return Ok(Self { filter: NameFilter::EMPTY, shared: &[], inline: view });
        }
        let header = view.read::<RawHeader>()?;
        let len = usize::from(header.h_shared_count).saturating_mul(UNIT);
        let ids = view.take(len)?;
        let shared = <[U32]>::ref_from_bytes(ids)
            .map_err(|_| view.fault(Fault::Truncated { need: to_u64(len), have: to_u64(ids.len()) }))?;
        Ok(Self { filter: NameFilter(header.h_name_filter.get()), shared, inline: view })
    }

    /// Ids of the inode's shared entries: see [`shared_pos`].
    #[must_use]
    pub fn shared(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.shared.iter().map(|id| id.get())
    }

    /// The inline entries; ends after the first error.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries { view: self.inline.clone(), failed: false }
    }

    /// Appends a region with these attributes to `out`; nothing when there are none.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] for too many shared ids, or a name or value that is too long;
    /// [`Fault::Field`] when it all is more than `i_xattr_icount` can count.
    pub fn write(filter: NameFilter, shared: &[u32], inline: &[Entry<'_>], out: &mut Vec<u8>) -> Result<()> {
        icount(Self::size(shared.len(), inline))?;
        if shared.is_empty() && inline.is_empty() {
            return Ok(());
        }
        let count = check_len(Structure::Xattr, "h_shared_count", shared.len(), SHARED_MAX)?;
        let [h_shared_count, _] = count.to_le_bytes();
        let raw = RawHeader { h_name_filter: filter.0.into(), h_shared_count, h_reserved2: [0; 7] };
        out.extend_from_slice(raw.as_bytes());
        for id in shared {
            out.extend_from_slice(&id.to_le_bytes());
        }
        inline.iter().try_for_each(|entry| entry.write(out))
    }

    /// Bytes that [`Self::write`] appends.
    #[must_use]
    pub fn size(shared: usize, inline: &[Entry<'_>]) -> usize {
        if shared == 0 && inline.is_empty() {
            return 0;
        }
        let ids = shared.saturating_mul(UNIT);
        inline.iter().fold(HEADER_SIZE.saturating_add(ids), |sum, entry| sum.saturating_add(entry.size()))
    }
}

/// The inline entries of a [`Region`]; each takes at least four bytes of it, so there is an end.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    view: View<'a>,
    failed: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.view.rest().is_empty() {
            return None;
        }
        let entry = Entry::read(&mut self.view).and_then(|entry| {
            let body = entry.name.len().saturating_add(entry.value.len());
            self.view.take(padding_after(body))?;
            Ok(entry)
        });
        self.failed = entry.is_err();
        Some(entry)
    }
}

/// A Bloom filter over an inode's attribute names, inverted: a set bit says "absent".
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
        Self(self.0 & !Self::bit(prefix, rest))
    }

    /// Whether the name may be among those added; `false` is certain.
    #[must_use]
    pub fn may_contain(self, prefix: NamePrefix, rest: &[u8]) -> bool {
        self.0 & Self::bit(prefix, rest) == 0
    }

    fn bit(prefix: NamePrefix, rest: &[u8]) -> u32 {
        1u32.rotate_left(xxh32(rest, FILTER_SEED.wrapping_add(prefix.index().into())))
    }
}

/// Bytes of an entry with its padding.
const fn entry_size(name: usize, value: usize) -> usize {
    let len = ENTRY_HEADER_SIZE.saturating_add(name).saturating_add(value);
    len.saturating_add(padding_after(len))
}

/// Zero bytes after `len` bytes up to a multiple of [`UNIT`].
const fn padding_after(len: usize) -> usize {
    len.wrapping_neg() & 3
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(core::iter::repeat_n(0, padding_after(len)));
}

fn check_len(structure: Structure, field: &'static str, len: usize, max: usize) -> Result<u16> {
    let fault = Fault::OutOfRange { field, value: to_u64(len), limit: to_u64(max).saturating_add(1) };
    u16::try_from(len).ok().filter(|_| len <= max).ok_or_else(|| FormatError::new(structure, fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = Vec<(u8, Vec<u8>, Vec<u8>)>> {
        vec((any::<u8>(), vec(any::<u8>(), 0..=NAME_MAX), vec(any::<u8>(), 0..600)), 0..9)
    }

    fn tables() -> impl Strategy<Value = Vec<LongPrefix>> {
        let infix = vec(prop_oneof![Just(b'.'), Just(b'a')], 0..5);
        vec((1u8..7, infix).prop_map(|(base, infix)| LongPrefix { base, infix }), 0..20)
    }

    proptest! {
        #[test]
        fn regions_round_trip(stored in entries(), shared in vec(any::<u32>(), 0..=SHARED_MAX), raw: u32) {
            let inline: Vec<_> = stored
                .iter()
                .map(|(index, name, value)| Entry { index: NameIndex::new(*index), name, value })
                .collect();
            let filter = NameFilter::new(raw);
            let mut bytes = Vec::new();
            Region::write(filter, &shared, &inline, &mut bytes).unwrap();
            prop_assert_eq!(bytes.len(), Region::size(shared.len(), &inline));
            prop_assert_eq!(region_size(icount(bytes.len()).unwrap()), bytes.len());
            let region = Region::parse(&bytes).unwrap();
            if !bytes.is_empty() {
                prop_assert_eq!(region.filter, filter);
            }
            prop_assert_eq!(region.shared().collect::<Vec<_>>(), shared);
            prop_assert_eq!(region.entries().collect::<Result<Vec<_>>>().unwrap(), inline);
        }

        #[test]
        fn shared_entries_round_trip(index: u8, name in vec(any::<u8>(), 0..=NAME_MAX), value: Vec<u8>) {
            let entry = Entry { index: NameIndex::new(index), name: &name, value: &value };
            let mut bytes = Vec::new();
            entry.write(&mut bytes).unwrap();
            prop_assert_eq!(bytes.len(), entry.size());
            prop_assert_eq!(Entry::size_from_header(&bytes).unwrap(), entry.size());
            bytes.push(1);
            prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
        }

        #[test]
        fn prefix_tables_round_trip(table in tables()) {
            let mut bytes = Vec::new();
            LongPrefix::write_table(&table, &mut bytes).unwrap();
            prop_assert_eq!(bytes.len() % UNIT, 0);
            let count = u8::try_from(table.len()).unwrap();
            prop_assert_eq!(LongPrefix::parse_table(&bytes, count), Ok(table));
        }

        #[test]
        fn names_split_and_join(table in tables(), prefix in 0usize..5, rest in vec(prop_oneof![Just(b'.'), Just(b'a')], 1..9)) {
            let prefix = NamePrefix::ALL[prefix];
            let rest = if prefix.is_whole_name() { Vec::new() } else { rest };
            let full = [prefix.text(), &rest].concat();
            let (index, name) = split_name(&full, &table).unwrap();
            let entry = Entry { index, name, value: b"" };
            prop_assert_eq!(entry.full_name(&table), Some(full.clone()));
            prop_assert!(entry.is_named(prefix, &rest, &table));
            prop_assert!(!entry.is_named(prefix, b"b", &table));
            let longest = table
                .iter()
                .filter(|long| long.base == prefix.index() && rest.starts_with(&long.infix))
                .map(|long| long.infix.len())
                .max();
            prop_assert_eq!(rest.len(), name.len().saturating_add(longest.unwrap_or(0)));
        }

        #[test]
        fn filters_never_deny_what_they_hold(names in vec((0usize..5, any::<Vec<u8>>()), 0..20)) {
            let filter = names.iter().fold(NameFilter::EMPTY, |f, (p, n)| f.with(NamePrefix::ALL[*p], n));
            for (prefix, name) in &names {
                prop_assert!(filter.may_contain(NamePrefix::ALL[*prefix], name));
            }
            prop_assert!(!NameFilter::EMPTY.may_contain(NamePrefix::User, b"a"));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, count: u8) {
            if let Ok(region) = Region::parse(&bytes) {
                prop_assert!(region.entries().count() <= bytes.len() / 4);
                region.entries().flatten().for_each(|entry| drop(entry.full_name(&[])));
            }
            let _ = Entry::parse(&bytes);
            let _ = LongPrefix::parse_table(&bytes, count);
        }
    }

    #[test]
    fn limits_are_errors() {
        let mut out = Vec::new();
        let entry = |name, value| Entry { index: NamePrefix::User.into(), name, value };
        assert!(entry(&[1; 256], b"").write(&mut out).is_err());
        assert!(entry(b"a", &[0; 65536]).write(&mut out).is_err());
        assert!(Region::write(NameFilter::EMPTY, &[0; 256], &[], &mut out).is_err());
        let huge = [0; VALUE_MAX];
        assert!(Region::write(NameFilter::EMPTY, &[], &[entry(b"a", &huge); 4], &mut out).is_err());
        assert!(out.is_empty());
        assert_eq!((icount(0), icount(12), icount(16)), (Ok(0), Ok(1), Ok(2)));
        assert!(icount(4).is_err() && icount(14).is_err());
        let infix = alloc::vec![b'x'; 256];
        assert!(LongPrefix::write_table(&[LongPrefix { base: 1, infix }], &mut out).is_err());
    }

    #[test]
    fn names_that_erofs_cannot_hold() {
        for name in
            [&b"user."[..], b"system.posix_acl_access2", b"system.nfs4_acl", b"lustre.lov", b"user", b""]
        {
            assert_eq!(split_name(name, &[]), None);
        }
    }
}
