//! Checks an image against all rules of the format. Nothing is repaired. Source: FORMAT.md 8.
//!
//! One thread walks the tree from the root and checks directories and links (`walk`). Workers check
//! each inode's attributes, map and content (`inodes`), and add the bytes that it uses to
//! `used_space`. If inodes use the same bytes against the rules, a second walk finds out which ones
//! (`owners`), and another one the files with fragments in damaged clusters.

// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod checker;
mod inodes;
mod linux;
mod owners;
mod paths;
mod queue;
mod report;
mod superblock;
mod used_space;
mod walk;

use checker::Checker;
use ferofs_read::{Image, READER_MEMORY};
use ferofs_threads::{fitting_workers, start};
use inodes::{BUFFER_SIZE, Task};
use queue::{Closing, Queue};
use walk::Walk;

pub use report::{Finding, Options, Progress, Report};

/// Inodes that wait for a worker at most. The walk waits when the queue is full, so that memory
/// does not grow with the image.
const QUEUE: usize = 1024;

/// Checks `image`.
///
/// # Errors
/// [`crate::Error::Io`] when the image cannot be read; [`crate::Error::Interrupted`], and
/// [`crate::Error::Limit`], when the check was stopped.
/// Broken rules are in the report.
pub fn check(image: &Image, options: &Options) -> crate::error::Result<Report> {
    let (report, result) = check_until_stopped(image, options);
    result.map(|()| report)
}

/// Checks `image` like [`check`]. When an error stops the check, the report has the findings until
/// then. It lacks unreferenced blocks, link counts, and bytes that are used twice: only a complete
/// walk finds these.
pub fn check_until_stopped(image: &Image, options: &Options) -> (Report, crate::error::Result<()>) {
    let checker = Checker::new(image, options.content);
    let workers = fitting_workers(options.workers, READER_MEMORY);
    let tasks: Queue<Task> = Queue::new(QUEUE);
    checker.check_superblock();
    let walked = std::thread::scope(|scope| {
        let serve = || {
            let mut buffer = vec![0; BUFFER_SIZE];
            tasks.serve(|task| checker.check_inode(task, &tasks, &mut buffer));
        };
        start(scope, workers, || serve).map_err(crate::error::Error::of_threads)?;
        let closing = Closing(&tasks);
        Ok::<_, crate::error::Error>(Walk::new(&checker, closing.0, &options.progress).run())
    });
    let (inodes, directories) = match walked {
        Ok(counts) => counts,
        Err(error) => return (Report::default(), Err(error)),
    };
    let mut unreferenced_blocks = 0;
    if !checker.findings.has_failed() {
        checker.report_fragments();
        let overlaps = checker.used_space().overlaps();
        if !overlaps.is_empty() {
            checker.report_owners(&overlaps);
        }
        unreferenced_blocks = checker.used_space().unreferenced(image.superblock().blocks);
    }
    let content_bytes = checker.content_bytes.into_inner();
    let report =
        Report { inodes, directories, content_bytes, unreferenced_blocks, ..Report::default() };
    let (report, result) = checker.findings.into_report(report);
    (report, result.map_err(Into::into))
}

#[cfg(test)]
mod tests;
