//! Text forms of binary identifiers: UUIDs, and bytes as hexadecimal digits.

use core::fmt;
use core::str::FromStr;

/// Bytes shown as lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A UUID, shown and parsed in its usual form, such as `123e4567-e89b-42d3-a456-426614174000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

/// The indexes of the dashes in the text of a UUID.
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Characters in the text of a UUID.
const TEXT_LEN: usize = 36;

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A text that is not a UUID in its usual form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID such as 123e4567-e89b-42d3-a456-426614174000")]
pub struct ParseUuidError;

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let mut value: u128 = 0;
        for (index, character) in text.char_indices() {
            if DASHES.contains(&index) {
                if character != '-' {
                    return Err(ParseUuidError);
                }
            } else {
                let digit = character.to_digit(16).ok_or(ParseUuidError)?;
                value = (value << 4) | u128::from(digit);
            }
        }
        if text.len() == TEXT_LEN { Ok(Self(value.to_be_bytes())) } else { Err(ParseUuidError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn uuids_round_trip(bytes: [u8; 16]) {
            prop_assert_eq!(Uuid(bytes).to_string().parse(), Ok(Uuid(bytes)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            let _ = text.parse::<Uuid>();
        }
    }

    #[test]
    fn uuids_are_parsed_strictly() {
        let uuid: Uuid = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        assert_eq!((uuid.0[0], uuid.0[1], uuid.0[15]), (0x00, 0x11, 0xff));
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        for bad in [
            "",
            "0011",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefff",
            "+0112233-4455-6677-8899-aabbccddeeff",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddee-f",
        ] {
            assert_eq!(bad.parse::<Uuid>(), Err(ParseUuidError), "{bad}");
        }
    }

    #[test]
    fn hex_shows_each_byte() {
        assert_eq!(Hex(&[0, 0x1f, 0xff]).to_string(), "001fff");
    }
}
