//! The pages in Markdown. The summary for the repository: which statements the measurements confirm, and the speed of reading. The report
//! of a run: also all tables. Tables contain only measured medians.

use std::fmt::Write;

use super::figures::{FIGURES, Figure};
use super::summary::{Cell, Summary, Verdict};
use crate::common::machine;
use crate::common::rounds::Spread;

/// The experiment whose first metric the summary shows as a table: the others are in the log, and in the report.
const TABLE: &str = "micro";
const READING: &str = "\n## Reading\n\n\
    The table shows the speed with which fio reads a large file in pieces of 4 KiB: in sequence, at random, and the first piece of each 128 KiB. \
    The image is not in the page cache at the start.\n";

/// A table of a figure: one metric in all cases or, if there is only one case, all metrics.
struct Table<'a> {
    title: String,
    heads: Vec<String>,
    /// A system, and its cells with their number of decimals.
    rows: Vec<(&'a str, Vec<(Cell<'a>, usize)>)>,
}

fn tables<'a>(summary: &Summary<'a>, figure: &Figure) -> Vec<Table<'a>> {
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
    let facts = summary.machine();
    let mut page = String::from(
        "# The EROFS paper's evaluation\n\n\
         For readers who want to compare ferofs with other file systems. `cargo xtask bench paper --publish` measured the figures and \
         wrote this page; [README.md](README.md#the-evaluation-of-the-erofs-paper) says how, and [paper.jsonl](paper.jsonl) has all values. \
         “Cold” means that the image is not in this machine's page cache.\n\n",
    );
    page.push_str(&machine::list(facts));
    page.push_str("\n## Statements\n\nThe list shows which statements the medians confirm; those that they do not confirm come first.\n\n");
    let mut claims: Vec<_> = FIGURES
        .iter()
        .flat_map(|figure| {
            figure.claims.iter().map(move |claim| (claim, summary.verdict(figure.experiment, claim)))
        })
        .collect();
    claims.sort_by_key(|(_, verdict)| match verdict {
        Verdict::Disagrees => 0,
        Verdict::Partly(_) => 1,
        Verdict::NotMeasured => 2,
        Verdict::Agrees => 3,
    });
    for (claim, verdict) in claims {
        let _ = writeln!(page, "- {}: {}.", claim.statement, verdict.words());
    }
    for figure in &FIGURES {
        if summary.cases(figure.experiment).is_empty() {
            let why = summary.failure_reason(figure.experiment).unwrap_or("it was not run");
            let _ = writeln!(page, "\nNot measured: {}: {why}.", figure.title);
        }
        for failure in summary.failures(figure.experiment) {
            let _ = writeln!(page, "\nFailed: {}", failure.replace('\n', " "));
        }
    }
    for figure in FIGURES.iter().filter(|figure| figure.experiment == TABLE) {
        if let Some(table) = tables(summary, figure).first() {
            page.push_str(READING);
            write_table(&mut page, table);
        }
    }
    page
}

/// The summary, then all tables of all figures.
pub(crate) fn report(summary: &Summary) -> String {
    let mut page = page(summary);
    for figure in &FIGURES {
        let _ =
            writeln!(page, "\n## {}\n\n{}\n\n**The paper:** {}", figure.title, figure.about, figure.paper);
        for table in tables(summary, figure) {
            write_table(&mut page, &table);
        }
    }
    page
}

fn write_table(page: &mut String, table: &Table) {
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

fn cell_text(cell: &Cell, digits: usize) -> String {
    // "|" and a line break would end the cell.
    let plain = |text: &str| text.replace(['|', '\n'], " ").chars().take(100).collect::<String>();
    match cell {
        Cell::Measured(Spread { median, .. }) => format!("{median:.digits$}"),
        Cell::LeftOut(why) => format!("*left out: {}*", plain(why)),
        Cell::Failed(why) => format!("*failed: {}*", plain(why)),
        Cell::NoValue => String::new(),
    }
}
