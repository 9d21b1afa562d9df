//! Runs programs, and measures their time and their largest resident set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Time between two looks at the memory of a process.
const STEP: Duration = Duration::from_millis(1);

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The largest resident set in bytes, as long as it was seen. The kernel's own figure would include that of this program.
    pub(crate) peak: u64,
}

/// Runs a command whose output is not needed.
pub(crate) fn run(command: &mut Command) -> Result<Cost> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let stderr = child.stderr.take();
    // A full pipe would stop the program.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stderr.map(|mut pipe| pipe.read_to_string(&mut text));
        text
    });
    let mut peak = 0;
    let status = loop {
        peak = peak.max(resident_peak(child.id()).unwrap_or(0));
        match child.try_wait()? {
            Some(status) => break status,
            None => thread::sleep(STEP),
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let stderr = reader.join().unwrap_or_default();
    if !status.success() {
        bail!("{command:?}: {status}: {}", stderr.trim());
    }
    Ok(Cost { seconds, peak })
}

/// The largest resident set of a process so far.
pub(crate) fn resident_peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Processor seconds of each thread of the kernel since its start.
pub(crate) fn kernel_threads() -> Result<BTreeMap<OsString, f64>> {
    let seconds = |dir: &Path| {
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        // Behind the name in parentheses: the state and the parent, which is the process with number 2.
        let (_, fields) = stat.rsplit_once(") ")?;
        let is_thread = fields.split(' ').nth(1) == Some("2");
        let nanoseconds = fs::read_to_string(dir.join("schedstat")).ok()?;
        is_thread.then(|| nanoseconds.split(' ').next()?.parse::<f64>().ok()).flatten()
    };
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.filter_map(|entry| Some((entry.file_name(), seconds(&entry.path())? / 1e9))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_measured() {
        let cost =
            run(Command::new("sh").args(["-c", "head -c 30M /dev/zero | tail -c 30M; sleep 0.05"])).unwrap();
        assert!(cost.seconds >= 0.05 && cost.peak > 0, "{cost:?}");
        assert!(
            run(Command::new("sh").args(["-c", "echo wrong >&2; false"]))
                .unwrap_err()
                .to_string()
                .contains("wrong")
        );
    }
}
