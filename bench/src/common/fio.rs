//! Reads a file with fio, in one of three patterns, and parses the figures that fio prints.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use serde_json::Value;

/// Bytes from the start of one read to the start of the next in [`Pattern::Stride`].
pub(crate) const STRIDE: u64 = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Sequential,
    Random,
    /// The first 4 KiB of each [`STRIDE`].
    Stride,
}

impl Pattern {
    pub(crate) const ALL: [Self; 3] = [Self::Sequential, Self::Random, Self::Stride];
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Stride => "stride",
        })
    }
}

/// A run of fio with reads of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) pattern: Pattern,
    /// fio reads the first `size` bytes of the file.
    pub(crate) size: u64,
    /// Bytes to read in total. [`Pattern::Stride`] ignores it and reads each stride of `size` once.
    pub(crate) total: u64,
    /// fio stops after this time, even if it has read less than `total`.
    pub(crate) seconds: u32,
    /// Threads; each reads its own part of the file.
    pub(crate) readers: u64,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Latency,
}

/// Latencies of the reads, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    pub(crate) median: f64,
    pub(crate) percentile_99: f64,
    pub(crate) max: f64,
}

impl Reading {
    pub(crate) fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }

    fn parse(text: &str) -> Result<Self> {
        // fio may print warnings before the JSON object.
        let start = text.find('{').context("fio printed no JSON")?;
        let report: Value = serde_json::from_str(&text[start..]).context("fio's output")?;
        let read = &report["jobs"][0]["read"];
        let number = |value: &Value| value.as_f64().context("fio: a number is missing");
        let bytes = read["io_bytes"].as_u64().context("fio: no size")?;
        if bytes == 0 {
            bail!("fio read nothing");
        }
        // fio rounds the run time to milliseconds, which is coarse for short runs; the rate is
        // exact.
        let rate = number(&read["bw_bytes"])?;
        let milliseconds = number(&read["runtime"])?;
        let seconds = if rate > 0.0 { bytes as f64 / rate } else { milliseconds / 1e3 };
        let times = &read["clat_ns"];
        let percentile =
            |name: &str| Ok::<_, anyhow::Error>(number(&times["percentile"][name])? / 1e3);
        let latency = Latency {
            median: percentile("50.000000")?,
            percentile_99: percentile("99.000000")?,
            max: number(&times["max"])? / 1e3,
        };
        Ok(Self { bytes, seconds, latency })
    }
}

impl Job {
    /// The command line.
    pub(crate) fn command(&self, file: &Path) -> Command {
        let mut fio = Command::new("fio");
        fio.args(["--name=read", "--readonly", "--bs=4k", "--ioengine=psync", "--randseed=1"]);
        fio.args(["--allrandrepeat=1", "--group_reporting", "--thread", "--output-format=json"]);
        let part = self.size / self.readers;
        let (rw, total) = match self.pattern {
            Pattern::Sequential => ("--rw=read".to_owned(), self.total / self.readers),
            Pattern::Random => ("--rw=randread".to_owned(), self.total / self.readers),
            Pattern::Stride => (format!("--rw=read:{}", STRIDE - 4096), part / STRIDE * 4096),
        };
        fio.arg(rw).arg(format!("--runtime={}", self.seconds)).arg(format!("--size={part}"));
        fio.arg(format!("--io_size={total}")).arg(format!("--numjobs={}", self.readers));
        fio.arg(format!("--offset_increment={part}")).arg(format!("--filename={}", file.display()));
        fio
    }

    /// Runs fio and waits for it.
    pub(crate) fn run(&self, file: &Path) -> Result<Reading> {
        run(&mut self.command(file))
    }
}

/// Runs the command of a [`Job`] and waits for it.
pub(crate) fn run(fio: &mut Command) -> Result<Reading> {
    Reading::parse(&String::from_utf8_lossy(&shell::output(fio.stdin(Stdio::null()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"fio: a warning
        {"jobs": [{"read": {"io_bytes": 2097152, "bw_bytes": 1048576, "runtime": 2001, "clat_ns":
        {"max": 9000, "percentile": {"50.000000": 1000, "99.000000": 2000}}}}]}"#;

    #[test]
    fn output_is_parsed() {
        let reading = Reading::parse(OUTPUT).unwrap();
        assert_eq!((reading.mib_per_second(), reading.seconds), (1.0, 2.0));
        assert_eq!(reading.latency, Latency { median: 1.0, percentile_99: 2.0, max: 9.0 });
        assert!(Reading::parse("").is_err());
        assert!(Reading::parse("{}").is_err());
    }
}
