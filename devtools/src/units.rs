//! Formats sizes and rates for people.

use std::time::Duration;

/// A size in powers of ten, as disks are sold: `1.2 MB`.
pub fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 1e3 && unit < units.len() - 1 {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// Bytes per second.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{}/s", size((bytes as f64 / time.as_secs_f64().max(1e-9)) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(999), "1.0 kB");
        assert_eq!(size(1_234_567), "1.2 MB");
        assert_eq!(rate(2_000_000, Duration::from_secs(2)), "1.0 MB/s");
    }
}
