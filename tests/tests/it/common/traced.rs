//! How many threads of ferofs read a file at the same time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Starts ferofs with strace, so that each of its reads takes long enough for another thread to
/// start one.
pub(crate) fn slow_reads(strace: &Path, ferofs: &Path, log: &Path) -> Command {
    let mut command = Command::new(strace);
    command.args(["-f", "-y", "-qq", "-e", "trace=pread64,preadv2"]);
    command.args(["-e", "inject=pread64,preadv2:delay_enter=20000", "-o"]).args([log, ferofs]);
    command
}

/// The most threads, without the first one, that read `file`, or a file in this directory, at the
/// same time.
pub(crate) fn readers_at_a_time(log: &Path, file: &Path) -> usize {
    let log = fs::read_to_string(log).unwrap();
    let thread = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let (first, file) = (thread(&log), format!("<{}", file.display()));
    let (mut reading, mut most) = (BTreeSet::new(), 0);
    for line in log.lines() {
        if line.contains(&file) && thread(line) != first {
            reading.insert(thread(line));
            most = most.max(reading.len());
        }
        // A call during which another thread calls is in two lines.
        if !line.ends_with("<unfinished ...>") {
            reading.remove(&thread(line));
        }
    }
    most
}
