//! Selects names by patterns, as those of gitignore(5), for extraction and comparison.
//!
//! A pattern with a slash is matched with the path below the start, a pattern without one with the
//! last name of any path. `*` and `?` match within one name, `**` matches across names.

use std::sync::Arc;

#[cfg(feature = "host")]
use ferofs_host::{Patterns, UsedPatterns};
#[cfg(not(feature = "host"))]
use none::{Patterns, UsedPatterns};

#[cfg(feature = "host")]
use crate::error::{Error, Result};

/// The names to extract or to compare. By default: all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Option<Patterns>,
    exclude: Option<Patterns>,
    /// Clones share it: several outputs of one extraction can have the same selection.
    used: Arc<UsedPatterns>,
}

/// The groups of patterns, for [`UsedPatterns`].
const INCLUDE: usize = 0;
const EXCLUDE: usize = 1;

impl Selection {
    /// Selects the names that `include` matches (all if it is empty), without those that `exclude`
    /// matches. A directory that matches stands for all names below it.
    ///
    /// # Errors
    /// [`Error::Pattern`].
    #[cfg(feature = "host")]
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self> {
        Ok(Self { include: patterns(include)?, exclude: patterns(exclude)?, used: Arc::default() })
    }

    /// The patterns that matched no name of the work with this selection and its clones.
    #[cfg(feature = "host")]
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let groups = [(INCLUDE, &self.include), (EXCLUDE, &self.exclude)];
        let unused = groups.into_iter().filter_map(|(group, patterns)| {
            Some(patterns.as_ref()?.unused(group, &self.used).map(str::to_owned))
        });
        unused.flatten().collect()
    }

    /// Whether `path` and all names below it are excluded.
    pub(crate) fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        let excluded =
            |patterns: &Patterns| patterns.matched(path, &|| is_dir, EXCLUDE, &self.used);
        self.exclude.as_ref().and_then(excluded) == Some(true)
    }

    /// Whether `path` and all names below it are included.
    #[cfg(feature = "extract-portable")]
    pub(crate) fn includes(&self, path: &[u8], is_dir: bool) -> bool {
        let included =
            |patterns: &Patterns| patterns.matched(path, &|| is_dir, INCLUDE, &self.used);
        self.include.as_ref().is_none_or(|patterns| included(patterns) == Some(true))
    }

    /// Whether all names are selected, so that paths need not be matched.
    pub(crate) fn is_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }
}

/// Without the feature `host`, there are no patterns.
#[cfg(not(feature = "host"))]
mod none {
    #[derive(Clone, Debug)]
    pub(super) enum Patterns {}

    #[derive(Debug, Default)]
    pub(super) struct UsedPatterns;

    impl Patterns {
        pub(super) fn matched(
            &self,
            _: &[u8],
            _: &dyn Fn() -> bool,
            _: usize,
            _: &UsedPatterns,
        ) -> Option<bool> {
            match *self {}
        }
    }
}

#[cfg(feature = "host")]
fn patterns<S: AsRef<str>>(patterns: &[S]) -> Result<Option<Patterns>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    Patterns::new(patterns).map(Some).map_err(|error| {
        let pattern =
            patterns.get(error.line.saturating_sub(1)).map_or("", AsRef::as_ref).to_owned();
        Error::Pattern { pattern, problem: error.reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_anywhere_and_paths_from_the_start() {
        let select = Selection::new(&["*.so", "/bin/*", "usr/**/doc/"], &[]).unwrap();
        for wanted in ["a.so", "deep/down/a.so", "bin/ls", "usr/a/b/doc", "usr/doc"] {
            assert!(select.includes(wanted.as_bytes(), wanted.ends_with("doc")), "{wanted}");
        }
        for other in ["a.so.1", "usr/bin/ls", "bin/a/b", "doc", "x/usr/doc"] {
            assert!(!select.includes(other.as_bytes(), false), "{other}");
        }
        assert!(!select.excludes(b"a.so", false) && !select.is_all());
    }

    #[test]
    fn names_need_not_be_text() {
        let select = Selection::new(&[], &["\u{e9}*"]).unwrap();
        assert!(select.excludes("dir/\u{e9}t\u{e9}".as_bytes(), false));
        assert!(!select.excludes(b"dir/\xff\xfe", false) && select.includes(b"\xff", false));
    }

    #[test]
    fn a_broken_pattern_is_refused() {
        let error = Selection::new(&["[a"], &[]).unwrap_err();
        assert!(matches!(&error, Error::Pattern { pattern, .. } if pattern == "[a"), "{error}");
    }

    #[test]
    fn patterns_that_match_nothing_are_found() {
        let select = Selection::new(&["./bin", "none"], &["*.o", "/no/such"]).unwrap();
        let clone = select.clone();
        assert!(clone.includes(b"bin", true) && clone.excludes(b"bin/a.o", false));
        assert_eq!(select.unused(), ["none", "/no/such"]);
    }
}
