//! Which files of the source an image leaves out: paths, regular expressions, and patterns of gitignore(5).

use std::path::PathBuf;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

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
    /// Whether it leaves out `path`. `is_dir` says whether that is a directory.
    pub(super) fn matches(&self, path: &[u8], is_dir: &impl Fn() -> bool) -> bool {
        match self {
            Self::Path(excluded) => excluded == as_path(path),
            Self::Regex(regex) => regex.is_match(path),
            Self::Patterns(patterns) => patterns.0.matched(as_path(path), is_dir()).is_ignore(),
        }
    }
}

/// Patterns in the form of gitignore(5), one in each line: `*.o` at any depth, `/build/` only at the top and only a directory, `**` across
/// names, `!keep.o` for exceptions, `#` for comments. The last pattern that matches a path decides.
#[derive(Clone, Debug)]
pub struct Patterns(Arc<Gitignore>);

/// A line that is no pattern.
#[derive(Clone, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PatternsError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Patterns {
    /// Parses the lines of a file.
    ///
    /// # Errors
    /// The first line that is no pattern.
    pub fn parse(text: &str) -> Result<Self, PatternsError> {
        let refuse = |line, error: &ignore::Error| PatternsError { line, reason: error.to_string() };
        // Paths are relative to the root already.
        let mut builder = GitignoreBuilder::new("");
        for (number, line) in text.lines().enumerate() {
            builder.add_line(None, line).map_err(|error| refuse(number + 1, &error))?;
        }
        let patterns = builder.build().map_err(|error| refuse(text.lines().count(), &error))?;
        Ok(Self(Arc::new(patterns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(text: &str, path: &str, is_dir: bool) -> bool {
        Exclude::Patterns(Patterns::parse(text).unwrap()).matches(path.as_bytes(), &|| is_dir)
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
}
