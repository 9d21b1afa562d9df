//! Pages of docs/ with a measured part that a program writes; the text around it is written by
//! hand.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// The measured part ends with this line.
const END: &str = "<!-- to here -->";

/// The line with which the part that `cargo xtask COMMAND` writes begins.
#[must_use]
pub fn begin(command: &str) -> String {
    format!("<!-- cargo xtask {command} writes from here -->")
}

/// Replaces the measured part of `page`, a path in the repository, that begins with the line
/// `begin`.
///
/// # Errors
///
/// The page cannot be read or written, or does not have the part.
pub fn publish(page: &str, begin: &str, measured: &str) -> Result<()> {
    let path = shell::repository().join(page);
    let text = fs::read_to_string(&path).with_context(|| page.to_owned())?;
    let new = replace_measured(&text, begin, measured).with_context(|| page.to_owned())?;
    fs::write(&path, new).with_context(|| page.to_owned())
}

/// Replaces what is between the line `begin` and the end of the measured part.
///
/// # Errors
///
/// One of the two lines is missing.
pub fn replace_measured(text: &str, begin: &str, measured: &str) -> Result<String> {
    let (before, rest) = text.split_once(begin).with_context(|| format!("no line {begin}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no line {END}"))?;
    Ok(format!("{before}{begin}\n{measured}\n{END}{after}"))
}

/// The last commit that changed more than docs, so that it stays the same when results are
/// committed; "changed" if there are other changes.
///
/// # Errors
///
/// Git cannot be started, or fails.
pub fn commit() -> Result<String> {
    let git = |words: &[&str]| {
        // Pages that were measured change docs and README.md.
        let mut git = Command::new("git");
        git.current_dir(shell::repository()).args(words).args(["--", ".", ":!docs", ":!README.md"]);
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&shell::output(&mut git)?).trim().to_owned())
    };
    let (hash, changes) = (git(&["log", "-1", "--format=%h"])?, git(&["status", "--porcelain"])?);
    Ok(if changes.is_empty() { hash } else { format!("{hash}, changed") })
}

/// A table in Markdown.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_part_changes() {
        let begin = begin("bench fleet --publish");
        let page = format!("# Title\n{begin}\nold\n{END}\nformula\n");
        let new = replace_measured(&page, &begin, "new").unwrap();
        assert_eq!(new, format!("# Title\n{begin}\nnew\n{END}\nformula\n"));
        assert!(replace_measured("# Title", &begin, "new").is_err());
    }
}
