//! The time of a build: simulates the data stage, whose workers encode jobs at the same time, but whose results are taken in the order of the jobs.

use std::collections::VecDeque;

use crate::data::schedule::{BATCH_BYTES, BATCH_FILES};

/// Seconds for each byte of the image: the system copies it and allocates memory for it. Measured in memory: 1.5 to 2.5 ns; other tests of the
/// estimate are within 25 % with this.
const WRITE: f64 = 2e-9;
/// Seconds for each byte of encoded fragments: they are also written to a temporary file and read from there.
const FRAGMENT: f64 = 3e-9;

/// Seconds for each name: the appending thread places its content.
const APPEND: f64 = 6e-6;
/// Seconds for starting and ending the program and its threads.
const START: f64 = 0.01;

/// Processor seconds for writing an image of `size` bytes, of which `fragments` are fragments, with `names` names.
pub(super) fn writing(size: f64, fragments: f64, names: usize) -> f64 {
    START + size * WRITE + fragments * FRAGMENT + names as f64 * APPEND
}

/// What a file, or a job, takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Seconds of the worker.
    pub(super) seconds: f64,
    /// Bytes that become fragments, which other jobs encode.
    pub(super) fragments: f64,
}

impl Work {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.fragments += other.fragments;
    }
}

/// The data stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) workers: usize,
    /// The most jobs whose results were not taken.
    pub(super) limit: usize,
    /// Bytes of a part of a large file, and of the packed inode.
    pub(super) segment: u64,
    /// Seconds for each byte of the packed inode.
    pub(super) packed: f64,
}

/// The jobs of the data stage, in order.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Vec<Work>,
    batch: Work,
    batch_bytes: u64,
    batch_files: usize,
}

impl Jobs {
    /// Adds a file that shares its job with others.
    pub(super) fn add_small(&mut self, bytes: u64, work: Work) {
        self.batch.add(work);
        self.batch_bytes += bytes;
        self.batch_files += 1;
        if self.batch_bytes >= BATCH_BYTES || self.batch_files >= BATCH_FILES {
            self.end_batch();
        }
    }

    /// Adds a file of `bytes` that is cut into jobs of at most `segment` bytes.
    pub(super) fn add_large(&mut self, bytes: u64, segment: u64, work: Work) {
        self.end_batch();
        let mut left = bytes;
        while left > 0 {
            let len = left.min(segment);
            let part = len as f64 / bytes as f64;
            self.jobs.push(Work { seconds: work.seconds * part, fragments: work.fragments * part });
            left -= len;
        }
    }

    fn end_batch(&mut self) {
        if self.batch_files > 0 {
            self.jobs.push(self.batch);
        }
        (self.batch, self.batch_bytes, self.batch_files) = (Work::default(), 0, 0);
    }

    /// The time until all jobs are done, and all jobs on the fragments that they leave.
    pub(super) fn seconds(mut self, stage: Stage) -> f64 {
        self.end_batch();
        let segment = stage.segment.max(1) as f64;
        let packed = |bytes: f64| Work { seconds: bytes * stage.packed, fragments: 0.0 };
        let mut jobs = self.jobs.into_iter();
        let mut free = vec![0.0_f64; stage.workers.max(1)];
        let mut running: VecDeque<(f64, f64)> = VecDeque::new();
        let (mut now, mut waiting, mut parts) = (0.0_f64, 0.0, 0_u64);
        loop {
            while running.len() < stage.limit.max(1) {
                let job = if parts > 0 {
                    parts -= 1;
                    packed(segment)
                } else if let Some(job) = jobs.next() {
                    job
                } else if running.is_empty() && waiting > 0.0 {
                    packed(std::mem::take(&mut waiting))
                } else {
                    break;
                };
                if let Some(first) = free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                    *first = first.max(now) + job.seconds.max(0.0);
                    running.push_back((*first, job.fragments));
                }
            }
            let Some((end, fragments)) = running.pop_front() else { return now };
            now = now.max(end);
            waiting += fragments.max(0.0);
            while waiting >= segment {
                waiting -= segment;
                parts += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn work(seconds: f64, fragments: f64) -> Work {
        Work { seconds, fragments }
    }

    fn stage(workers: usize) -> Stage {
        Stage { workers, limit: 8, segment: 10, packed: 1.0 }
    }

    #[test]
    fn few_long_jobs_do_not_occupy_all_workers() {
        let jobs = |lens: &[u64]| {
            let mut jobs = Jobs::default();
            lens.iter().for_each(|len| jobs.add_large(*len, 24, work(*len as f64, 0.0)));
            jobs
        };
        assert_eq!(jobs(&[24]).seconds(stage(2)), 24.0);
        // 24 and 16 on the second worker; the first is free after 24.
        assert_eq!(jobs(&[24, 40]).seconds(stage(2)), 40.0);
        assert_eq!(jobs(&[24, 40]).seconds(stage(1)), 64.0);
        assert_eq!(jobs(&[24; 100]).seconds(stage(4)), 600.0);
    }

    #[test]
    fn jobs_behind_a_long_one_wait_for_it() {
        let mut jobs = Jobs::default();
        jobs.add_large(100, 100, work(100.0, 0.0));
        (0..50).for_each(|_| jobs.add_large(1, 1, work(1.0, 0.0)));
        // Seven of the short ones are done beside the long one; then both workers do the others.
        assert_eq!(jobs.seconds(stage(2)), 100.0 + 22.0);
    }

    #[test]
    fn fragments_make_jobs() {
        let mut jobs = Jobs::default();
        (0..4).for_each(|_| jobs.add_large(1, 1, work(1.0, 6.0)));
        // Two parts of 10 bytes, and the last one of 4.
        assert_eq!(jobs.seconds(stage(1)), 4.0 + 24.0);
        let mut small = Jobs::default();
        (0..1000).for_each(|_| small.add_small(10, work(0.001, 0.0)));
        assert!((small.seconds(stage(1)) - 1.0).abs() < 1e-9);
    }
}
