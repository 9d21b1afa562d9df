//! The report as one HTML file that loads no other files.

use std::fmt::Write;

use super::figures::{FIGURES, Figure, Metric, Plot};
use super::summary::{Cell, Summary, Verdict};
use super::svg;
use crate::common::rounds::Spread;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1c;--paper:#fdfdfb;--soft:#6a6a6a;--rule:#d8d8d0}
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e0;--paper:#181816;--soft:#a0a098;--rule:#3a3a36}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2em auto;padding:0 1em}
h1{font-size:1.7em}h2{margin-top:2.2em;border-top:1px solid var(--rule);padding-top:.8em}
.soft,caption{color:var(--soft)}nav a{margin-right:1em;white-space:nowrap}
table{border-collapse:collapse;margin:1em 0;font-size:13px;display:block;overflow-x:auto}
caption{text-align:left;font-weight:600}
th,td{padding:.25em .7em;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}td small{color:var(--soft)}td.out{text-align:left;white-space:normal}
.figures{display:flex;flex-wrap:wrap;gap:12px}
svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .title{font-weight:600;font-size:12px}
svg .spread{stroke:var(--ink);stroke-width:1.2;fill:none}svg .axis{stroke:var(--soft);fill:none}
.yes{color:#2c7a4b}.no{color:#b3261e}.partly{color:#a86a00}
blockquote{margin:.6em 0;padding-left:1em;border-left:3px solid var(--rule)}";

pub(crate) fn page(summary: &Summary) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>ferofs: the EROFS paper's evaluation</title>\
         <style>{STYLE}</style></head><body>\n<h1>The EROFS paper's evaluation, on this machine</h1>\n"
    );
    page.push_str(
        "<p>Gao et al., <i>EROFS: A Compression-friendly Readonly File System for Resource-scarce Devices</i>, USENIX \
         ATC 2019. Values are medians of the rounds, with minimum and maximum. How each \
         figure is measured: docs/results/README.md. All values: raw.jsonl, next to this page.</p>\n<table>",
    );
    for (name, text) in summary.machine() {
        let _ = write!(page, "<tr><td>{}</td><td class=\"out\">{}</td></tr>", escape(name), escape(text));
    }
    page.push_str("</table>\n<nav>");
    for figure in &FIGURES {
        let _ = write!(page, "<a href=\"#{}\">{}</a> ", figure.experiment, escape(figure.title));
    }
    page.push_str("</nav>\n");
    for figure in &FIGURES {
        section(&mut page, summary, figure);
    }
    page + "</body></html>\n"
}

fn section(page: &mut String, summary: &Summary, figure: &Figure) {
    let experiment = figure.experiment;
    let _ = writeln!(page, "<section id=\"{experiment}\"><h2>{}</h2>", escape(figure.title));
    let _ = writeln!(page, "<p>{}</p>", escape(figure.about));
    let _ = writeln!(page, "<blockquote><b>The paper:</b> {}</blockquote>", escape(figure.paper));
    let cases = summary.cases(experiment);
    if cases.is_empty() {
        let why = summary.failure_reason(experiment).unwrap_or("it was not run");
        let _ = writeln!(page, "<p><b>Not measured:</b> {}</p></section>", escape(why));
        return;
    }
    if !figure.claims.is_empty() {
        page.push_str("<ul>");
        for claim in figure.claims {
            let verdict = summary.verdict(experiment, claim);
            let class = match verdict {
                Verdict::Agrees => "yes",
                Verdict::Disagrees => "no",
                Verdict::Partly(_) => "partly",
                Verdict::NotMeasured => "soft",
            };
            let words = escape(&verdict.words());
            let _ = write!(page, "<li>{}: <b class=\"{class}\">{words}</b>.</li>", escape(claim.statement));
        }
        page.push_str("</ul>\n");
    }
    if let Some(first) = figure.metrics.first() {
        let _ = write!(
            page,
            "<p class=\"soft\">{}; rounds: {}</p>",
            escape(first.title),
            summary.rounds(experiment)
        );
        page.push_str("<div class=\"figures\">");
        plots(page, summary, figure, first);
        page.push_str("</div>\n");
    }
    for table in super::markdown::tables(summary, figure) {
        let _ = write!(page, "<table><caption>{}</caption><tr><th></th>", escape(&table.title));
        for head in &table.heads {
            let _ = write!(page, "<th>{}</th>", escape(head));
        }
        page.push_str("</tr>\n");
        for (name, cells) in &table.rows {
            let _ = write!(page, "<tr><td>{}</td>", escape(name));
            for (cell, digits) in cells {
                page.push_str(&cell_html(cell, *digits));
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table>\n");
    }
    for failure in summary.failures(experiment) {
        let _ = write!(page, "<p class=\"no\">Failed: {}</p>", escape(&failure));
    }
    page.push_str("</section>\n");
}

fn plots(page: &mut String, summary: &Summary, figure: &Figure, metric: &Metric) {
    let experiment = figure.experiment;
    let systems = summary.systems(experiment);
    let cases = summary.cases(experiment);
    match figure.plot {
        Plot::Bars => {
            for case in cases {
                let rows: Vec<(&str, Result<Spread, &str>)> = systems
                    .iter()
                    .map(|name| match summary.cell(experiment, case, name, metric.name) {
                        Cell::Measured(spread) => (*name, Ok(spread)),
                        Cell::LeftOut(why) | Cell::Failed(why) => (*name, Err(why)),
                        Cell::NoValue => (*name, Err("–")),
                    })
                    .collect();
                page.push_str(&svg::bars(case, &rows, metric.digits));
            }
        }
        Plot::Lines(axis) => {
            let points: Vec<(&str, f64, &str)> = cases
                .iter()
                .filter_map(|case| {
                    let (group, place) = case.split_once(" @ ")?;
                    Some((group, place.parse().ok()?, *case))
                })
                .collect();
            let mut groups: Vec<&str> = points.iter().map(|(group, ..)| *group).collect();
            groups.dedup();
            for group in groups {
                let of_group = || points.iter().filter(|(other, ..)| *other == group);
                let rows: Vec<(&str, Vec<(f64, Spread)>)> = systems
                    .iter()
                    .map(|name| {
                        let at = |(_, place, case): &(&str, f64, &str)| match summary.cell(
                            experiment,
                            case,
                            name,
                            metric.name,
                        ) {
                            Cell::Measured(spread) => Some((*place, spread)),
                            _ => None,
                        };
                        (*name, of_group().filter_map(at).collect())
                    })
                    .collect();
                page.push_str(&svg::lines(group, axis, &rows, metric.digits));
            }
        }
    }
}

fn cell_html(cell: &Cell, digits: usize) -> String {
    match cell {
        Cell::Measured(Spread { min, median, max }) if min == max => {
            format!("<td>{median:.digits$}</td>")
        }
        Cell::Measured(Spread { min, median, max }) => {
            format!("<td>{median:.digits$} <small>{min:.digits$}–{max:.digits$}</small></td>")
        }
        Cell::LeftOut(why) => format!("<td class=\"out\">left out: {}</td>", escape(why)),
        Cell::Failed(why) => format!("<td class=\"out no\">failed: {}</td>", escape(why)),
        Cell::NoValue => "<td></td>".to_owned(),
    }
}

/// Escapes text for an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
