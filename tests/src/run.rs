//! Runs commands with limits on time and address space, and returns their results.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use wait4::Wait4;

/// A command that runs longer hangs: the slowest takes much less, even on a busy machine.
const HANG: Duration = Duration::from_secs(600);

/// Linux counts resident memory for each processor, and adds the counts later: two readings of the
/// same peak differ by less than this.
const INEXACT: u64 = 16 << 20;

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; 128 + the number of the signal if a signal ended the command, as in shells.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error; invalid UTF-8 is replaced.
    pub stderr: String,
    /// The largest resident set, in bytes; 0 if unknown. Linux also counts the forked copy of this
    /// process before `exec`, so a value that is not larger than this process's own says nothing
    /// about the program.
    pub peak: u64,
    /// Processor time of all threads, user and system.
    pub cpu: Duration,
    /// Time from start to end.
    pub wall: Duration,
}

impl Outcome {
    /// This outcome if the code is 0.
    ///
    /// # Panics
    /// On any other code; the message contains the output of the command.
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(
            self.code,
            0,
            "stderr: {}\nstdout: {}",
            self.stderr,
            String::from_utf8_lossy(&self.stdout)
        );
        self
    }

    /// This outcome if the code is `code` and stderr has an error message of ferofs.
    ///
    /// # Panics
    /// Otherwise.
    #[track_caller]
    pub fn failure(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stderr: {}", self.stderr);
        assert!(self.has_error_message(), "stderr: {}", self.stderr);
        self
    }

    /// Fails unless the code is `code` and stderr contains `text`.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn fails(&self, code: i32, text: impl AsRef<str>) {
        assert_eq!(self.code, code, "stderr: {}", self.stderr);
        self.says(text);
    }

    /// Fails if stderr does not contain `text`.
    ///
    /// # Panics
    /// Then; the message has all of stderr.
    #[track_caller]
    pub fn says(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let says = self.stderr.contains(text) && !self.stderr.contains("panicked");
        assert!(says, "not {text:?}, but: {}", self.stderr);
    }

    /// Standard output as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[track_caller]
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Whether stderr has an error message of ferofs, and none of a panic.
    pub fn has_error_message(&self) -> bool {
        self.stderr.lines().any(|line| line.starts_with("ferofs: "))
            && !self.stderr.contains("panicked")
    }
}

/// The ferofs under test with a command line: a literal is split into words, the arguments after it
/// are whole words.
#[macro_export]
macro_rules! ferofs {
    ($words:literal $(, $arg:expr)* $(,)?) => {
        $crate::ferofs().args($words.split_whitespace())$(.arg($arg))*
    };
}

/// A command line as of [`ferofs!`] that begins with the program.
#[macro_export]
macro_rules! run {
    ($words:literal $(, $arg:expr)* $(,)?) => {
        $crate::Run::line($words)$(.arg($arg))*
    };
}

/// A command: add arguments, then run it.
#[derive(Debug)]
pub struct Run {
    command: Command,
    /// The time after which it is killed.
    time: Duration,
}

/// The ferofs under test, without arguments.
pub fn ferofs() -> Run {
    Run::new(ferofs_path())
}

/// The ferofs under test in strace(1), which lets the system call `call` with this number in its
/// thread fail: `fault` is, for example, "error=EIO" or "signal=KILL".
pub fn ferofs_with_fault(strace: &Path, call: &str, fault: &str, number: impl Display) -> Run {
    Run::new(strace)
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:{fault}:when={number}")])
        .arg(ferofs_path())
}

/// The path of the ferofs under test: `FEROFS_BIN`, or a debug build, which is made now.
///
/// # Panics
/// If the variable is not set and the build fails.
pub fn ferofs_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| env::var_os("FEROFS_BIN").map_or_else(build_ferofs, PathBuf::from))
}

/// The path of the program for devices: beside ferofs, with which it is built.
pub fn device_path() -> PathBuf {
    ferofs_path().with_file_name("ferofs-device")
}

fn build_ferofs() -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--package", "ferofs-cli", "--package", "ferofs-device"]);
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot build ferofs: {status:?}"
    );
    crate::scratch::target_dir().join("debug/ferofs")
}

impl Run {
    /// Any program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self::limited(program, None, HANG)
    }

    /// A program and its first arguments, separated by spaces.
    pub fn line(words: &str) -> Self {
        let (program, args) = words.split_once(' ').unwrap_or((words, ""));
        Self::new(program).args(args.split_whitespace())
    }

    /// Any program, killed after `time`, and with at most `memory` bytes of address space.
    pub fn limited(program: impl AsRef<OsStr>, memory: Option<u64>, time: Duration) -> Self {
        let mut command = match memory {
            None => Command::new(program),
            Some(bytes) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--as={bytes}")).arg("--core=0").arg(program);
                command
            }
        };
        // Of its own, so that its children are killed with it.
        command.stdin(Stdio::null()).process_group(0);
        Self { command, time }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Starts it in this directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets its standard input.
    #[must_use]
    pub fn input(mut self, input: impl Into<Stdio>) -> Self {
        self.command.stdin(input);
        self
    }

    /// Gives it a pipe with these bytes as its standard input.
    ///
    /// # Panics
    /// When the system has no pipe.
    #[must_use]
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub fn piped(self, bytes: impl Into<Vec<u8>>) -> Self {
        let (reader, mut writer) = io::pipe().unwrap();
        let bytes = bytes.into();
        // The program may end before it has read all of its input.
        thread::spawn(move || writer.write_all(&bytes));
        self.input(reader)
    }

    /// The command itself, for tests that need pipes.
    pub fn command(self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL").arg(self.time.as_secs().max(1).to_string());
        command.arg(self.command.get_program()).args(self.command.get_args()).stdin(Stdio::null());
        command.envs(self.command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        if let Some(dir) = self.command.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }

    /// Runs it and waits for its end.
    ///
    /// # Errors
    /// When it cannot be started or its output cannot be read.
    pub fn try_run(mut self) -> io::Result<Outcome> {
        let start = Instant::now();
        let mut child = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pid = Pid::from_child(&child);
        let (ended, wait) = mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            if wait.recv_timeout(self.time) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        });
        let stderr = child.stderr.take();
        let reader = thread::spawn(move || read_all(stderr));
        let stdout = read_all(child.stdout.take())?;
        let stderr =
            reader.join().unwrap_or_else(|_| Err(io::Error::other("reader of stderr panicked")))?;
        let used = child.wait4()?;
        drop(ended);
        watch.join().map_err(|_| io::Error::other("watcher of the time panicked"))?;
        Ok(Outcome {
            code: shell_code(used.status),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            peak: if used.rusage.maxrss > own_peak() + INEXACT { used.rusage.maxrss } else { 0 },
            cpu: used.rusage.utime + used.rusage.stime,
            wall: start.elapsed(),
        })
    }

    /// Runs it and waits for its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn run(self) -> Outcome {
        let shown = format!("{:?}", self.command);
        match self.try_run() {
            Ok(outcome) => outcome,
            Err(error) => panic!("{shown}: {error}"),
        }
    }

    /// [`Self::run`] and [`Outcome::success`].
    #[track_caller]
    pub fn success(self) -> Outcome {
        self.run().success()
    }

    /// [`Self::run`] and [`Outcome::fails`].
    #[track_caller]
    pub fn fails(self, code: i32, text: impl AsRef<str>) -> Outcome {
        let outcome = self.run();
        outcome.fails(code, text);
        outcome
    }

    /// [`Self::run`] and [`Outcome::failure`].
    #[track_caller]
    pub fn failure(self, code: i32) -> Outcome {
        self.run().failure(code)
    }
}

fn read_all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn shell_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The largest resident set of this process, in bytes.
fn own_peak() -> u64 {
    proc_bytes("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// The bytes in the line of a file of /proc that begins with `name` and gives a number of kB.
pub fn proc_bytes(file: impl AsRef<Path>, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_command_is_ended() {
        let outcome = Run::limited("sleep", None, Duration::from_secs(1)).arg("30").run();
        assert_eq!(outcome.code, 137);
    }

    #[test]
    fn address_space_is_limited() {
        let run = |limit| {
            Run::limited("sh", Some(limit), HANG)
                .args(["-c", "head -c 300M /dev/zero | tail -c 300M | wc -c"])
        };
        assert_eq!(run(4 << 30).run().success().stdout, b"314572800\n");
        assert_ne!(run(100 << 20).run().stdout, b"314572800\n");
    }

    #[test]
    fn output_code_and_memory_are_reported() {
        let outcome = Run::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).run();
        assert_eq!(
            (outcome.code, outcome.stdout.as_slice(), outcome.stderr.as_str()),
            (3, &b"out\n"[..], "err\n")
        );
        assert!(outcome.peak == 0 || outcome.peak > INEXACT, "{outcome:?}");
    }
}
