//! The accepted values, bench/gate.tsv, and the comparison of a run with them.
//!
//! The head of the file says which compiler, C library, processor and valgrind the instructions
//! were counted with. With others, programs execute other instructions and take other memory, so
//! the gate shows these values and does not compare them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

/// The head of the file, before the line with the names of the columns.
const INTRODUCTION: &str = "\
# Accepted costs of `cargo xtask bench gate`, which fails if a cell has others. A change that is worth its costs, or makes a cell better, runs
# `cargo xtask bench gate --accept \"WHY\"`, which replaces the lines of the cells that changed, and gives the reason in them.
";
/// The line of the machine starts with this.
const MACHINE: &str = "# instructions: ";

/// What is measured of a cell.
pub(crate) struct Metric {
    pub(super) name: &'static str,
    /// A value that is larger than the accepted one by more than this many percent is worse.
    percent: f64,
    /// A difference of at most this is ignored: it depends on when threads run.
    floor: u64,
}

/// The columns of the file.
pub(crate) const METRICS: [Metric; 6] = [
    // The floors are the largest difference between two runs of a short command (`build
    // --chunk-size`), whose threads take turns differently; of memory, what the build of an archive
    // takes more on a loaded machine: a buffer of 1 MiB and its tables.
    Metric { name: "instructions", percent: 2.0, floor: 1_000_000 },
    Metric { name: "misses", percent: 5.0, floor: 32_000 },
    Metric { name: "memory", percent: 5.0, floor: 3 << 19 },
    Metric { name: "bytes", percent: 0.5, floor: 0 },
    Metric { name: "requests", percent: 3.0, floor: 8 },
    // Each command reads the limits of its control groups, about 30 calls: how many there are
    // depends on the machine.
    Metric { name: "calls", percent: 2.0, floor: 40 },
];

/// Percent that instructions and misses of mounts may differ, if [`Metric::percent`] is less: by
/// time, the daemon decides which pages it stores, and `mount dense` has two costs, 4 % apart.
const MOUNTS: f64 = 6.0;

/// The place of the memory in [`METRICS`].
pub(super) const MEMORY: usize = 2;

/// Values in the order of [`METRICS`]; `None`: the cell does not have it.
pub(crate) type Figures = [Option<u64>; METRICS.len()];

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) figures: Figures,
    /// The reason of the last change.
    pub(super) why: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AcceptedFile {
    /// What the metrics of [`Metric::is_of_machine`] depend on, besides the program.
    pub(super) machine: String,
    pub(crate) cells: BTreeMap<String, Accepted>,
}

/// How a measured value compares with the accepted one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Same,
    Better,
    Worse,
}

impl AcceptedFile {
    /// What a cell costs, without cache misses: published figures follow these.
    pub(crate) fn costs(&self, cell: &str) -> Option<[Option<u64>; METRICS.len() - 1]> {
        let [instructions, _, rest @ ..] = self.cells.get(cell)?.figures;
        let [memory, bytes, requests, calls] = rest;
        Some([instructions, memory, bytes, requests, calls])
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut file = Self::default();
        for (line, number) in text.lines().zip(1..) {
            if let Some(machine) = line.strip_prefix(MACHINE) {
                machine.clone_into(&mut file.machine);
            }
            if line.starts_with('#') || line == columns() {
                continue;
            }
            let (cell, accepted) =
                parse_line(line).with_context(|| format!("line {number}: {line}"))?;
            if file.cells.insert(cell, accepted).is_some() {
                bail!("line {number}: a second line of the same cell: {line}");
            }
        }
        Ok(file)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{INTRODUCTION}{MACHINE}{}\n{}\n", self.machine, columns());
        for (cell, Accepted { figures, why }) in &self.cells {
            let figures = figures
                .map(|figure| figure.map_or_else(|| "-".to_owned(), |value| value.to_string()));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{cell}\t{}\t{why}", figures.join("\t"));
        }
        text
    }

    /// Compares each value of a cell; `None` for values that cannot be compared.
    pub(super) fn compare(
        &self,
        cell: &str,
        machine: &str,
        measured: &Figures,
    ) -> [Option<Verdict>; METRICS.len()] {
        let mut verdicts = [None; METRICS.len()];
        let Some(Accepted { figures, .. }) = self.cells.get(cell) else { return verdicts };
        for (number, metric) in METRICS.iter().enumerate() {
            let is_comparable = !metric.is_of_machine() || machine == self.machine;
            verdicts[number] = match (figures[number], measured[number]) {
                (Some(accepted), Some(measured)) if is_comparable => {
                    Some(metric.verdict(cell, accepted, measured))
                }
                // What one of the two lacks is another cell under the same name.
                (accepted, measured) if accepted.is_some() != measured.is_some() => {
                    Some(Verdict::Worse)
                }
                _ => None,
            };
        }
        verdicts
    }

    /// Takes over the values that changed, with the reason. Those within the tolerance stay as they
    /// are, so that many small steps add up to one that is noticed.
    pub(super) fn accept(
        &mut self,
        machine: &str,
        measured: &BTreeMap<String, Figures>,
        why: &str,
    ) {
        // Also values of another machine are compared: their change has a reason, too.
        self.machine = machine.to_owned();
        for (cell, figures) in measured {
            let verdicts = self.compare(cell, machine, figures);
            let new = || Accepted { figures: *figures, why: why.to_owned() };
            let accepted = self.cells.entry(cell.clone()).or_insert_with(new);
            for (number, verdict) in verdicts.into_iter().enumerate() {
                if matches!(verdict, Some(Verdict::Better | Verdict::Worse)) {
                    accepted.figures[number] = figures[number];
                    why.clone_into(&mut accepted.why);
                }
            }
        }
    }
}

impl Metric {
    /// Whether the value depends on compilers, libraries (of memory: on the allocator) and the
    /// processor.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(self.name, "instructions" | "misses" | "memory")
    }

    /// Whether a smaller value is a change of the program: memory also depends on the machine, and
    /// misses on the layout of the code.
    pub(super) fn is_steady(&self) -> bool {
        !matches!(self.name, "misses" | "memory")
    }

    /// Whether two values of a cell differ by more than the tolerance.
    pub(super) fn differs(&self, cell: &str, accepted: Option<u64>, measured: Option<u64>) -> bool {
        accepted.zip(measured).is_some_and(|(accepted, measured)| {
            self.verdict(cell, accepted, measured) != Verdict::Same
        })
    }

    fn verdict(&self, cell: &str, accepted: u64, measured: u64) -> Verdict {
        let counts_code = matches!(self.name, "instructions" | "misses");
        let percent = match cell.starts_with("mount ") && counts_code {
            true => self.percent.max(MOUNTS),
            false => self.percent,
        };
        let allowed = (accepted as f64 * percent / 100.0).max(self.floor as f64);
        match measured as f64 - accepted as f64 {
            more if more > allowed => Verdict::Worse,
            less if less < -allowed => Verdict::Better,
            _ => Verdict::Same,
        }
    }
}

/// The line with the names of the columns.
fn columns() -> String {
    format!("cell\t{}\twhy", METRICS.map(|metric| metric.name).join("\t"))
}

fn parse_line(line: &str) -> Result<(String, Accepted)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [cell, figures @ .., why] = fields.as_slice() else { bail!("too few columns") };
    let figures: Result<Vec<Option<u64>>, _> = figures
        .iter()
        .map(|field| if *field == "-" { Ok(None) } else { field.parse().map(Some) })
        .collect();
    let Ok(figures) = figures?.try_into() else { bail!("wrong number of columns") };
    Ok(((*cell).to_owned(), Accepted { figures, why: (*why).to_owned() }))
}
