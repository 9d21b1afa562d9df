//! Files with lists that options name: patterns, hints, labels, keys.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that such a file may have. A list of ten million names is smaller; a device that never
/// ends is not a list.
const MAX: u64 = 1 << 30;

/// Reads a file that an option names: a regular file or a pipe.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, MAX)
}

/// Reads a file of text that an option names.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "is not text in UTF-8");
    String::from_utf8(read(path)?).map_err(not_text)
}

fn read_up_to(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => {
            let reason = format!("has more than {max} bytes, the most that a list may have");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_up_to(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_up_to(Path::new("/dev/null"), 0).unwrap(), b"");
    }

    #[test]
    fn other_bytes_than_text_are_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"*.o\n\xff").unwrap();
        assert_eq!(read(file.path()).unwrap(), b"*.o\n\xff");
        assert_eq!(read_text(file.path()).unwrap_err().to_string(), "is not text in UTF-8");
    }
}
