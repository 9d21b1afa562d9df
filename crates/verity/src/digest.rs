//! A digest, and its text.

use std::fmt::{self, Debug, Display, Formatter};
use std::str::FromStr;

/// Bytes of the longest digest, that of SHA-512.
const LONGEST: usize = 64;

/// A digest of SHA-256 (32 bytes) or SHA-512 (64 bytes). Its text is hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Digest {
    /// From its bytes; the rest of longer ones is ignored.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut digest = Self { bytes: [0; LONGEST], len: 0 };
        for (to, from) in digest.bytes.iter_mut().zip(bytes) {
            *to = *from;
            digest.len = digest.len.saturating_add(1);
        }
        digest
    }

    /// Its bytes.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "`new` takes at most `LONGEST` bytes")]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Display for Digest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Debug for Digest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 or 128 hexadecimal digits")]
pub struct ParseDigestError;

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let digits = text.as_bytes();
        if !matches!(digits.len(), 64 | 128) {
            return Err(ParseDigestError);
        }
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (pairs, _) = digits.as_chunks();
        let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
        let bytes: Vec<u8> = bytes.collect::<Option<_>>().ok_or(ParseDigestError)?;
        Ok(Self::new(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_parsed_again() {
        for len in [32, 64] {
            let digest = Digest::new(&(0..len).map(|n| n * 3 + 1).collect::<Vec<u8>>());
            assert_eq!(digest.to_string().parse(), Ok(digest));
            assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        }
        for wrong in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Digest>(), Err(ParseDigestError), "{wrong}");
        }
    }
}
