//! The report, made from the log alone: a page with all tables, and a summary for the repository.

pub(crate) mod figures;
mod markdown;
mod summary;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::summary::Summary;
use super::record::Log;
use ferofs_devtools::shell;

/// Writes `report.md` and `paper.md` to the directory of the log.
pub(crate) fn write(log: &Log, dir: &Path) -> Result<()> {
    let summary = Summary::new(log);
    fs::write(dir.join("report.md"), markdown::report(&summary))?;
    fs::write(dir.join("paper.md"), markdown::page(&summary))?;
    Ok(())
}

/// Copies the summary and the log to the repository's folder `docs/results`.
pub(crate) fn publish(log: &Log, dir: &Path) -> Result<()> {
    let results = shell::repository().join("docs/results");
    fs::write(results.join("paper.md"), markdown::page(&Summary::new(log)))?;
    fs::copy(dir.join("raw.jsonl"), results.join("paper.jsonl")).context("copying the log")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ferofs_tests::need;

    use super::super::record::{Key, Machine, Outcome, Values};
    use super::figures::FIGURES;
    use super::*;

    /// A log with all figures: systems with values, one that was left out, and one that failed.
    fn sample() -> Log {
        let mut log = Log::parse("").unwrap();
        log.machine = Machine::from([("kernel".into(), "Linux <6>".into())]);
        for figure in &FIGURES {
            for case in ["text, random @ 1", "text, random @ 8"] {
                for (number, name) in
                    ["ferofs (FUSE)", "EROFS (kernel)", "squashfs 128K (kernel)"].iter().enumerate()
                {
                    for round in 0..3 {
                        let key = Key {
                            experiment: figure.experiment.into(),
                            case: case.into(),
                            system: (*name).into(),
                            round,
                        };
                        let value = |at: usize| 10.25 * (number + 1) as f64 + round as f64 + at as f64;
                        let metrics = figure.metrics.iter().enumerate();
                        let values: Values =
                            metrics.map(|(at, metric)| (metric.name.to_owned(), value(at))).collect();
                        log.add(key, Outcome::Values(values)).unwrap();
                    }
                }
                for (name, outcome) in [
                    ("btrfs lzo (kernel)", Outcome::LeftOut("needs mkfs.btrfs & <more>".into())),
                    ("erofsfuse", Outcome::Failed("fio: exit code 1".into())),
                ] {
                    let key = Key {
                        experiment: figure.experiment.into(),
                        case: case.into(),
                        system: name.into(),
                        round: 0,
                    };
                    log.add(key, outcome).unwrap();
                }
            }
        }
        log
    }

    /// All numbers in the tables, without the first column and the heads.
    fn numbers(page: &str) -> Vec<String> {
        let mut all = Vec::new();
        let lines: Vec<&str> = page.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let head = lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
            if !line.starts_with('|') || line.starts_with("|---") || head {
                continue;
            }
            let cells = line.trim_matches('|').split(" | ").skip(1);
            // The reasons why something was left out may contain numbers.
            for cell in cells.filter(|cell| !cell.contains('*')) {
                let words = cell.split(|c: char| !c.is_ascii_digit() && c != '.');
                all.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
            }
        }
        all
    }

    fn assert_all_measured(page: &str, log: &Log) {
        let mut known = BTreeSet::new();
        for record in &log.records {
            let Outcome::Values(values) = &record.outcome else { continue };
            known.extend(
                values.values().flat_map(|value| (0..=2).map(move |digits| format!("{value:.digits$}"))),
            );
        }
        let shown = numbers(page);
        assert!(shown.len() > 5, "{} numbers", shown.len());
        let unknown: Vec<&String> = shown.iter().filter(|number| !known.contains(*number)).collect();
        assert!(unknown.is_empty(), "not in the log: {unknown:?}");
    }

    #[test]
    fn the_summary_has_only_measured_numbers() {
        let log = sample();
        for page in [markdown::page(&Summary::new(&log)), markdown::report(&Summary::new(&log))] {
            assert_all_measured(&page, &log);
            assert!(page.contains("needs mkfs.btrfs"), "{page}");
        }
        let page = markdown::report(&Summary::new(&log));
        assert!(page.contains("fio: exit code 1"));
    }

    #[test]
    fn the_published_summary_matches_its_log() {
        let results = shell::repository().join("docs/results");
        let Ok(raw) = fs::read_to_string(results.join("paper.jsonl")) else {
            need::lacks("the published summary", "docs/results/paper.jsonl");
            return;
        };
        let log = Log::parse(&raw).unwrap();
        let page = fs::read_to_string(results.join("paper.md")).unwrap();
        assert_all_measured(&page, &log);
        assert!(page == markdown::page(&Summary::new(&log)), "cargo xtask bench paper --report --publish");
    }
}
