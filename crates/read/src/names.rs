//! Names and paths in an image, which are bytes, as strings of the operating system.
//!
//! On Unix they are the same. Windows has names of UTF-16, and not all of them:
//!
//! | in the image | in Windows |
//! |---|---|
//! | `\ : * ? " < > \|` and control characters; a dot or a space at the end of a name; the first
//! letter of a device's name (`CON`, `nul.txt`) | the character U+F000 + its code, as in Cygwin and
//! in Windows' subsystem for Linux | | a byte that is no UTF-8, and each byte of a character from
//! U+F000 to U+F07F | the surrogate U+DC00 + the byte |
//!
//! Each name becomes one name, different ones stay different, and [`bytes_of`] gives the name of
//! the image back. On other systems, what is not UTF-8 is replaced.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Added to the code of a character that Windows does not allow.
#[cfg(any(windows, test))]
const PRIVATE: u16 = 0xf000;
/// Added to a byte that is not text.
#[cfg(any(windows, test))]
const SURROGATE: u16 = 0xdc00;

/// The bytes of a path in an image; `/` is between the names.
#[cfg(unix)]
#[must_use]
pub fn bytes_of(path: &OsStr) -> Cow<'_, [u8]> {
    Cow::Borrowed(std::os::unix::ffi::OsStrExt::as_bytes(path))
}

/// The bytes of a path in an image; `/` is between the names.
#[cfg(windows)]
#[must_use]
pub fn bytes_of(path: &OsStr) -> Cow<'_, [u8]> {
    Cow::Owned(decode(std::os::windows::ffi::OsStrExt::encode_wide(path)))
}

/// The bytes of a path in an image; `/` is between the names.
#[cfg(not(any(unix, windows)))]
#[must_use]
pub fn bytes_of(path: &OsStr) -> Cow<'_, [u8]> {
    Cow::Borrowed(path.as_encoded_bytes())
}

/// The path of these bytes, for this system.
#[cfg(unix)]
#[must_use]
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
}

/// The path of these bytes, for this system.
#[cfg(windows)]
#[must_use]
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    let names: Vec<Vec<u16>> = bytes.split(|byte| *byte == b'/').map(encode).collect();
    let path = names.join(&u16::from(b'\\'));
    PathBuf::from(<std::ffi::OsString as std::os::windows::ffi::OsStringExt>::from_wide(&path))
}

/// The path of these bytes, for this system.
#[cfg(not(any(unix, windows)))]
#[must_use]
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

/// A name for Windows.
#[cfg(any(windows, test))]
fn encode(name: &[u8]) -> Vec<u16> {
    let surrogate = |byte: u8| SURROGATE | u16::from(byte);
    let mut units = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let (mut utf16, mut utf8) = ([0; 2], [0; 4]);
            match c {
                '\0'..='\x1f' | '"' | '*' | ':' | '<' | '>' | '?' | '\\' | '|' => {
                    units.extend(c.encode_utf16(&mut utf16).iter().map(|unit| PRIVATE | unit));
                }
                '\u{f000}'..='\u{f07f}' => {
                    units.extend(c.encode_utf8(&mut utf8).bytes().map(surrogate))
                }
                c => units.extend_from_slice(c.encode_utf16(&mut utf16)),
            }
        }
        units.extend(chunk.invalid().iter().copied().map(surrogate));
    }
    // Windows takes them away.
    if let Some(last) = units.last_mut()
        && [u16::from(b'.'), u16::from(b' ')].contains(last)
    {
        *last |= PRIVATE;
    }
    if is_device(name)
        && let Some(first) = units.first_mut()
    {
        *first |= PRIVATE;
    }
    units
}

/// The bytes of a path in Windows.
#[cfg(any(windows, test))]
fn decode(units: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for c in char::decode_utf16(units) {
        match c {
            Ok(c @ '\u{f000}'..='\u{f07f}') => {
                let [code, ..] = u32::from(c).to_le_bytes();
                bytes.push(code);
            }
            Ok('\\') => bytes.push(b'/'),
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(error) => {
                let [byte, _] = error.unpaired_surrogate().to_le_bytes();
                bytes.push(byte);
            }
        }
    }
    bytes
}

/// Whether Windows takes the name for that of a device, with any extension.
#[cfg(any(windows, test))]
fn is_device(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or_default().trim_ascii_end();
    let stem = stem.to_ascii_uppercase();
    let Ok(stem) = std::str::from_utf8(&stem) else { return false };
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    matches!(stem, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || matches!(
            numbered,
            Some(
                "0" | "1"
                    | "2"
                    | "3"
                    | "4"
                    | "5"
                    | "6"
                    | "7"
                    | "8"
                    | "9"
                    | "\u{b9}"
                    | "\u{b2}"
                    | "\u{b3}"
            )
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(name: &[u8]) -> String {
        String::from_utf16(&encode(name)).unwrap()
    }

    #[test]
    fn windows_gets_names_that_it_allows() {
        assert_eq!(text(b"a:b?"), "a\u{f03a}b\u{f03f}");
        assert_eq!(text(b"back\\slash"), "back\u{f05c}slash");
        assert_eq!(
            (text(b"dot."), text(b".. "), text(b".hidden")),
            ("dot\u{f02e}".into(), "..\u{f020}".into(), ".hidden".into())
        );
        assert_eq!(
            (text(b"nul"), text(b"Com1.tar.gz")),
            ("\u{f06e}ul".into(), "\u{f043}om1.tar.gz".into())
        );
        assert_eq!(
            (text(b"console"), text(b"com10"), text("\u{e4}".as_bytes())),
            ("console".into(), "com10".into(), "\u{e4}".into())
        );
        assert_eq!(encode(b"\xff"), [0xdcff]);
    }

    #[test]
    fn a_path_of_windows_has_the_same_bytes() {
        assert_eq!(decode("dir\\a\u{f05c}b/c".encode_utf16()), b"dir/a\\b/c");
    }

    proptest! {
        #[test]
        fn names_come_back(name in prop_oneof![
            proptest::collection::vec(1..=255_u8, 1..20),
            "[\u{f000}-\u{f100}:. \\\\conCON1a-z]{1,8}".prop_map(String::into_bytes),
        ]) {
            prop_assume!(!name.contains(&b'/'));
            let units = encode(&name);
            prop_assert_eq!(decode(units.iter().copied()), name);
            prop_assert!(units.iter().all(|unit| *unit >= 0x20 && !"\"*:<>?\\|".encode_utf16().any(|bad| bad == *unit)));
            prop_assert!(![u16::from(b'.'), u16::from(b' ')].contains(units.last().unwrap()));
        }
    }
}
