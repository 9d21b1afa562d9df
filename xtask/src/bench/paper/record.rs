//! What was measured: one JSON object a line, appended as soon as it is known, so that an interrupted run goes on where
//! it was.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Figures by name; the names are those of [`super::figures`].
pub(super) type Values = BTreeMap<String, f64>;
/// What is said of the machine, by name.
pub(super) type Machine = BTreeMap<String, String>;

/// What a measurement is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) experiment: String,
    pub(super) case: String,
    pub(super) contestant: String,
    pub(super) round: usize,
}

/// One measurement, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) key: Key,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Values(Values),
    /// The machine lacks something.
    LeftOut(String),
    /// It should have worked.
    Failed(String),
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}, round {}", self.experiment, self.case, self.contestant, self.round + 1)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Machine { machine: Machine },
    Record(Record),
}

/// All that was measured, as far as it is known by now.
#[derive(Debug)]
pub(super) struct Log {
    file: Option<File>,
    pub(super) machine: Machine,
    pub(super) records: Vec<Record>,
}

/// What must not change between the parts of a run.
const LASTING: [&str; 6] = ["processor", "kernel", "memory", "scale", "data", "ferofs"];

impl Log {
    /// Opens the log, or starts it. What an interrupted run left half-written is dropped.
    pub(super) fn open(path: &Path, machine: Machine) -> Result<Self> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let file = File::options().create(true).append(true).open(path).context("opening the raw figures")?;
        file.set_len(whole as u64)?;
        let mut log = Self::parse(&text[..whole]).with_context(|| path.display().to_string())?;
        log.file = Some(file);
        if log.machine.is_empty() {
            log.write(&Line::Machine { machine: machine.clone() })?;
            log.machine = machine;
        } else {
            for name in LASTING {
                let (then, now) = (log.machine.get(name), machine.get(name));
                ensure!(
                    then == now,
                    "{} is of a run with another {name} ({}; now {}): take it away, or choose another --out",
                    path.display(),
                    then.map_or("?", String::as_str),
                    now.map_or("?", String::as_str),
                );
            }
        }
        Ok(log)
    }

    /// From the lines of a file.
    pub(super) fn parse(text: &str) -> Result<Self> {
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

    /// What was said last of this measurement.
    pub(super) fn latest(&self, key: &Key) -> Option<&Outcome> {
        self.records.iter().rev().find(|record| record.key == *key).map(|record| &record.outcome)
    }

    pub(super) fn add(&mut self, key: Key, outcome: Outcome) -> Result<()> {
        let record = Record { key, outcome };
        self.write(&Line::Record(record.clone()))?;
        self.records.push(record);
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // One write, so that no line is torn but by a crash.
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// Figures, from their names.
pub(super) fn values<const N: usize>(values: [(&str, f64); N]) -> Values {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(round: usize) -> Key {
        Key { experiment: "e".into(), case: "c".into(), contestant: "x".into(), round }
    }

    #[test]
    fn a_torn_line_is_dropped_and_the_rest_is_kept() {
        let room = ferofs_tests::scratch();
        let path = room.path().join("raw.jsonl");
        let machine = Machine::from([("kernel".into(), "6".into())]);
        let mut log = Log::open(&path, machine.clone()).unwrap();
        log.add(key(0), Outcome::Values(values([("mib_s", 1.5)]))).unwrap();
        log.add(key(1), Outcome::LeftOut("needs root".into())).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"{\"experiment\":\"e\",\"ca").unwrap();
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
