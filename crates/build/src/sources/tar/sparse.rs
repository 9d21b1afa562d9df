//! Sparse files in archives: GNU's old form, and the forms 0.0, 0.1 and 1.0 that stand in extended headers.

use super::pax::{Records, decimal};
use crate::error::archive::ArchiveFault;

/// A sparse file: its size, and its pieces of data as offset and length, which the archive holds one after
/// the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) size: u64,
    pub(super) pieces: Vec<(u64, u64)>,
}

/// How a member says that it is sparse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The header has it all.
    Known(Map),
    /// The map stands before the data, in decimal lines; this is the file's size.
    Inside(u64),
}

/// What the extended header says of sparseness.
pub(super) fn form(records: &Records) -> Result<Option<Form>, ArchiveFault> {
    let number = |key| records.number(key, "the sparse file's size");
    if let Some(major) = number("GNU.sparse.major")? {
        let size = number("GNU.sparse.realsize")?.or(number("GNU.sparse.size")?);
        let size = size.ok_or(ArchiveFault::Sparse)?;
        return match major {
            1 => Ok(Some(Form::Inside(size))),
            _ => Err(ArchiveFault::Sparse),
        };
    }
    let Some(size) = number("GNU.sparse.size")?.or(number("GNU.sparse.realsize")?) else { return Ok(None) };
    let numbers: Vec<u64> = match records.text("GNU.sparse.map") {
        Some(map) => map
            .split(|byte| *byte == b',')
            .filter(|text| !text.is_empty())
            .map(|text| decimal(text).ok_or(ArchiveFault::Sparse))
            .collect::<Result<_, _>>()?,
        None => records.pieces.clone(),
    };
    if !numbers.len().is_multiple_of(2) {
        return Err(ArchiveFault::Sparse);
    }
    let pieces = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    Ok(Some(Form::Known(Map { size, pieces })))
}

/// Collects the lines of a map that stands before the data: a count, then offset and length of each piece.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Numbers that are still to come; `None` before the count was read.
    left: Option<u64>,
    /// The offset of a piece whose length comes next.
    offset: Option<u64>,
    pieces: Vec<(u64, u64)>,
    digits: Vec<u8>,
}

impl Lines {
    /// Takes the next block; says whether the map is complete.
    pub(super) fn push(&mut self, block: &[u8]) -> Result<bool, ArchiveFault> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > 20 {
                    return Err(ArchiveFault::Sparse);
                }
                continue;
            }
            let number = decimal(&self.digits).ok_or(ArchiveFault::Sparse)?;
            self.digits.clear();
            let left = match (self.left, self.offset.take()) {
                (None, _) => number.checked_mul(2).ok_or(ArchiveFault::Sparse)?,
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

    /// Pieces with data so far.
    pub(super) const fn count(&self) -> u64 {
        self.pieces.len() as u64
    }

    pub(super) fn map(self, size: u64) -> Map {
        Map { size, pieces: self.pieces }
    }
}

impl Map {
    /// The map without empty pieces, if they ascend within the file and are `stored` bytes.
    pub(super) fn checked(mut self, stored: u64) -> Result<Self, ArchiveFault> {
        self.pieces.retain(|(_, len)| *len > 0);
        let (mut end, mut sum) = (0u64, 0u64);
        for (offset, len) in &self.pieces {
            let after = offset.checked_add(*len).filter(|after| *offset >= end && *after <= self.size);
            end = after.ok_or(ArchiveFault::Sparse)?;
            // The pieces do not overlap, so that this is no more than the end.
            sum += len;
        }
        if sum == stored { Ok(self) } else { Err(ArchiveFault::Sparse) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_held_against_the_file() {
        let map = |size, pieces: &[(u64, u64)]| Map { size, pieces: pieces.to_vec() };
        let good = map(100, &[(0, 10), (50, 0), (90, 10)]).checked(20).unwrap();
        assert_eq!(good.pieces, [(0, 10), (90, 10)]);
        for (bad, stored) in [
            (map(100, &[(0, 10), (5, 10)]), 20),
            (map(100, &[(50, 10), (0, 10)]), 20),
            (map(100, &[(95, 10)]), 10),
            (map(100, &[(u64::MAX, 2)]), 2),
            (map(100, &[(0, 10)]), 20),
        ] {
            assert_eq!(bad.clone().checked(stored), Err(ArchiveFault::Sparse), "{bad:?}");
        }
    }

    #[test]
    fn lines_come_in_any_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"2\n0\n5"), Ok(false));
        assert_eq!(lines.push(b"12\n1024\n"), Ok(false));
        assert_eq!(lines.push(b"7\n\0\0\0"), Ok(true));
        assert_eq!(lines.map(2000), Map { size: 2000, pieces: vec![(0, 512), (1024, 7)] });
        assert_eq!(Lines::default().push(b"0\n\0"), Ok(true));
        for bad in
            [b"x\n".as_slice(), b"\n", b"99999999999999999999\n", b"18446744073709551615\n", &[b'1'; 30]]
        {
            assert_eq!(Lines::default().push(bad), Err(ArchiveFault::Sparse), "{bad:?}");
        }
    }
}
