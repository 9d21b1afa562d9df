//! The summary for the repository. Its tables have medians and spreads alone, each of them as it was measured.

use std::fmt::Write;

use super::super::figures::{FIGURES, Figure};
use super::summary::{Cell, Summary};
use crate::bench::measure::Spread;

/// A table of a figure: of one metric over its cases, or of all metrics where there is one case.
pub(super) struct Table<'a> {
    pub(super) title: String,
    pub(super) heads: Vec<String>,
    /// A contestant, and its cells with the digits that they are shown with.
    pub(super) rows: Vec<(&'a str, Vec<(Cell<'a>, usize)>)>,
}

pub(super) fn tables<'a>(summary: &Summary<'a>, figure: &Figure) -> Vec<Table<'a>> {
    let experiment = figure.experiment;
    let cases = summary.cases(experiment);
    let contestants = summary.contestants(experiment);
    if let [case] = cases.as_slice() {
        let cells = |name: &str| {
            let metrics = figure.metrics.iter();
            metrics.map(|metric| (summary.cell(experiment, case, name, metric.name), metric.digits)).collect()
        };
        return vec![Table {
            title: (*case).to_owned(),
            heads: figure.metrics.iter().map(|metric| metric.title.to_owned()).collect(),
            rows: contestants.iter().map(|name| (*name, cells(name))).collect(),
        }];
    }
    let mut tables = Vec::new();
    for metric in figure.metrics {
        let cells = |name: &str| {
            let cells = cases.iter().map(|case| summary.cell(experiment, case, name, metric.name));
            cells.map(|cell| (cell, metric.digits)).collect::<Vec<_>>()
        };
        let mut rows: Vec<_> = contestants.iter().map(|name| (*name, cells(name))).collect();
        // Only the first table names those who have nothing to show.
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

pub(super) fn page(summary: &Summary) -> String {
    let machine = summary.machine();
    let said = |name: &str| machine.get(name).map_or("?", String::as_str);
    let quick = if said("scale") == "quick" { " --quick" } else { "" };
    let mut page = format!(
        "# Results\n\n\
         One run of the evaluation that [EVALUATION.md](EVALUATION.md) describes, made by `cargo xtask bench paper{quick}`, and this page \
         by the same command with `--publish`. Each number is a median as it was measured, with the least and the most of the rounds behind it \
         where they differ; all are in [RESULTS.jsonl](RESULTS.jsonl). What could not be measured is named in its place.\n\n\
         Figures belong to a machine and a day: this one is a virtual machine whose disk and processors others may use at the same time, and what \
         “cold” means is that the image is not in this machine's memory. Where the least and the most are far apart, differences \
         of that size mean nothing.\n\n"
    );
    if !quick.is_empty() {
        page.push_str(
            "This was a quick run: one round of little data, so there is no spread to see, and small differences mean nothing at \
             all.\n\n",
        );
    }
    for name in machine.keys() {
        let _ = writeln!(page, "- {name}: {}", said(name));
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
        let why = summary.trouble(experiment).unwrap_or("it was not run");
        let _ = writeln!(page, "\nNot measured: {why}.");
        return;
    }
    if !figure.claims.is_empty() {
        page.push('\n');
    }
    for claim in figure.claims {
        let _ = writeln!(page, "- {}: {}.", claim.says, summary.verdict(experiment, claim).words());
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
                let _ = write!(page, " {} |", shown(cell, *digits));
            }
            page.push('\n');
        }
    }
    for failure in summary.failures(experiment) {
        let _ = writeln!(page, "\nFailed: {}", failure.replace('\n', " "));
    }
}

fn shown(cell: &Cell, digits: usize) -> String {
    // A bar or a line's end would end the cell.
    let plain = |text: &str| text.replace(['|', '\n'], " ").chars().take(100).collect::<String>();
    match cell {
        Cell::Measured(Spread { least, middle, most }) if least == most => format!("{middle:.digits$}"),
        Cell::Measured(Spread { least, middle, most }) => {
            format!("{middle:.digits$} ({least:.digits$}–{most:.digits$})")
        }
        Cell::LeftOut(why) => format!("*left out: {}*", plain(why)),
        Cell::Failed(why) => format!("*failed: {}*", plain(why)),
        Cell::Nothing => String::new(),
    }
}
