//! The index of equal extents: its memory, and how much of known duplicates it finds, in content that is generated and written to nowhere.

use std::time::Instant;

use anyhow::{Context, Result};
use ferofs_build::data::encode::dedupe::{ExtentFingerprint, ExtentIndex, StoredExtent};

use super::Bench;
use super::trees::random;
use crate::common::process::resident_peak;
use crate::common::report::{Table, Wanted, number};

/// Bytes of content that one job of a build reads.
const JOB: usize = 1 << 20;
/// Bytes of an extent: what a block of 4 KiB holds at a ratio of two.
const EXTENT: usize = 8 << 10;
/// Of this many jobs, the last one repeats earlier content.
const REPEATED_ONE_IN: u64 = 5;
/// Repeated content begins this many bytes after the start of an earlier job.
const SHIFT: usize = 777;

/// The content of fresh job `job`: incompressible, and nowhere else.
fn fresh(job: u64, content: &mut [u8]) {
    let mut state = random(job) | 1;
    for bytes in content.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
    }
}

pub(super) fn dedupe(bench: &mut Bench) -> Result<()> {
    let jobs = bench.dedupe_bytes / JOB as u64;
    let index = ExtentIndex::new(&bench.disk);
    let (mut content, mut two) = (vec![0; JOB], vec![0; 2 * JOB]);
    let before = resident_peak(std::process::id()).context("/proc")?;
    let (mut extents, mut repeated, mut found) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    for job in 0..jobs {
        let repeats = job % REPEATED_ONE_IN == REPEATED_ONE_IN - 1 && job > 200;
        if repeats {
            // Two neighbours that are not repeated themselves, at least 100 jobs ago.
            let groups = (job - 100) / REPEATED_ONE_IN;
            let first = random(job) % groups * REPEATED_ONE_IN;
            fresh(first, &mut two[..JOB]);
            fresh(first + 1, &mut two[JOB..]);
            content.copy_from_slice(&two[SHIFT..SHIFT + JOB]);
            repeated += JOB as u64;
        } else {
            fresh(job, &mut content);
        }
        let matches = index.find(&content, job as usize, 0)?;
        let mut at = 0;
        for range in matches.iter().map(|found| (found.start, found.len)).chain([(JOB, 0)]) {
            while at < range.0 {
                let end = range.0.min(at + EXTENT);
                if let Some(fingerprint) = ExtentFingerprint::of(&content[at..end]) {
                    let place = ferofs_format::BytePos::new(extents * 4096);
                    let stored =
                        StoredExtent { at: place, size: 4096, encoded: true, method: 0, partial: false };
                    index.insert(job as usize, fingerprint, stored)?;
                    extents += 1;
                }
                at = end;
            }
            at = range.0 + range.1;
            found += range.1 as u64;
        }
        if job % 10_000 == 0 {
            eprintln!("{job} of {jobs} jobs, {extents} extents");
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let memory = resident_peak(std::process::id()).context("/proc")? - before;
    // The last records wait in memory before they are written.
    let per_extent = memory.saturating_sub(8 << 20) as f64 / extents as f64;
    let share = found as f64 / repeated as f64 * 100.0;
    bench.report.aim(
        "deduplication: memory for each extent, without 8 MiB for all",
        per_extent,
        Wanted::AtMost(16.0),
        " B",
    );
    bench.report.aim("deduplication: found of repeated content", share, Wanted::AtLeast(98.0), " %");
    bench.report.add(&Table {
        title: "Deduplication".into(),
        text: format!(
            "The table shows the index of `-E dedupe` for {} GB of generated content on one thread: incompressible bytes in jobs of 1 MiB, of which each fifth \
             repeats two earlier ones from another offset on, and extents of 8 KiB.",
            number(bench.dedupe_bytes as f64 / 1e9)
        ),
        head: vec!["", ""],
        rows: vec![
            vec!["extents".into(), number(extents as f64)],
            vec!["memory".into(), format!("{} MB", number(memory as f64 / 1e6))],
            vec!["found of repeated content".into(), format!("{} %", number(share))],
            vec!["seconds".into(), number(seconds)],
        ],
    });
    Ok(())
}
