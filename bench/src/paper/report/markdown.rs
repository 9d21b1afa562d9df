//! The Markdown summary for the repository. Its tables contain only measured values: medians, minima and maxima.

use std::fmt::Write;

use super::figures::{FIGURES, Figure};
use super::summary::{Cell, Summary};
use crate::common::rounds::Spread;

/// A table of a figure: one metric in all cases or, if there is only one case, all metrics.
pub(crate) struct Table<'a> {
    pub(crate) title: String,
    pub(crate) heads: Vec<String>,
    /// A system, and its cells with their number of decimals.
    pub(crate) rows: Vec<(&'a str, Vec<(Cell<'a>, usize)>)>,
}

pub(crate) fn tables<'a>(summary: &Summary<'a>, figure: &Figure) -> Vec<Table<'a>> {
    let experiment = figure.experiment;
    let cases = summary.cases(experiment);
    let systems = summary.systems(experiment);
    if let [case] = cases.as_slice() {
        let cells = |name: &str| {
            let metrics = figure.metrics.iter();
            metrics.map(|metric| (summary.cell(experiment, case, name, metric.name), metric.digits)).collect()
        };
        return vec![Table {
            title: (*case).to_owned(),
            heads: figure.metrics.iter().map(|metric| metric.title.to_owned()).collect(),
            rows: systems.iter().map(|name| (*name, cells(name))).collect(),
        }];
    }
    let mut tables = Vec::new();
    for metric in figure.metrics {
        let cells = |name: &str| {
            let cells = cases.iter().map(|case| summary.cell(experiment, case, name, metric.name));
            cells.map(|cell| (cell, metric.digits)).collect::<Vec<_>>()
        };
        let mut rows: Vec<_> = systems.iter().map(|name| (*name, cells(name))).collect();
        // Only the first table shows systems without values.
        if !tables.is_empty() {
            rows.retain(|(_, cells)| cells.iter().any(|(cell, _)| matches!(cell, Cell::Measured(_))));
        }
        if !rows.is_empty() {
            let heads = cases.iter().map(|case| (*case).to_owned()).collect();
            tables.push(Table { title: metric.title.to_owned(), heads, rows });
        }
    }
    tables
}

pub(crate) fn page(summary: &Summary) -> String {
    let machine = summary.machine();
    let fact = |name: &str| machine.get(name).map_or("?", String::as_str);
    let quick = if fact("scale") == "quick" { " --quick" } else { "" };
    let mut page = format!(
        "# Results\n\n\
         For readers who want to compare ferofs with other file systems: one run of the evaluation that [EVALUATION.md](EVALUATION.md) \
         describes. `cargo xtask bench paper{quick}` measured it, and the option `--publish` wrote this page. Each number is the median of the \
         rounds, followed by the minimum and the maximum where they differ. All values are in [RESULTS.jsonl](RESULTS.jsonl). If \
         something could not be measured, its cell gives the reason.\n\n\
         The figures are for one machine on one day: a virtual machine, whose host shares its disk and processors with other machines. \
         “Cold” means that the image is not in this machine's page cache. Where minimum and maximum are far apart, smaller \
         differences between systems mean nothing.\n\n"
    );
    if !quick.is_empty() {
        page.push_str(
            "This was a quick run: one round with little data. Small differences mean nothing.\n\n",
        );
    }
    for name in machine.keys() {
        let _ = writeln!(page, "- {name}: {}", fact(name));
    }
    for figure in &FIGURES {
        section(&mut page, summary, figure);
    }
    page
}

fn section(page: &mut String, summary: &Summary, figure: &Figure) {
    let experiment = figure.experiment;
    // Writing to a String does not fail.
    let _ = write!(page, "\n## {}\n\n{}\n\nThe paper: {}\n", figure.title, figure.about, figure.paper);
    if summary.cases(experiment).is_empty() {
        let why = summary.failure_reason(experiment).unwrap_or("it was not run");
        let _ = writeln!(page, "\nNot measured: {why}.");
        return;
    }
    if !figure.claims.is_empty() {
        page.push('\n');
    }
    for claim in figure.claims {
        let _ = writeln!(page, "- {}: {}.", claim.statement, summary.verdict(experiment, claim).words());
    }
    let _ = writeln!(page, "\nRounds: {}.", summary.rounds(experiment));
    for table in tables(summary, figure) {
        let _ = write!(page, "\n| {} |", table.title);
        for head in &table.heads {
            let _ = write!(page, " {head} |");
        }
        let _ = write!(page, "\n|---|{}\n", "---|".repeat(table.heads.len()));
        for (name, cells) in &table.rows {
            let _ = write!(page, "| {name} |");
            for (cell, digits) in cells {
                let _ = write!(page, " {} |", cell_text(cell, *digits));
            }
            page.push('\n');
        }
    }
    for failure in summary.failures(experiment) {
        let _ = writeln!(page, "\nFailed: {}", failure.replace('\n', " "));
    }
}

fn cell_text(cell: &Cell, digits: usize) -> String {
    // "|" and a line break would end the cell.
    let plain = |text: &str| text.replace(['|', '\n'], " ").chars().take(100).collect::<String>();
    match cell {
        Cell::Measured(Spread { min, median, max }) if min == max => format!("{median:.digits$}"),
        Cell::Measured(Spread { min, median, max }) => {
            format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
        }
        Cell::LeftOut(why) => format!("*left out: {}*", plain(why)),
        Cell::Failed(why) => format!("*failed: {}*", plain(why)),
        Cell::NoValue => String::new(),
    }
}
