//! Lines for people: messages on standard error, results on standard output. Neither ever panics, and messages never
//! steer a terminal, whatever names they have in them.

use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, Write};

use ferofs::escape::{Escaped, steers};
use serde_json::Value;

/// Prints a message, in one line, on standard error.
macro_rules! message {
    ($($text:tt)*) => { $crate::print::output::write_message(format_args!($($text)*)) };
}
/// Prints lines on standard output: an [`io::Result`].
macro_rules! print_line {
    ($($text:tt)*) => { $crate::print::output::write_line(format_args!($($text)*)) };
}
pub(crate) use {message, print_line};

pub(crate) fn write_message(text: Arguments<'_>) {
    // Names are escaped already where they are put in; this is for what is not known to be a name.
    let line = format!("ferofs: {}\n", Escaped(text.to_string().as_bytes()));
    // When nobody can hear, nobody can be told.
    let _ = io::stderr().write_all(line.as_bytes());
}

pub(crate) fn write_line(text: Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// What `bytes`, which may be a name, look like on standard output: escaped for a terminal, and as they are for a
/// program.
pub(crate) fn name(bytes: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    match terminal {
        true => Cow::Owned(Escaped(bytes).to_string().into_bytes()),
        false => Cow::Borrowed(bytes),
    }
}

/// JSON in which no character steers a terminal.
pub(crate) fn json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if steers(c) {
            // All of these have four digits; JSON itself has them in strings alone.
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "name": "a\u{9b}2J\u{202e}\u{7f}\n\"\\" });
        let text = json(&value);
        assert!(!text.chars().any(steers), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
