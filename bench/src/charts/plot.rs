//! Draws the plot of docs/guide/settings.md: the size of the image against the time of the build, with the settings that nothing
//! else beats in both (the Pareto front) connected and numbered.

use anyhow::{Context, Result};
use ferofs_devtools::svg::{Anchor, Picture, Place, Style, Theme};

use super::record::{Record, Row};
use super::settings::GRID;
use crate::common::report::number;

const WIDTH: f64 = 860.0;
/// The plotted area: left, top, right, bottom.
const LEFT: f64 = 56.0;
const TOP: f64 = 24.0;
const RIGHT: f64 = 590.0;
const BOTTOM: f64 = 440.0;
const HEIGHT: f64 = 500.0;
/// Space between the outermost points and the area's edge.
const MARGIN: f64 = 18.0;

/// Colours by the name of the algorithm, light and dark.
const COLOURS: [(&str, &str, &str); 5] = [
    ("lz4", "#0969da", "#4493f8"),
    ("lz4hc", "#1a7f37", "#3fb950"),
    ("deflate", "#9a6700", "#d29922"),
    ("zstd", "#8250df", "#ab7df8"),
    ("lzma", "#cf222e", "#f85149"),
];

/// A row of the grid with its figures.
struct Point<'a> {
    row: &'a Row,
    seconds: f64,
    percent: f64,
}

impl<'a> Point<'a> {
    fn all(record: &'a Record) -> Result<Vec<Self>> {
        let none = record.rows.iter().find(|row| row.options == "-z none").context("no row for -z none")?;
        let whole = none.megabytes();
        let rows = record.rows.iter().filter(|row| row.group == GRID && row.options != "-z none");
        rows.map(|row| Ok(Self { row, seconds: row.build()?, percent: row.megabytes() / whole * 100.0 }))
            .collect()
    }

    fn algorithm(&self) -> &str {
        let name = self.row.options.split(' ').nth(1).unwrap_or_default();
        name.split(',').next().unwrap_or_default()
    }

    fn colour(&self, theme: Theme) -> &'static str {
        let found = COLOURS.iter().find(|(name, ..)| *name == self.algorithm());
        found.map_or(theme.muted(), |(_, light, dark)| theme.pick(light, dark))
    }
}

/// The rows that no other row beats in size and in time, from the fastest to the smallest.
pub(super) fn front(record: &Record) -> Result<Vec<&Row>> {
    Ok(front_of(&Point::all(record)?).into_iter().map(|point| point.row).collect())
}

fn front_of<'a, 'b>(points: &'b [Point<'a>]) -> Vec<&'b Point<'a>> {
    let mut sorted: Vec<&Point<'_>> = points.iter().collect();
    sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.percent.total_cmp(&b.percent)));
    let mut best = f64::INFINITY;
    sorted.retain(|point| {
        let is_best = point.percent < best;
        best = best.min(point.percent);
        is_best
    });
    sorted
}

/// Places of values in the area.
struct Axes {
    /// Logarithms of the first and the last second.
    seconds: (f64, f64),
    percent: (f64, f64),
}

impl Axes {
    fn of(points: &[Point<'_>]) -> Self {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        Self {
            seconds: range(&mut points.iter().map(|point| point.seconds.ln())),
            percent: range(&mut points.iter().map(|point| point.percent)),
        }
    }

    fn x(&self, seconds: f64) -> f64 {
        let (low, high) = self.seconds;
        LEFT + MARGIN + (seconds.ln() - low) / (high - low) * (RIGHT - LEFT - 2.0 * MARGIN)
    }

    fn y(&self, percent: f64) -> f64 {
        let (low, high) = self.percent;
        BOTTOM - MARGIN - (percent - low) / (high - low) * (BOTTOM - TOP - 2.0 * MARGIN)
    }

    fn draw(&self, picture: &mut Picture, theme: Theme) {
        let muted = Style::new(12.0, theme.muted());
        for seconds in [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0] {
            let x = self.x(seconds);
            if (LEFT + 8.0..=RIGHT).contains(&x) {
                picture.line(&[(x, TOP), (x, BOTTOM)], theme.line(), 0.5);
                picture.text(x, BOTTOM + 18.0, muted.anchored(Anchor::Middle), &format!("{seconds}"));
            }
        }
        for percent in (0..=100).step_by(5) {
            let y = self.y(f64::from(percent));
            if (TOP..=BOTTOM).contains(&y) {
                picture.line(&[(LEFT, y), (RIGHT, y)], theme.line(), 0.5);
                picture.text(LEFT - 8.0, y + 4.0, muted.anchored(Anchor::End), &format!("{percent} %"));
            }
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        let title = "processor seconds of the build (logarithmic)";
        picture.text(middle, BOTTOM + 40.0, muted.anchored(Anchor::Middle), title);
        picture.text(LEFT + 6.0, TOP - 8.0, muted, "size in percent of the uncompressed image");
    }
}

pub(super) fn draw(record: &Record, theme: Theme) -> Result<Picture> {
    let points = Point::all(record)?;
    let front = front_of(&points);
    let axes = Axes::of(&points);
    let mut picture = Picture::new(
        WIDTH,
        HEIGHT,
        theme,
        "Size of the image against build time, by algorithm and cluster size",
    );
    axes.draw(&mut picture, theme);
    let place = |point: &Point<'_>| (axes.x(point.seconds), axes.y(point.percent));
    picture.line(&front.iter().map(|point| place(point)).collect::<Vec<_>>(), theme.muted(), 1.5);
    for point in &points {
        let (x, y) = place(point);
        let is_front = front.iter().any(|other| std::ptr::eq(*other, point));
        let colour = point.colour(theme);
        let (radius, fill) = if is_front { (6.0, colour) } else { (4.0, theme.background()) };
        picture.circle(x, y, radius, fill, colour);
    }
    let style = Style::new(12.0, theme.text()).bold().anchored(Anchor::Middle);
    let circles: Vec<Place> = points
        .iter()
        .map(|point| {
            let (x, y) = place(point);
            Place { left: x - 8.0, top: y - 7.0, right: x + 8.0, bottom: y + 7.0 }
        })
        .collect();
    let mut taken: Vec<Place> = Vec::new();
    for (number, point) in front.iter().enumerate() {
        let (x, y) = place(point);
        let text = (number + 1).to_string();
        let at = free_place(x, y, &style, &text, &circles, &taken);
        taken.push(style.place(at.0, at.1, &text));
        picture.text(at.0, at.1, style, &text);
    }
    legend(&mut picture, theme, &front);
    Ok(picture)
}

/// A place for a number beside its point that hides no other number, and no point if there is such a place.
fn free_place(x: f64, y: f64, style: &Style, text: &str, circles: &[Place], taken: &[Place]) -> (f64, f64) {
    let around: Vec<(f64, f64)> = [13.0, 20.0, 28.0, 36.0]
        .into_iter()
        .flat_map(|radius| {
            // Below and to the left first: no point is there, because the front is there.
            (0..16).map(move |step| {
                let angle = std::f64::consts::PI
                    * (0.75 + f64::from((step + 1) / 2) / 8.0 * if step % 2 == 0 { 1.0 } else { -1.0 });
                (x + radius * angle.cos(), y + 4.0 + radius * angle.sin())
            })
        })
        .filter(|(x, y)| *x > LEFT + 4.0 && *x < RIGHT - 4.0 && *y > TOP + 12.0 && *y < BOTTOM - 2.0)
        .collect();
    let free = |at: &&(f64, f64), places: &[Place]| {
        let place = style.place(at.0, at.1, text);
        places.iter().all(|other| !other.meets(&place))
    };
    let best = around.iter().find(|at| free(at, circles) && free(at, taken));
    best.or_else(|| around.iter().find(|at| free(at, taken))).copied().unwrap_or((x, y - 12.0))
}

/// The meaning of colours and numbers, right of the area.
fn legend(picture: &mut Picture, theme: Theme, front: &[&Point<'_>]) {
    let x = RIGHT + 24.0;
    let (text, muted) = (Style::new(12.0, theme.text()), Style::new(12.0, theme.muted()));
    let mut y = TOP + 4.0;
    for (number, (name, light, dark)) in COLOURS.iter().enumerate() {
        let column = x + (number % 3) as f64 * 78.0;
        let colour = theme.pick(light, dark);
        picture.circle(column + 5.0, y - 4.0, 5.0, colour, colour);
        picture.text(column + 15.0, y, text, name);
        if number == 2 {
            y += 20.0;
        }
    }
    y += 28.0;
    for line in [
        "Circles of one colour: levels and",
        "cluster sizes of 4K to 1M, with",
        "fragments. Numbered: nothing is both",
        "smaller and faster to build.",
    ] {
        picture.text(x, y, muted, line);
        y += 16.0;
    }
    y += 8.0;
    for (at, point) in front.iter().enumerate() {
        let options = point.row.options.trim_end_matches(" -E fragments");
        picture.text(x + 16.0, y, text.bold().anchored(Anchor::End), &(at + 1).to_string());
        picture.text(x + 22.0, y, Style { size: 11.0, ..text }.mono(), options);
        y += 13.0;
        let figures = format!("{:.1} %, {} s", point.percent, number(point.seconds));
        picture.text(x + 22.0, y, Style { size: 11.0, ..muted }, &figures);
        y += 15.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Tool;
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
        let options: Vec<&str> = front(&record).unwrap().iter().map(|row| row.options.as_str()).collect();
        assert_eq!(options, ["-z lz4 -C 4K", "-z lz4 -C 64K", "-z zstd,19 -C 1M"]);
        assert_eq!(draw(&record, Theme::Dark).unwrap().overlaps(), Vec::<String>::new());
    }
}
