//! What the benchmark has measured: tables, which it prints, and figures with their aims, which it
//! also publishes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_devtools::{page, shell};

use crate::common::machine::{self, Facts};
use crate::common::rounds::Spread;
use crate::front;

/// The most rows of a table that a page shows. If there are more, a file beside the page has all of
/// them, with tabs between the cells.
const SHOWN: usize = 12;
/// A table with a sentence that says what it shows.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A figure that should reach an aim.
#[derive(Clone, Debug)]
pub(crate) struct Aim {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) wanted: Wanted,
    pub(crate) unit: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    pub(crate) fn is_reached(&self) -> bool {
        match self.wanted {
            Wanted::AtMost(limit) => self.measured <= limit,
            Wanted::AtLeast(limit) => self.measured >= limit,
        }
    }

    fn row(&self) -> Vec<String> {
        let wanted = match self.wanted {
            Wanted::AtMost(limit) => format!("at most {limit}{}", self.unit),
            Wanted::AtLeast(limit) => format!("at least {limit}{}", self.unit),
        };
        let reached = if self.is_reached() { "yes" } else { "**no**" };
        vec![
            self.what.clone(),
            format!("{}{}", number(self.measured), self.unit),
            wanted,
            reached.into(),
        ]
    }
}

/// All results of a run.
pub(crate) struct Report {
    /// The name of the benchmark.
    bench: &'static str,
    facts: Facts,
    pub(crate) aims: Vec<Aim>,
}

impl Report {
    /// Starts a run that uses `programs`: what prints their versions.
    pub(crate) fn new<P: AsRef<Path>>(
        bench: &'static str,
        programs: &[(&str, P, &str)],
    ) -> Result<Self> {
        Ok(Self { bench, facts: machine::describe(bench, programs)?, aims: Vec::new() })
    }

    pub(crate) fn add(&self, table: &Table) {
        print!("{}", table.markdown());
    }

    pub(crate) fn aim(
        &mut self,
        what: impl Into<String>,
        measured: f64,
        wanted: Wanted,
        unit: &'static str,
    ) {
        self.aims.push(Aim { what: what.into(), measured, wanted, unit });
    }

    /// Prints the aims that were not reached.
    pub(crate) fn print_aims(&self) {
        let missed: Vec<&Aim> = self.aims.iter().filter(|aim| !aim.is_reached()).collect();
        println!("\n{} of {} aims are reached", self.aims.len() - missed.len(), self.aims.len());
        for aim in missed {
            println!("NOT REACHED: {}", aim.row()[..3].join(": "));
        }
    }

    /// Publishes the figures that have aims, those that miss their aim first. `about` says more
    /// about what was measured.
    pub(crate) fn publish_aims(&self, rounds: usize, about: &str) -> Result<()> {
        let mut aims: Vec<&Aim> = self.aims.iter().collect();
        aims.sort_by_key(|aim| aim.is_reached());
        let aims = Table {
            title: "Aims".into(),
            text: "The table compares the medians with what ferofs should reach; missed aims come first."
                .into(),
            head: vec!["figure", "measured", "aim", "reached"],
            rows: aims.into_iter().map(Aim::row).collect(),
        };
        let text = format!(
            "medians of {rounds} round(s), in which the programs that are compared took turns.{about}"
        );
        self.publish(&text, aims, 0, 1)
    }

    /// Replaces the measured part of the page by `about` (after "measured these figures: "), the
    /// machine, and the first rows of the table, in which a new column has the figures from before:
    /// the cell at `value` of the row with the same cells up to `key`.
    pub(crate) fn publish(
        &self,
        about: &str,
        mut table: Table,
        key: usize,
        value: usize,
    ) -> Result<()> {
        let page = page(self.bench);
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let all = page.with_extension("tsv");
        match fs::read_to_string(&all) {
            Ok(rows) => {
                table.add_old(rows.lines().map(|line| line.split('\t').collect()), key, value)
            }
            Err(_) => table.add_old(rows(&text), key, value),
        }
        table.shorten(self.bench, &all)?;
        let measured = format!(
            "`cargo xtask bench {} --publish` measured these figures: {about}\n\n{}{}",
            self.bench,
            machine::list(&self.facts),
            table.markdown()
        );
        let begin = page::begin(&format!("bench {} --publish", self.bench));
        let new = page::replace_measured(&text, &begin, &measured)
            .with_context(|| page.display().to_string())?;
        fs::write(&page, new).with_context(|| page.display().to_string())?;
        front::write()
    }
}

/// The page of a benchmark.
fn page(bench: &str) -> PathBuf {
    shell::repository().join("docs/results").join(format!("{bench}.md"))
}

impl Table {
    /// Adds a column after `value` with the figures of the same rows in `old`.
    fn add_old<'a>(&mut self, old: impl Iterator<Item = Vec<&'a str>>, key: usize, value: usize) {
        let old: BTreeMap<String, String> = old
            .filter_map(|row| Some((row.get(..=key)?.join(" | "), (*row.get(value)?).to_owned())))
            .collect();
        self.head.insert(value + 1, "before");
        for row in &mut self.rows {
            let before = old.get(&row[..=key].join(" | ")).cloned();
            row.insert(value + 1, before.unwrap_or_else(|| "-".into()));
        }
    }

    /// Moves the rows that the page of `bench` has no space for to the file `all`.
    fn shorten(&mut self, bench: &str, all: &Path) -> Result<()> {
        if self.rows.len() <= SHOWN {
            return Ok(());
        }
        let line = |row: &[&str]| row.join("\t") + "\n";
        let rows =
            self.rows.iter().map(|row| line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        let text: String = std::iter::once(line(&self.head)).chain(rows).collect();
        fs::write(all, text).with_context(|| all.display().to_string())?;
        // After a list, a sentence would belong to its last line.
        let is_list = self.text.lines().last().is_some_and(|line| line.starts_with("- "));
        self.text.push_str(if is_list { "\n\n" } else { " " });
        let more = format!(
            "These are {SHOWN} of {} lines: [{bench}.tsv]({bench}.tsv) has all.",
            self.rows.len()
        );
        self.text.push_str(&more);
        self.rows.truncate(SHOWN);
        Ok(())
    }

    fn markdown(&self) -> String {
        format!("\n### {}\n\n{}\n\n{}", self.title, self.text, page::table(&self.head, &self.rows))
    }
}

/// The rows of the tables of a page.
pub(crate) fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").collect())
}

/// The median of measured values with the smallest and the largest.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Result<(f64, String)> {
    let Spread { min, median, max } = Spread::of(values).context("no rounds")?;
    let text = if min == max {
        number(median)
    } else {
        format!("{} ({} to {})", number(median), number(min), number(max))
    };
    Ok((median, text))
}

/// A number with three digits that count; groups of three digits have commas between them.
pub(crate) fn number(value: f64) -> String {
    if value >= 999.5 {
        let mut digits = format!("{value:.0}");
        for at in
            (1..digits.len()).rev().filter(|at| (digits.len() - at) % 3 == 0).collect::<Vec<_>>()
        {
            digits.insert(at, ',');
        }
        return digits;
    }
    let digits = match value.abs() {
        0.0 => 0,
        value if value >= 99.5 => 0,
        value if value >= 9.95 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_page_before_are_beside_the_new_ones() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["lz4", "kernel", "0.60"]), row(["none", "kernel", "0.90"])];
        let mut table =
            Table { title: String::new(), text: String::new(), head: vec!["", "", "CPU"], rows };
        table.add_old(
            super::rows("| a | b | CPU |\n|---|---|---|\n| lz4 | kernel | 0.70 |\n"),
            1,
            2,
        );
        assert_eq!(table.head, ["", "", "CPU", "before"]);
        assert_eq!(
            table.rows,
            [["lz4", "kernel", "0.60", "0.70"], ["none", "kernel", "0.90", "-"]]
        );
    }

    #[test]
    fn aims_are_reached_or_not() {
        let aim =
            |measured, wanted| Aim { what: "x".into(), measured, wanted, unit: " ms" }.is_reached();
        assert!(aim(150.0, Wanted::AtMost(150.0)) && !aim(150.1, Wanted::AtMost(150.0)));
        assert!(aim(0.9, Wanted::AtLeast(0.9)) && !aim(0.89, Wanted::AtLeast(0.9)));
        assert!(!aim(f64::NAN, Wanted::AtMost(1.0)), "nothing was measured");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.123, 9.949, 12.34, 99.7].map(number),
            ["0", "0.12", "9.95", "12.3", "100"]
        );
        assert_eq!(
            [123.4, 999.7, 10_000.0, 1_234_567.0].map(number),
            ["123", "1,000", "10,000", "1,234,567"]
        );
        assert_eq!(spread([3.0, 1.0, 2.0]).unwrap(), (2.0, "2.00 (1.00 to 3.00)".into()));
        assert!(spread([]).is_err());
    }
}
