//! The UUID of an image, as given on the command line.

use ferofs::read::{ParseUuidError, Uuid};

/// Parses a UUID; `clear` is all zeroes.
pub(crate) fn parse(text: &str) -> Result<[u8; 16], ParseUuidError> {
    if text == "clear" { Ok([0; 16]) } else { text.parse().map(|Uuid(bytes)| bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_may_be_cleared() {
        assert_eq!(parse("00112233-4455-6677-8899-aabbccddeeff").unwrap()[..2], [0x00, 0x11]);
        assert_eq!(parse("clear"), Ok([0; 16]));
        assert!(parse("0011").is_err());
    }
}
