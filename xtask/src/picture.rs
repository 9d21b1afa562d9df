//! Draws bar charts and a map of an image with characters.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;
use ferofs_devtools::{shell, units};

/// Characters in a row.
const WIDTH: usize = 64;
/// Rows of the map, at most.
const ROWS: usize = 6;

/// One bar per line; the longest has [`WIDTH`] characters.
pub(crate) fn bars(values: &[(&str, u64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let lines = values.iter().map(|(name, value)| {
        let bar = "█".repeat((*value as f64 / most as f64 * WIDTH as f64).round() as usize);
        let percent = *value as f64 / most as f64 * 100.0;
        format!(
            "{name:9} {} {} ({percent:.0} %)",
            shell::colour(&format!("{bar:<WIDTH$}"), "36"),
            units::size(*value)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A map of the image. Each character stands for a part of it; a darker character means more information per byte.
pub(crate) fn map(image: &Path) -> Result<String> {
    let file = File::open(image)?;
    let len = file.metadata()?.len();
    let cells = (len / 4096).clamp(1, (WIDTH * ROWS) as u64);
    let mut buffer = vec![0; 64 << 10];
    let mut lines = vec![format!(
        "the image, from its first byte to its last; bits of information per byte: {}",
        legend()
    )];
    let mut line = String::new();
    for cell in 0..cells {
        let start = len * cell / cells;
        let end = len * (cell + 1) / cells;
        let want = buffer.len().min((end - start) as usize);
        let got = file.read_at(&mut buffer[..want], start)?;
        let (mark, code) = mark(entropy(&buffer[..got]));
        line.push_str(&shell::colour(mark, code));
        if (cell as usize + 1).is_multiple_of(WIDTH) || cell + 1 == cells {
            lines.push(format!("          {line}"));
            line.clear();
        }
    }
    Ok(lines.join("\n"))
}

/// The upper limit in bits per byte, the character, and its ANSI colour. Zeroes have 0 bits, incompressible data has 8.
const MARKS: [(f64, &str, &str); 4] = [(2.0, "·", "2"), (5.0, "░", "33"), (7.0, "▒", "32"), (8.1, "█", "34")];

fn mark(entropy: f64) -> (&'static str, &'static str) {
    let [.., (_, darkest, code)] = MARKS;
    MARKS.iter().find(|(bound, ..)| entropy < *bound).map_or((darkest, code), |(_, mark, code)| (mark, code))
}

fn legend() -> String {
    let part =
        |(bound, mark, code): &(f64, &str, &str)| format!("{} under {bound:.0}", shell::colour(mark, code));
    MARKS.iter().map(part).collect::<Vec<_>>().join(", ").replace("under 8", "more")
}

/// Bits of information per byte, 0 to 8, if the bytes are independent of each other.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let total = bytes.len().max(1) as f64;
    let bits = |count: u32| {
        let share = f64::from(count) / total;
        -share * share.log2()
    };
    counts.into_iter().filter(|count| *count > 0).map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_between_zero_and_eight_bits() {
        assert_eq!(entropy(&[7; 1000]), 0.0);
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(entropy(&all), 8.0);
    }

    #[test]
    fn the_longest_bar_has_the_full_width() {
        let bars = bars(&[("source", 200), ("image", 50)]);
        assert_eq!(bars.lines().map(|line| line.matches('█').count()).collect::<Vec<_>>(), [64, 16]);
        assert!(bars.ends_with("(25 %)"));
    }
}
