//! Names for people: what a hostile image calls its files must not steer a terminal.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `path` from the root on, with control characters and what is no UTF-8 as `\xNN`.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::from("/");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut bytes = [0; 4];
                escape(c.encode_utf8(&mut bytes).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// `bytes` in a unit that is easy to read.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} EiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let name = std::ffi::OsStr::from_bytes(b"a\x1b[31m\n\xff\xc3\xa4");
        assert_eq!(shown(name.as_ref()), "/a\\x1b[31m\\x0a\\xff\u{e4}");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
    }
}
