//! Writes `docs/RANDOM_READS.md`, the page with all cells of one run of [`super::random`], the slowest of ferofs first.

use std::fmt::Write as _;

use super::random::{Cell, Results, Summary};
use crate::common::rounds::Spread;

/// The page. `machine` describes where and with which versions it was measured, one line each.
pub(crate) fn page(results: &Results, rounds: usize, machine: &[String]) -> String {
    let mut page = format!(
        "# Random reads through FUSE\n\n\
         For readers who want to know where a mount of ferofs is slow. `cargo xtask bench random --publish` measured all cells in one run \
         and wrote this page: medians of {rounds} rounds, in which ferofs, erofsfuse and Linux's driver (through a loop device) took turns. \
         The slowest cells of ferofs, compared with erofsfuse, come first.\n\n\
         fio reads parts of a file of 1.36 GB (kernel source), or a command reads many small files. A cell is: algorithm and largest \
         cluster; whether the image is in the page cache (warm) or not (cold); which pages are read, and how many percent of them; bytes of \
         a read, and how many reads run at a time. “p99” is the time that 99 % of the reads do not exceed. “CPU” is the daemon's \
         processor time for each read, as a multiple of erofsfuse's. “I/O” is what is read from the image's device, as a multiple of what \
         Linux's driver reads.\n\n"
    );
    for line in machine {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "- {line}");
    }
    page.push_str("\n| ferofs / erofsfuse | cell | ferofs, MiB/s | erofsfuse | kernel | ferofs / kernel | p99, µs | p99, erofsfuse | CPU | I/O |\n");
    page.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    let mut cells: Vec<&(Cell, [Summary; 3])> = results.cells.iter().collect();
    cells.sort_by(|a, b| ratio(&a.1).total_cmp(&ratio(&b.1)));
    for (cell, summaries) in cells {
        let [ferofs, erofsfuse, kernel] = summaries;
        let _ = writeln!(
            page,
            "| {:.2} | {cell} | {} | {} | {} | {:.2} | {:.0} | {:.0} | {:.2} | {} |",
            ratio(summaries),
            spread(ferofs.speed),
            spread(erofsfuse.speed),
            spread(kernel.speed),
            ferofs.speed.median / kernel.speed.median,
            ferofs.p99,
            erofsfuse.p99,
            ferofs.cpu.unwrap_or(f64::NAN) / erofsfuse.cpu.unwrap_or(f64::NAN),
            device(ferofs, kernel),
        );
    }
    page.push_str(
        "\n| erofsfuse / ferofs | command | ferofs, ms | erofsfuse | kernel |\n|---|---|---|---|---|\n",
    );
    let mut programs: Vec<_> = results.programs.iter().collect();
    programs.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    for program in programs {
        let [ferofs, erofsfuse, kernel] = program.seconds.map(|seconds| seconds * 1e3);
        let _ = writeln!(
            page,
            "| {:.2} | {} | {ferofs:.0} | {erofsfuse:.0} | {kernel:.0} |",
            program.ratio(),
            program.title
        );
    }
    page
}

fn ratio([ferofs, erofsfuse, _]: &[Summary; 3]) -> f64 {
    ferofs.speed.median / erofsfuse.speed.median
}

fn spread(Spread { min, median, max }: Spread) -> String {
    format!("{median:.0} ({min:.0}–{max:.0})")
}

/// Warm images are not read from the device, but for a few blocks.
fn device(ferofs: &Summary, kernel: &Summary) -> String {
    if kernel.device_bytes < 0.01 {
        String::new()
    } else {
        format!("{:.2}", ferofs.device_bytes / kernel.device_bytes)
    }
}
