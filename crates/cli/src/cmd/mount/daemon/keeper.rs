//! The keeper of a mount: a process that starts the daemon again when it was killed or has crashed.
//!
//! It opens and mounts everything, and then makes a copy of itself (fork(2)), which becomes the
//! daemon: it gives up its rights, decodes the image, and answers requests. The keeper has the
//! connection to the kernel open, so that the mount and the requests in it outlive the daemon. The
//! next daemon is another copy: it finds the same open files, whatever has happened to their names.
//! It makes the kernel send the requests again that the dead daemon did not answer.
//!
//! The keeper decodes nothing, and can neither execute programs nor unmount.

mod fork;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use ferofs::escape::Escaped;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cmd::mount::unmount_helper;
use crate::exit::{FAILURE, Failure, INTERNAL_ERROR, OUT_OF_MEMORY};
use crate::print::output::message;

/// Privileges that the keeper has and the daemon does not have.
pub(super) struct Keeper<'a> {
    /// The directory of the mount.
    pub(super) dir: &'a Path,
    /// Ends the unmount helper, or makes it unmount.
    pub(super) helper_input: Option<ChildStdin>,
    /// Where messages go as soon as the image is mounted.
    pub(super) log: Option<&'a OwnedFd>,
    /// Says that the image is mounted.
    pub(super) report: &'a dyn Fn() -> Result<(), Failure>,
}

/// The role of a process.
pub(super) enum Role {
    /// A daemon without a keeper. Closing the input of the unmount helper ends it.
    Alone(Option<ChildStdin>),
    /// A daemon, with its own end of the same pipe: the mount outlives the keeper.
    Daemon(Start, Option<ChildStdin>),
    /// The keeper, after the last daemon has ended, with the exit code.
    Keeper(u8),
}

/// Tells the keeper that this daemon is going to answer requests.
pub(super) struct Ready(OwnedFd);

/// How a daemon starts.
pub(super) enum Start {
    /// The first one. It tells the keeper that it has decoded the image and is going to answer
    /// requests.
    First(Ready),
    /// One before it has died, and the kernel waits for its answers.
    Again,
}

impl Keeper<'_> {
    /// Starts daemons until one ends as it should, or until too many have died. Returns in the
    /// keeper and in each daemon.
    pub(super) fn run(mut self) -> Result<Role, Failure> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGCHLD])?;
        let (ready_reader, ready_writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut daemon = match fork::fork()? {
            Some(daemon) => daemon,
            None => return Ok(Role::Daemon(Start::First(Ready(ready_writer)), self.helper_input)),
        };
        drop(ready_writer);
        if File::from(ready_reader).read(&mut [0])? == 0 {
            // It has said why.
            let code = match wait(daemon, WaitOptions::empty())? {
                Some(End::Exit(code)) if code != 0 => code,
                _ => FAILURE,
            };
            return Ok(Role::Keeper(code));
        }
        if let Some(log) = self.log {
            rustix::stdio::dup2_stderr(log).map_err(io::Error::from)?;
        }
        (self.report)()?;
        let (mut deaths, mut is_asked) = (RecentDeaths::default(), false);
        loop {
            let received: Vec<i32> = signals.wait().collect();
            for signal in received.into_iter().filter(|signal| *signal != SIGCHLD) {
                match &mut self.helper_input {
                    Some(input) if !is_asked => unmount_helper::request_unmount(input),
                    _ => {
                        kill_process(daemon, Signal::KILL).map_err(io::Error::from)?;
                        return Ok(Role::Keeper(u8::try_from(128 + signal).unwrap_or(FAILURE)));
                    }
                }
                is_asked = true;
            }
            let Some(end) = wait(daemon, WaitOptions::NOHANG)? else { continue };
            let (how, cause) = match end {
                // As with the killer of the system: memory may come back.
                End::Exit(OUT_OF_MEMORY) => ("had no memory".to_owned(), Cause::Kill),
                End::Exit(code) if code != INTERNAL_ERROR => return Ok(Role::Keeper(code)),
                End::Exit(_) => ("has crashed".to_owned(), Cause::Crash),
                End::Signal(9) => ("was killed".to_owned(), Cause::Kill),
                End::Signal(signal) => (format!("has crashed with signal {signal}"), Cause::Crash),
            };
            let dir = Escaped::path(self.dir);
            let Some(pause) = deaths.add(Instant::now(), cause) else {
                message!("{dir}: the daemon {how} too often; giving up");
                return Ok(Role::Keeper(FAILURE));
            };
            message!("{dir}: the daemon {how}; starting another one");
            std::thread::sleep(pause);
            match fork::fork()? {
                Some(next) => daemon = next,
                None => return Ok(Role::Daemon(Start::Again, self.helper_input)),
            }
        }
    }
}

impl Start {
    /// Whether this is the first daemon.
    pub(super) fn is_first(&self) -> bool {
        matches!(self, Self::First(_))
    }
}

impl Ready {
    pub(super) fn report(self) -> io::Result<()> {
        let Self(pipe) = self;
        File::from(pipe).write_all(b"\n")
    }
}

/// How a process has ended.
enum End {
    Exit(u8),
    Signal(i32),
}

fn wait(process: Pid, options: WaitOptions) -> io::Result<Option<End>> {
    let status: WaitStatus = match waitpid(Some(process), options) {
        Ok(Some((_, status))) => status,
        Ok(None) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exit(u8::try_from(code).unwrap_or(FAILURE)),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => return Ok(None),
    }))
}

/// Deaths are counted for this time.
const WINDOW: Duration = Duration::from_secs(60);
/// Daemons that may crash within [`WINDOW`], and that SIGKILL may kill: sent by somebody, or
/// because the machine has no memory.
const CRASHES: usize = 5;
const KILLS: usize = 60;
/// The pause before a new daemon grows by this time with each death, up to a limit.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The deaths of the last minute. A daemon that dies again and again, for example at one request,
/// would occupy the machine for ever.
#[derive(Debug, Default)]
struct RecentDeaths(VecDeque<(Instant, Cause)>);

/// Why a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Crash,
    Kill,
}

impl RecentDeaths {
    /// Adds a death. Returns the pause before the next daemon; `None`: there should be none.
    fn add(&mut self, now: Instant, cause: Cause) -> Option<Duration> {
        self.0.push_back((now, cause));
        while self.0.front().is_some_and(|(time, _)| now.duration_since(*time) > WINDOW) {
            self.0.pop_front();
        }
        let count = |cause| self.0.iter().filter(|(_, of)| *of == cause).count();
        let is_too_often = count(Cause::Crash) > CRASHES || count(Cause::Kill) > KILLS;
        (!is_too_often)
            .then(|| (PAUSE * u32::try_from(self.0.len()).unwrap_or(u32::MAX)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_deaths_in_a_short_time_are_too_many() {
        let start = Instant::now();
        let mut deaths = RecentDeaths::default();
        for number in 1..=CRASHES {
            let pause = deaths.add(start + Duration::from_secs(1), Cause::Crash);
            assert_eq!(pause, Some(PAUSE * u32::try_from(number).unwrap()));
        }
        for _ in 0..KILLS {
            assert!(deaths.add(start + Duration::from_secs(2), Cause::Kill).is_some());
        }
        assert_eq!(deaths.add(start + Duration::from_secs(3), Cause::Kill), None);
        let mut deaths = RecentDeaths::default();
        for _ in 0..CRASHES {
            assert!(deaths.add(start, Cause::Crash).is_some());
        }
        assert_eq!(deaths.add(start, Cause::Crash), None);
    }

    #[test]
    fn old_deaths_do_not_count() {
        let start = Instant::now();
        let mut deaths = RecentDeaths::default();
        for number in 0..100 {
            assert!(deaths.add(start + Duration::from_secs(13) * number, Cause::Crash).is_some());
        }
    }
}
