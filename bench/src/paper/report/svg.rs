//! Draws bar and line plots as SVG. The two kinds of plots are short enough to need no plotting crate.

use std::fmt::Write;

use super::html::escape;
use crate::common::rounds::Spread;

/// Colours that colour-blind readers and printers can distinguish.
const COLOURS: [&str; 11] = [
    "#c44e00", "#1f5fa8", "#7a3e9d", "#2c7a4b", "#5a9e3a", "#93b84a", "#c3c26b", "#6b6b6b", "#3fa0a0",
    "#68c0c0", "#a0522d",
];

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// A bar for each name: its length is the median, a thin line goes from the minimum to the maximum. Rows without a value show the
/// reason.
pub(crate) fn bars(title: &str, rows: &[(&str, Result<Spread, &str>)], digits: usize) -> String {
    let (left, right, height) = (170.0, 70.0, 20.0);
    let plot_width = 250.0;
    let max =
        rows.iter().filter_map(|(_, row)| row.as_ref().ok()).map(|spread| spread.max).fold(0.0, f64::max);
    let scale = if max > 0.0 { plot_width / max } else { 0.0 };
    let mut svg = open(left + plot_width + right, 26.0 + height * rows.len() as f64, title);
    for (index, (name, row)) in rows.iter().enumerate() {
        let y = 26.0 + height * index as f64;
        text(&mut svg, left - 6.0, y + 14.0, "end", name);
        match row {
            Ok(Spread { min, median, max }) => {
                let (width, colour) = (median * scale, colour(index));
                let _ = write!(
                    svg,
                    "<rect x=\"{left}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>",
                    y + 3.0
                );
                let (from, to) = (left + min * scale, left + max * scale);
                let _ = write!(svg, "<path d=\"M{from:.1} {0:.1}H{to:.1}\" class=\"spread\"/>", y + 10.0);
                text(&mut svg, to.max(left + width) + 5.0, y + 14.0, "start", &format!("{median:.digits$}"));
            }
            Err(why) => {
                let short: String = why.chars().take(48).collect();
                text(&mut svg, left + 3.0, y + 14.0, "start", &short);
            }
        }
    }
    svg + "</svg>"
}

/// A line for each name, through its points. The first value of a point is its position on the x axis; positions are drawn at equal
/// distances, whatever their values.
pub(crate) fn lines(title: &str, axis: &str, rows: &[(&str, Vec<(f64, Spread)>)], digits: usize) -> String {
    let (left, top, plot_width, plot_height) = (60.0, 30.0, 330.0, 200.0);
    let mut places: Vec<f64> =
        rows.iter().flat_map(|(_, points)| points.iter().map(|point| point.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let values = rows.iter().flat_map(|(_, points)| points.iter().map(|point| point.1.max));
    let max = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let step = plot_width / (places.len().max(2) - 1) as f64;
    let x = |place: f64| left + step * places.iter().position(|other| *other == place).unwrap_or(0) as f64;
    let y = |value: f64| top + plot_height * (1.0 - value / max);
    let mut svg = open(left + plot_width + 170.0, top + plot_height + 45.0, title);
    let _ = write!(
        svg,
        "<path d=\"M{left} {top}V{0}H{1}\" class=\"axis\"/>",
        top + plot_height,
        left + plot_width
    );
    for part in 0..=4 {
        let value = max * f64::from(part) / 4.0;
        text(&mut svg, left - 5.0, y(value) + 4.0, "end", &format!("{value:.digits$}"));
    }
    for place in &places {
        text(&mut svg, x(*place), top + plot_height + 16.0, "middle", &place.to_string());
    }
    text(&mut svg, left + plot_width / 2.0, top + plot_height + 36.0, "middle", axis);
    for (index, (name, points)) in rows.iter().enumerate() {
        let colour = colour(index);
        for (at, (place, spread)) in points.iter().enumerate() {
            let (px, py) = (x(*place), y(spread.median));
            if let Some((before, last)) = at.checked_sub(1).and_then(|before| points.get(before)) {
                let (bx, by) = (x(*before), y(last.median));
                let _ = write!(
                    svg,
                    "<path d=\"M{bx:.1} {by:.1}L{px:.1} {py:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                );
            }
            let (low, high) = (y(spread.min), y(spread.max));
            let _ = write!(svg, "<path d=\"M{px:.1} {low:.1}V{high:.1}\" class=\"spread\"/>");
            let _ = write!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let place = top + 16.0 * index as f64;
        let _ = write!(
            svg,
            "<rect x=\"{}\" y=\"{place:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            left + plot_width + 14.0
        );
        let shown = if points.is_empty() { format!("{name}: none") } else { (*name).to_owned() };
        text(&mut svg, left + plot_width + 28.0, place + 9.0, "start", &shown);
    }
    svg + "</svg>"
}

fn open(width: f64, height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">"
    );
    let _ = write!(svg, "<title>{0}</title><text x=\"4\" y=\"16\" class=\"title\">{0}</text>", escape(title));
    svg
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    // Writing to a String does not fail.
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words));
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Spread = Spread { min: 1.0, median: 2.0, max: 4.0 };

    #[test]
    fn the_largest_maximum_ends_at_the_full_width() {
        let svg = bars("a & b", &[("x", Ok(ONE)), ("y", Err("needs <root>"))], 1);
        assert!(svg.contains("width=\"125.0\"") && svg.contains("M232.5 36.0H420.0"), "{svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("needs &lt;root&gt;"));
    }

    #[test]
    fn plots_without_values_are_valid() {
        assert!(bars("t", &[], 0).ends_with("</svg>"));
        assert!(lines("t", "x", &[("a", Vec::new())], 0).contains("a: none"));
        let svg = lines("t", "x", &[("a", vec![(1.0, ONE), (64.0, ONE)])], 0);
        assert!(svg.contains("M60.0 130.0L390.0 130.0") && !svg.contains("NaN"), "{svg}");
    }
}
