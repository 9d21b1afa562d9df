//! The figures of docs/guide/settings.md: ferofs over algorithms, levels and cluster sizes, and its
//! presets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use ferofs_devtools::{page, shell};

use super::Page;
use super::measure::{Bench, Candidate, Record, Row};
use crate::common::machine;
use crate::common::programs::Tool;
use crate::common::report::number;

const PAGE: &str = "docs/guide/settings.md";
/// What `--publish` writes is between these lines.
const BEGIN: &str = "<!-- cargo xtask bench charts --draw writes from here -->";

/// Algorithms with levels from fast to small.
const ALGORITHMS: [&str; 8] =
    ["lz4", "lz4hc,9", "lz4hc,12", "deflate,6", "zstd,3", "zstd,12", "zstd,19", "lzma,6"];
const CLUSTERS: [&str; 5] = ["4K", "16K", "64K", "256K", "1M"];
/// The presets of `ferofs build`: names and options.
pub(crate) const PRESETS: [(&str, &str); 6] = [
    ("fast", "--preset fast"),
    ("default", "--preset default"),
    ("small", "--preset small"),
    ("smallest", "--preset smallest"),
    ("android", "--preset android"),
    ("backup", "--preset backup"),
];
/// The groups of rows.
const GRID: &str = "grid";
const PRESET: &str = "preset";

pub(super) fn measure(bench: &Bench) -> Result<Record> {
    let ours = |group, options| Candidate { group, tool: Tool::Ferofs, options };
    let mut candidates = vec![ours(GRID, "-z none".to_owned())];
    for algorithm in ALGORITHMS {
        candidates.extend(CLUSTERS.map(|cluster| ours(GRID, grid_options(algorithm, cluster))));
    }
    candidates.extend(PRESETS.map(|(_, options)| ours(PRESET, options.to_owned())));
    bench.measure("settings", &candidates)
}

fn grid_options(algorithm: &str, cluster: &str) -> String {
    format!("-z {algorithm} -C {cluster} -E fragments")
}

pub(super) fn pages(record: &Record) -> Result<Vec<Page>> {
    let text = fs::read_to_string(shell::repository().join(PAGE)).context(PAGE)?;
    let tables = tables(record)?;
    Ok(vec![(
        PAGE,
        page::replace_measured(&text, BEGIN, tables.strip_suffix('\n').unwrap_or(&tables))
            .context(PAGE)?,
    )])
}

/// The text of a cell of a table.
type Cell<'a> = &'a dyn Fn(&Row) -> Result<String>;

fn tables(record: &Record) -> Result<String> {
    let best: BTreeSet<&str> = front(record)?.into_iter().map(|row| row.options.as_str()).collect();
    let mut text = format!(
        "\n{} `{}` measured all cells. The figures of each round are in [settings.json](settings.json).\n",
        record.conditions(),
        record.command,
    );
    let none =
        record.rows.iter().find(|row| row.options == "-z none").context("no row for -z none")?;
    let source = none.megabytes();
    let cells: [(&str, Cell<'_>); 3] = [
        (
            "Size in percent of the uncompressed image. Bold: nothing else in the table is both smaller and faster to build.",
            &|row| Ok(format!("{:.1}", row.megabytes() / source * 100.0)),
        ),
        ("Processor seconds of the build.", &|row| Ok(number(row.build()?))),
        (
            "Processor microseconds of a random read of 4 KiB through FUSE. All reads together touch a tenth of the data.",
            &|row| Ok(number(row.read()?)),
        ),
    ];
    for (title, cell) in cells {
        let mut rows = Vec::new();
        for algorithm in ALGORITHMS {
            let mut line = vec![format!("`{algorithm}`")];
            for cluster in CLUSTERS {
                let options = grid_options(algorithm, cluster);
                let row = record.rows.iter().find(|row| row.options == options);
                let value = cell(row.with_context(|| format!("no row for {options}"))?)?;
                let is_best = title.starts_with("Size") && best.contains(options.as_str());
                line.push(if is_best { format!("**{value}**") } else { value });
            }
            rows.push(line);
        }
        let clusters = CLUSTERS.map(|cluster| format!("`-C {cluster}`"));
        let head: Vec<&str> =
            std::iter::once("`-z`").chain(clusters.iter().map(String::as_str)).collect();
        let _ = write!(text, "\n{title}\n\n{}", page::table(&head, &rows));
    }
    let _ = writeln!(
        text,
        "\n`-z none`: {:.1} MB, {} processor seconds, {} µs a read.",
        source,
        number(none.build()?),
        number(none.read()?)
    );
    let preset = |row: &Row| {
        let size = format!("{:.1}", row.megabytes() / source * 100.0);
        Ok(vec![format!("`{}`", row.options), size, number(row.build()?), number(row.read()?)])
    };
    let presets = record
        .rows
        .iter()
        .filter(|row| row.group != GRID)
        .map(preset)
        .collect::<Result<Vec<_>>>()?;
    text.push_str("\nThe same for presets:\n\n");
    text.push_str(&page::table(
        &["option", "size, %", "build, CPU s", "random read, CPU µs"],
        &presets,
    ));
    let _ = write!(text, "\nThe machine and the programs:\n\n{}\n", machine::list(&record.machine));
    Ok(text)
}

/// The rows of the grid that no other one beats in size and in time, from the fastest to the
/// smallest.
fn front(record: &Record) -> Result<Vec<&Row>> {
    let rows = record.rows.iter().filter(|row| row.group == GRID && row.options != "-z none");
    let mut rows = rows.map(|row| Ok((row.build()?, row))).collect::<Result<Vec<_>>>()?;
    rows.sort_by(|(a, row), (b, other)| {
        a.total_cmp(b).then(row.image_bytes.cmp(&other.image_bytes))
    });
    let mut best = u64::MAX;
    rows.retain(|(_, row)| {
        let is_best = row.image_bytes < best;
        best = best.min(row.image_bytes);
        is_best
    });
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(options: &str, size: u64, seconds: f64) -> Row {
        Row {
            group: GRID.into(),
            tool: Tool::Ferofs,
            options: options.into(),
            image_bytes: size,
            build_cpu_seconds: vec![seconds],
            read_cpu_microseconds: vec![1.0],
        }
    }

    #[test]
    fn the_front_has_what_nothing_beats_in_both() {
        let record = Record {
            command: String::new(),
            machine: Default::default(),
            source: String::new(),
            source_names: 1,
            source_bytes: 1,
            rounds: 1,
            rows: vec![
                row("-z none", 1000, 0.1),
                row("-z zstd,19 -C 1M", 400, 9.0),
                row("-z lz4 -C 4K", 600, 1.0),
                row("-z lz4 -C 64K", 500, 2.0),
                row("-z lz4hc -C 4K", 550, 3.0),
                row("-z lzma -C 4K", 400, 10.0),
            ],
        };
        let options: Vec<&str> =
            front(&record).unwrap().iter().map(|row| row.options.as_str()).collect();
        assert_eq!(options, ["-z lz4 -C 4K", "-z lz4 -C 64K", "-z zstd,19 -C 1M"]);
    }
}
