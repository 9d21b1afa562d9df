//! Options that leave out files of a source.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ferofs::build::{Exclude, Patterns};

use super::SOURCES;
use crate::args::text_file;
use crate::exit::{Concerning, Failure};

#[derive(clap::Args)]
pub(crate) struct ExcludeArgs {
    /// Leave out what this .gitignore pattern matches
    ///
    /// Also everything below it; may be given several times. Patterns are as in a .gitignore file
    /// at the top of the source: `/etc/shadow` (or `./etc/shadow`) is this path, `*.o` and `cache`
    /// are names at any depth, `/build/` is only a directory, `*` matches within one name, `**`
    /// across names, `!keep.o` is an exception
    #[arg(help_heading = SOURCES, long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Exclude paths, relative to the source, in which this regular expression matches; may be
    /// given several times
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "REGEX", value_parser = regex)]
    exclude_regex: Vec<regex::bytes::Regex>,

    /// Exclude what the patterns in this file match, one in each line, with `#` for comments; may
    /// be given several times
    #[arg(help_heading = SOURCES, hide_short_help = true, long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
}

fn regex(text: &str) -> Result<regex::bytes::Regex, String> {
    match text {
        "" => Err(String::from("an empty expression matches every path; `.*` says so on purpose")),
        text => regex::bytes::Regex::new(text).map_err(|error| error.to_string()),
    }
}

impl ExcludeArgs {
    /// Whether a pattern is given.
    pub(crate) const fn is_given(&self) -> bool {
        !(self.exclude.is_empty() && self.exclude_regex.is_empty() && self.exclude_from.is_empty())
    }

    /// The files to leave out.
    pub(crate) fn excludes(&self) -> Result<Vec<Exclude>, Failure> {
        let mut excludes: Vec<Exclude> =
            self.exclude_regex.iter().cloned().map(Exclude::Regex).collect();
        // Patterns are text. Other names are exact paths.
        let (texts, names): (Vec<&OsString>, Vec<&OsString>) =
            self.exclude.iter().partition(|pattern| pattern.to_str().is_some());
        let texts: Vec<&str> = texts.iter().filter_map(|pattern| pattern.to_str()).collect();
        if !texts.is_empty() {
            let patterns = Patterns::new(&texts).map_err(|error| {
                let wrong = texts.get(error.line.saturating_sub(1)).copied().unwrap_or_default();
                Failure::usage(Path::new("--exclude"), format!("{wrong}: {}", error.reason))
            })?;
            excludes.push(Exclude::Patterns(patterns));
        }
        excludes.extend(names.into_iter().map(|name| Exclude::Path(relative(name))));
        for file in &self.exclude_from {
            let text = text_file::read_text(file)
                .map_err(|e| Failure::about(file, format!("read: {e}")))?;
            excludes.push(Exclude::Patterns(Patterns::parse(&text).concerning(file)?));
        }
        Ok(excludes)
    }
}

/// `path` relative to the source, without empty and `.` parts.
pub(crate) fn relative(path: &OsStr) -> PathBuf {
    path.as_bytes()
        .split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(OsStr::from_bytes)
        .collect()
}
