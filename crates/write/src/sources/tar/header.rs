//! Parses the header block of a tar member, in the dialects v7, ustar, GNU and star.
//! Source: POSIX, pax(1), "ustar Interchange Format"; tar(5) of libarchive for the other dialects.

use crate::error::faults::TarFault;

/// The size of a header in bytes. Data is padded to a multiple of it.
pub(super) const BLOCK: usize = 512;

const NAME: Field = Field(0, 100, "the name");
pub(super) const MODE: Field = Field(100, 8, "the mode");
pub(super) const UID: Field = Field(108, 8, "the owner");
pub(super) const GID: Field = Field(116, 8, "the group");
pub(super) const SIZE: Field = Field(124, 12, "the size");
pub(super) const MTIME: Field = Field(136, 12, "the time");
const CHKSUM: Field = Field(148, 8, "the checksum");
const TYPEFLAG: usize = 156;
const LINKNAME: Field = Field(157, 100, "the target");
const MAGIC: Field = Field(257, 6, "the magic");
pub(super) const DEVMAJOR: Field = Field(329, 8, "the device's major number");
pub(super) const DEVMINOR: Field = Field(337, 8, "the device's minor number");
const PREFIX: Field = Field(345, 155, "the prefix");
/// star's prefix is shorter, because times follow it. `tar` at the end of the block identifies
/// star.
const PREFIX_STAR: Field = Field(345, 131, "the prefix");
const MAGIC_STAR: Field = Field(508, 4, "star's magic");
/// GNU's old format of sparse files: four pieces, a flag whether a block with more pieces follows,
/// and the file's size.
const GNU_PIECES: usize = 386;
const GNU_PIECES_COUNT: usize = 4;
const GNU_EXTENDED: usize = 482;
const GNU_REAL_SIZE: Field = Field(483, 12, "the sparse file's size");
/// A block with more pieces, and its flag whether another block follows.
const MORE_PIECES_COUNT: usize = 21;
const MORE_EXTENDED: usize = 504;
/// The length of a piece's offset, and of its length, in bytes.
const PIECE_NUMBER: usize = 12;

/// A field's offset and length in bytes, and its name in errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field(usize, usize, &'static str);

/// A header with a correct checksum.
#[derive(Clone, Debug)]
pub(super) struct Header(Box<[u8; BLOCK]>);

impl Header {
    /// `None` for a block of zeroes, which ends an archive.
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Option<Self>, TarFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Self(Box::new(*block));
        // Some old programs added signed bytes. The checksum field itself counts as spaces.
        let sums = block.iter().enumerate().fold((0u64, 0i64), |(plain, signed), (at, byte)| {
            let is_checksum = (CHKSUM.0..CHKSUM.0 + CHKSUM.1).contains(&at);
            let byte = if is_checksum { b' ' } else { *byte };
            (plain + u64::from(byte), signed + i64::from(byte.cast_signed()))
        });
        let stored = header.number(CHKSUM).map_err(|_| TarFault::Checksum)?;
        if i64::try_from(sums.0) == Ok(stored) || sums.1 == stored {
            Ok(Some(header))
        } else {
            Err(TarFault::Checksum)
        }
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[TYPEFLAG]
    }

    fn bytes(&self, Field(start, len, _): Field) -> &[u8] {
        &self.0[start..start + len]
    }

    fn text(&self, field: Field) -> &[u8] {
        let bytes = self.bytes(field);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        &bytes[..end]
    }

    /// The member's name, with the prefix if the dialect has one.
    pub(super) fn name(&self) -> Vec<u8> {
        let prefix = match self.bytes(MAGIC) {
            b"ustar\0" if self.bytes(MAGIC_STAR) == b"tar\0" => self.text(PREFIX_STAR),
            b"ustar\0" => self.text(PREFIX),
            // The old GNU format has other fields at this offset.
            _ => b"",
        };
        let name = self.text(NAME);
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn linkname(&self) -> &[u8] {
        self.text(LINKNAME)
    }

    /// A number, in octal digits or in GNU's binary form.
    pub(super) fn number(&self, field: Field) -> Result<i64, TarFault> {
        number(self.bytes(field)).ok_or(TarFault::Number(field.2))
    }

    /// As [`Self::number`], for a number that must not be negative.
    pub(super) fn unsigned(&self, field: Field) -> Result<u64, TarFault> {
        self.number(field)?.try_into().map_err(|_| TarFault::Number(field.2))
    }

    /// As [`Self::number`], for an unsigned number of 32 bits.
    pub(super) fn number_u32(&self, field: Field) -> Result<u32, TarFault> {
        self.number(field)?.try_into().map_err(|_| TarFault::Number(field.2))
    }

    /// Appends the pieces of a sparse file in GNU's old format, as offset and length. Returns the
    /// file's size, and whether a block with more pieces follows.
    pub(super) fn gnu_pieces(&self, pieces: &mut Vec<(u64, u64)>) -> Result<(u64, bool), TarFault> {
        let size = self.unsigned(GNU_REAL_SIZE)?;
        read_pieces(&self.0[GNU_PIECES..], GNU_PIECES_COUNT, pieces)?;
        Ok((size, self.0[GNU_EXTENDED] != 0))
    }
}

/// Appends the pieces of a block that follows a header. Returns whether another block follows.
pub(super) fn more_gnu_pieces(
    block: &[u8; BLOCK],
    pieces: &mut Vec<(u64, u64)>,
) -> Result<bool, TarFault> {
    read_pieces(block, MORE_PIECES_COUNT, pieces)?;
    Ok(block[MORE_EXTENDED] != 0)
}

fn read_pieces(bytes: &[u8], count: usize, pieces: &mut Vec<(u64, u64)>) -> Result<(), TarFault> {
    for piece in bytes.chunks_exact(2 * PIECE_NUMBER).take(count) {
        // The first unused entry ends the list.
        if piece[0] == 0 || piece[PIECE_NUMBER] == 0 {
            break;
        }
        let read =
            |bytes| number(bytes).and_then(|n| u64::try_from(n).ok()).ok_or(TarFault::Sparse);
        let (offset, len) = (read(&piece[..PIECE_NUMBER])?, read(&piece[PIECE_NUMBER..])?);
        // An empty piece marks the end of a file that ends with a hole.
        if len > 0 {
            pieces.push((offset, len));
        }
    }
    Ok(())
}

/// Parses octal digits between blanks, or, if the first bit is set, a big-endian number in two's
/// complement.
fn number(bytes: &[u8]) -> Option<i64> {
    let (first, rest) = bytes.split_first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let start = i128::from(if negative {
            (first | 0x80).cast_signed()
        } else {
            (first & 0x3f).cast_signed()
        });
        let fold = |value: i128, byte: &u8| value.checked_mul(256)?.checked_add((*byte).into());
        return i64::try_from(rest.iter().try_fold(start, fold)?).ok();
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let digits = &bytes[start..];
    let digits = &digits[..digits.iter().position(is_blank).unwrap_or(digits.len())];
    digits.iter().try_fold(0i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add((digit - b'0').into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_forms() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"  644 \0\0"), Some(0o644));
        assert_eq!(number(b"        "), Some(0));
        assert_eq!(number(b"77777777777"), Some(0o77_777_777_777));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\x02"), Some(258));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(number(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"\x80\0\x01\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(number(b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0"), Some(i64::MIN));
        for bad in [b"9".as_slice(), b"-1", b"0x10", b"1 2x", b""] {
            let expected = if bad == b"1 2x" { Some(1) } else { None };
            assert_eq!(number(bad), expected, "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_block_is_a_header_or_none(bytes in proptest::collection::vec(proptest::num::u8::ANY, BLOCK)) {
            let mut block = [0; BLOCK];
            block.copy_from_slice(&bytes);
            let _ = Header::parse(&block);
            let header = Header(Box::new(block));
            let _ = (header.name(), header.linkname(), header.number(SIZE), header.number_u32(UID), header.kind());
            let _ = header.gnu_pieces(&mut Vec::new());
            let _ = more_gnu_pieces(&block, &mut Vec::new());
        }
    }
}
