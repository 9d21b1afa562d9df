//! Limits and alignment that entries and long prefixes share.

use alloc::vec::Vec;

use crate::error::{Fault, FormatError, Result, Structure};
use crate::view::to_u64;

/// Entries, prefixes and shared ids are aligned to this many bytes; sizes and ids count units of it.
pub const UNIT: usize = 4;
/// The longest name after its prefix, in bytes.
pub const NAME_MAX: usize = 255;

/// Zero bytes after `len` bytes up to a multiple of [`UNIT`].
pub(super) const fn padding_after(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Appends the padding of `len` bytes to `out`.
pub(super) fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(core::iter::repeat_n(0, padding_after(len)));
}

/// `len` as 16 bits.
///
/// # Errors
/// [`Fault::OutOfRange`] if it exceeds `max`.
pub(super) fn check_len(structure: Structure, field: &'static str, len: usize, max: usize) -> Result<u16> {
    let fault = Fault::OutOfRange { field, value: to_u64(len), limit: to_u64(max).saturating_add(1) };
    u16::try_from(len).ok().filter(|_| len <= max).ok_or_else(|| FormatError::new(structure, fault))
}
