//! Which names are wanted: glob patterns, as people know them from `tar` and `rsync`.
//!
//! A pattern with a slash in it is held against the whole path below the place where extraction starts; one
//! without against the last name, wherever it stands. `*` and `?` stay within one name, `**` goes across.

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, Result};

/// What to extract of a tree. By default: all of it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Option<Patterns>,
    exclude: Option<Patterns>,
}

impl Selection {
    /// Takes what `include` matches, everything if that is empty, but for what `exclude` matches. What is
    /// below a directory that matches goes where the directory goes.
    ///
    /// # Errors
    /// [`Error::Pattern`].
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self> {
        Ok(Self { include: Patterns::new(include)?, exclude: Patterns::new(exclude)? })
    }

    /// Whether `path` and all below it is left out.
    pub(super) fn excludes(&self, path: &[u8]) -> bool {
        self.exclude.as_ref().is_some_and(|patterns| patterns.matches(path))
    }

    /// Whether `path` and all below it is asked for.
    pub(super) fn includes(&self, path: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|patterns| patterns.matches(path))
    }

    /// Whether everything is wanted, so that nobody needs to ask.
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
