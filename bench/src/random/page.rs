//! Writes `docs/results/random.md`: of one run the slowest cells of ferofs, the median and the fastest.

use std::fmt::Write as _;

use super::{Cell, Summary};

/// The page shows this many of the slowest cells: enough to see which kinds of reads are slow.
const SLOWEST: usize = 8;

/// The page. `machine` has the lines that say where it was measured.
pub(crate) fn page(results: &[(Cell, [Summary; 3])], rounds: usize, machine: &str) -> String {
    let mut page = format!(
        "# Random reads through FUSE\n\n\
         For readers who want to know where a mount of ferofs is slow. `cargo xtask bench random --publish` measured {} cells and wrote \
         this page: medians of {rounds} rounds, in which ferofs, erofsfuse and Linux's driver (through a loop device) took turns. The table \
         shows the {SLOWEST} slowest cells of ferofs, compared with erofsfuse, then the median cell and the fastest one.\n\n\
         fio reads parts of a file of 1.36 GB (kernel source). A cell is: algorithm and largest \
         cluster; whether the image is in the page cache (warm) or not (cold); which pages are read, and how many percent of them; bytes of \
         a read, and how many reads run at a time. “CPU” is the daemon's processor time for each read, as a multiple of erofsfuse's.\n\n",
        results.len()
    );
    page.push_str(machine);
    page.push_str("\n| ferofs / erofsfuse | cell | ferofs, MiB/s | erofsfuse | kernel | CPU |\n|---|---|---|---|---|---|\n");
    let mut cells: Vec<&(Cell, [Summary; 3])> = results.iter().collect();
    cells.sort_by(|a, b| ratio(&a.1).total_cmp(&ratio(&b.1)));
    let last = cells.len().saturating_sub(1);
    for (number, (cell, summaries)) in cells.into_iter().enumerate() {
        if number >= SLOWEST && number != last / 2 && number != last {
            continue;
        }
        let [ferofs, erofsfuse, kernel] = summaries;
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| {:.2} | {cell} | {:.0} | {:.0} | {:.0} | {:.2} |",
            ratio(summaries),
            ferofs.speed.median,
            erofsfuse.speed.median,
            kernel.speed.median,
            ferofs.cpu.unwrap_or(f64::NAN) / erofsfuse.cpu.unwrap_or(f64::NAN),
        );
    }
    page
}

fn ratio([ferofs, erofsfuse, _]: &[Summary; 3]) -> f64 {
    ferofs.speed.median / erofsfuse.speed.median
}
