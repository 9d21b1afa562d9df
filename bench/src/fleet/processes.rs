//! The processes of ferofs that the benchmark has started: their processor time and their memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Processes that are still there this long after they should have ended hang.
const END: Duration = Duration::from_secs(20);

/// All processes that run one program: the benchmark's own copy, so that other mounts of the machine do not count.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    program: PathBuf,
}

impl Processes {
    pub(crate) fn of(program: &Path) -> Result<Self> {
        Ok(Self { program: fs::canonicalize(program)? })
    }

    /// The IDs of those that run now.
    fn ids(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // A process that has just ended has no program any more.
        ids.filter(|id| fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == self.program))
            .collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.ids().len()
    }

    /// Processor seconds of all that run, and of all children of this process that have ended.
    pub(crate) fn cpu(&self) -> Result<f64> {
        // Fields of proc(5), counted from the one behind the name: utime and stime; cutime and cstime.
        let seconds = |id: &str, first| {
            ticks(id, first).map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
        };
        // The time of its threads is exact, but lacks threads that have ended; the time of the process is cut to steps of 10 ms.
        let running = |id: &String| seconds(id, 11).unwrap_or(0.0).max(threads_cpu(id).unwrap_or(0.0));
        let running = self.ids().iter().map(running).sum::<f64>();
        Ok(running + seconds("self", 13).context("/proc/self/stat")?)
    }

    /// Bytes of memory of all that run. A page that several share is divided between them (PSS).
    pub(crate) fn memory(&self) -> Result<u64> {
        let mut kib = 0;
        for id in self.ids() {
            // It may have ended.
            let Ok(map) = fs::read_to_string(format!("/proc/{id}/smaps_rollup")) else { continue };
            let line =
                map.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss in smaps_rollup")?;
            kib += line.trim().trim_end_matches(" kB").parse::<u64>().context("Pss in smaps_rollup")?;
        }
        Ok(kib << 10)
    }

    /// Waits until none runs.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        let start = Instant::now();
        while self.count() > 0 {
            if start.elapsed() > END {
                bail!("processes of {} do not end: {}", self.program.display(), self.ids().join(" "));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Processor seconds of the threads of a process.
fn threads_cpu(id: &str) -> Option<f64> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten() {
        // It may have ended. The first number is the time on a processor.
        let Ok(stat) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        nanoseconds += stat.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(nanoseconds as f64 / 1e9)
}

/// The sum of two fields of `/proc/ID/stat` that follow each other.
fn ticks(id: &str, first: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    parse_ticks(&stat, first)
}

fn parse_ticks(stat: &str, first: usize) -> Option<u64> {
    // The name is in parentheses and may contain spaces.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(first);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process() {
        let stat = "812 (a) b (c) S 1 812 812 0 -1 4194304 1 2 3 4 17 5 300 40 20 0 9 0 100 1000 10\n";
        assert_eq!(parse_ticks(stat, 11), Some(22));
        assert_eq!(parse_ticks(stat, 13), Some(340));
        assert_eq!(parse_ticks("812 (a", 11), None);
        assert!(ticks("self", 11).is_some());
    }

    #[test]
    fn this_program_is_found() {
        let own = Processes::of(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.count() >= 1);
        assert!(own.memory().unwrap() > 100 << 10);
        assert!(own.cpu().unwrap() >= 0.0);
    }
}
