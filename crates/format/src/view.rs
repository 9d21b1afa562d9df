//! A cursor over the bytes of a structure, with bounds checks.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::to_u64;

/// The unread rest of a structure's bytes.
#[derive(Clone, Debug)]
pub struct View<'a> {
    rest: &'a [u8],
    offset: u64,
    structure: Structure,
}

impl<'a> View<'a> {
    /// A cursor at the start of `bytes`, which hold a `structure`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], structure: Structure) -> Self {
        Self { rest: bytes, offset: 0, structure }
    }

    /// The unread bytes.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(len) else {
            return Err(self.truncated(len));
        };
        self.rest = tail;
        self.offset = self.offset.saturating_add(to_u64(len));
        Ok(head)
    }

    /// The next `T`, by reference.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when there are fewer bytes than it needs.
    pub fn read<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T> {
        let (value, tail) =
            T::ref_from_prefix(self.rest).map_err(|_| self.truncated(core::mem::size_of::<T>()))?;
        self.rest = tail;
        self.offset = self.offset.saturating_add(to_u64(core::mem::size_of::<T>()));
        Ok(value)
    }

    /// A view of the next `len` bytes, which hold another structure.
    ///
    /// # Errors
    /// [`Fault::Truncated`] when there are fewer.
    pub fn sub(&mut self, len: usize, structure: Structure) -> Result<View<'a>> {
        Ok(View::new(self.take(len)?, structure))
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`Fault::TrailingBytes`] when there are unread bytes.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.fault(Fault::TrailingBytes(to_u64(self.rest.len()))))
    }

    /// `fault`, at the next unread byte.
    #[must_use]
    pub const fn fault(&self, fault: Fault) -> FormatError {
        FormatError::new(self.structure, fault).at(self.offset)
    }

    fn truncated(&self, need: usize) -> FormatError {
        self.fault(Fault::Truncated { need: to_u64(need), have: to_u64(self.rest.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::little_endian::U32;

    #[test]
    fn takes_reads_and_finishes_within_bounds() {
        let mut view = View::new(&[1, 0, 0, 0, 9], Structure::Inode);
        assert_eq!(view.read::<U32>().unwrap().get(), 1);
        assert!(view.clone().finish().is_err());
        let error = view.read::<U32>().unwrap_err();
        assert_eq!(error.fault, Fault::Truncated { need: 4, have: 1 });
        assert_eq!(error.offset, 4);
        assert_eq!(view.take(1).unwrap(), [9]);
        view.finish().unwrap();
    }
}
