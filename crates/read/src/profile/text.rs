//! Access profiles: lists of file ranges with their number of reads.
//!
//! An image that was opened to record counts reads by file and range of 64 KiB. A profile names
//! files by path, so that it fits other images of the same tree, and both a builder and
//! [`Image::pin`] can use it.

use std::io::{self, BufRead, Read as _, Write};
use std::path::{Path, PathBuf};

use crate::names::{bytes_of, path_of};
use ferofs_format::units::to_u64;

/// The first line of a profile, whose number is the version of its form.
const HEADER: &str = "# ferofs access profile 1";
/// Bytes of a line at most: other files, such as devices that never end, can have longer ones.
const LINE_MAX: u64 = 1 << 20;

/// A range of a file, and how often it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRange {
    /// Reads of any part of it.
    pub reads: u64,
    /// Its first offset, in bytes.
    pub start: u64,
    /// Its length, in bytes; the file may end earlier.
    pub len: u64,
    /// The file, from the image's root.
    pub path: PathBuf,
}

/// The ranges that are read, the most read first.
///
/// As text: a line that names the form, then one line for each range, with the number of reads, its
/// start, its length and the file's path, in which `\\` stands for a backslash and `\n` for a
/// line's end.
///
/// ```
/// use ferofs_read::Profile;
///
/// let text = "# ferofs access profile 1\n7 0 65536 /bin/sh\n2 65536 65536 /lib/libc.so\n";
/// let profile = Profile::read(text.as_bytes())?;
/// assert_eq!(profile.ranges[0].path.as_os_str(), "/bin/sh");
/// let mut written = Vec::new();
/// profile.write(&mut written)?;
/// assert_eq!(written, text.as_bytes());
/// # Ok::<(), ferofs_read::ProfileError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The ranges.
    pub ranges: Vec<HotRange>,
}

/// Why a profile cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The medium failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not start as a profile does.
    #[error("not an access profile, or of a newer form: line 1 is not `{HEADER}`")]
    Header,
    /// A line is not `READS START LENGTH PATH`.
    #[error("line {0} is not READS START LENGTH PATH")]
    Line(usize),
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn read(mut from: impl BufRead) -> std::result::Result<Self, ProfileError> {
        let mut line = Vec::new();
        let mut profile = Self::default();
        let mut number = 0usize;
        loop {
            line.clear();
            if from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            number = number.saturating_add(1);
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if number == 1 {
                if text != HEADER.as_bytes() {
                    return Err(ProfileError::Header);
                }
            } else if to_u64(text.len()) == LINE_MAX {
                return Err(ProfileError::Line(number));
            } else if !text.is_empty() && !text.starts_with(b"#") {
                profile.ranges.push(parse(text).ok_or(ProfileError::Line(number))?);
            }
        }
        if number == 0 {
            return Err(ProfileError::Header);
        }
        profile.sort();
        Ok(profile)
    }

    /// Writes it as text.
    ///
    /// # Errors
    /// The errors of the medium.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "{HEADER}")?;
        for HotRange { reads, start, len, path } in &self.ranges {
            write!(to, "{reads} {start} {len} ")?;
            to.write_all(&escaped(path))?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }

    /// The most read first; the same order for the same ranges.
    pub(crate) fn sort(&mut self) {
        self.ranges.sort_by(|a, b| {
            b.reads.cmp(&a.reads).then_with(|| (&a.path, a.start).cmp(&(&b.path, b.start)))
        });
    }
}

fn parse(line: &[u8]) -> Option<HotRange> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
    let (reads, start, len) = (number()?, number()?, number()?);
    Some(HotRange { reads, start, len, path: unescaped(fields.next()?)? })
}

fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in bytes_of(path.as_os_str()).iter() {
        match byte {
            b'\\' => bytes.extend(b"\\\\"),
            b'\n' => bytes.extend(b"\\n"),
            byte => bytes.push(*byte),
        }
    }
    bytes
}

fn unescaped(bytes: &[u8]) -> Option<PathBuf> {
    let mut path = Vec::new();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                _ => return None,
            },
            byte => *byte,
        });
    }
    (!path.is_empty()).then(|| path_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_be_written_and_read() {
        let hot = |reads, path: &str| HotRange { reads, start: 65536, len: 7, path: path.into() };
        let profile = Profile { ranges: vec![hot(9, "/a b\\n\n\\"), hot(3, "/c")] };
        let mut text = Vec::new();
        profile.write(&mut text).unwrap();
        assert_eq!(Profile::read(text.as_slice()).unwrap(), profile);
    }

    #[test]
    fn other_text_is_refused() {
        let error = |text: String| Profile::read(text.as_bytes()).unwrap_err().to_string();
        let zeroes = || io::BufReader::new(io::repeat(0));
        assert!(matches!(Profile::read(zeroes()), Err(ProfileError::Header)));
        let long = format!("{HEADER}\n1 2 3 /").into_bytes();
        let long = Profile::read(io::Read::chain(&*long, zeroes()));
        assert!(matches!(long, Err(ProfileError::Line(2))), "{long:?}");
        assert!(error(String::new()).contains("not an access profile"));
        assert!(error("x\n".into()).contains("not an access profile"));
        for line in ["1 2 3", "1 2 x /a", "-1 2 3 /a", "1 2 3 ", "1 2 3 /a\\x"] {
            assert!(error(format!("{HEADER}\n\n{line}\n")).contains("line 3"), "{line}");
        }
    }
}
