//! Exit codes, and the line that a failed command prints.

use std::fmt;
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs::escape::Escaped;

use crate::print::output::{is_strict, message};

/// Something failed.
pub(crate) const FAILURE: u8 = 1;

/// Wrong usage.
const USAGE: u8 = 2;

/// Standard output could not be written.
pub(crate) const OUTPUT_FAILURE: u8 = 2;

/// The exit code that a shell gives to a program that SIGPIPE ended: the reader of its output, for example `head`, closed
/// the pipe.
const BROKEN_PIPE: u8 = 128 + 13;

/// A defect of this program: a thread panicked. Rust programs use the same code.
pub(crate) const INTERNAL_ERROR: u8 = 101;

/// The exit code that a shell gives to a program that SIGINT ended.
pub(crate) const INTERRUPTED: i32 = 128 + 2;

/// Wrong usage, as fsck(8) defines it.
const FSCK_USAGE: u8 = 16;

/// Prints a usage error or the help, and returns the exit code that fsck(8) defines for it.
pub(crate) fn print_usage_as_fsck(error: &clap::Error) -> u8 {
    print_usage(error, FSCK_USAGE)
}

/// Prints a usage error, whose exit code is `code`, or the help.
pub(crate) fn print_usage(error: &clap::Error, code: u8) -> u8 {
    // An error here cannot be reported: standard error is the stream for reports.
    let _ = error.print();
    if error.use_stderr() { code } else { 0 }
}

/// Why a command failed: the file that it concerns, the reason, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    subject: Option<PathBuf>,
    reason: Box<dyn std::error::Error>,
    /// What to do about it.
    hint: Option<String>,
    code: u8,
}

/// The result of a command: its exit code, or the failure.
pub(crate) type Outcome = Result<u8, Failure>;

/// Prints a warning, also with --quiet. With --strict it is a failure.
pub(crate) fn warn(text: impl std::fmt::Display) -> Result<(), Failure> {
    if is_strict() {
        return Err(Failure::complete(format!("{text}; --strict makes warnings errors")));
    }
    message!("{text}");
    Ok(())
}

impl Failure {
    /// A failure concerning `subject`, usually an image.
    pub(crate) fn about(subject: &Path, reason: impl Into<Box<dyn std::error::Error>>) -> Self {
        Self { subject: Some(subject.to_owned()), reason: reason.into(), hint: None, code: FAILURE }
    }

    /// A failure whose reason already names the file.
    pub(crate) fn without_subject(reason: impl Into<ferofs::Error>) -> Self {
        Self { subject: None, reason: reason.into().into(), hint: None, code: FAILURE }
    }

    /// A failure whose reason, of another kind than those of images, already names what it concerns.
    pub(crate) fn complete(reason: impl Into<Box<dyn std::error::Error>>) -> Self {
        Self { subject: None, reason: reason.into(), hint: None, code: FAILURE }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The reason, without the file.
    pub(crate) fn reason(&self) -> &dyn std::error::Error {
        &*self.reason
    }

    /// Whether the image is damaged, as opposed to a failure of the system or a wrong argument.
    pub(crate) fn is_damage(&self) -> bool {
        let read = || self.reason.downcast_ref::<ferofs::read::Error>()?.corruption();
        let corruption = self
            .reason
            .downcast_ref::<ferofs::Error>()
            .map_or_else(read, ferofs::Error::corruption);
        corruption.is_some()
    }

    /// Whether the file has no EROFS image at the place that was read.
    pub(crate) fn is_no_image(&self) -> bool {
        let read = || self.reason.downcast_ref::<ferofs::read::Error>()?.corruption();
        let corruption = self
            .reason
            .downcast_ref::<ferofs::Error>()
            .map_or_else(read, ferofs::Error::corruption);
        corruption.is_some_and(|corruption| corruption.is_no_image())
    }

    /// The same failure with `hint` after its reason.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Whether the program is the wrong one for fakeroot, fakechroot or pseudo.
    #[cfg(target_os = "linux")]
    fn is_static_program(&self) -> bool {
        let cause = self.reason.downcast_ref::<ferofs::Error>();
        matches!(
            cause,
            Some(ferofs::Error::Build(
                ferofs::build::Error::StaticProgram | ferofs::build::Error::PreloadLost
            ))
        )
    }

    /// Whether the reader of the output closed the pipe.
    fn is_broken_pipe(&self) -> bool {
        self.system_errors().any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the process has as many open files as it may have.
    #[cfg(target_os = "linux")]
    fn is_too_many_files(&self) -> bool {
        let limit = rustix::io::Errno::MFILE.raw_os_error();
        self.system_errors().any(|error| error.raw_os_error() == Some(limit))
    }

    #[cfg(not(target_os = "linux"))]
    fn is_static_program(&self) -> bool {
        false
    }

    #[cfg(not(target_os = "linux"))]
    fn is_too_many_files(&self) -> bool {
        false
    }

    /// The errors of the system among the causes.
    fn system_errors(&self) -> impl Iterator<Item = &io::Error> {
        let first: &(dyn std::error::Error + 'static) = &*self.reason;
        std::iter::successors(Some(first), |error| error.source())
            .filter_map(|error| error.downcast_ref::<io::Error>())
    }
}

/// An error of standard output, or of another stream or call without a file name.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // These come from writing only, and files that are written have names.
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let subject = is_full.then(|| PathBuf::from("standard output"));
        Self { subject, reason: error.into(), hint: None, code: OUTPUT_FAILURE }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.to_string();
        if let Some(subject) = &self.subject {
            let subject = format!("{}: ", Escaped::path(subject));
            // A file operation on the subject itself has named it.
            if !reason.starts_with(&subject) {
                f.write_str(&subject)?;
            }
        }
        f.write_str(&reason)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        // About what 8 threads need at most.
        if self.is_too_many_files() {
            f.write_str("; raise the limit: ulimit -n 256")
        } else {
            Ok(())
        }
    }
}

/// Adds the subject to a library error.
pub(crate) trait About<T> {
    /// Turns an error into a failure concerning `subject`.
    fn about(self, subject: &Path) -> Result<T, Failure>;
}

impl<T, E: Into<ferofs::Error>> About<T> for Result<T, E> {
    fn about(self, subject: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::about(subject, error.into()))
    }
}

/// Runs a command. A panic on any of its threads prints one line, and ends it with [`INTERNAL_ERROR`].
pub(crate) fn catch_panics(command: impl FnOnce() -> ExitCode) -> ExitCode {
    // A thread that waits for a panicked thread may panic too: only the first panic shows the cause.
    static REPORTED: AtomicBool = AtomicBool::new(false);
    panic::set_hook(Box::new(|info| {
        if !REPORTED.swap(true, Ordering::Relaxed) {
            // Not `eprintln`, which panics when standard error is closed.
            let _ = writeln!(io::stderr(), "ferofs: {}", internal_error(info));
        }
    }));
    // After a panic, no data of the command is used.
    panic::catch_unwind(AssertUnwindSafe(command)).unwrap_or(ExitCode::from(INTERNAL_ERROR))
}

/// The line that reports a panic: its place in the source, and its message.
fn internal_error(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no message").lines().collect::<Vec<_>>().join(" ");
    match info.location() {
        Some(place) => format!("internal error: {place}: {message}"),
        None => format!("internal error: {message}"),
    }
}

/// Prints a failure's line and gives the process its exit code. A broken pipe is quiet.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code.into(),
        Err(failure) if failure.is_broken_pipe() => BROKEN_PIPE.into(),
        Err(failure) => {
            message!("{failure}");
            if failure.is_static_program() { USAGE } else { failure.code }.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_any_thread_is_an_exit_code() {
        let code = catch_panics(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| panic!("a worker"));
            });
            ExitCode::SUCCESS
        });
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(INTERNAL_ERROR)));
        assert_eq!(
            format!("{:?}", catch_panics(|| ExitCode::SUCCESS)),
            format!("{:?}", ExitCode::SUCCESS)
        );
    }

    #[test]
    fn a_path_is_printed_once() {
        let image = Path::new("a.img");
        let system = || io::Error::from_raw_os_error(28);
        let action = "write";
        let named = |path: &Path| ferofs::Error::Io {
            action,
            path: Some(path.to_owned()),
            source: system(),
        };
        let line = |error: ferofs::Error| Failure::about(image, error).to_string();
        let system = system().to_string();
        assert_eq!(line(named(image)), format!("a.img: write: {system}"));
        assert_eq!(line(named(Path::new("b"))), format!("a.img: b: write: {system}"));
    }
}
