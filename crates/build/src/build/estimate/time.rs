//! The time of a build: simulates the data stage, whose workers encode jobs at the same time, but whose results are taken in the order of the jobs: those of
//! files in one order, those of parts of the packed inode in another one.

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::io::Write;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::data::schedule::{BATCH_BYTES, BATCH_FILES};
use crate::progress::timings::processor_time;

/// Seconds for each name: the appending thread places its content. Measured on a machine where [`Costs::reference`] takes [`REFERENCE`]; on others it is scaled.
const APPEND: f64 = 3.5e-6;
/// Seconds for starting and ending the program and its threads, on that machine.
const START: f64 = 0.004;
/// Seconds for an identical file, which the build reads and compares: for each file and for each byte, on that machine.
const DUPLICATE: f64 = 10e-6;
const DUPLICATE_BYTE: f64 = 0.35e-9;
/// Seconds for each inode in the metadata stage: placing and writing it, and its name. Measured there, too.
const INODE: f64 = 1e-6;
/// How many names it sorts.
const REFERENCE_NAMES: usize = 4000;
/// Seconds that [`Costs::reference`] took there.
const REFERENCE: f64 = 0.7e-3;
/// Machines are not slower or faster than that; a measurement that says so was disturbed.
const SCALE_MAX: f64 = 10.0;
/// Seconds for each byte that is written if the system cannot tell.
const UNKNOWN: f64 = 0.5e-9;
/// Bytes that are written to measure how long writing takes.
const WRITTEN: usize = 4 << 20;
/// How often they are measured; the fastest one was disturbed least.
const MEASURED: usize = 3;

/// What this machine takes for work that no sample has. In processor seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// For starting and ending the program.
    pub(super) start: f64,
    /// For placing the content of a file.
    pub(super) append: f64,
    /// For an identical file, and for each of its bytes.
    pub(super) duplicate: f64,
    pub(super) duplicate_byte: f64,
    /// For an inode.
    pub(super) inode: f64,
    /// For each byte of the image: the system copies it and allocates memory for it.
    pub(super) write: f64,
    /// For each byte that is copied to memory that the program did not use before.
    pub(super) copy: f64,
}

impl Costs {
    /// Measures them.
    pub(super) fn measure() -> Self {
        let fastest = |work: fn() -> Option<f64>| (0..MEASURED).filter_map(|_| work()).reduce(f64::min);
        let scale = fastest(|| Some(Self::reference())).unwrap_or(REFERENCE) / REFERENCE;
        let scale = scale.clamp(1.0 / SCALE_MAX, SCALE_MAX);
        Self {
            start: START * scale,
            append: APPEND * scale,
            duplicate: DUPLICATE * scale,
            duplicate_byte: DUPLICATE_BYTE * scale,
            inode: INODE * scale,
            write: fastest(Self::writing).unwrap_or(UNKNOWN * scale),
            copy: fastest(Self::copying).unwrap_or(UNKNOWN * scale),
        }
    }

    /// Work as in the stages of a build, with tables and memory: how long it takes here.
    fn reference() -> f64 {
        let started = processor_time();
        let mut names: HashMap<Vec<u8>, usize> = HashMap::new();
        for number in 0..REFERENCE_NAMES {
            names.insert(number.wrapping_mul(0x9e37_79b9).to_string().into_bytes(), number);
        }
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        black_box(sorted.last());
        (processor_time() - started).as_secs_f64()
    }

    /// Seconds for each byte of a copy.
    fn copying() -> Option<f64> {
        let bytes = black_box(vec![1_u8; WRITTEN]);
        let started = processor_time();
        drop(black_box(bytes.clone()));
        Some((processor_time() - started).as_secs_f64() / WRITTEN as f64)
    }

    /// Seconds for each byte that is written to a file in memory.
    fn writing() -> Option<f64> {
        let mut file = std::fs::File::from(memfd_create("estimate", MemfdFlags::CLOEXEC).ok()?);
        let bytes = black_box(vec![1_u8; WRITTEN / 4]);
        let started = processor_time();
        for _ in 0..4 {
            file.write_all(&bytes).ok()?;
        }
        Some((processor_time() - started).as_secs_f64() / WRITTEN as f64)
    }
}

/// What a file, or a job, takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Seconds of the worker.
    pub(super) seconds: f64,
    /// Seconds of the thread that places and writes the result.
    pub(super) append: f64,
    /// Bytes that become fragments, which other jobs encode.
    pub(super) fragments: f64,
    /// Bytes of content.
    pub(super) bytes: f64,
}

impl Work {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.append += other.append;
        self.fragments += other.fragments;
        self.bytes += other.bytes;
    }
}

/// The data stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) workers: usize,
    /// Processors for them and for the thread that places and writes their results.
    pub(super) processors: usize,
    /// The most jobs whose results were not taken.
    pub(super) limit: usize,
    /// Bytes of a part of a large file, and of the packed inode.
    pub(super) segment: u64,
    /// Seconds for each byte of the packed inode: of the worker, and of writing it.
    pub(super) packed: f64,
    pub(super) write_packed: f64,
    /// Seconds for each byte of a buffer when it is used for the first time.
    pub(super) new_buffer: f64,
}

/// How long a stage takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StageTime {
    pub(super) seconds: f64,
    /// Processor time of all threads.
    pub(super) processor: f64,
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
            self.jobs.push(Work {
                seconds: work.seconds * part,
                append: work.append * part,
                fragments: work.fragments * part,
                bytes: len as f64,
            });
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
    pub(super) fn time(mut self, stage: Stage) -> StageTime {
        self.end_batch();
        let segment = stage.segment.max(1) as f64;
        let packed = |bytes: f64| Work {
            seconds: bytes * stage.packed,
            append: bytes * stage.write_packed,
            fragments: 0.0,
            bytes,
        };
        let mut jobs = self.jobs.into_iter();
        let mut free = vec![0.0_f64; stage.workers.max(1)];
        // The end of each job under way: jobs on files, and jobs on parts of the packed inode.
        let mut running: [VecDeque<(f64, Work)>; 2] = Default::default();
        let (mut now, mut waiting, mut parts, mut processor) = (0.0_f64, 0.0, 0_u64, 0.0);
        // Each job that can run at the same time has buffers of its own, and so has each worker.
        let mut new_buffers = stage.limit.saturating_add(stage.workers);
        loop {
            while running.iter().map(VecDeque::len).sum::<usize>() < stage.limit.max(1) {
                let (queue, job) = if parts > 0 {
                    parts -= 1;
                    (1, packed(segment))
                } else if let Some(job) = jobs.next() {
                    (0, job)
                } else if running.iter().all(VecDeque::is_empty) && waiting > 0.0 {
                    (1, packed(std::mem::take(&mut waiting)))
                } else {
                    break;
                };
                if let Some(first) = free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                    let new = if new_buffers > 0 { job.bytes * stage.new_buffer } else { 0.0 };
                    new_buffers = new_buffers.saturating_sub(1);
                    let seconds = job.seconds.max(0.0) + new;
                    *first = first.max(now) + seconds;
                    processor += seconds + job.append.max(0.0);
                    running[queue].push_back((*first, job));
                }
            }
            let end =
                |queue: &&mut VecDeque<(f64, Work)>| queue.front().map_or(f64::INFINITY, |(end, _)| *end);
            let next = running.iter_mut().min_by(|a, b| end(a).total_cmp(&end(b)));
            let Some((end, job)) = next.and_then(VecDeque::pop_front) else { break };
            now = now.max(end) + job.append.max(0.0);
            waiting += job.fragments.max(0.0);
            while waiting >= segment {
                waiting -= segment;
                parts += 1;
            }
        }
        StageTime { seconds: now.max(processor / stage.processors.max(1) as f64), processor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn work(seconds: f64, fragments: f64) -> Work {
        Work { seconds, append: 0.0, fragments, bytes: 1.0 }
    }

    fn stage(workers: usize) -> Stage {
        Stage {
            workers,
            processors: 4,
            limit: 8,
            segment: 10,
            packed: 1.0,
            write_packed: 0.0,
            new_buffer: 0.0,
        }
    }

    #[test]
    fn few_long_jobs_do_not_occupy_all_workers() {
        let jobs = |lens: &[u64]| {
            let mut jobs = Jobs::default();
            lens.iter().for_each(|len| jobs.add_large(*len, 24, work(*len as f64, 0.0)));
            jobs
        };
        assert_eq!(jobs(&[24]).time(stage(2)).seconds, 24.0);
        // 24 and 16 on the second worker; the first is free after 24.
        assert_eq!(jobs(&[24, 40]).time(stage(2)).seconds, 40.0);
        assert_eq!(jobs(&[24, 40]).time(stage(1)).seconds, 64.0);
        assert_eq!(jobs(&[24; 100]).time(stage(4)).seconds, 600.0);
    }

    #[test]
    fn jobs_behind_a_long_one_wait_for_it() {
        let mut jobs = Jobs::default();
        jobs.add_large(100, 100, work(100.0, 0.0));
        (0..50).for_each(|_| jobs.add_large(1, 1, work(1.0, 0.0)));
        // Seven of the short ones are done beside the long one; then both workers do the others.
        assert_eq!(jobs.time(stage(2)).seconds, 100.0 + 22.0);
    }

    #[test]
    fn files_do_not_wait_for_parts_of_the_packed_inode() {
        let mut jobs = Jobs::default();
        // Each file makes one part, which takes ten times as long.
        (0..20).for_each(|_| jobs.add_large(1, 1, work(1.0, 10.0)));
        let seconds = jobs.time(stage(2)).seconds;
        assert!((110.0..=120.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn one_thread_places_all_results() {
        let jobs = |append: f64| {
            let mut jobs = Jobs::default();
            (0..20).for_each(|_| jobs.add_large(1, 1, Work { append, ..work(1.0, 0.0) }));
            jobs
        };
        // With four processors, writing takes no time of the two workers; the last result is placed when they are done.
        let StageTime { seconds, processor } = jobs(0.1).time(stage(2));
        assert!((10.0..10.3).contains(&seconds), "{seconds}");
        assert!((processor - 22.0).abs() < 1e-9, "{processor}");
        // Placing takes longer than the workers do.
        assert!((20.0..21.5).contains(&jobs(1.0).time(stage(2)).seconds));
        // All threads share one processor.
        let one = Stage { processors: 1, ..stage(2) };
        assert!((jobs(1.0).time(one).seconds - 40.0).abs() < 1e-9);
    }

    #[test]
    fn buffers_are_new_once() {
        let mut jobs = Jobs::default();
        (0..50).for_each(|_| jobs.add_large(1, 1, work(1.0, 0.0)));
        // Eight jobs at the same time, and two workers.
        let stage = Stage { new_buffer: 0.5, ..stage(2) };
        assert!((jobs.time(stage).processor - 55.0).abs() < 1e-9);
    }

    #[test]
    fn costs_are_measured() {
        let Costs { start, append, inode, write, copy, .. } = Costs::measure();
        assert!(start > 0.0 && append > 0.0 && inode > 0.0, "{start} {append} {inode}");
        // Memory copies 10 MB to 100 GB a second.
        assert!([write, copy].iter().all(|cost| (1e-11..1e-7).contains(cost)), "{write} {copy}");
    }

    #[test]
    fn fragments_make_jobs() {
        let mut jobs = Jobs::default();
        (0..4).for_each(|_| jobs.add_large(1, 1, work(1.0, 6.0)));
        // Two parts of 10 bytes, and the last one of 4.
        assert_eq!(jobs.time(stage(1)).seconds, 4.0 + 24.0);
        let mut small = Jobs::default();
        (0..1000).for_each(|_| small.add_small(10, work(0.001, 0.0)));
        assert!((small.time(stage(1)).seconds - 1.0).abs() < 1e-9);
    }
}
