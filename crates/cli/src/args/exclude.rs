//! Options that leave out files of a source.

use std::path::PathBuf;

use ferofs::build::{Exclude, Patterns};

use crate::exit::Failure;

#[derive(clap::Args)]
pub(crate) struct ExcludeArgs {
    /// Exclude this path, relative to the source, and everything below it; may be given several times
    #[arg(long, value_name = "PATH")]
    exclude: Vec<PathBuf>,

    /// Exclude paths, relative to the source, in which this regular expression matches; may be given several times
    #[arg(long, value_name = "REGEX")]
    exclude_regex: Vec<regex::bytes::Regex>,

    /// Exclude what the patterns in this file match, one in each line, as in a .gitignore file at the top of the source: `*.o` at any
    /// depth, `/build/` only at the top and only a directory, `!keep.o` for exceptions, `#` for comments; may be given several times
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
}

impl ExcludeArgs {
    /// The files to leave out.
    pub(crate) fn excludes(&self) -> Result<Vec<Exclude>, Failure> {
        let paths = self.exclude.iter().cloned().map(Exclude::Path);
        let regexes = self.exclude_regex.iter().cloned().map(Exclude::Regex);
        let mut excludes: Vec<Exclude> = paths.chain(regexes).collect();
        for file in &self.exclude_from {
            let text =
                std::fs::read_to_string(file).map_err(|e| Failure::about(file, format!("read: {e}")))?;
            excludes.push(Exclude::Patterns(Patterns::parse(&text).map_err(|e| Failure::about(file, e))?));
        }
        Ok(excludes)
    }
}
