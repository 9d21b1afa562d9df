//! SELinux labels by path: the `file_contexts` format, as `selabel_file`(5) describes it.
//!
//! Each line is a regular expression over whole paths, an optional file type (`--`, `-d`, ...), and
//! a label or `<<none>>`. The format is small, so this is an own parser: with libselinux, ferofs
//! would need that library on every machine. libselinux uses PCRE; this uses the `regex` crate,
//! which has no look-around and no back references. Policies do not use them, and a line that does
//! is an error.

use std::collections::HashMap;

use ferofs_format::inode::FileType;
use regex::bytes::Regex;

/// A parsed `file_contexts` file.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Rules for exact paths. They override all patterns; of several rules for a path, the first
    /// applies.
    exact: HashMap<Vec<u8>, Vec<Rule>>,
    /// Rules with patterns, in the file's order: the last one that matches applies.
    patterns: Vec<(Pattern, Rule)>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// A prefix of each matching path, for a quick test.
    prefix: Vec<u8>,
    regex: Regex,
}

#[derive(Clone, Debug)]
struct Rule {
    /// The rule applies to this type only.
    file_type: Option<FileType>,
    /// `None`: no label.
    label: Option<Vec<u8>>,
}

/// Why a line of a `file_contexts` file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
#[non_exhaustive]
pub struct LabelsError {
    /// The line's number, from 1.
    pub line: usize,
    /// The reason why it is refused.
    pub problem: &'static str,
}

impl Labels {
    /// Reads the text of a `file_contexts` file.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn parse(text: &str) -> Result<Self, LabelsError> {
        let mut labels = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            labels.line(line).map_err(|problem| LabelsError { line: number + 1, problem })?;
        }
        Ok(labels)
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (path, file_type, label) = match fields[..] {
            [path, label] => (path, None, label),
            [path, kind, label] => (path, Some(file_type(kind).ok_or("no such file type")?), label),
            _ => return Err("not a path, perhaps a type, and a label"),
        };
        let label = (label != "<<none>>").then(|| label.as_bytes().to_vec());
        let rule = Rule { file_type, label };
        let (prefix, is_exact) = literal_prefix(path.as_bytes());
        if is_exact {
            self.exact.entry(prefix).or_default().push(rule);
            return Ok(());
        }
        let regex = Regex::new(&format!("^(?s-u:{path})$"))
            .map_err(|_| "no regular expression, or beyond us")?;
        self.patterns.push((Pattern { prefix, regex }, rule));
        Ok(())
    }

    /// The label of the file at `path`, which starts with a slash.
    #[must_use]
    pub fn lookup(&self, path: &[u8], file_type: FileType) -> Option<&[u8]> {
        let fits = |rule: &&Rule| rule.file_type.is_none_or(|wanted| wanted == file_type);
        let exact = self.exact.get(path).and_then(|rules| rules.iter().find(fits));
        let rule = exact.or_else(|| {
            let matching = |(pattern, rule): &&(Pattern, Rule)| {
                fits(&rule) && path.starts_with(&pattern.prefix) && pattern.regex.is_match(path)
            };
            self.patterns.iter().rev().find(matching).map(|(_, rule)| rule)
        });
        rule?.label.as_deref()
    }
}

fn file_type(text: &str) -> Option<FileType> {
    match text {
        "--" => Some(FileType::Regular),
        "-d" => Some(FileType::Directory),
        "-l" => Some(FileType::Symlink),
        "-c" => Some(FileType::CharDevice),
        "-b" => Some(FileType::BlockDevice),
        "-p" => Some(FileType::Fifo),
        "-s" => Some(FileType::Socket),
        _ => None,
    }
}

/// The literal prefix of all matches of `regex`, and whether `regex` is nothing more than that
/// prefix.
fn literal_prefix(regex: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::new();
    let mut rest = regex.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'\\' => match rest.next() {
                Some(&escaped) if escaped.is_ascii_punctuation() => prefix.push(escaped),
                _ => return (stop(prefix, regex), false),
            },
            // The character before is optional or repeated.
            b'?' | b'*' | b'+' | b'{' => {
                prefix.pop();
                return (stop(prefix, regex), false);
            }
            b'.' | b'^' | b'$' | b'|' | b'[' | b'(' | b')' => return (stop(prefix, regex), false),
            _ => prefix.push(byte),
        }
    }
    (prefix, true)
}

/// `prefix`, unless the expression may have an alternative to it.
fn stop(prefix: Vec<u8>, regex: &[u8]) -> Vec<u8> {
    let mut depth = 0u32;
    let mut escaped = false;
    for byte in regex {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return Vec::new(),
            _ => {}
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label<'a>(labels: &'a Labels, path: &str) -> &'a str {
        std::str::from_utf8(labels.lookup(path.as_bytes(), FileType::Regular).unwrap_or(b"-"))
            .unwrap()
    }

    #[test]
    fn the_last_match_wins_but_exact_paths_do_first() {
        let text = "# comment\n\n/.*\tu:all\n/usr/lib(/.*)?   u:lib\n/usr/lib/a\\.so -- u:exact\n/usr/.*/b u:b\n\
                    /usr/lib/dev -d u:dir\n/tmp/.* <<none>>\n/x|/y u:either\n";
        let labels = Labels::parse(text).unwrap();
        for (path, expected) in [
            ("/", "u:all"),
            ("/etc", "u:all"),
            ("/usr/lib", "u:lib"),
            ("/usr/library", "u:all"),
            ("/usr/lib/a.so", "u:exact"),
            ("/usr/lib/axso", "u:lib"),
            ("/usr/lib/b", "u:b"),
            ("/usr/lib/dev", "u:lib"),
            ("/tmp/x", "-"),
            ("/y", "u:either"),
            ("/new\nline", "u:all"),
        ] {
            assert_eq!(label(&labels, path), expected, "{path}");
        }
        assert_eq!(labels.lookup(b"/usr/lib/dev", FileType::Directory), Some(&b"u:dir"[..]));
        assert_eq!(labels.lookup(b"/\xff", FileType::Fifo), Some(&b"u:all"[..]));
    }

    #[test]
    fn bad_lines_are_counted() {
        for (text, line) in
            [("/a u:b\n/( u:c\n", 2), ("/a\n", 1), ("/a -x u:b\n", 1), ("/a(?=b) u:b", 1)]
        {
            assert_eq!(Labels::parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn prefixes_are_literal() {
        let prefix = |regex: &str| String::from_utf8(literal_prefix(regex.as_bytes()).0).unwrap();
        assert_eq!(prefix("/usr/li?b"), "/usr/l");
        assert_eq!(prefix("/a\\.b/.*"), "/a.b/");
        assert_eq!(prefix("/a/b.*|/c"), "");
        assert_eq!(prefix("/a(b|c)"), "/a");
        assert_eq!(literal_prefix(b"/a\\+b"), (b"/a+b".to_vec(), true));
    }
}
