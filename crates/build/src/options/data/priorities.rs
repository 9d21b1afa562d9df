//! The order of content that a text asks for: the form of mksquashfs's sort files.

/// Files whose content is stored before or after that of others.
///
/// One line is `PATH PRIORITY`: a path relative to the root of the image, and a number from -32768 to 32767. Content of a higher priority is
/// stored first; files that no line names have the priority 0. The line of a directory holds for everything below it that has no line.
#[derive(Clone, Debug, Default)]
pub struct Priorities(pub(crate) Vec<(Vec<u8>, i16)>);

/// A line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not PATH PRIORITY, with a number from -32768 to 32767")]
pub struct PrioritiesError {
    /// The line, from 1.
    pub line: usize,
}

impl Priorities {
    /// Parses the lines of a file. Empty lines and lines that start with `#` are left out.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, PrioritiesError> {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
        let used = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"#"));
        used.map(|(line, number)| entry(line).ok_or(PrioritiesError { line: number }))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn entry(line: &[u8]) -> Option<(Vec<u8>, i16)> {
    let space = line.iter().rposition(u8::is_ascii_whitespace)?;
    let priority = std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()?;
    let path = line[..space].trim_ascii_end();
    let path = path.strip_prefix(b".").filter(|path| path.first() == Some(&b'/')).unwrap_or(path);
    let path = path.strip_prefix(b"/").unwrap_or(path);
    Some((path.strip_suffix(b"/").unwrap_or(path).to_vec(), priority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_path_and_a_priority() {
        let parsed = Priorities::parse(b"# first\n\n/boot/ 100\na file\t-1\n./etc 5").unwrap();
        assert_eq!(parsed.0, [(b"boot".to_vec(), 100), (b"a file".to_vec(), -1), (b"etc".to_vec(), 5)]);
        assert_eq!(Priorities::parse(b"a 1\nb\n").unwrap_err(), PrioritiesError { line: 2 });
        assert!(Priorities::parse(b"a 40000").is_err() && Priorities::parse(b"a x").is_err());
    }
}
