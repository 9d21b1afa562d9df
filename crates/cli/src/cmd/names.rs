//! Names for people: what a hostile image calls its files must not steer a terminal.

use std::path::Path;

use ferofs::escape::Escaped;

/// `path` from the root on, so that no character of it steers a terminal.
pub(crate) fn shown(path: &Path) -> String {
    format!("/{}", Escaped::path(path))
}

/// `bytes` in a unit that is easy to read.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} EiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
    }
}
