//! Files that a text defines, and attributes that it changes: the form of mksquashfs's pseudo
//! files. So an image gets devices, owners and modes that the source does not have, without root.

#[cfg(test)]
mod tests;

use ferofs_format::inode::{FileType, Rdev};

/// The definition of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new file, or a directory that keeps its entries.
    Put { body: DefinedBody, owner: Owner },
    /// Mode, owner and time of a file that exists.
    Modify(Owner),
    /// A hard link to a file that exists.
    Link { target: Vec<u8> },
    /// An extended attribute of a file that exists.
    Xattr { name: Vec<u8>, value: Vec<u8> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DefinedBody {
    Directory,
    Symlink(Vec<u8>),
    Device(FileType, Rdev),
    Fifo,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970; `None`: the time of the build for a new file, and the time that it has
    /// for another one.
    pub(crate) mtime: Option<i64>,
}

/// A line of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// Relative to the root of the image.
    pub(crate) path: Vec<u8>,
    pub(crate) change: Change,
}

/// Files to define and attributes to change, in order.
///
/// One line is one definition: `PATH TYPE MODE UID GID` and what the type needs. The types are `d`
/// (directory), `m` (changes mode and owner of a file that exists), `b` and `c` (block and
/// character device: `MAJOR MINOR` follow), `i` (`s` for a socket, otherwise a FIFO), `s` (symbolic
/// link: its target follows). Upper case takes the time in seconds since 1970 after the type. `PATH
/// h TARGET` is a hard link, `PATH x NAME=VALUE` an extended attribute. A backslash before a space,
/// or double quotes, make the space a part of a path.
#[derive(Clone, Debug, Default)]
pub struct Definitions(pub(crate) Vec<Definition>);

/// A line that defines nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct DefinitionsError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub reason: &'static str,
}

impl Definitions {
    /// Parses the lines of a file. Empty lines and lines that start with `#` are left out.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, DefinitionsError> {
        let lines = text.split(|byte| *byte == b'\n').zip(1..);
        let lines = lines.map(|(line, number)| (line.trim_ascii(), number));
        let used = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"#"));
        let parsed = used.map(|(line, number)| {
            definition(line).map_err(|reason| DefinitionsError { line: number, reason })
        });
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Adds the definitions of another file after these.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

fn definition(line: &[u8]) -> Result<Definition, &'static str> {
    let mut words = Words(line);
    let path = words.word()?.ok_or("the path is missing")?;
    let path = path.strip_prefix(b"/").map_or_else(|| path.clone(), <[u8]>::to_vec);
    let kind = words.word()?.ok_or("the type is missing")?;
    let &[letter] = kind.as_slice() else { return Err(UNKNOWN_TYPE) };
    let change = match letter {
        b'h' => Change::Link { target: words.word()?.ok_or("the target is missing")? },
        b'x' => {
            let pair = words.rest();
            let at = pair.iter().position(|byte| *byte == b'=').ok_or("NAME=VALUE is missing")?;
            Change::Xattr { name: pair[..at].to_vec(), value: pair[at + 1..].to_vec() }
        }
        b'f' | b'F' => {
            return Err("type f runs a program: run it before, and put its output into the source");
        }
        b'l' | b'L' | b'r' | b'R' => {
            return Err("types l and R name files outside the source: put them into the source");
        }
        _ => {
            let mtime = letter
                .is_ascii_uppercase()
                .then(|| words.number("the time is missing, or not a number of seconds"));
            let mtime = mtime.transpose()?;
            let mode = words.word()?.ok_or("the mode is missing")?;
            let permissions = number(&mode, 8).filter(|mode| *mode <= 0o7777);
            let owner = Owner {
                permissions: permissions.ok_or("the mode is not an octal number up to 7777")?,
                uid: words.owner()?,
                gid: words.owner()?,
                mtime,
            };
            match letter.to_ascii_lowercase() {
                b'm' => Change::Modify(owner),
                b'd' => Change::Put { body: DefinedBody::Directory, owner },
                b's' => Change::Put { body: DefinedBody::Symlink(words.rest().to_vec()), owner },
                b'i' => {
                    let body = match words.word()?.as_deref() {
                        Some(b"s") => DefinedBody::Socket,
                        None | Some(b"f") => DefinedBody::Fifo,
                        Some(_) => return Err("type i takes s (socket) or f (FIFO)"),
                    };
                    Change::Put { body, owner }
                }
                kind @ (b'b' | b'c') => {
                    let major = words.number("the major number is missing, or not a number")?;
                    let minor = words.number("the minor number is missing, or not a number")?;
                    let kind =
                        if kind == b'b' { FileType::BlockDevice } else { FileType::CharDevice };
                    Change::Put { body: DefinedBody::Device(kind, Rdev { major, minor }), owner }
                }
                _ => return Err(UNKNOWN_TYPE),
            }
        }
    };
    if !words.rest().is_empty()
        && !matches!(
            change,
            Change::Xattr { .. } | Change::Put { body: DefinedBody::Symlink(_), .. }
        )
    {
        return Err("more words than the type takes");
    }
    Ok(Definition { path, change })
}

const UNKNOWN_TYPE: &str =
    "unknown type; the types are d, m, b, c, i, s (upper case with a time), h and x";

fn number<T: TryFrom<i64>>(word: &[u8], radix: u32) -> Option<T> {
    T::try_from(i64::from_str_radix(std::str::from_utf8(word).ok()?, radix).ok()?).ok()
}

/// The rest of a line.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The next word, without quotes and backslashes.
    fn word(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let line = self.0.trim_ascii_start();
        if line.is_empty() {
            self.0 = line;
            return Ok(None);
        }
        let (mut word, mut quoted, mut at) = (Vec::new(), false, 0);
        while let Some(byte) = line.get(at) {
            match byte {
                b'\\' => {
                    at += 1;
                    word.push(*line.get(at).ok_or("a backslash at the end of the line")?);
                }
                b'"' => quoted = !quoted,
                byte if byte.is_ascii_whitespace() && !quoted => break,
                byte => word.push(*byte),
            }
            at += 1;
        }
        if quoted {
            return Err("a quote without its end");
        }
        self.0 = &line[at..];
        Ok(Some(word))
    }

    /// All that follows, as it is.
    fn rest(&self) -> &'a [u8] {
        self.0.trim_ascii()
    }

    fn number<T: TryFrom<i64>>(&mut self, wrong: &'static str) -> Result<T, &'static str> {
        self.word()?.and_then(|word| number(&word, 10)).ok_or(wrong)
    }

    fn owner(&mut self) -> Result<u32, &'static str> {
        let word = self.word()?.ok_or("the owner or the group is missing")?;
        // Linux has no user 2^32 - 1.
        let known =
            if word == b"root" { Some(0) } else { number(&word, 10).filter(|id| *id != u32::MAX) };
        known.ok_or("the owner or the group is not a number (root is 0)")
    }
}
