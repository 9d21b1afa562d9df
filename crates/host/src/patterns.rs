//! Patterns of gitignore(5), which choose files of a tree by their paths.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;

/// Patterns in the form of gitignore(5): `*.o` at any depth, `/build/` only at the top and only a
/// directory, `**` across names, `!keep.o` for exceptions. The last pattern that matches a path
/// decides. `./name` means the same as `/name`.
#[derive(Clone, Debug)]
pub struct Patterns(Arc<PatternList>);

#[derive(Debug)]
struct PatternList {
    all: Gitignore,
    /// Each pattern alone, with its text: `all` finds only the last one that matches.
    each: Vec<(String, Gitignore)>,
    /// Whether a pattern matches directories only. Otherwise nobody needs to know what is one.
    has_directories: bool,
}

/// A pattern that is malformed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PatternsError {
    /// The line, or the number of the pattern, from 1.
    pub line: usize,
    /// The problem.
    pub reason: String,
}

impl Patterns {
    /// Parses the lines of a file. Lines that start with `#` are comments.
    ///
    /// # Errors
    /// The first line that is not a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternsError> {
        let lines = text.lines().zip(1..);
        Self::numbered(lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')))
    }

    /// Takes each text as a pattern. A `#` and spaces at the end are parts of it.
    ///
    /// # Errors
    /// The first text that is not a pattern.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, PatternsError> {
        let literal = |pattern: &str| {
            let pattern =
                if pattern.starts_with('#') { format!("\\{pattern}") } else { pattern.to_owned() };
            let mut chars = pattern.chars();
            match chars.next_back() {
                Some(last) if last.is_whitespace() && !chars.as_str().ends_with('\\') => {
                    format!("{}[{last}]", chars.as_str())
                }
                _ => pattern,
            }
        };
        let patterns: Vec<String> =
            patterns.iter().map(|pattern| literal(pattern.as_ref())).collect();
        Self::numbered(patterns.iter().map(String::as_str).zip(1..))
    }

    /// The pattern that matches `name` as it is written, whatever it has of `*`, `[`, `\\` and
    /// others.
    #[must_use]
    pub fn exactly(name: &str) -> String {
        let mut pattern = String::with_capacity(name.len());
        for (at, char) in name.char_indices() {
            match char {
                '*' | '?' | '[' | ']' | '{' | '}' | '\\' => pattern.extend(['\\', char]),
                '!' if at == 0 => pattern.extend(['\\', char]),
                // At the end it would be removed.
                _ if char.is_whitespace() => pattern.extend(['[', char, ']']),
                _ => pattern.push(char),
            }
        }
        pattern
    }

    fn numbered<'a>(lines: impl Iterator<Item = (&'a str, usize)>) -> Result<Self, PatternsError> {
        // Paths are relative to the root already.
        let builder = || {
            let mut builder = GitignoreBuilder::new("");
            // `[a` is more often a mistake than a name.
            builder.allow_unclosed_class(false);
            builder
        };
        let mut all = builder();
        let (mut each, mut has_directories) = (Vec::new(), false);
        for (text, line) in lines {
            let pattern = normalised(text);
            let refuse = |error: ignore::Error| PatternsError { line, reason: error.to_string() };
            let mut one = builder();
            one.add_line(None, &pattern).map_err(refuse)?;
            all.add_line(None, &pattern).map_err(refuse)?;
            each.push((text.to_owned(), one.build().map_err(refuse)?));
            has_directories |= pattern.trim_end().ends_with('/');
        }
        let refuse =
            |error: ignore::Error| PatternsError { line: each.len(), reason: error.to_string() };
        let all = all.build().map_err(refuse)?;
        Ok(Self(Arc::new(PatternList { all, each, has_directories })))
    }

    /// Whether the patterns match `path`, or make an exception for it; `None` if none matches.
    /// Notes in `used`, under `group`, which patterns match.
    #[must_use]
    pub fn matched(
        &self,
        path: &[u8],
        is_dir: &impl Fn() -> bool,
        group: usize,
        used: &UsedPatterns,
    ) -> Option<bool> {
        let PatternList { all, each, has_directories } = &*self.0;
        let (path, is_dir) = (Path::new(OsStr::from_bytes(path)), *has_directories && is_dir());
        let matched = all.matched(path, is_dir);
        if matched.is_none() {
            return None;
        }
        for (number, (_, pattern)) in each.iter().enumerate() {
            if !used.has(group, number) && !pattern.matched(path, is_dir).is_none() {
                used.add(group, number);
            }
        }
        Some(matched.is_ignore())
    }

    /// The patterns that matched nothing.
    pub fn unused(&self, group: usize, used: &UsedPatterns) -> impl Iterator<Item = &str> {
        let each = self.0.each.iter().enumerate();
        each.filter(move |(number, _)| !used.has(group, *number))
            .map(|(_, (text, _))| text.as_str())
    }
}

/// The pattern without `.` and empty parts, which no path has.
fn normalised(pattern: &str) -> String {
    let (not, pattern) = match pattern.strip_prefix('!') {
        Some(pattern) => ("!", pattern),
        None => ("", pattern),
    };
    // A pattern that starts with `/` is for the top.
    let mut pattern = pattern
        .strip_prefix('.')
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(pattern)
        .to_owned();
    for doubled in ["/./", "//"] {
        while pattern.contains(doubled) {
            pattern = pattern.replace(doubled, "/");
        }
    }
    format!("{not}{pattern}")
}

/// Which patterns have matched a path so far, as the number of their group and their number in it.
#[derive(Debug, Default)]
pub struct UsedPatterns(Mutex<HashSet<(usize, usize)>>);

impl UsedPatterns {
    /// Notes that a pattern has matched.
    pub fn add(&self, group: usize, pattern: usize) {
        self.0.lock().insert((group, pattern));
    }

    /// Whether a pattern has matched.
    #[must_use]
    pub fn has(&self, group: usize, pattern: usize) -> bool {
        self.0.lock().contains(&(group, pattern))
    }

    /// Forgets what has matched.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
