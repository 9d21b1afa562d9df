//! The figures of README.md: ferofs, erofs-utils and squashfs-tools at a fast and at a small setting.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use ferofs_devtools::svg::Theme;

use super::Page;
use super::bars;
use super::measure::{Bench, Candidate};
use super::record::{Record, Row};
use crate::common::machine;
use crate::common::programs::Tool;
use crate::common::report::number;

/// Comparable settings: the same algorithm and level, and the cluster size that the tool's users choose for it.
const CANDIDATES: [(&str, Tool, &str); 6] = [
    ("LZ4: fast to build", Tool::Ferofs, ""),
    ("LZ4: fast to build", Tool::MkfsErofs, "-zlz4 -C65536 -Efragments"),
    ("LZ4: fast to build", Tool::Mksquashfs, "-comp lz4 -b 128K"),
    ("Zstandard 12: small", Tool::Ferofs, "-z zstd,12 -C 128K -E fragments"),
    ("Zstandard 12: small", Tool::MkfsErofs, "-zzstd,12 -C131072 -Efragments"),
    ("Zstandard 12: small", Tool::Mksquashfs, "-comp zstd -Xcompression-level 12 -b 128K"),
];

pub(super) fn measure(bench: &Bench) -> Result<Record> {
    let candidates =
        CANDIDATES.map(|(group, tool, options)| Candidate { group, tool, options: options.into() });
    bench.measure("peers", &candidates)
}

pub(super) fn pages(record: &Record) -> Result<Vec<Page>> {
    let mut pages = vec![("docs/pictures/peers.md", table(record)?)];
    for (theme, name) in Theme::ALL {
        let picture = bars::draw(record, theme)?;
        let overlaps = picture.overlaps();
        if !overlaps.is_empty() {
            bail!("the bars: {overlaps:#?}");
        }
        let file = match name {
            "light" => "docs/pictures/peers-light.svg",
            _ => "docs/pictures/peers-dark.svg",
        };
        pages.push((file, picture.finish()));
    }
    Ok(pages)
}

/// The page with the exact figures.
fn table(record: &Record) -> Result<String> {
    let mut page = format!(
        "# The figures of the front page\n\nFor readers who want the exact figures behind the bars of [README.md](../../README.md).\n\n\
         `{}` measured them and wrote this page, its pictures, and the figures of each round ([peers.json](peers.json)). {}\n\n\
         Times are processor seconds, user and system, of all threads. A read is one of 3000 random reads of 4 KiB through a FUSE \
         mount (ferofs, erofsfuse, squashfuse), whose image is in the page cache and whose files are not; its time is that of the \
         reader and the daemon together.\n\nSmaller figures are better.\n\n\
         | command | image, MB | build, CPU s (min to max) | random read, CPU µs (min to max) |\n|---|---|---|---|\n",
        record.command,
        record.conditions(),
    );
    for row in &record.rows {
        let (build, read) = (spread(&row.build_cpu_seconds)?, spread(&row.read_cpu_microseconds)?);
        let (command, size) = (row.command(), row.megabytes());
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{command}` | {size:.1} | {build} | {read} |");
    }
    page.push_str("\nThe machine and the programs:\n\n");
    page.push_str(&machine::list(&record.machine));
    Ok(page)
}

fn spread(values: &[f64]) -> Result<String> {
    Ok(crate::common::report::spread(values.iter().copied())?.1)
}

/// The value at the end of a bar.
pub(super) fn label(value: f64, digits: usize) -> String {
    if digits == 1 { format!("{value:.1}") } else { number(value) }
}

/// The name of a row beside its bars.
pub(super) fn name(row: &Row) -> String {
    match row.tool {
        Tool::Ferofs => "ferofs".into(),
        Tool::MkfsErofs => "erofs-utils".into(),
        Tool::Mksquashfs => "squashfs-tools".into(),
        Tool::Mkdwarfs => "dwarfs".into(),
    }
}
