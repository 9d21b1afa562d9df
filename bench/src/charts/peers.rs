//! The figures of README.md: ferofs, erofs-utils and squashfs-tools at a fast and at a small
//! setting.

use anyhow::{Result, bail};
use ferofs_devtools::page;
use ferofs_devtools::svg::{Anchor, Picture, Style, Theme};

use super::Page;
use super::measure::{Bench, Candidate, Record, Row};
use crate::common::machine;
use crate::common::programs::Tool;
use crate::common::report::number;

/// Comparable settings: the same algorithm and level, and the cluster size that the tool's users
/// choose for it.
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
        let picture = draw(record, theme)?;
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
        "# The figures of the front page\n\nFor readers who want the exact figures behind the bars of README.md.\n\n\
         `{}` measured them and wrote this page, its pictures, and the figures of each round ([peers.json](peers.json)). {}\n\n\
         Times are processor seconds, user and system, of all threads. A read is one of 3000 random reads of 4 KiB through a FUSE \
         mount (ferofs, erofsfuse, squashfuse), whose image is in the page cache and whose files are not; its time is that of the \
         reader and the daemon together.\n\nSmaller figures are better.\n\n",
        record.command,
        record.conditions(),
    );
    let row = |row: &Row| {
        let (build, read) = (spread(&row.build_cpu_seconds)?, spread(&row.read_cpu_microseconds)?);
        Ok(vec![format!("`{}`", row.command()), format!("{:.1}", row.megabytes()), build, read])
    };
    let rows = record.rows.iter().map(row).collect::<Result<Vec<_>>>()?;
    let head =
        ["command", "image, MB", "build, CPU s (min to max)", "random read, CPU µs (min to max)"];
    page.push_str(&page::table(&head, &rows));
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

/// Narrow, so that the words can be read on a telephone.
const WIDTH: f64 = 680.0;
/// The left column, with the names.
const NAMES: f64 = 142.0;
/// Distance of the columns.
const COLUMN: f64 = 180.0;
/// The longest bar: its value must fit after it.
const BAR: f64 = 112.0;
const ROW: f64 = 27.0;
const TOP: f64 = 62.0;

/// A column: its title, its unit, and the value of a row.
struct Column {
    title: &'static str,
    unit: &'static str,
    value: fn(&Row) -> Result<f64>,
    digits: usize,
}

const COLUMNS: [Column; 3] = [
    Column { title: "Image size", unit: "MB", value: |row| Ok(row.megabytes()), digits: 1 },
    Column { title: "Build time", unit: "CPU seconds", value: Row::build, digits: 3 },
    Column {
        title: "Random 4 KiB read",
        unit: "CPU µs, through FUSE",
        value: Row::read,
        digits: 3,
    },
];

pub(super) fn draw(record: &Record, theme: Theme) -> Result<Picture> {
    let groups: Vec<&[Row]> = record.rows.chunk_by(|a, b| a.group == b.group).collect();
    let rows = record.rows.len() as f64;
    let height = TOP + rows * ROW + groups.len() as f64 * 34.0 + 36.0;
    let title = "Size, build time and random reads of ferofs, erofs-utils and squashfs-tools";
    let mut picture = Picture::new(WIDTH, height, theme, title);
    let (text, muted) = (Style::new(15.0, theme.text()), Style::new(13.0, theme.muted()));
    for (number, column) in COLUMNS.iter().enumerate() {
        let x = NAMES + number as f64 * COLUMN;
        picture.text(x, 26.0, text.bold(), column.title);
        picture.text(x, 44.0, muted, column.unit);
    }
    let mut y = TOP;
    for group in groups {
        picture.line(&[(16.0, y), (WIDTH - 16.0, y)], theme.line(), 1.0);
        y += 22.0;
        if let Some(row) = group.first() {
            picture.text(16.0, y, muted.bold(), &row.group);
        }
        y += 8.0;
        for row in group {
            let is_ours = row.tool == Tool::Ferofs;
            let style = if is_ours { text.bold() } else { text };
            picture.text(NAMES - 12.0, y + 17.0, style.anchored(Anchor::End), &name(row));
            for (number, column) in COLUMNS.iter().enumerate() {
                let x = NAMES + number as f64 * COLUMN;
                let values = group.iter().map(column.value).collect::<Result<Vec<_>>>()?;
                let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                let value = (column.value)(row)?;
                let width = (value / most * BAR).max(1.0);
                picture.rectangle([x, y + 4.0, width, ROW - 8.0], colour(row.tool, theme));
                picture.text(x + width + 6.0, y + 17.0, style, &label(value, column.digits));
            }
            y += ROW;
        }
        y += 4.0;
    }
    let note = "Shorter is better. Each group has its own scale. Figures: docs/pictures/peers.md";
    picture.text(16.0, height - 14.0, muted, note);
    Ok(picture)
}

fn colour(tool: Tool, theme: Theme) -> &'static str {
    match tool {
        Tool::Ferofs => theme.pick("#0969da", "#4493f8"),
        Tool::MkfsErofs => theme.pick("#8c959f", "#768390"),
        Tool::Mksquashfs | Tool::Mkdwarfs => theme.pick("#c4ccd4", "#4d5661"),
    }
}
