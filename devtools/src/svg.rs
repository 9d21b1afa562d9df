//! Pictures of the documentation as SVG: shapes and text in the colours of a light and of a dark
//! page.
//!
//! A picture remembers where its text is, so that [`Picture::overlaps`] finds text that overlaps or
//! is cut off.

use std::fmt::Write as _;

/// Width of a letter of [`Font::Sans`], as a part of the font's size: wider than the widest mean of
/// the fonts in the list.
const SANS_WIDTH: f64 = 0.56;
/// Width of a letter of [`Font::Mono`]: that of most monospaced fonts is 0.6.
const MONO_WIDTH: f64 = 0.61;

/// The page that the picture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark text on white.
    Light,
    /// Light text on nearly black.
    Dark,
}

impl Theme {
    /// Both, with the names that the files of pictures end with.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Light, "light"), (Self::Dark, "dark")];

    /// The colour of the page.
    pub fn background(self) -> &'static str {
        self.pick("#ffffff", "#0d1117")
    }

    /// The colour of text.
    pub fn text(self) -> &'static str {
        self.pick("#1f2328", "#e6edf3")
    }

    /// The colour of less important text.
    pub fn muted(self) -> &'static str {
        self.pick("#59636e", "#9198a1")
    }

    /// The colour of lines between things.
    pub fn line(self) -> &'static str {
        self.pick("#d1d9e0", "#3d444d")
    }

    /// `light` or `dark`.
    pub fn pick(self, light: &'static str, dark: &'static str) -> &'static str {
        match self {
            Self::Light => light,
            Self::Dark => dark,
        }
    }
}

/// A font that each system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Font {
    /// For sentences.
    Sans,
    /// For commands.
    Mono,
}

/// Where the position of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// How text looks.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The font.
    pub font: Font,
    /// The font's size in pixels.
    pub size: f64,
    /// The colour.
    pub colour: &'static str,
    /// Whether it is bold.
    pub bold: bool,
    /// Where its position is.
    pub anchor: Anchor,
}

impl Style {
    /// Text that starts at its position.
    pub fn new(size: f64, colour: &'static str) -> Self {
        Self { font: Font::Sans, size, colour, bold: false, anchor: Anchor::Start }
    }

    /// The same in bold.
    #[must_use]
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// The same with another position.
    #[must_use]
    pub fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// The same in a font for commands.
    #[must_use]
    pub fn mono(self) -> Self {
        Self { font: Font::Mono, ..self }
    }

    /// The place that `text` takes at a position: left, top, right, bottom.
    pub fn place(&self, x: f64, y: f64, text: &str) -> Place {
        let letter = if self.font == Font::Mono { MONO_WIDTH } else { SANS_WIDTH };
        let width = letter * self.size * text.chars().count() as f64;
        let left = match self.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        Place { left, top: y - self.size * 0.8, right: left + width, bottom: y + self.size * 0.25 }
    }
}

/// A rectangle, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The left edge.
    pub left: f64,
    /// The upper edge.
    pub top: f64,
    /// The right edge.
    pub right: f64,
    /// The lower edge.
    pub bottom: f64,
}

impl Place {
    /// Whether two rectangles have a common part.
    pub fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// A picture in the making.
#[derive(Debug)]
pub struct Picture {
    width: f64,
    height: f64,
    title: String,
    body: String,
    texts: Vec<(Place, String)>,
}

impl Picture {
    /// An empty picture of this size in pixels. Programs that read pages aloud read the title.
    pub fn new(width: f64, height: f64, theme: Theme, title: &str) -> Self {
        let mut new =
            Self { width, height, title: escaped(title), body: String::new(), texts: Vec::new() };
        new.push(format_args!(
            r#"<rect width="{width}" height="{height}" rx="6" fill="{}"/>"#,
            theme.background()
        ));
        new
    }

    /// Adds a rectangle.
    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], colour: &str) {
        self.push(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        ));
    }

    /// Adds a line through points.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.push(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#
        ));
    }

    /// Adds text whose baseline is at `y`.
    pub fn text(&mut self, x: f64, y: f64, style: Style, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.texts.push((style.place(x, y, text), text.to_owned()));
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let font = match style.font {
            Font::Sans => "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif",
            Font::Mono => "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace",
        };
        let weight = if style.bold { r#" font-weight="600""# } else { "" };
        let Style { size, colour, .. } = style;
        let text = escaped(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-family="{font}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight} xml:space="preserve">{text}</text>"#
        ));
    }

    /// Text that overlaps other text or is cut off.
    pub fn overlaps(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (number, (place, text)) in self.texts.iter().enumerate() {
            let others = self.texts.iter().skip(number + 1).filter(|(other, _)| place.meets(other));
            found.extend(others.map(|(_, other)| format!("{text:?} overlaps {other:?}")));
            let fits = place.left >= 0.0
                && place.top >= 0.0
                && place.right <= self.width
                && place.bottom <= self.height;
            if !fits {
                found.push(format!("{text:?} is cut off"));
            }
        }
        found
    }

    /// The file.
    pub fn finish(self) -> String {
        let Self { width, height, title, body, .. } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{title}</title>\n{body}</svg>\n"
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_and_cut_text_is_found() {
        let mut picture = Picture::new(100.0, 50.0, Theme::Light, "a < b");
        let style = Style::new(10.0, "#000000");
        picture.text(5.0, 20.0, style, "first");
        picture.text(5.0, 40.0, style, "second");
        assert_eq!(picture.overlaps(), Vec::<String>::new());
        picture.text(20.0, 22.0, style, "third");
        picture.text(90.0, 40.0, style, "fourth");
        assert_eq!(picture.overlaps(), [r#""first" overlaps "third""#, r#""fourth" is cut off"#]);
        let file = picture.finish();
        assert!(file.contains("<title>a &lt; b</title>") && file.ends_with("</svg>\n"), "{file}");
    }
}
