//! The log of a run: one JSON object per line, appended after each measurement, so that an
//! interrupted run can continue.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::common::machine::Facts;

/// Measured values by name; the names are those of the page.
pub(crate) type Values = BTreeMap<String, f64>;
/// Facts about the machine, by name.
pub(crate) type Machine = Facts;

/// Identifies a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) experiment: String,
    pub(crate) case: String,
    /// Renamed because docs/results/paper.jsonl has this field name.
    #[serde(rename = "contestant")]
    pub(crate) system: String,
    pub(crate) round: usize,
}

/// A measurement and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) key: Key,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Values(Values),
    /// The machine lacks something: the reason.
    LeftOut(String),
    /// The measured system or a tool failed: the error.
    Failed(String),
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}, round {}", self.experiment, self.case, self.system, self.round + 1)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Machine { machine: Machine },
    Record(Record),
}

/// All measurements up to now.
#[derive(Debug)]
pub(crate) struct Log {
    file: Option<File>,
    pub(crate) machine: Machine,
    pub(crate) records: Vec<Record>,
}

/// Facts that must not change between the parts of an interrupted run.
const FIXED_FACTS: [&str; 4] = ["processor", "kernel", "memory", "commit"];

impl Log {
    /// Opens or creates the log. Drops an incomplete last line, which an interrupted run may leave.
    pub(crate) fn open(path: &Path, machine: Machine) -> Result<Self> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        let file =
            File::options().create(true).append(true).open(path).context("opening the log")?;
        file.set_len(complete as u64)?;
        let mut log = Self::parse(&text[..complete]).with_context(|| path.display().to_string())?;
        log.file = Some(file);
        if log.machine.is_empty() {
            log.write(&Line::Machine { machine: machine.clone() })?;
            log.machine = machine;
        } else {
            for name in FIXED_FACTS {
                let (before, now) = (log.machine.get(name), machine.get(name));
                ensure!(
                    before == now,
                    "{} belongs to a run with another {name} ({}; now {}): delete it, or choose another --out",
                    path.display(),
                    before.map_or("?", String::as_str),
                    now.map_or("?", String::as_str),
                );
            }
        }
        Ok(log)
    }

    /// Parses the lines of a log file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut log = Self { file: None, machine: Machine::new(), records: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(Line::Machine { machine }) => log.machine = machine,
                Ok(Line::Record(record)) => log.records.push(record),
                Err(error) => bail!("line {}: {error}", number + 1),
            }
        }
        Ok(log)
    }

    /// The newest outcome of this measurement.
    pub(crate) fn latest(&self, key: &Key) -> Option<&Outcome> {
        self.records.iter().rev().find(|record| record.key == *key).map(|record| &record.outcome)
    }

    pub(crate) fn add(&mut self, key: Key, outcome: Outcome) -> Result<()> {
        let record = Record { key, outcome };
        self.write(&Line::Record(record.clone()))?;
        self.records.push(record);
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // A single write: only a crash can leave an incomplete line.
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// Makes [`Values`] from pairs of name and value.
pub(crate) fn values<const N: usize>(values: [(&str, f64); N]) -> Values {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(round: usize) -> Key {
        Key { experiment: "e".into(), case: "c".into(), system: "x".into(), round }
    }

    #[test]
    fn an_incomplete_last_line_is_dropped() {
        let dir = ferofs_tests::scratch();
        let path = dir.path().join("raw.jsonl");
        let machine = Machine::from([("kernel".into(), "6".into())]);
        let mut log = Log::open(&path, machine.clone()).unwrap();
        log.add(key(0), Outcome::Values(values([("mib_s", 1.5)]))).unwrap();
        log.add(key(1), Outcome::LeftOut("needs root".into())).unwrap();
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"experiment\":\"e\",\"ca")
            .unwrap();
        let mut log = Log::open(&path, machine.clone()).unwrap();
        assert_eq!(log.latest(&key(0)), Some(&Outcome::Values(values([("mib_s", 1.5)]))));
        log.add(key(1), Outcome::Failed("no".into())).unwrap();
        let log = Log::open(&path, machine).unwrap();
        assert_eq!(log.latest(&key(1)), Some(&Outcome::Failed("no".into())));
        assert_eq!(log.latest(&key(2)), None);
        let other = Machine::from([("kernel".into(), "7".into())]);
        let error = Log::open(&path, other).unwrap_err().to_string();
        assert!(error.contains("another kernel (6; now 7)"), "{error}");
        assert!(Log::parse("{}\n").is_err());
    }
}
