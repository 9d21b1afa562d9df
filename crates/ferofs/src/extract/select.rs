//! Selects names by glob patterns, like those of `tar` and `rsync`.
//!
//! A pattern with a slash is matched with the path below the start of the extraction, a pattern without one with the last name of
//! any path. `*` and `?` match within one name, `**` matches across names.

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, Result};

/// The names to extract. By default: all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Option<Patterns>,
    exclude: Option<Patterns>,
}

impl Selection {
    /// Selects the names that `include` matches (all if it is empty), without those that `exclude` matches. A directory that
    /// matches stands for all names below it.
    ///
    /// # Errors
    /// [`Error::Pattern`].
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self> {
        Ok(Self { include: Patterns::new(include)?, exclude: Patterns::new(exclude)? })
    }

    /// Whether `path` and all names below it are excluded.
    pub(super) fn excludes(&self, path: &[u8]) -> bool {
        self.exclude.as_ref().is_some_and(|patterns| patterns.matches(path))
    }

    /// Whether `path` and all names below it are included.
    pub(super) fn includes(&self, path: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|patterns| patterns.matches(path))
    }

    /// Whether all names are selected, so that paths need not be matched.
    pub(super) fn is_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }
}

#[derive(Clone, Debug)]
struct Patterns {
    names: GlobSet,
    paths: GlobSet,
}

impl Patterns {
    fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Option<Self>> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let trimmed = pattern.as_ref().trim_end_matches('/');
            if trimmed.contains('/') {
                paths.add(glob(trimmed.trim_start_matches('/'))?);
            } else {
                names.add(glob(trimmed)?);
            }
        }
        if patterns.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { names: set(&names)?, paths: set(&paths)? }))
    }

    fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.names.is_match_candidate(&Candidate::from_bytes(name))
            || !self.paths.is_empty() && self.paths.is_match_candidate(&Candidate::from_bytes(path))
    }
}

fn glob(pattern: &str) -> Result<Glob> {
    GlobBuilder::new(pattern).literal_separator(true).build().map_err(|e| bad(&e))
}

fn set(builder: &GlobSetBuilder) -> Result<GlobSet> {
    builder.build().map_err(|e| bad(&e))
}

fn bad(error: &globset::Error) -> Error {
    Error::Pattern { pattern: error.glob().unwrap_or_default().to_owned(), problem: error.kind().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_anywhere_and_paths_from_the_start() {
        let select = Selection::new(&["*.so", "/bin/*", "usr/**/doc/"], &[]).unwrap();
        for wanted in ["a.so", "deep/down/a.so", "bin/ls", "usr/a/b/doc", "usr/doc"] {
            assert!(select.includes(wanted.as_bytes()), "{wanted}");
        }
        for other in ["a.so.1", "usr/bin/ls", "bin/a/b", "doc", "x/usr/doc"] {
            assert!(!select.includes(other.as_bytes()), "{other}");
        }
        assert!(!select.excludes(b"a.so") && !select.is_all());
    }

    #[test]
    fn names_need_not_be_text() {
        let select = Selection::new(&[], &["\u{e9}*"]).unwrap();
        assert!(select.excludes("dir/\u{e9}t\u{e9}".as_bytes()));
        assert!(!select.excludes(b"dir/\xff\xfe") && select.includes(b"\xff"));
    }

    #[test]
    fn a_broken_pattern_is_refused() {
        let error = Selection::new(&["[a"], &[]).unwrap_err();
        assert!(matches!(&error, Error::Pattern { pattern, .. } if pattern == "[a"), "{error}");
    }
}
