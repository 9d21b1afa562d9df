//! Exit codes, and the line that a failed command prints.

use std::fmt;
use std::io::{self, Write as _};
use std::num::{IntErrorKind, ParseIntError};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs::escape::Escaped;
use ferofs::read::error::Corruption;
use ferofs::{Error, OtherKind};

use crate::print::output::{is_strict, message};

/// Something failed.
pub(crate) const FAILURE: u8 = 1;

/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// Standard output could not be written.
pub(crate) const OUTPUT_FAILURE: u8 = 2;

/// The exit code that a shell gives to a program that SIGPIPE ended: the reader of its output, for
/// example `head`, closed the pipe.
const BROKEN_PIPE: u8 = 128 + 13;

/// A defect of this program: a thread panicked. Rust programs use the same code.
pub(crate) const INTERNAL_ERROR: u8 = 101;

/// The system refused memory, whatever the command; an operational error, as fsck(8) defines it.
pub(crate) const OUT_OF_MEMORY: u8 = 8;

/// The exit code that a shell gives to a program that SIGINT ended.
pub(crate) const INTERRUPTED: i32 = 128 + 2;

/// Wrong usage, as fsck(8) defines it.
pub(crate) const FSCK_USAGE: u8 = 16;

/// Prints a usage error or the help, and returns the exit code that fsck(8) defines for it.
pub(crate) fn print_usage_as_fsck(error: &clap::Error) -> u8 {
    print_usage(error, FSCK_USAGE)
}

/// Prints a usage error, whose exit code is `code`, or the help.
pub(crate) fn print_usage(error: &clap::Error, code: u8) -> u8 {
    let printed = match invalid_number(error) {
        Some((text, better)) => {
            let line = error.render().to_string().replace(&text, better);
            io::stderr().write_all(line.as_bytes())
        }
        None => error.print().and_then(|()| io::stdout().flush()),
    };
    match printed {
        // An error of standard error cannot be reported: it is the stream for reports.
        _ if error.use_stderr() => code,
        Ok(()) => 0,
        Err(full) => report(&full.into()),
    }
}

/// The text of Rust about a value that must be a number, and what says what is expected.
fn invalid_number(error: &clap::Error) -> Option<(String, &'static str)> {
    let number = std::error::Error::source(error)?.downcast_ref::<ParseIntError>()?;
    let better = match number.kind() {
        IntErrorKind::Zero => "must be 1 or more",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "the number is too large",
        _ => "not a whole number, for example 4",
    };
    Some((number.to_string(), better))
}

/// Why a command failed: the file that it concerns, the reason, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    subject: Option<PathBuf>,
    reason: Box<dyn std::error::Error>,
    /// What to do about it.
    hint: Option<String>,
    code: u8,
    is_usage: bool,
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
        Self {
            subject: Some(subject.to_owned()),
            reason: reason.into(),
            hint: None,
            code: FAILURE,
            is_usage: false,
        }
    }

    /// A failure whose reason already names the file.
    pub(crate) fn without_subject(reason: impl Into<Error>) -> Self {
        Self {
            subject: None,
            reason: reason.into().into(),
            hint: None,
            code: FAILURE,
            is_usage: false,
        }
    }

    /// A failure whose reason, of another kind than those of images, already names what it
    /// concerns.
    pub(crate) fn complete(reason: impl Into<Box<dyn std::error::Error>>) -> Self {
        Self { subject: None, reason: reason.into(), hint: None, code: FAILURE, is_usage: false }
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
        self.corruption().is_some() || self.is_unverified()
    }

    /// Whether the reason is an error of the library of this kind.
    fn is_other(&self, wanted: OtherKind) -> bool {
        let cause = self.reason.downcast_ref();
        matches!(cause, Some(Error::Other { kind, .. }) if *kind == wanted)
    }

    /// Whether the image does not agree with its root hash.
    fn is_unverified(&self) -> bool {
        use ferofs::verity::IntegrityError;
        self.is_other(OtherKind::Unverified)
            || self
                .system_errors()
                .any(|error| error.get_ref().is_some_and(|e| e.is::<IntegrityError>()))
    }

    /// Whether the file has no EROFS image at the place that was read.
    pub(crate) fn is_no_image(&self) -> bool {
        self.corruption().is_some_and(|corruption| corruption.is_no_image())
    }

    fn corruption(&self) -> Option<&Corruption> {
        let read = || self.reason.downcast_ref::<ferofs::read::Error>()?.corruption();
        self.reason.downcast_ref::<Error>().map_or_else(read, Error::corruption)
    }

    /// A failure because of an option's value, or of options that exclude each other.
    pub(crate) fn usage(subject: &Path, reason: impl Into<Box<dyn std::error::Error>>) -> Self {
        Self { is_usage: true, ..Self::about(subject, reason) }
    }

    /// A failure because of an option, which the reason names.
    pub(crate) fn wrong_option(reason: impl Into<Box<dyn std::error::Error>>) -> Self {
        Self { is_usage: true, ..Self::complete(reason) }
    }

    /// Whether the library refused an option, or this program did.
    pub(crate) fn is_usage(&self) -> bool {
        self.is_usage || matches!(self.reason.downcast_ref(), Some(Error::Option { .. }))
    }

    /// The same failure with the exit code for wrong usage if it is one. The other names of the
    /// program have codes of their own.
    pub(crate) fn with_usage_code(self) -> Self {
        if self.is_usage() && self.code == FAILURE { self.with_code(USAGE) } else { self }
    }

    /// The same failure with `hint` after its reason.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Whether the program is the wrong one for fakeroot, fakechroot or pseudo.
    #[cfg(target_os = "linux")]
    fn is_static_program(&self) -> bool {
        self.is_other(OtherKind::Preload)
    }

    /// Whether the reader of the output closed the pipe.
    fn is_broken_pipe(&self) -> bool {
        self.system_errors().any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn is_out_of_memory(&self) -> bool {
        self.system_errors().any(|error| {
            error.kind() == io::ErrorKind::OutOfMemory
                || error.get_ref().is_some_and(|cause| lacks_memory(&cause.to_string()))
        })
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
        Self { subject, reason: error.into(), hint: None, code: OUTPUT_FAILURE, is_usage: false }
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

/// Turns a library error into a failure.
pub(crate) trait About<T> {
    /// Adds the subject.
    fn about(self, subject: &Path) -> Result<T, Failure>;
    /// See [`Failure::without_subject`].
    fn without_subject(self) -> Result<T, Failure>;
}

impl<T, E: Into<Error>> About<T> for Result<T, E> {
    fn about(self, subject: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::about(subject, error.into()))
    }

    fn without_subject(self) -> Result<T, Failure> {
        self.map_err(Failure::without_subject)
    }
}

/// Turns an error of any kind into a failure.
pub(crate) trait Concerning<T> {
    /// See [`Failure::about`].
    fn concerning(self, subject: &Path) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn std::error::Error>>> Concerning<T> for Result<T, E> {
    fn concerning(self, subject: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::about(subject, error))
    }
}

/// Whether this is what the crates of Zstandard, LZMA and DEFLATE say without memory.
fn lacks_memory(message: &str) -> bool {
    let texts = [
        "enough memory",
        "allocate memory",
        "could not allocate",
        "out of memory",
        "null pointer when",
    ];
    texts.iter().any(|text| message.contains(text))
}

/// Runs a command. A panic on any of its threads prints one line, and ends it with
/// [`INTERNAL_ERROR`], or with [`OUT_OF_MEMORY`] if a library panics because it has none.
pub(crate) fn catch_panics(command: impl FnOnce() -> ExitCode) -> ExitCode {
    // A thread that waits for a panicked thread may panic too: only the first panic shows the
    // cause.
    static REPORTED: AtomicBool = AtomicBool::new(false);
    panic::set_hook(Box::new(|info| {
        if !REPORTED.swap(true, Ordering::Relaxed) {
            let (code, line) = reported(info);
            // Not `eprintln`, which panics when standard error is closed.
            let _ = writeln!(io::stderr(), "ferofs: {line}");
            if code == OUT_OF_MEMORY {
                // Unwinding needs memory, too, and would abort.
                std::process::exit(code.into());
            }
        }
    }));
    // After a panic, no data of the command is used.
    panic::catch_unwind(AssertUnwindSafe(command)).unwrap_or(ExitCode::from(INTERNAL_ERROR))
}

/// The exit code of a panic, and the line that reports it: its place in the source, and its
/// message.
fn reported(info: &PanicHookInfo<'_>) -> (u8, String) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no message").lines().collect::<Vec<_>>().join(" ");
    match info.location() {
        _ if lacks_memory(&message) => (OUT_OF_MEMORY, format!("out of memory: {message}")),
        Some(place) => (INTERNAL_ERROR, format!("internal error: {place}: {message}")),
        None => (INTERNAL_ERROR, format!("internal error: {message}")),
    }
}

/// Prints a failure's line and gives the process its exit code.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    outcome.unwrap_or_else(|failure| report(&failure)).into()
}

/// Prints a failure's line, and returns its exit code. A broken pipe is quiet.
fn report(failure: &Failure) -> u8 {
    if failure.is_broken_pipe() {
        return BROKEN_PIPE;
    }
    message!("{failure}");
    match (failure.is_static_program(), failure.is_out_of_memory()) {
        (true, _) => USAGE,
        (_, true) => OUT_OF_MEMORY,
        _ => failure.code,
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
    fn an_error_of_memory_below_others_is_found() {
        use ferofs::patch::ApplyError;
        let is_found = |reason: io::Error| {
            let cause = Box::new(ApplyError::io_unnamed("compress", reason));
            let error = ApplyError::Unfinished { cause, image: ferofs::AfterFailure::Unchanged };
            Failure::without_subject(error).is_out_of_memory()
        };
        assert!(
            is_found(io::ErrorKind::OutOfMemory.into()) && !is_found(io::Error::other("corrupt"))
        );
        assert!(is_found(io::Error::other("Allocation error : not enough memory")));
    }

    #[test]
    fn a_path_is_printed_once() {
        let image = Path::new("a.img");
        let system = || io::Error::from_raw_os_error(28);
        let named = |path: &Path| Error::io("write", path, system());
        let line = |error: Error| Failure::about(image, error).to_string();
        let system = system().to_string();
        assert_eq!(line(named(image)), format!("a.img: write: {system}"));
        assert_eq!(line(named(Path::new("b"))), format!("a.img: b: write: {system}"));
    }
}
