//! Draws the bars of README.md: three columns (size, build, random reads), and a row for each tool in each group.

use anyhow::Result;
use ferofs_devtools::svg::{Anchor, Picture, Style, Theme};

use super::peers::{label, name};
use super::record::{Record, Row};
use crate::common::programs::Tool;

/// Narrow, so that the words can be read on a telephone.
const WIDTH: f64 = 680.0;
/// The left column, with the names.
const NAMES: f64 = 142.0;
/// Distance of the columns.
const COLUMN: f64 = 180.0;
/// The longest bar: its value must fit behind it.
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
    Column { title: "Random 4 KiB read", unit: "CPU µs, through FUSE", value: Row::read, digits: 3 },
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
