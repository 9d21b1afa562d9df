//! Which files of the source an image leaves out: paths, regular expressions, and patterns of
//! gitignore(5).

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use ferofs_host::{Patterns, UsedPatterns};

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
    /// Whether it leaves out `path`. `is_dir` says whether that is a directory. What matched is
    /// noted in `used` under `group`.
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
