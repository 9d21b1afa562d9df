//! Prints names without characters that control a terminal: names come from images and archives
//! that can be hostile.

use std::fmt::{self, Write as _};
use std::path::Path;

use crate::names::bytes_of;

/// Shows bytes as text: control characters, characters that change the direction of text, and bytes
/// that are no UTF-8 become `\xNN`, one for each byte.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl<'a> Escaped<'a> {
    /// Shows a path.
    #[must_use]
    pub const fn path(path: &'a Path) -> EscapedPath<'a> {
        EscapedPath(path)
    }
}

/// Shows a path as [`Escaped`] shows the bytes that it has in an image.
#[derive(Clone, Copy, Debug)]
pub struct EscapedPath<'a>(&'a Path);

impl fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&bytes_of(self.0.as_os_str())))
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if controls_terminal(c) {
                    escape(c.encode_utf8(&mut [0; 4]).as_bytes(), f)?;
                } else {
                    f.write_char(c)?;
                }
            }
            escape(chunk.invalid(), f)?;
        }
        Ok(())
    }
}

/// The start of a message about something that may have a name: the path and a colon, or nothing.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct PathPrefix<'a>(pub Option<&'a Path>);

impl fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, "{}: ", Escaped::path(path)),
            None => Ok(()),
        }
    }
}

/// Whether a terminal may take the character as a command: control characters, line and paragraph
/// separators, and marks that change the direction of text, which can make a name look like
/// another.
#[must_use]
#[doc(hidden)]
pub fn controls_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_controls_the_terminal() {
        let name = "a\x1b[31m\n\u{9b}2J\u{202e}gpj.exe\u{2066}\u{7f}\u{e4} \\".as_bytes();
        let text = Escaped(&[name, b"\xff\xc3"].concat()).to_string();
        let expected = "a\\x1b[31m\\x0a\\xc2\\x9b2J\\xe2\\x80\\xaegpj.exe\\xe2\\x81\\xa6\\x7f\u{e4} \\\\xff\\xc3";
        assert_eq!(text, expected);
    }
}
