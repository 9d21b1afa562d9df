//! The report, made from the log alone: which statements about the systems the medians confirm, and
//! the speed of reading. The report of a run also has all medians; docs/results/README.md quotes
//! what the paper says about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ferofs_devtools::{page, shell};

use super::record::{Key, Log, Outcome, Record, Values};
use crate::common::machine;
use crate::common::rounds::Spread;
use Relation::{AtMost, LessThan, MoreThan};

/// The experiment and the value that the summary shows as a table: the others are in the log, and
/// in the report.
const SHOWN: (&str, &str) = ("micro", "mib_s");
const INTRODUCTION: &str = "# The EROFS paper's evaluation\n\n\
    For readers who want to compare ferofs with other file systems. `cargo xtask bench paper --publish` measured the figures and \
    wrote this page; [README.md](README.md#the-evaluation-of-the-erofs-paper) says how, and [paper.jsonl](paper.jsonl) has all values. \
    “Cold” means that the image is not in this machine's page cache.\n\n";
const STATEMENTS: &str = "\n## Statements\n\n\
    The list shows which statements the medians confirm; those that they do not confirm come first.\n\n";
const READING: &str = "\n## Reading\n\n\
    The table shows the speed with which fio reads a large file in pieces of 4 KiB: in sequence, at random, and the first piece of each 128 KiB. \
    The image is not in the page cache at the start.\n\n";

/// A statement that the values of one experiment can confirm or not.
struct Claim {
    experiment: &'static str,
    statement: &'static str,
    system: &'static str,
    metric: &'static str,
    /// The claim is about cases whose names contain one of these.
    cases: &'static [&'static str],
    relation: Relation,
}

enum Relation {
    MoreThan(&'static [&'static str]),
    LessThan(&'static [&'static str]),
    AtMost(f64),
}

const fn claim(
    statement: &'static str,
    (experiment, metric, cases): (&'static str, &'static str, &'static [&'static str]),
    system: &'static str,
    relation: Relation,
) -> Claim {
    Claim { experiment, statement, system, metric, cases, relation }
}

const FEROFS: &str = "ferofs (FUSE)";
const KERNEL: &str = "EROFS (kernel)";
const EROFSFUSE: &[&str] = &["erofsfuse"];
const EXT4: &[&str] = &["ext4 (kernel)"];
const SQUASHFS: &[&str] = &[
    "squashfs 4K (kernel)",
    "squashfs 8K (kernel)",
    "squashfs 16K (kernel)",
    "squashfs 128K (kernel)",
];
const SQUASHFS_8K_128K: &[&str] = &["squashfs 8K (kernel)", "squashfs 128K (kernel)"];
const SQUASHFS_128K: &[&str] = &["squashfs 128K (kernel)"];
const ALL: &[&str] = &[""];
const SCATTERED: &[&str] = &["random", "stride"];

const CLAIMS: [Claim; 15] = [
    claim(
        "The kernel's EROFS reads faster than squashfs of any block size",
        ("micro", "mib_s", ALL),
        KERNEL,
        MoreThan(SQUASHFS),
    ),
    claim(
        "ferofs reads faster than squashfs of any block size, through FUSE",
        ("micro", "mib_s", ALL),
        FEROFS,
        MoreThan(SQUASHFS),
    ),
    claim(
        "ferofs reads faster than erofsfuse",
        ("micro", "mib_s", ALL),
        FEROFS,
        MoreThan(EROFSFUSE),
    ),
    claim(
        "EROFS with clusters of 4 KiB is smaller than squashfs 4K",
        ("sizes", "mib", ALL),
        "ferofs 4K",
        LessThan(&["squashfs 4K"]),
    ),
    claim(
        "The kernel's EROFS needs less memory than squashfs 128K",
        ("memory", "charged_mib", ALL),
        KERNEL,
        LessThan(SQUASHFS_128K),
    ),
    claim(
        "The daemon of ferofs needs less memory than erofsfuse",
        ("memory", "private_mib", ALL),
        FEROFS,
        LessThan(EROFSFUSE),
    ),
    claim(
        "For random and strided reads, the kernel's EROFS reads less than squashfs 8K and 128K",
        ("io", "times", SCATTERED),
        KERNEL,
        LessThan(SQUASHFS_8K_128K),
    ),
    claim(
        "For random and strided reads, ferofs reads less than squashfs 8K and 128K",
        ("io", "times", SCATTERED),
        FEROFS,
        LessThan(SQUASHFS_8K_128K),
    ),
    claim(
        "For a random read of one block, ferofs itself reads at most two blocks",
        ("io", "own_times", &["random"]),
        FEROFS,
        AtMost(2.0),
    ),
    claim(
        "With the largest savings, the kernel's EROFS reads faster than ext4",
        ("savings", "mib_s", &["@ 95"]),
        KERNEL,
        MoreThan(EXT4),
    ),
    claim(
        "The default decoding policy needs less processor time than vmap alone and buffer alone",
        ("strategies", "daemon_s_gib", ALL),
        "auto",
        LessThan(&["vmap", "buffer"]),
    ),
    claim(
        "With 32 MiB, the 99th percentile of ferofs is lower than that of squashfs 128K",
        ("latency", "p99_us", &["32 MiB"]),
        FEROFS,
        LessThan(SQUASHFS_128K),
    ),
    claim(
        "Programs start faster from the kernel's EROFS than from ext4",
        ("boot", "ms", ALL),
        KERNEL,
        LessThan(EXT4),
    ),
    claim(
        "Programs start faster from the kernel's EROFS than from squashfs 128K",
        ("boot", "ms", ALL),
        KERNEL,
        LessThan(SQUASHFS_128K),
    ),
    claim(
        "Programs start faster from ferofs than from erofsfuse",
        ("boot", "ms", ALL),
        FEROFS,
        LessThan(EROFSFUSE),
    ),
];

/// The newest outcomes of one measurement, by round.
struct Measurement<'a> {
    key: &'a Key,
    rounds: BTreeMap<usize, &'a Outcome>,
}

/// All measurements in the order of the log.
struct Measurements<'a>(Vec<Measurement<'a>>);

enum Verdict {
    Disagrees,
    /// Some comparisons agree; these do not.
    Partly(Vec<String>),
    NotMeasured,
    Agrees,
}

/// Writes `report.md` to the directory of the log.
pub(crate) fn write(log: &Log, dir: &Path) -> Result<()> {
    Ok(fs::write(dir.join("report.md"), summary(log) + &medians(log))?)
}

/// Copies the summary and the log to the repository's folder `docs/results`.
pub(crate) fn publish(log: &Log, dir: &Path) -> Result<()> {
    let results = shell::repository().join("docs/results");
    fs::write(results.join("paper.md"), summary(log))?;
    fs::copy(dir.join("raw.jsonl"), results.join("paper.jsonl")).context("copying the log")?;
    Ok(())
}

/// The page for the repository.
fn summary(log: &Log) -> String {
    let all = Measurements::of(log);
    let mut page = format!("{INTRODUCTION}{}{STATEMENTS}", machine::list(&log.machine));
    let mut verdicts: Vec<_> =
        CLAIMS.iter().map(|claim| (claim.statement, all.verdict(claim))).collect();
    verdicts.sort_by_key(|(_, verdict)| match verdict {
        Verdict::Disagrees => 0,
        Verdict::Partly(_) => 1,
        Verdict::NotMeasured => 2,
        Verdict::Agrees => 3,
    });
    for (statement, verdict) in verdicts {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "- {statement}: {verdict}.");
    }
    for measurement in &all.0 {
        for failure in measurement.failures() {
            let _ = writeln!(page, "\nFailed: {}", failure.replace('\n', " "));
        }
    }
    let (experiment, metric) = SHOWN;
    let cases = all.names(experiment, |key| &key.case);
    let row = |system: &str| {
        let cell = |case: &&str| {
            all.get(experiment, case, system).map_or(String::new(), |m| m.cell(metric, 1))
        };
        std::iter::once(system.to_owned()).chain(cases.iter().map(cell)).collect()
    };
    let rows: Vec<_> = all.names(experiment, |key| &key.system).into_iter().map(row).collect();
    page + READING + &page::table(&[&["MiB/s"], &cases[..]].concat(), &rows)
}

/// A table of all medians.
fn medians(log: &Log) -> String {
    let row = |measurement: &Measurement| {
        let Key { experiment, case, system, .. } = measurement.key;
        let medians = measurement
            .metrics()
            .into_iter()
            .map(|name| format!("{name} {}", measurement.cell(name, 2)));
        let mut medians = medians.collect::<Vec<_>>().join(", ");
        if medians.is_empty() {
            medians = measurement.cell("", 0);
        }
        vec![experiment.clone(), case.clone(), system.clone(), medians]
    };
    let rows: Vec<_> = Measurements::of(log).0.iter().map(row).collect();
    format!(
        "\n## All medians\n\n{}",
        page::table(&["experiment", "case", "system", "medians"], &rows)
    )
}

impl<'a> Measurements<'a> {
    fn of(log: &'a Log) -> Self {
        let mut all: Vec<Measurement> = Vec::new();
        for Record { key, outcome } in &log.records {
            match all.iter_mut().find(|known| *key == Key { round: key.round, ..known.key.clone() })
            {
                Some(known) => drop(known.rounds.insert(key.round, outcome)),
                None => {
                    all.push(Measurement { key, rounds: BTreeMap::from([(key.round, outcome)]) })
                }
            }
        }
        Self(all)
    }

    fn get(&self, experiment: &str, case: &str, system: &str) -> Option<&Measurement<'a>> {
        let is_it =
            |key: &Key| (&*key.experiment, &*key.case, &*key.system) == (experiment, case, system);
        self.0.iter().find(|measurement| is_it(measurement.key))
    }

    /// The cases or systems of an experiment, in the order of their first records. One that failed
    /// as a whole has none.
    fn names(&self, experiment: &str, name: fn(&Key) -> &String) -> Vec<&'a str> {
        let mut names = Vec::new();
        for Measurement { key, .. } in self.0.iter().filter(|one| one.key.experiment == experiment)
        {
            let name = name(key).as_str();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn verdict(&self, claim: &Claim) -> Verdict {
        let (mut agree, mut not) = (0, Vec::new());
        let cases = self.names(claim.experiment, |key| &key.case);
        for case in
            cases.into_iter().filter(|case| claim.cases.iter().any(|part| case.contains(part)))
        {
            let median =
                |system: &str| self.get(claim.experiment, case, system)?.median(claim.metric);
            let Some(own) = median(claim.system) else { continue };
            let mut count = |agrees: bool, other: &str| match agrees {
                true => agree += 1,
                false if other.is_empty() => not.push(case.to_owned()),
                false => not.push(format!("{case}: {}", other.trim_end_matches(" (kernel)"))),
            };
            match claim.relation {
                AtMost(limit) => count(own <= limit, ""),
                MoreThan(others) | LessThan(others) => {
                    let is_more = matches!(claim.relation, MoreThan(_));
                    for (other, value) in
                        others.iter().filter_map(|other| Some((other, median(other)?)))
                    {
                        count(if is_more { own > value } else { own < value }, other);
                    }
                }
            }
        }
        match (agree, not.is_empty()) {
            (0, true) => Verdict::NotMeasured,
            (0, false) => Verdict::Disagrees,
            (_, true) => Verdict::Agrees,
            (_, false) => Verdict::Partly(not),
        }
    }
}

impl Measurement<'_> {
    fn values(&self) -> impl Iterator<Item = &Values> {
        self.rounds.values().filter_map(|outcome| match outcome {
            Outcome::Values(values) => Some(values),
            _ => None,
        })
    }

    fn metrics(&self) -> BTreeSet<&String> {
        self.values().flat_map(|values| values.keys()).collect()
    }

    fn median(&self, metric: &str) -> Option<f64> {
        let values = self.values().filter_map(|values| values.get(metric).copied());
        Some(Spread::of(values)?.median)
    }

    /// The median; else why there is none, or nothing if the system does not have the value: the
    /// kernel has no daemon.
    fn cell(&self, metric: &str, digits: usize) -> String {
        // "|" and a line break would end the cell.
        let plain =
            |text: &str| text.replace(['|', '\n'], " ").chars().take(100).collect::<String>();
        match (self.median(metric), self.rounds.values().next()) {
            (Some(median), _) => format!("{median:.digits$}"),
            (None, Some(Outcome::LeftOut(why))) => format!("*left out: {}*", plain(why)),
            (None, Some(Outcome::Failed(why))) if self.values().next().is_none() => {
                format!("*failed: {}*", plain(why))
            }
            _ => String::new(),
        }
    }

    /// Why the experiment failed as a whole, or rounds that failed while others succeeded. Others
    /// are shown in their cells.
    fn failures(&self) -> Vec<String> {
        let Key { experiment, case, system, .. } = self.key;
        if !system.is_empty() && self.values().next().is_none() {
            return Vec::new();
        }
        let failure = |(round, outcome): (&usize, &&Outcome)| match outcome {
            Outcome::Failed(why) => {
                Some(format!("{experiment}: {case}: {system}, round {}: {why}", round + 1))
            }
            _ => None,
        };
        self.rounds.iter().filter_map(failure).collect()
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees => f.write_str("confirmed"),
            Self::Disagrees => f.write_str("not confirmed"),
            Self::Partly(not) => write!(f, "partly confirmed; not for {}", not.join("; ")),
            Self::NotMeasured => f.write_str("not measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferofs_tests::need;

    use super::super::record::values;
    use super::*;

    fn log(records: &[(&str, usize, f64)]) -> Log {
        let mut log = Log::parse("").unwrap();
        for (system, round, value) in records {
            log.add(key(system, *round), Outcome::Values(values([("x", *value)]))).unwrap();
        }
        log
    }

    fn key(system: &str, round: usize) -> Key {
        Key { experiment: "e".into(), case: "c".into(), system: system.into(), round }
    }

    #[test]
    fn the_newest_outcome_of_a_round_counts() {
        let mut log = log(&[("a", 0, 1.0), ("a", 1, 5.0), ("a", 0, 9.0)]);
        log.add(key("a", 2), Outcome::Failed("at last".into())).unwrap();
        log.add(key("b", 0), Outcome::LeftOut("needs mkfs.btrfs | <more>".into())).unwrap();
        let all = Measurements::of(&log);
        let [a, b] = ["a", "b"].map(|system| all.get("e", "c", system).unwrap());
        assert_eq!([a.cell("x", 1), a.cell("y", 1)], ["5.0", ""]);
        assert_eq!(a.failures(), ["e: c: a, round 3: at last"]);
        assert_eq!(b.cell("x", 1), "*left out: needs mkfs.btrfs   <more>*");
        let table = medians(&log);
        assert!(
            table.contains("| e | c | a | x 5.00 |\n| e | c | b | *left out: needs"),
            "{table}"
        );
    }

    #[test]
    fn claims_are_compared_by_medians() {
        let log = log(&[("a", 0, 2.0), ("b", 0, 1.0), ("c", 0, 3.0)]);
        let verdict =
            |relation| Measurements::of(&log).verdict(&claim("", ("e", "x", ALL), "a", relation));
        assert!(matches!(verdict(MoreThan(&["b"])), Verdict::Agrees));
        assert!(matches!(verdict(LessThan(&["b"])), Verdict::Disagrees));
        assert!(matches!(verdict(MoreThan(&["b", "c"])), Verdict::Partly(_)));
        assert!(matches!(verdict(AtMost(2.0)), Verdict::Agrees));
        assert!(matches!(verdict(MoreThan(&["d"])), Verdict::NotMeasured));
    }

    #[test]
    fn the_published_summary_matches_its_log() {
        let results = shell::repository().join("docs/results");
        let Ok(raw) = fs::read_to_string(results.join("paper.jsonl")) else {
            need::lacks("docs/results/paper.jsonl");
            return;
        };
        let page = fs::read_to_string(results.join("paper.md")).unwrap();
        assert!(
            page == summary(&Log::parse(&raw).unwrap()),
            "cargo xtask bench paper --report --publish"
        );
    }
}
