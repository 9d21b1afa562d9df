//! Numbers that are stored column by column, so that Zstandard sees what the values of one field
//! have in common. Layout: docs/PATCH_FORMAT.md.

use std::io::Read;

use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::to_u64;

/// Fields that are stored one after another.
#[derive(Debug, Default)]
pub(super) struct Columns(Vec<u8>);

impl Columns {
    /// Adds a number: 7 bits for each byte, the lowest first.
    #[expect(clippy::as_conversions, reason = "each byte gets 7 bits")]
    pub(super) fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number that can be negative, and is mostly near 0.
    pub(super) fn push_signed(&mut self, value: i64) {
        self.push(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// Adds values as differences to the value before.
    pub(super) fn push_deltas(&mut self, values: impl Iterator<Item = u64>) {
        let mut last = 0u64;
        for value in values {
            self.push_signed(value.wrapping_sub(last).cast_signed());
            last = value;
        }
    }

    /// Adds bytes whose length a column has.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The columns as they are.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Bytes so far.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The columns as a Zstandard frame.
    pub(super) fn compress(&self, level: i32) -> Result<Vec<u8>> {
        compress(&self.0, level)
    }
}

/// `bytes` as a Zstandard frame, as short as a frame can be.
pub(crate) fn compress(bytes: &[u8], level: i32) -> Result<Vec<u8>> {
    let io = |e| Error::io_unnamed("compress", e);
    let mut compressor = zstd::bulk::Compressor::new(level).map_err(io)?;
    compressor.include_contentsize(false).map_err(io)?;
    compressor.compress(bytes).map_err(io)
}

/// Decodes a frame of at most `limit` bytes; `fault` says what is wrong with another one.
pub(crate) fn decompress(stored: &[u8], limit: usize, fault: &'static str) -> Result<Vec<u8>> {
    let malformed = || Error::Patch(PatchFault::Malformed(fault));
    let mut bytes = Vec::new();
    let decoder =
        zstd::stream::read::Decoder::new(stored).map_err(|_| Error::no_memory("decode"))?;
    let read = decoder.take(to_u64(limit).saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| match error.to_string().ends_with("not enough memory") {
        true => Error::no_memory("decode"),
        false => malformed(),
    })?;
    if bytes.len() > limit { Err(malformed()) } else { Ok(bytes) }
}

/// Reads what [`Columns`] wrote.
#[derive(Clone, Debug)]
pub(super) struct ColumnReader<'a> {
    rest: &'a [u8],
    /// The error for columns that are too short, or have numbers that are too large.
    fault: &'static str,
}

impl<'a> ColumnReader<'a> {
    pub(super) const fn new(bytes: &'a [u8], fault: &'static str) -> Self {
        Self { rest: bytes, fault }
    }

    const fn malformed(&self) -> Error {
        Error::Patch(PatchFault::Malformed(self.fault))
    }

    /// Bytes that were not read yet.
    pub(super) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Fails if bytes are left.
    pub(super) const fn finish(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }

    /// A reader of the next `count` numbers, which this one passes over.
    pub(super) fn split(&mut self, count: usize) -> Result<Self> {
        let before = self.rest;
        for _ in 0..count {
            self.next()?;
        }
        let len = before.len().saturating_sub(self.rest.len());
        Ok(Self { rest: before.get(..len).unwrap_or_default(), fault: self.fault })
    }

    pub(super) fn next(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or_else(|| self.malformed())?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    pub(super) fn next_signed(&mut self) -> Result<i64> {
        let raw = self.next()?;
        Ok(((raw >> 1) ^ (raw & 1).wrapping_neg()).cast_signed())
    }

    pub(super) fn next_u32(&mut self) -> Result<u32> {
        u32::try_from(self.next()?).map_err(|_| self.malformed())
    }

    /// A number of things that take at least a byte each.
    pub(super) fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.next()?).map_err(|_| self.malformed())?;
        if count > self.rest.len() { Err(self.malformed()) } else { Ok(count) }
    }

    pub(super) fn deltas(&mut self, count: usize) -> Result<Vec<u64>> {
        let mut last = 0u64;
        let mut values = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            last = last.wrapping_add(self.next_signed()?.cast_unsigned());
            values.push(last);
        }
        Ok(values)
    }

    pub(super) fn column(&mut self, count: usize) -> Result<Vec<u32>> {
        let mut values = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            values.push(self.next_u32()?);
        }
        Ok(values)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.malformed())?;
        self.rest = rest;
        Ok(bytes)
    }
}
