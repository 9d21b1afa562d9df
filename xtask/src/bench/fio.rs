//! Reading a file in a pattern, by fio, and what fio says of it.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How far a stride goes, in bytes.
pub(super) const STRIDE: u64 = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Sequential,
    Random,
    /// The first 4 KiB of each 128 KiB.
    Stride,
}

impl Pattern {
    pub(super) const ALL: [Self; 3] = [Self::Sequential, Self::Random, Self::Stride];
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

/// Reads of 4 KiB: of what, how much, for how long at most, and by how many at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) pattern: Pattern,
    /// The part of the file that is read, from its start.
    pub(super) size: u64,
    /// Bytes to read; a stride goes over `size` once, however much this is.
    pub(super) wanted: u64,
    pub(super) seconds: u32,
    pub(super) readers: u64,
}

/// What fio measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Latencies of a read, in microseconds: the median, of 100 the second-worst, and the worst.
    pub(super) latency: [f64; 3],
}

impl Reading {
    pub(super) fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }

    fn parse(text: &str) -> Result<Self> {
        // Warnings may precede the object.
        let start = text.find('{').context("fio says nothing")?;
        let all: Value = serde_json::from_str(&text[start..]).context("fio's output")?;
        let read = &all["jobs"][0]["read"];
        let number = |value: &Value| value.as_f64().context("fio: a number is missing");
        let bytes = read["io_bytes"].as_u64().context("fio: no size")?;
        if bytes == 0 {
            bail!("fio read nothing");
        }
        // Milliseconds are coarse for short runs: the rate is known better.
        let rate = number(&read["bw_bytes"])?;
        let milliseconds = number(&read["runtime"])?;
        let seconds = if rate > 0.0 { bytes as f64 / rate } else { milliseconds / 1e3 };
        let times = &read["clat_ns"];
        let percent = |name: &str| Ok::<_, anyhow::Error>(number(&times["percentile"][name])? / 1e3);
        let latency = [percent("50.000000")?, percent("99.000000")?, number(&times["max"])? / 1e3];
        Ok(Self { bytes, seconds, latency })
    }
}

impl Job {
    /// The command, to be started in whatever surroundings.
    pub(super) fn command(&self, file: &Path) -> Command {
        let mut fio = Command::new("fio");
        fio.args(["--name=read", "--readonly", "--bs=4k", "--ioengine=psync", "--randseed=1"]);
        fio.args(["--allrandrepeat=1", "--group_reporting", "--thread", "--output-format=json"]);
        let part = self.size / self.readers;
        let (rw, wanted) = match self.pattern {
            Pattern::Sequential => ("--rw=read".to_owned(), self.wanted / self.readers),
            Pattern::Random => ("--rw=randread".to_owned(), self.wanted / self.readers),
            Pattern::Stride => (format!("--rw=read:{}", STRIDE - 4096), part / STRIDE * 4096),
        };
        fio.arg(rw).arg(format!("--runtime={}", self.seconds)).arg(format!("--size={part}"));
        fio.arg(format!("--io_size={wanted}")).arg(format!("--numjobs={}", self.readers));
        fio.arg(format!("--offset_increment={part}")).arg(format!("--filename={}", file.display()));
        fio
    }

    /// Runs it to its end.
    pub(super) fn run(&self, file: &Path) -> Result<Reading> {
        finish(&mut self.command(file))
    }
}

/// Runs fio, as a [`Job`] made it, to its end.
pub(super) fn finish(fio: &mut Command) -> Result<Reading> {
    let output = fio.stdin(Stdio::null()).output().context("fio")?;
    if !output.status.success() {
        bail!("fio: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Reading::parse(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"fio: a warning
        {"jobs": [{"read": {"io_bytes": 2097152, "bw_bytes": 1048576, "runtime": 2001, "clat_ns":
        {"max": 9000, "percentile": {"50.000000": 1000, "99.000000": 2000}}}}]}"#;

    #[test]
    fn output_is_understood() {
        let reading = Reading::parse(SAID).unwrap();
        assert_eq!((reading.mib_per_second(), reading.seconds), (1.0, 2.0));
        assert_eq!(reading.latency, [1.0, 2.0, 9.0]);
        assert!(Reading::parse("").is_err());
        assert!(Reading::parse("{}").is_err());
    }
}
