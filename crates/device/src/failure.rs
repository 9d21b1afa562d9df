//! Lines that the program prints, and the failure of a command with its exit code: docs/CLI.md.

use std::error::Error;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use ferofs::escape::Escaped;

/// Something failed.
pub(crate) const FAILURE: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// The system refused memory, whatever the command.
pub(crate) const OUT_OF_MEMORY: u8 = 8;
/// Standard output could not be written.
const OUTPUT_FAILURE: u8 = 2;

/// The result of a command: its exit code, or the failure.
pub(crate) type Outcome = Result<u8, Failure>;

/// Why a command failed: the file that it concerns, the reason, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    subject: Option<PathBuf>,
    reason: Box<dyn Error>,
    code: u8,
}

impl Failure {
    /// A failure concerning `subject`, usually the image.
    pub(crate) fn about(subject: &Path, reason: impl Into<Box<dyn Error>>) -> Self {
        Self { subject: Some(subject.to_owned()), reason: reason.into(), code: FAILURE }
    }

    /// A failure that concerns no file.
    pub(crate) fn without_subject(reason: impl Into<Box<dyn Error>>) -> Self {
        Self { subject: None, reason: reason.into(), code: FAILURE }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn code(&self) -> u8 {
        let first: &(dyn Error + 'static) = &*self.reason;
        let is_memory = std::iter::successors(Some(first), |error| (**error).source())
            .filter_map(|error| error.downcast_ref::<std::io::Error>())
            .any(|error| error.kind() == std::io::ErrorKind::OutOfMemory);
        if is_memory { OUT_OF_MEMORY } else { self.code }
    }

    /// Whether the image is damaged, as opposed to a failure of the system.
    pub(crate) fn is_damage(&self) -> bool {
        self.reason
            .downcast_ref::<ferofs::Error>()
            .is_some_and(|error| error.corruption().is_some())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.to_string();
        if let Some(subject) = &self.subject {
            let subject = format!("{}: ", Escaped::path(subject));
            // An operation on the subject itself has named it.
            if !reason.starts_with(&subject) {
                f.write_str(&subject)?;
            }
        }
        f.write_str(&reason)
    }
}

/// Adds the subject to an error of the library.
pub(crate) trait About<T> {
    /// Turns an error into a failure concerning `subject`.
    fn about(self, subject: &Path) -> Result<T, Failure>;
}

impl<T, E: Into<ferofs::Error>> About<T> for Result<T, E> {
    fn about(self, subject: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::about(subject, error.into()))
    }
}

/// Prints a line to standard error.
pub(crate) fn message(text: &dyn std::fmt::Display) {
    // Not `eprintln`, which panics when standard error is closed.
    let _ = writeln!(std::io::stderr(), "ferofs-device: {text}");
}

/// Prints a line to standard output, and returns the exit code for success.
pub(crate) fn print(text: &str) -> Outcome {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => Ok(0),
        // As a program that a closed pipe ends.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(128 + 13),
        Err(error) => Err(Failure::without_subject(error).with_code(OUTPUT_FAILURE)),
    }
}

/// As [`print`], but only on a terminal: what a successful command did.
pub(crate) fn summary(text: &str) -> Outcome {
    if std::io::stdout().is_terminal() { print(text) } else { Ok(0) }
}
