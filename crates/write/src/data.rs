//! The data stage: reads, encodes and appends the content of all regular files, on all cores.
//!
//! The scheduler splits the files into jobs, workers do them, and the calling thread appends the
//! results to the image in the order of the jobs. [`ferofs_threads::Pipeline`] keeps this order and
//! limits the jobs under way, so that memory does not grow with the tree. A fragment gets its
//! offset when its file is appended; workers encode full parts of the packed inode beside the
//! files, in an order of their own.
//!
//! | module | what it does |
//! |---|---|
//! | [`extents`] | the extents of a file, and its index |
//! | [`encode`] | encodes content as extents, and deduplicates them |
//! | [`identical`], [`duplicates`] | find small and large files with identical content |
//! | [`order`], [`schedule`] | which file comes when, and in which job |
//! | [`memory`] | how many workers fit into memory |
//! | [`read_ahead`] | asks the disk for content before workers read it |
//! | [`worker`] | does jobs |
//! | [`append`], [`packed_inode`] | append results to the image |
//! | [`stored`] | where content is stored, for the metadata stage; what patches add: data of an
//! existing image | | [`zeroes`] | encodes the pcluster to which holes refer |
//! | [`chunks`] | the other form of this stage: files in chunks, or left in their sources |

mod append;
pub(crate) mod chunks;
pub(crate) mod duplicates;
pub(crate) mod encode;
pub(crate) mod extents;
pub(crate) mod identical;
pub(crate) mod memory;
pub(crate) mod order;
mod packed_inode;
mod read_ahead;
pub(crate) mod schedule;
pub(crate) mod stored;
pub(crate) mod worker;
pub(crate) mod zeroes;

use ferofs_threads::{Pipeline, Queue, with_pipeline};

use crate::data::append::Appender;
use crate::data::chunks::plan_all;
use crate::data::duplicates::find_large;
use crate::data::encode::{SEGMENT, dedupe};
use crate::data::read_ahead::{ReadAhead, with_read_ahead};
use crate::data::schedule::{Scheduled, Scheduler};
use crate::data::stored::StoredData;
use crate::data::worker::context::WorkerContext;
use crate::data::worker::{Job, JobResult, Worker};
use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::progress::Activity;

/// Jobs under way for each worker. With fewer, workers wait while one slow job holds up the results
/// of others; more take more memory, up to 8 MiB for each job. With segments of more than
/// [`SEGMENT`], up to 24 MiB, there is one job for each worker.
const JOBS_PER_WORKER: usize = 3;

/// A job and what the worker needs for it.
struct NumberedJob {
    job: Job,
    /// The number of the job; jobs on the packed inode have none.
    number: Option<usize>,
    /// An empty result, whose buffers the worker fills.
    result: JobResult,
}

/// A job that is done. `number` is that of the [`NumberedJob`].
struct Finished {
    number: Option<usize>,
    result: JobResult,
}

/// The most jobs that are submitted and not appended. `segment` is [`WorkerContext::segment`].
pub(crate) fn jobs_limit(options: &Options, segment: u64) -> usize {
    let workers = options.run.worker_count();
    // Large segments must not take more memory than many small ones.
    let jobs_per_worker = if segment > SEGMENT { 1 } else { JOBS_PER_WORKER };
    let limit = workers * jobs_per_worker + 2;
    // The extents that a job may refer to must be in the image before the job starts.
    let dedupes = options.data.compression.as_ref().is_some_and(|compression| compression.dedupe);
    let limit = if dedupes { limit.min(dedupe::DISTANCE) } else { limit };
    options.run.max_jobs.map_or(limit, |most| limit.min(most.get()))
}

/// Appends the content of every regular file to `output`.
pub(crate) fn run(
    context: WorkerContext<'_>,
    output: &mut Output,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<StoredData> {
    let options = context.options;
    let workers = options.run.worker_count();
    let plans = plan_all(context)?;
    let mut duplicates = find_large(context, &plans)?;
    let mut appender = Appender::new(context, output, spill, warnings);
    let limit = jobs_limit(options, context.segment());
    let appending = &mut appender;
    let drive = |read_ahead: &ReadAhead<'_>| {
        with_pipeline(
            workers,
            limit,
            || Worker::new(context),
            do_job,
            |pipeline| {
                let mut driver = Driver {
                    options,
                    pipeline,
                    appender: appending,
                    read_ahead,
                    spare: Vec::new(),
                    next_number: 0,
                };
                driver.drive(Scheduler::new(context, context.order.ids(), &duplicates, &plans))?;
                loop {
                    // A duplicate whose first file could not be read is read itself.
                    let unresolved;
                    (unresolved, duplicates) = driver.appender.resolve_duplicates(&duplicates);
                    if unresolved.is_empty() {
                        return Ok::<_, Error>(driver.pipeline.peak());
                    }
                    driver.drive(Scheduler::new(
                        context,
                        unresolved.iter().copied(),
                        &duplicates,
                        &plans,
                    ))?;
                }
            },
        )
    };
    let peak = with_read_ahead(context, drive)?;
    appender.finish(peak)
}

fn do_job(worker: &mut Worker<'_>, job: NumberedJob) -> Result<Finished> {
    let NumberedJob { job, number, mut result } = job;
    worker.run(number.unwrap_or_default(), &job, &mut result)?;
    Ok(Finished { number, result })
}

/// Submits jobs and appends their results.
struct Driver<'d, 'a> {
    options: &'a Options,
    pipeline: &'d mut Pipeline<NumberedJob, Result<Finished>>,
    appender: &'d mut Appender<'a>,
    read_ahead: &'d ReadAhead<'d>,
    /// Results whose buffers are used again.
    spare: Vec<JobResult>,
    next_number: usize,
}

impl Driver<'_, '_> {
    /// Runs all jobs of `scheduler`, and all jobs on fragments that they made.
    fn drive(&mut self, mut scheduler: Scheduler<'_>) -> Result<()> {
        loop {
            while self.pipeline.has_capacity() && self.submit_next(&mut scheduler)? {}
            self.options.run.cancel.check()?;
            match self.pipeline.next_result()? {
                Some(finished) => self.append(finished?)?,
                None => match self.appender.packed.last_part() {
                    Some(part) => self.submit(Job::Packed(part), None),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Submits the next job; returns whether there was one.
    fn submit_next(&mut self, scheduler: &mut Scheduler<'_>) -> Result<bool> {
        // Parts of the packed inode come first: they are in memory already.
        if let Some(part) = self.appender.packed.next_part() {
            self.submit(Job::Packed(part), None);
            return Ok(true);
        }
        self.appender.skip_rest_of_unreadable(scheduler);
        loop {
            match scheduler.next() {
                Some(Scheduled::Job(job)) => {
                    self.read_ahead.reached(&job);
                    self.submit(job, Some(self.next_number));
                    self.next_number += 1;
                    return Ok(true);
                }
                Some(Scheduled::LargeFile(file)) => self.appender.begin_large_file(file)?,
                None => return Ok(false),
            }
        }
    }

    fn submit(&mut self, job: Job, number: Option<usize>) {
        // Encoding a part of the packed inode takes long. Files whose jobs are done after it can
        // be appended, and make the next part.
        let queue = if number.is_some() { Queue::Main } else { Queue::Side };
        self.pipeline.submit_to(
            queue,
            NumberedJob { job, number, result: self.spare.pop().unwrap_or_default() },
        );
    }

    fn append(&mut self, finished: Finished) -> Result<()> {
        let Finished { number, mut result } = finished;
        let (appender, bytes) = (&mut *self.appender, result.bytes_read as usize);
        self.options.run.progress.timings.processor_time(
            Activity::Order,
            bytes,
            || match number {
                Some(number) => appender.append(number, &mut result),
                None => appender.append_packed(&result),
            },
        )?;
        result.clear();
        self.spare.push(result);
        Ok(())
    }
}
