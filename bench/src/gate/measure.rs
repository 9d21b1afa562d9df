//! Measures a cell: a command in several runs, because each tool that measures changes what the
//! others would see.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{STRACE, TIME, VALGRIND};
use ferofs_tests::tools::Tool;

use super::accepted::{Figures, MEMORY};
use super::cells::{Cell, Job, OUTPUT, Reads};
use crate::common::programs::{self, resident_peak};
use crate::trees;
use ferofs_tests::{Mount, Rng};

/// The programs that measure.
pub(super) const TOOLS: [Tool; 3] = [VALGRIND, STRACE, TIME];

/// System calls that are not counted: their number depends on when threads run.
const WAITS: [&str; 5] = ["futex", "sched_yield", "ppoll", "restart_syscall", "madvise"];

/// System calls that take much longer than others: each counts as [`SLOW`].
const SLOW_CALLS: [&str; 7] =
    ["fsync", "fdatasync", "sync_file_range", "syncfs", "msync", "nanosleep", "clock_nanosleep"];
const SLOW: u64 = 100;
/// Sleeps of a daemon that are not counted: its threads sleep now and then.
const SLEEPS: u64 = 64;

/// Counts instructions, and misses of a cache of 32 KiB: copies of data need few instructions, but
/// evict other data. Nobody reads the file with the numbers of each line of the source.
const CACHEGRIND: [&str; 7] = [
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=yes",
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=1048576,16,64",
    "--cachegrind-out-file=/dev/null",
];

/// Runs for values that differ from run to run: the smallest counts, as other work of the machine
/// only adds to it.
const RUNS: usize = 2;

/// Bytes of a read of [`Reads::Pages`].
const PAGE: u64 = 4096;

/// Whether this process may trace programs, and start them at addresses that are always the same.
pub(super) fn is_allowed() -> bool {
    let probe =
        Command::new("setarch").args(["-R", "strace", "-c", "-o", "/dev/null", "true"]).output();
    probe.is_ok_and(|output| output.status.success())
}

/// One of the places where cells run at the same time.
pub(super) struct Place<'a> {
    /// The directory with trees, images and the program. All paths are relative to it, so their
    /// length is always the same.
    pub(super) dir: &'a Path,
    /// A digit, which the names of files of this place have.
    pub(super) number: usize,
    /// The memory of the program when it does nothing. It grows with the program, so that the jobs'
    /// own memory is counted without it.
    pub(super) start_memory: u64,
}

impl Place<'_> {
    pub(super) fn measure(&self, cell: &Cell) -> Result<Figures> {
        let mut figures = match &cell.job {
            Job::Command { arguments, copy_of } => self.command(arguments, *copy_of),
            Job::Mount { image, reads } => self.mount(image, *reads),
        }?;
        figures[MEMORY] = figures[MEMORY].map(|memory| memory.saturating_sub(self.start_memory));
        Ok(figures)
    }

    fn command(&self, arguments: &[String], copy_of: Option<&str>) -> Result<Figures> {
        let output = self.path("output");
        let arguments: Vec<String> = arguments
            .iter()
            .map(|word| if word == OUTPUT { output.clone() } else { word.clone() })
            .collect();
        let run = |tool: &[&str]| -> Result<()> {
            self.reset(&output, copy_of)?;
            programs::run(self.ferofs(tool).args(&arguments))?;
            Ok(())
        };
        let log = self.path("log");
        let mut memory = u64::MAX;
        for _ in 0..RUNS {
            run(&["time", "--format", "%M", "--output", &log])?;
            memory = memory.min(self.read(&log)?.trim().parse::<u64>()? << 10);
        }
        let bytes = fs::metadata(self.dir.join(&output)).ok().filter(fs::Metadata::is_file);
        run(&["strace", "-f", "-c", "-o", &log])?;
        let calls = counted_calls(&self.read(&log)?, &WAITS);
        let log_file = format!("--log-file={log}");
        run(&[&CACHEGRIND[..], &[&log_file]].concat())?;
        let [instructions, misses] = instructions(&self.read(&log)?)?;
        self.reset(&output, None)?;
        Ok([instructions, misses, Some(memory), bytes.map(|bytes| bytes.len()), None, Some(calls)])
    }

    /// Requests are the replies that the daemon writes. Of several threads, the fastest would
    /// decide which pages are in the page cache in time. Valgrind has no seccomp: it runs the
    /// daemon without its sandbox.
    fn mount(&self, image: &str, reads: Reads) -> Result<Figures> {
        let dir = self.dir.join(self.path("mount"));
        fs::create_dir_all(&dir)?;
        let log = self.path("log");
        let mount = |tool: &[&str], options: &[&str]| -> Result<Option<u64>> {
            let mut daemon = self.ferofs(tool);
            daemon.args([
                "mount",
                "--fuse",
                "-f",
                "--threads",
                "1",
                &format!("images/{image}"),
                &self.path("mount"),
            ]);
            daemon.args(options);
            let mount = Mount::serve(&mut daemon, &dir)?;
            reads.run(mount.path())?;
            let memory = mount.daemon_id().and_then(resident_peak);
            mount.unmount()?;
            Ok(memory)
        };
        let mut memory = None;
        for _ in 0..RUNS {
            memory = memory.into_iter().chain(mount(&[], &[])?).min();
        }
        let log_file = format!("--log-file={log}");
        let mut counts = Vec::new();
        for _ in 0..RUNS {
            mount(&[&CACHEGRIND[..], &[&log_file]].concat(), &["--no-sandbox"])?;
            counts.push(instructions(&self.read(&log)?)?);
        }
        let [instructions, misses] =
            [0, 1].map(|number| counts.iter().filter_map(|counts| counts[number]).min());
        // The daemon decides by time which pages it stores in the page cache: the requests of
        // random reads depend on the machine.
        if matches!(reads, Reads::Pages(_)) {
            return Ok([instructions, misses, memory, None, None, None]);
        }
        let (mut requests, mut others) = (None, u64::MAX);
        for _ in 0..RUNS {
            mount(&["strace", "-f", "-c", "-o", &log], &[])?;
            let table = self.read(&log)?;
            let calls = calls(&table);
            requests = requests.into_iter().chain(calls.get("writev").copied()).min();
            let sleeps =
                calls.get("clock_nanosleep").map_or(0, |sleeps| sleeps.saturating_sub(SLEEPS));
            let without = [&WAITS[..], &["read", "writev", "clock_nanosleep"]].concat();
            others = others.min(counted_calls(&table, &without) + sleeps * SLOW);
        }
        Ok([instructions, misses, memory, None, requests, Some(others)])
    }

    /// The program, started by `tool`, with an environment that is the same everywhere.
    fn ferofs(&self, tool: &[&str]) -> Command {
        let words = [tool, &["./ferofs"]].concat();
        let mut command = Command::new("setarch");
        command
            .arg("-R")
            .args(words)
            .current_dir(self.dir)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Removes the output of the run before, or makes it a copy of a file.
    fn reset(&self, output: &str, copy_of: Option<&str>) -> Result<()> {
        let output = self.dir.join(output);
        if output.is_dir() {
            fs::remove_dir_all(&output)?;
        } else if output.exists() {
            fs::remove_file(&output)?;
        }
        if let Some(file) = copy_of {
            fs::copy(self.dir.join(file), &output)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        format!("place{}/{name}", self.number)
    }

    fn read(&self, name: &str) -> Result<String> {
        let path: PathBuf = self.dir.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}

impl Reads {
    fn run(self, mounted: &Path) -> Result<()> {
        match self {
            Self::All => trees::each_file(mounted, &mut |path, _| {
                fs::read(path)?;
                Ok(())
            }),
            Self::Names => trees::each_file(mounted, &mut |_, _| Ok(())),
            Self::Pages(share) => {
                let file = File::open(mounted.join("large.txt"))?;
                let pages = file.metadata()?.len() / PAGE;
                let mut rng = Rng::new(share);
                let mut page = [0; PAGE as usize];
                for _ in 0..pages / share {
                    file.read_exact_at(&mut page, rng.below(pages) * PAGE)?;
                }
                Ok(())
            }
        }
    }
}

/// The number of calls of each system call in a table of `strace -c`.
fn calls(table: &str) -> BTreeMap<&str, u64> {
    let mut calls = BTreeMap::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, count, .., name] = fields.as_slice()
            && let Ok(count) = count.parse()
            && *name != "total"
        {
            calls.insert(*name, count);
        }
    }
    calls
}

fn counted_calls(table: &str, without: &[&str]) -> u64 {
    let calls = calls(table);
    let counted = calls.iter().filter(|(name, _)| !without.contains(name));
    counted.map(|(name, count)| if SLOW_CALLS.contains(name) { count * SLOW } else { *count }).sum()
}

/// Instructions and misses in the log of cachegrind.
fn instructions(log: &str) -> Result<[Option<u64>; 2]> {
    let counts = ["I refs:", "D1 misses:"].map(|name| count(log, name));
    if counts[0].is_none() {
        bail!("valgrind counted nothing: {log}");
    }
    Ok(counts)
}

/// The number after `name` in the log of cachegrind, which varies the spaces in names.
fn count(log: &str, name: &str) -> Option<u64> {
    let lines = log.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let number = |line: String| {
        line.split_once(name)?.1.split_whitespace().next()?.replace(',', "").parse().ok()
    };
    lines.filter_map(number).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reports_of_the_tools_are_read() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 68.87    0.293775        4590        64        55 futex
  9.69    0.041351          47       876         4 read
  0.14    0.000595          20        29           mmap
------ ----------- ----------- --------- --------- ----------------
100.00    0.335721                   969        59 total
";
        assert_eq!(calls(table), BTreeMap::from([("futex", 64), ("mmap", 29), ("read", 876)]));
        assert_eq!(counted_calls(table, &WAITS), 905);
        assert_eq!(counted_calls(&table.replace("mmap", "fsync"), &WAITS), 876 + 29 * SLOW);
        let log = "==1== \n==1== I   refs:      151,831,592\n==1== D1  misses:        387,244  (167,478 rd   + 219,766 wr)\n";
        assert_eq!(count(log, "I refs:"), Some(151_831_592));
        assert_eq!(count(log, "D1 misses:"), Some(387_244));
        assert_eq!(count("==1== I refs:        7", "I refs:"), Some(7));
        assert_eq!(count("error", "I refs:"), None);
    }
}
