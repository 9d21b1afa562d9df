//! Which files of the source an image leaves out: paths, regular expressions, and patterns of gitignore(5).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;

use crate::paths::as_path;

/// A file that the image leaves out, with everything below it. Paths are relative to the source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Exclude {
    /// Exactly this path.
    Path(PathBuf),
    /// Each path with a match for this expression.
    Regex(regex::bytes::Regex),
    /// Each path that these patterns exclude.
    Patterns(Patterns),
}

impl Exclude {
    /// Whether it leaves out `path`. `is_dir` says whether that is a directory. What matched is noted in `used` under `group`.
    pub(crate) fn matches(
        &self,
        path: &[u8],
        is_dir: &impl Fn() -> bool,
        group: usize,
        used: &UsedPatterns,
    ) -> bool {
        let matches = match self {
            Self::Path(excluded) => excluded == as_path(path),
            Self::Regex(regex) => regex.is_match(path),
            Self::Patterns(patterns) => {
                return patterns.matched(path, is_dir, group, used) == Some(true);
            }
        };
        if matches {
            used.add(group, 0);
        }
        matches
    }

    /// The paths, expressions or patterns that matched nothing.
    pub(crate) fn unused(&self, group: usize, used: &UsedPatterns) -> Vec<String> {
        let one = |text: String| if used.has(group, 0) { Vec::new() } else { vec![text] };
        match self {
            Self::Path(path) => one(path.display().to_string()),
            Self::Regex(regex) => one(regex.to_string()),
            Self::Patterns(patterns) => patterns.unused(group, used).map(str::to_owned).collect(),
        }
    }
}

/// Patterns in the form of gitignore(5): `*.o` at any depth, `/build/` only at the top and only a directory, `**` across names, `!keep.o`
/// for exceptions. The last pattern that matches a path decides. `./name` means the same as `/name`.
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
    /// The first line that is no pattern.
    pub fn parse(text: &str) -> Result<Self, PatternsError> {
        let lines = text.lines().zip(1..);
        Self::numbered(lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')))
    }

    /// Takes each text as a pattern. A `#` and spaces at the end are parts of it.
    ///
    /// # Errors
    /// The first text that is no pattern.
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

    /// Whether the patterns match `path`, or make an exception for it; `None` if none matches. Notes in `used`, under `group`, which
    /// patterns match.
    #[must_use]
    pub fn matched(
        &self,
        path: &[u8],
        is_dir: &impl Fn() -> bool,
        group: usize,
        used: &UsedPatterns,
    ) -> Option<bool> {
        let PatternList { all, each, has_directories } = &*self.0;
        let (path, is_dir) = (as_path(path), *has_directories && is_dir());
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
    fn add(&self, group: usize, pattern: usize) {
        self.0.lock().insert((group, pattern));
    }

    fn has(&self, group: usize, pattern: usize) -> bool {
        self.0.lock().contains(&(group, pattern))
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(text: &str, path: &str, is_dir: bool) -> bool {
        let exclude = Exclude::Patterns(Patterns::parse(text).unwrap());
        exclude.matches(path.as_bytes(), &|| is_dir, 0, &UsedPatterns::default())
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let text = "# objects\n*.o\n!keep.o\n/build/\nsrc/**/cache\n\\#name\n";
        for (path, is_dir, expected) in [
            ("a.o", false, true),
            ("deep/below/a.o", false, true),
            ("deep/keep.o", false, false),
            ("build", true, true),
            ("build", false, false),
            ("sub/build", true, false),
            ("src/cache", true, true),
            ("src/a/b/cache", false, true),
            ("cache", true, false),
            ("#name", false, true),
            ("# objects", false, false),
        ] {
            assert_eq!(excluded(text, path, is_dir), expected, "{path}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_reported_with_its_line() {
        let error = Patterns::parse("*.o\n\n[z-a]\n").unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().starts_with("line 3: "), "{error}");
    }

    #[test]
    fn top_paths_have_several_forms() {
        for pattern in ["/etc/shadow", "./etc/shadow", "etc/shadow", "././etc//./shadow"] {
            assert!(excluded(pattern, "etc/shadow", false), "{pattern}");
            assert!(!excluded(pattern, "usr/etc/shadow", false), "{pattern}");
        }
        assert!(excluded("./name", "name", false) && !excluded("./name", "below/name", false));
        assert!(excluded("etc/*", "etc/shadow", false) && !excluded("etc/*", "etc", true));
        assert!(!excluded("*\n!./keep", "keep", false) && excluded(".hidden", "a/.hidden", false));
    }

    #[test]
    fn single_patterns_have_no_comments() {
        let patterns = Patterns::new(&["#a#", "b ", "c\\ ", "d\n"]).unwrap();
        let excluded =
            |path: &str| patterns.matched(path.as_bytes(), &|| false, 0, &UsedPatterns::default());
        for path in ["#a#", "b ", "c ", "d\n"] {
            assert_eq!(excluded(path), Some(true), "{path}");
        }
        assert_eq!((excluded("b"), excluded("c")), (None, None));
    }

    #[test]
    fn patterns_that_match_nothing_are_found() {
        let patterns = Exclude::Patterns(
            Patterns::new(&["*.o", "main.o", "/lib/x", "!keep", "dir/"]).unwrap(),
        );
        let used = UsedPatterns::default();
        for (path, is_dir) in [("main.o", false), ("dir", false), ("keep", false)] {
            patterns.matches(path.as_bytes(), &|| is_dir, 3, &used);
        }
        // The last pattern that matches decides, but the others match, too.
        assert_eq!(patterns.unused(3, &used), ["/lib/x", "dir/"]);
        let path = Exclude::Path("a".into());
        assert!(path.matches(b"a", &|| false, 1, &used) && path.unused(1, &used).is_empty());
        assert_eq!(path.unused(2, &used), ["a"]);
    }
}
