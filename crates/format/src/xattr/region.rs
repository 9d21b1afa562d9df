//! Xattr entries, and the region after an inode that holds them.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    LongPrefix, NAME_MAX, NameFilter, NameIndex, NamePrefix, UNIT, check_len, pad, padding_after,
};
use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::{BytePos, to_u64};
use crate::view::View;

/// Bytes of the region's header, without shared ids.
pub const HEADER_SIZE: usize = 12;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER_SIZE: usize = 4;
/// The longest value in bytes.
pub const VALUE_MAX: usize = 65535;
/// The most shared ids that an inode can have.
pub const SHARED_MAX: usize = 255;

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

/// An attribute as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The index of the name's prefix.
    pub index: NameIndex,
    /// The name after its prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads an entry at the start of `bytes`; more bytes may follow. This is for shared entries.
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

    /// The size in bytes, with padding, of the entry that starts with `header`, its first
    /// [`ENTRY_HEADER_SIZE`] bytes.
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

    /// The full name; `None` if the index is not that of a prefix.
    #[must_use]
    pub fn full_name(&self, table: &[LongPrefix]) -> Option<Vec<u8>> {
        let (prefix, infix) = self.index.resolve(table)?;
        Some([prefix.text(), infix, self.name].concat())
    }

    /// Whether this entry's full name is `prefix` and `rest`.
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
        let raw = RawEntry {
            e_name_len,
            e_name_index: self.index.raw(),
            e_value_size: value_size.into(),
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
        pad(out, self.name.len().saturating_add(self.value.len()));
        Ok(())
    }
}

/// The position of shared entry `id`, if shared entries start at `area`; `None` if it exceeds 64
/// bits.
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
    /// The filter of names that are certainly absent; valid only if the superblock announces
    /// filters.
    pub filter: NameFilter,
    shared: &'a [U32],
    inline: View<'a>,
}

impl<'a> Region<'a> {
    /// Reads the region that fills `bytes`, which are [`region_size`] bytes; 0 bytes are an empty
    /// region.
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
        let shared = <[U32]>::ref_from_bytes(ids).map_err(|_| {
            view.fault(Fault::Truncated { need: to_u64(len), have: to_u64(ids.len()) })
        })?;
        Ok(Self { filter: NameFilter::new(header.h_name_filter.get()), shared, inline: view })
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
    /// [`Fault::Field`] if the region's size exceeds what `i_xattr_icount` can count.
    pub fn write(
        filter: NameFilter,
        shared: &[u32],
        inline: &[Entry<'_>],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        icount(Self::size(shared.len(), inline))?;
        if shared.is_empty() && inline.is_empty() {
            return Ok(());
        }
        let count = check_len(Structure::Xattr, "h_shared_count", shared.len(), SHARED_MAX)?;
        let [h_shared_count, _] = count.to_le_bytes();
        let raw =
            RawHeader { h_name_filter: filter.raw().into(), h_shared_count, h_reserved2: [0; 7] };
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
        inline
            .iter()
            .fold(HEADER_SIZE.saturating_add(ids), |sum, entry| sum.saturating_add(entry.size()))
    }
}

/// The inline entries of a [`Region`]. Each takes at least four bytes of it, so the iterator ends.
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

/// Bytes of an entry with its padding.
const fn entry_size(name: usize, value: usize) -> usize {
    let len = ENTRY_HEADER_SIZE.saturating_add(name).saturating_add(value);
    len.saturating_add(padding_after(len))
}
