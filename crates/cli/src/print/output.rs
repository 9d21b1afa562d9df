//! Writes messages to standard error and results to standard output. Does not panic if a stream is
//! closed, and escapes control characters in messages, because names come from hostile images.
//! `--quiet` and `--verbose` say how much is written.

use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use clap::builder::styling::Style;
use ferofs::escape::{Escaped, controls_terminal};
use serde_json::Value;

use super::color::messages_have_colors;

/// The last group of options in the help of a command.
pub(crate) const OUTPUT: &str = "Output";

/// How the name of the program looks in messages with colours.
const PROGRAM: Style = Style::new().bold();

/// Prints a message as one line on standard error.
macro_rules! message {
    ($($text:tt)*) => { $crate::print::output::write_message(format_args!($($text)*)) };
}

/// Whether warnings are errors: `--strict`. Code that warns reads it from anywhere.
static STRICT: AtomicBool = AtomicBool::new(false);

/// Makes warnings errors.
pub(crate) fn set_strict(strict: bool) {
    STRICT.store(strict, Ordering::Relaxed);
}

pub(crate) fn is_strict() -> bool {
    STRICT.load(Ordering::Relaxed)
}

/// Prints a line on standard output; returns an [`io::Result`].
macro_rules! print_line {
    ($($text:tt)*) => { $crate::print::output::write_line(format_args!($($text)*)) };
}
pub(crate) use {message, print_line};

pub(crate) fn write_message(text: Arguments<'_>) {
    // Callers escape names; this escapes the texts of errors, which may contain names too.
    let text = text.to_string();
    let text = Escaped(text.as_bytes());
    let line = match messages_have_colors() {
        true => format!("{PROGRAM}ferofs:{PROGRAM:#} {text}\n"),
        false => format!("ferofs: {text}\n"),
    };
    // An error here cannot be reported: standard error is the stream for reports.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Asks a question on the terminal. Without a terminal, the answer is no.
pub(crate) fn confirm(question: Arguments<'_>) -> io::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Ok(false);
    }
    let question = question.to_string();
    write!(io::stderr(), "ferofs: {} [y/N] ", Escaped(question.as_bytes()))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn write_line(text: Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A name for standard output: escaped if it is a terminal, else unchanged, because programs need
/// the exact bytes.
pub(crate) fn name(bytes: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    match terminal {
        true => Cow::Owned(Escaped(bytes).to_string().into_bytes()),
        false => Cow::Borrowed(bytes),
    }
}

/// The text of all JSON that the program prints: control characters are escaped, so that no name
/// controls a terminal.
pub(crate) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if controls_terminal(c) {
            // Control characters have at most four hexadecimal digits, and JSON contains them only
            // in strings.
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

const QUIET: u8 = 1;
const VERBOSE: u8 = 2;

/// The level from the command line; 0 without an option. Code that shows progress reads it from
/// anywhere.
static WANTED: AtomicU8 = AtomicU8::new(0);

/// How much a long command prints.
#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// Print only errors, warnings and results
    ///
    /// No progress and no summary.
    #[arg(help_heading = OUTPUT, short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Print the summary, also without a terminal
    ///
    /// Without it, there is a summary only if standard output is a terminal.
    #[arg(help_heading = OUTPUT, short, long)]
    verbose: bool,
}

impl OutputArgs {
    /// Applies the options to all that is printed from now on.
    pub(crate) fn apply(&self) {
        set(self.quiet, self.verbose);
    }
}

/// Applies the options of a command that defines them itself.
pub(crate) fn set(quiet: bool, verbose: bool) {
    let wanted = match (quiet, verbose) {
        (true, _) => QUIET,
        (_, true) => VERBOSE,
        _ => 0,
    };
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether progress may be shown on a terminal.
pub(crate) fn shows_progress() -> bool {
    WANTED.load(Ordering::Relaxed) != QUIET
}

/// Whether the command line asks for details.
pub(crate) fn is_verbose() -> bool {
    WANTED.load(Ordering::Relaxed) == VERBOSE
}

/// Whether to print a summary: on a terminal, or if the command line asks for it.
pub(crate) fn wants_summary() -> bool {
    match WANTED.load(Ordering::Relaxed) {
        QUIET => false,
        VERBOSE => true,
        _ => std::io::stdout().is_terminal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "name": "a\u{9b}2J\u{202e}\u{7f}\n\"\\" });
        let text = json_text(&value);
        assert!(!text.chars().any(controls_terminal), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
