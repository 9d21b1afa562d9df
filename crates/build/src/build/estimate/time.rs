//! The time of a build: workers encode jobs at the same time, but a job is not divided.

/// Bytes of a job of small files that are not collected as fragments: as the scheduler makes batches.
pub(super) const BATCH: u64 = 1 << 20;
/// Seconds for each byte of the image: the system copies it and allocates memory for it. Measured in memory: 1.5 to 2.5 ns; other tests of the
/// estimate are within 25 % with this.
const WRITE: f64 = 2e-9;
/// Seconds for each byte of encoded fragments: they are also written to a temporary file and read from there.
const FRAGMENT: f64 = 3e-9;

/// Processor seconds for writing an image of `size` bytes, of which `fragments` are fragments.
pub(super) fn writing(size: f64, fragments: f64) -> f64 {
    size * WRITE + fragments * FRAGMENT
}

/// What workers have to do.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Seconds of each job, in order.
    jobs: Vec<f64>,
}

impl Jobs {
    /// Adds jobs for parts of these lengths, cut into jobs of at most `job` bytes, each of which takes `seconds`.
    pub(super) fn add(&mut self, seconds: f64, parts: impl IntoIterator<Item = u64>, job: u64) {
        let seconds = seconds.max(0.0);
        for part in parts {
            let whole = (part / job) as usize;
            self.jobs.extend(std::iter::repeat_n(seconds * job as f64, whole));
            self.jobs.push(seconds * (part % job) as f64);
        }
    }

    /// The time until all jobs are done: a worker that is free takes the next one.
    pub(super) fn seconds(&self, workers: usize) -> f64 {
        let mut busy = vec![0.0_f64; workers.max(1)];
        for job in &self.jobs {
            if let Some(first) = busy.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                *first += job;
            }
        }
        busy.into_iter().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_long_jobs_do_not_occupy_all_workers() {
        let mut jobs = Jobs::default();
        jobs.add(1.0, [24], 24);
        assert_eq!(jobs.seconds(2), 24.0);
        jobs.add(1.0, [40], 24);
        // 24 and 16 on the second worker; the first is free after 24.
        assert_eq!(jobs.seconds(2), 40.0);
        assert_eq!(jobs.seconds(1), 64.0);
        let mut many = Jobs::default();
        many.add(1.0, [1000], 1);
        assert_eq!(many.seconds(4), 250.0);
    }
}
