//! Runs `cargo test`, passes its output on, and ends it when a test hangs, with the name of the test. Rust's test harness names a test that
//! has run for a minute, but waits for it without end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A test that runs longer hangs. Commands that tests start are ended after 10 minutes; a test that then goes on ends within this time.
const LIMIT: Duration = Duration::from_secs(25 * 60);
/// How often the time is compared with the limit, if there is no output.
const INTERVAL: Duration = Duration::from_secs(10);

/// The end of the line in which the harness names a slow test.
const SLOW: &str = " has been running for over ";

/// Runs the tests.
///
/// # Errors
/// When a test fails or hangs.
pub(super) fn run(command: &mut Command) -> Result<()> {
    run_with_limit(command, LIMIT, INTERVAL)
}

fn run_with_limit(command: &mut Command, limit: Duration, interval: Duration) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut slow = SlowTests::default();
    let hanging = loop {
        match lines.recv_timeout(interval) {
            Ok(line) => {
                let mut out = std::io::stdout();
                out.write_all(&line).and_then(|()| out.write_all(b"\n")).context("standard output")?;
                slow.see(&String::from_utf8_lossy(&line), Instant::now());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
        if let Some(name) = slow.hanging(Instant::now(), limit) {
            break Some(name.to_owned());
        }
    };
    if let Some(name) = hanging {
        kill_with_descendants(Pid::from_child(&child));
        child.wait()?;
        bail!("the test {name} has run for more than {} minutes: it hangs", limit.as_secs() / 60);
    }
    // The reader has ended: the channel is closed.
    drop(reader.join());
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo test: {status}");
    }
    Ok(())
}

/// Kills a process and everything that it has started. Not by process group: in a group of its own, cargo would not get the terminal's
/// Ctrl-C.
fn kill_with_descendants(process: Pid) {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pid> = lists
        .flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .filter_map(|number| Pid::from_raw(number.ok()?))
        .collect();
    // An error means that it has ended.
    let _ = kill_process(process, Signal::KILL);
    children.into_iter().for_each(kill_with_descendants);
}

/// The tests that the harness has named as slow and that have not ended, with the time when it did.
#[derive(Default)]
struct SlowTests(BTreeMap<String, Instant>);

impl SlowTests {
    fn see(&mut self, line: &str, now: Instant) {
        // With one thread, the harness writes "test NAME ... " before the test, and what follows on the same line.
        let Some(rest) = line.rsplit_once("test ").map(|(_, rest)| rest) else {
            if line == "ok" || line.starts_with("FAILED") {
                self.0.clear();
            }
            return;
        };
        if let Some((name, _)) = rest.split_once(SLOW) {
            self.0.insert(name.to_owned(), now);
        } else if let Some((name, _)) = rest.split_once(" ... ") {
            self.0.remove(name);
        } else if rest.starts_with("result: ") {
            self.0.clear();
        }
    }

    /// The first test that runs for longer than `limit`, if there is one.
    fn hanging(&self, now: Instant, limit: Duration) -> Option<&str> {
        let mut hanging = self.0.iter().filter(|(_, since)| now.duration_since(**since) > limit);
        hanging.next().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_test_that_ends_does_not_hang() {
        let (start, limit) = (Instant::now(), Duration::from_secs(100));
        let mut slow = SlowTests::default();
        slow.see("test a::slow has been running for over 60 seconds", start);
        slow.see("test b::other has been running for over 60 seconds", start + limit);
        slow.see("test c::quick ... ok", start);
        let late = start + limit + Duration::from_secs(1);
        assert_eq!(slow.hanging(late, limit), Some("a::slow"));
        slow.see("test a::slow ... ok", late);
        assert_eq!(slow.hanging(late, limit), None);
        assert_eq!(slow.hanging(late + limit, limit), Some("b::other"));
        // With one thread.
        slow.see("ok", late);
        slow.see("test d::alone ... test d::alone has been running for over 60 seconds", start);
        assert_eq!(slow.hanging(late, limit), Some("d::alone"));
    }

    #[test]
    fn a_hanging_test_is_named_and_ended() {
        let script = "echo 'test a::hangs has been running for over 60 seconds'; sleep 1000";
        let error = run_with_limit(
            Command::new("sh").args(["-c", script]),
            Duration::ZERO,
            Duration::from_millis(10),
        );
        assert!(error.unwrap_err().to_string().contains("a::hangs"));
        run_with_limit(Command::new("sh").args(["-c", "echo 'test a ... ok'"]), LIMIT, INTERVAL).unwrap();
        assert!(run_with_limit(&mut Command::new("false"), LIMIT, INTERVAL).is_err());
    }
}
