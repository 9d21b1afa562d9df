//! Parses PAX extended headers: records `length key=value\n`. A header applies to one member, a
//! global one to all members after it. Source: POSIX, pax(1), "pax Header Block"; GNU tar, star and
//! libarchive for their own keywords.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;

use ferofs_format::inode::Timestamp;

use crate::error::faults::TarFault;
use crate::tree::xattr::Attributes;
use ferofs_format::xattr::acl;

type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// The known keywords and their values. An empty value cancels the value of a global header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    values: Rc<Values>,
    /// The records of earlier global headers. All members share them.
    global: Rc<Values>,
    /// Alternately offset and length of each piece of a sparse file, from the records of GNU's
    /// format 0.0.
    pub(super) pieces: Vec<u64>,
}

const NANOS_PER_SEC: i128 = 1_000_000_000;
const SCHILY_XATTR: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE_XATTR: &[u8] = b"LIBARCHIVE.xattr.";
const SELINUX: &[u8] = b"RHT.security.selinux";
const PIECE_OFFSET: &[u8] = b"GNU.sparse.offset";
const PIECE_LEN: &[u8] = b"GNU.sparse.numbytes";
const ACL: &[u8] = b"SCHILY.acl.";
/// The known keywords, besides those that begin with a prefix above.
const KEYWORDS: [&[u8]; 18] = [
    b"path",
    b"linkpath",
    b"size",
    b"uid",
    b"gid",
    b"mtime",
    b"SCHILY.devmajor",
    b"SCHILY.devminor",
    b"SCHILY.acl.access",
    b"SCHILY.acl.default",
    b"SCHILY.acl.ace",
    b"GNU.sparse.major",
    b"GNU.sparse.minor",
    b"GNU.sparse.name",
    b"GNU.sparse.size",
    b"GNU.sparse.realsize",
    b"GNU.sparse.map",
    SELINUX,
];

impl Records {
    /// Adds the records of one header, and ignores unknown keywords.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), TarFault> {
        // Some programs pad with NULs.
        while bytes.first().is_some_and(|byte| *byte != 0) {
            let (record, rest) = split_record(bytes).ok_or(TarFault::Pax)?;
            bytes = rest;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(TarFault::Pax)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            if key == PIECE_OFFSET || key == PIECE_LEN {
                // Each offset is followed by its length.
                if (key == PIECE_LEN) != (self.pieces.len() % 2 == 1) {
                    return Err(TarFault::Sparse);
                }
                self.pieces.push(decimal(value).ok_or(TarFault::Sparse)?);
            } else if is_known(key) {
                Rc::make_mut(&mut self.values).insert(key.to_vec(), value.to_vec());
            }
        }
        Ok(())
    }

    /// These records, and those of `global` for keywords that are not in these.
    pub(super) fn with_global(self, global: &Self) -> Self {
        Self { global: Rc::clone(&global.values), ..self }
    }

    /// The length of all keywords and values, in bytes.
    pub(super) fn byte_len(&self) -> u64 {
        self.values.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let value = self.values.get(key).or_else(|| self.global.get(key))?;
        Some(value.as_slice()).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, key: &str) -> Option<&[u8]> {
        self.get(key.as_bytes())
    }

    /// The decimal number of `key`; `name` says in the error what it is.
    pub(super) fn number(&self, key: &str, name: &'static str) -> Result<Option<u64>, TarFault> {
        self.text(key).map(|text| decimal(text).ok_or(TarFault::Number(name))).transpose()
    }

    /// As [`Self::number`], for a number of 32 bits.
    pub(super) fn number_u32(
        &self,
        key: &str,
        name: &'static str,
    ) -> Result<Option<u32>, TarFault> {
        let number = self.number(key, name)?;
        number.map(|n| u32::try_from(n).map_err(|_| TarFault::Number(name))).transpose()
    }

    /// The modification time, truncated to nanoseconds.
    pub(super) fn mtime(&self) -> Result<Option<Timestamp>, TarFault> {
        self.text("mtime")
            .map(|text| timestamp(text).ok_or(TarFault::Number("the time")))
            .transpose()
    }

    /// The xattrs, with full names.
    pub(super) fn xattrs(&self) -> Result<Attributes, TarFault> {
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut acls = Vec::new();
        let own = self.values.iter();
        let global = self.global.iter().filter(|(key, _)| !self.values.contains_key(*key));
        for (key, value) in own.chain(global) {
            // An empty value is a real value only in this form.
            if value.is_empty() && !key.starts_with(SCHILY_XATTR) {
                continue;
            }
            if let Some(name) = key.strip_prefix(LIBARCHIVE_XATTR) {
                let value = decode_base64(value).ok_or(TarFault::Pax)?;
                // libarchive writes the same xattr in both forms; the form without encoding is
                // preferred.
                found.entry(decode_percent(name)).or_insert(value);
            } else if let Some(name) = key.strip_prefix(SCHILY_XATTR) {
                found.insert(name.to_vec(), value.clone());
            } else if key == SELINUX {
                // The record has no NUL at the end; the value in Linux has one.
                let text = value.strip_suffix(b"\0").unwrap_or(value);
                found.entry(b"security.selinux".to_vec()).or_insert_with(|| [text, b"\0"].concat());
            } else if let Some((name, value)) = acl::attribute(key, value) {
                acls.push((name, value));
            }
        }
        for (name, value) in acls.into_iter().filter(|(_, value)| !value.is_empty()) {
            // GNU tar writes the same ACL in both forms; the form of Linux is preferred.
            found.entry(name.to_vec()).or_insert(value);
        }
        found.remove(b"".as_slice());
        Ok(found.into_iter().collect())
    }

    /// The keywords of ACLs that no image can store, unless `xattrs` contains the ACL in Linux's
    /// form.
    pub(super) fn unsupported_acls<'a>(
        &'a self,
        xattrs: &'a Attributes,
    ) -> impl Iterator<Item = &'a [u8]> {
        KEYWORDS.into_iter().filter(|key| key.starts_with(ACL)).filter(|key| {
            let is_in_xattrs = xattrs.iter().any(|(name, value)| {
                acl::record(name, value).is_some_and(|(acl_key, _)| acl_key == *key)
            });
            let is_known = |text| is_in_xattrs || acl::attribute(key, text).is_some();
            self.get(key).is_some_and(|text| !is_known(text))
        })
    }
}

fn is_known(key: &[u8]) -> bool {
    KEYWORDS.contains(&key) || key.starts_with(SCHILY_XATTR) || key.starts_with(LIBARCHIVE_XATTR)
}

/// The first record of `bytes`, without length and newline, and the bytes after it.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = bytes.iter().position(|byte| *byte == b' ')?;
    let len = usize::try_from(decimal(&bytes[..blank])?).ok()?;
    let record = bytes.get(blank + 1..len)?.strip_suffix(b"\n")?;
    Some((record, &bytes[len..]))
}

/// Parses an unsigned decimal number without sign or blanks.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Parses `[-]seconds[.fraction]`, also with an exponent: Python's tarfile writes `-1e-09`. Digits
/// below nanoseconds are cut off.
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let end = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let exponent = match text.get(end + 1..) {
        // A floating-point number has at most three digits.
        Some(digits) => {
            std::str::from_utf8(digits).ok().filter(|text| text.len() <= 4)?.parse().ok()?
        }
        None => 0i32,
    };
    let text = &text[..end];
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = (&text[..point], text.get(point + 1..).unwrap_or_default());
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    // The place of the first digit: 0 for the last one of the seconds.
    let first = i32::try_from(point).ok()? - 1 + exponent;
    let mut nanos = 0u128;
    for (digit, place) in whole.iter().chain(fraction).zip((i32::MIN..=first).rev()) {
        if place < -9 {
            break;
        }
        let power = 10u128.checked_pow(u32::try_from(place + 9).ok()?);
        if *digit != b'0' {
            nanos = nanos.checked_add(power?.checked_mul(u128::from(digit - b'0'))?)?;
        }
    }
    let nanos = i128::try_from(nanos).ok()?;
    let nanos = if negative { -nanos } else { nanos };
    let secs = i64::try_from(nanos.div_euclid(NANOS_PER_SEC)).ok()?;
    // Less than a second.
    Some(Timestamp { secs, nanos: nanos.rem_euclid(NANOS_PER_SEC) as u32 })
}

/// Decodes base64, with or without padding.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(value);
        }
        let bits = bits << (6 * (4 - group.len()));
        // Two, three and four digits encode one, two and three bytes.
        let [_, bytes @ ..] = bits.to_be_bytes();
        out.extend_from_slice(bytes.get(..group.len().checked_sub(1).filter(|n| *n > 0)?)?);
    }
    Some(out)
}

/// Decodes `%41` to `A`; libarchive encodes names so.
fn decode_percent(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%');
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    out
}
