//! Lines of `--compress-hints` whose size cannot be used. As erofs-utils: a warning, and the files are encoded as if the line was missing.

use ferofs::build::{BlockSize, PCLUSTER_MAX};

use crate::args::byte_size;

/// Replaces lines with sizes that cannot be used by empty ones, so that the numbers of the other lines stay; returns a warning for each.
pub(super) fn without_wrong_sizes(text: &str, block: BlockSize) -> (String, Vec<String>) {
    let mut warnings = Vec::new();
    let mut kept = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let word = line.split_whitespace().next().filter(|_| !line.starts_with('#'));
        if let Some(word) = word
            && let Some(reason) = problem(word, block)
        {
            warnings
                .push(format!("line {}: size {word}: {reason}; the default is used", number + 1));
        } else {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    (kept, warnings)
}

fn problem(size: &str, block: BlockSize) -> Option<&'static str> {
    match byte_size::parse::<u32>(size) {
        None => Some("not a number of bytes"),
        Some(bytes) if !u64::from(bytes).is_multiple_of(block.bytes64()) => {
            Some("not a multiple of the block size")
        }
        Some(bytes) if bytes > PCLUSTER_MAX => Some("more than 1 MiB"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_wrong_sizes_are_left_out() {
        let text = "# 5 comment\n5 \\.a$\n\n4096 \\.b$\nx \\.c$\n2M \\.d$\n0 \\.e$\n";
        let (kept, warnings) = without_wrong_sizes(text, BlockSize::DEFAULT);
        assert_eq!(kept, "# 5 comment\n\n\n4096 \\.b$\n\n\n0 \\.e$\n");
        let lines: Vec<&str> = warnings.iter().filter_map(|text| text.split(':').next()).collect();
        assert_eq!(lines, ["line 2", "line 5", "line 6"]);
    }
}
