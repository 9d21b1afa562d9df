//! Parses the maps of sparse files: GNU's old format, and its formats 0.0, 0.1 and 1.0, which use
//! extended headers. Source: the manual of GNU tar, appendix "Storing Sparse Files".

use super::pax::{Records, decimal};
use crate::error::faults::TarFault;

/// The map of a sparse file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// The file's size, with holes.
    pub(super) size: u64,
    /// Offset and length of each piece of data. The archive stores the pieces one after the other,
    /// without the holes.
    pub(super) pieces: Vec<(u64, u64)>,
}

/// Where the map of a sparse file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MapPlace {
    /// In the headers.
    Header(SparseMap),
    /// Before the data, as decimal lines; this is the file's size. Format 1.0.
    BeforeData(u64),
}

/// Finds the map that an extended header describes; `None` if the file is not sparse.
pub(super) fn map_place(records: &Records) -> Result<Option<MapPlace>, TarFault> {
    let number = |key| records.number(key, "the sparse file's size");
    if let Some(major) = number("GNU.sparse.major")? {
        let size = number("GNU.sparse.realsize")?.or(number("GNU.sparse.size")?);
        let size = size.ok_or(TarFault::Sparse)?;
        return match major {
            1 => Ok(Some(MapPlace::BeforeData(size))),
            _ => Err(TarFault::Sparse),
        };
    }
    let Some(size) = number("GNU.sparse.size")?.or(number("GNU.sparse.realsize")?) else {
        return Ok(None);
    };
    let numbers: Vec<u64> = match records.text("GNU.sparse.map") {
        Some(map) => map
            .split(|byte| *byte == b',')
            .filter(|text| !text.is_empty())
            .map(|text| decimal(text).ok_or(TarFault::Sparse))
            .collect::<Result<_, _>>()?,
        None => records.pieces.clone(),
    };
    if !numbers.len().is_multiple_of(2) {
        return Err(TarFault::Sparse);
    }
    let pieces = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    Ok(Some(MapPlace::Header(SparseMap { size, pieces })))
}

/// The longest number in a map, in digits: that of 2^64 - 1. A longer one is an error.
const DIGITS_MAX: usize = 20;

/// Parses a map before the data: decimal lines with the number of pieces, then offset and length of
/// each piece.
#[derive(Debug, Default)]
pub(super) struct MapParser {
    /// The number of lines that are still missing; `None` before the first line was read.
    left: Option<u64>,
    /// The offset of the piece whose length is on the next line.
    offset: Option<u64>,
    pieces: Vec<(u64, u64)>,
    digits: Vec<u8>,
}

impl MapParser {
    /// Parses the next block, and returns whether the map is complete.
    pub(super) fn push(&mut self, block: &[u8]) -> Result<bool, TarFault> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > DIGITS_MAX {
                    return Err(TarFault::Sparse);
                }
                continue;
            }
            let number = decimal(&self.digits).ok_or(TarFault::Sparse)?;
            self.digits.clear();
            let left = match (self.left, self.offset.take()) {
                (None, _) => number.checked_mul(2).ok_or(TarFault::Sparse)?,
                (Some(left), None) => {
                    self.offset = Some(number);
                    left - 1
                }
                (Some(left), Some(offset)) => {
                    if number > 0 {
                        self.pieces.push((offset, number));
                    }
                    left - 1
                }
            };
            self.left = Some(left);
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of pieces with data so far.
    pub(super) const fn count(&self) -> u64 {
        self.pieces.len() as u64
    }

    pub(super) fn map(self, size: u64) -> SparseMap {
        SparseMap { size, pieces: self.pieces }
    }
}

impl SparseMap {
    /// Removes empty pieces, and checks that the pieces ascend, lie within the file and have
    /// `stored` bytes in total.
    pub(super) fn checked(mut self, stored: u64) -> Result<Self, TarFault> {
        self.pieces.retain(|(_, len)| *len > 0);
        let (mut end, mut sum) = (0u64, 0u64);
        for (offset, len) in &self.pieces {
            let after =
                offset.checked_add(*len).filter(|after| *offset >= end && *after <= self.size);
            end = after.ok_or(TarFault::Sparse)?;
            // This cannot overflow: the pieces do not overlap, so the sum is at most `end`.
            sum += len;
        }
        if sum == stored { Ok(self) } else { Err(TarFault::Sparse) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_must_ascend_and_fit() {
        let map = |size, pieces: &[(u64, u64)]| SparseMap { size, pieces: pieces.to_vec() };
        let good = map(100, &[(0, 10), (50, 0), (90, 10)]).checked(20).unwrap();
        assert_eq!(good.pieces, [(0, 10), (90, 10)]);
        for (bad, stored) in [
            (map(100, &[(0, 10), (5, 10)]), 20),
            (map(100, &[(50, 10), (0, 10)]), 20),
            (map(100, &[(95, 10)]), 10),
            (map(100, &[(u64::MAX, 2)]), 2),
            (map(100, &[(0, 10)]), 20),
        ] {
            assert_eq!(bad.clone().checked(stored), Err(TarFault::Sparse), "{bad:?}");
        }
    }

    #[test]
    fn blocks_may_end_within_a_line() {
        let mut parser = MapParser::default();
        assert_eq!(parser.push(b"2\n0\n5"), Ok(false));
        assert_eq!(parser.push(b"12\n1024\n"), Ok(false));
        assert_eq!(parser.push(b"7\n\0\0\0"), Ok(true));
        assert_eq!(parser.map(2000), SparseMap { size: 2000, pieces: vec![(0, 512), (1024, 7)] });
        assert_eq!(MapParser::default().push(b"0\n\0"), Ok(true));
        for bad in [
            b"x\n".as_slice(),
            b"\n",
            b"99999999999999999999\n",
            b"18446744073709551615\n",
            &[b'1'; 30],
        ] {
            assert_eq!(MapParser::default().push(bad), Err(TarFault::Sparse), "{bad:?}");
        }
    }
}
