use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::workers::{catch, message};

#[derive(Debug)]
enum Failure {
    Job(u32),
    Threads,
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self::Threads
    }
}

/// Submits `count` jobs and returns their results, until the first error.
fn drive(
    pipeline: &mut Pipeline<u32, Result<u32, Failure>>,
    count: u32,
) -> Result<Vec<u32>, Failure> {
    let (mut jobs, mut results) = (0..count, Vec::new());
    loop {
        while pipeline.has_capacity()
            && let Some(job) = jobs.next()
        {
            pipeline.submit(job);
        }
        match pipeline.next_result()? {
            Some(result) => results.push(result?),
            None => return Ok(results),
        }
    }
}

#[test]
fn results_come_in_the_order_of_submission() {
    for (workers, limit) in [(1, 0), (1, 1), (2, 1), (2, 5), (8, 3), (8, 40)] {
        // Early jobs of each group of four take longest.
        let work = |(): &mut (), n: u32| {
            std::thread::sleep(Duration::from_micros(u64::from(3 - n % 4) * 300));
            Ok(n * 2)
        };
        let results = with_pipeline(workers, limit, || (), work, |pipeline| drive(pipeline, 100));
        assert_eq!(
            results.unwrap(),
            (0..100).map(|n| n * 2).collect::<Vec<_>>(),
            "{workers} {limit}"
        );
    }
}

#[test]
fn a_slow_job_holds_up_its_own_queue_only() {
    for workers in [2, 8] {
        // The first side job ends when the main jobs, which are submitted after it, have been
        // taken.
        let (done, wait) = std::sync::mpsc::channel();
        let wait = std::sync::Mutex::new(wait);
        let work = |(): &mut (), n: u32| {
            if n == 100 {
                wait.lock().unwrap().recv().unwrap();
            }
            n
        };
        let results = with_pipeline(
            workers,
            4,
            || (),
            work,
            |pipeline| {
                let (mut main, mut results) = (0..20, Vec::new());
                pipeline.submit_to(Queue::Side, 100);
                pipeline.submit_to(Queue::Side, 101);
                loop {
                    while pipeline.has_capacity()
                        && let Some(n) = main.next()
                    {
                        pipeline.submit(n);
                    }
                    match pipeline.next_result()? {
                        Some(result) => results.push(result),
                        None => return Ok::<_, Failure>(results),
                    }
                    if results.len() == 20 {
                        done.send(()).unwrap();
                    }
                }
            },
        );
        assert_eq!(results.unwrap(), (0..20).chain([100, 101]).collect::<Vec<_>>(), "{workers}");
    }
}

#[test]
fn no_more_jobs_are_under_way_than_the_limit() {
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |(): &mut (), n: u32| {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(200));
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(n)
    };
    let drive = |pipeline: &mut Pipeline<_, _>| drive(pipeline, 50).map(|_| pipeline.peak());
    assert_eq!(with_pipeline(8, 3, || (), work, drive).unwrap(), 3);
    assert!(most.into_inner() <= 3);
}

#[test]
fn the_error_of_the_first_job_that_failed_reaches_the_caller() {
    for workers in [1, 2, 8] {
        // Job 21 fails at once, job 20 later: the error is job 20's.
        let work = |(): &mut (), n: u32| match n {
            20 => {
                std::thread::sleep(Duration::from_millis(5));
                Err(Failure::Job(n))
            }
            21.. => Err(Failure::Job(n)),
            _ => Ok(n),
        };
        let result = with_pipeline(workers, 10, || (), work, |pipeline| drive(pipeline, 40));
        assert!(matches!(result, Err(Failure::Job(20))), "{workers} workers: {result:?}");
    }
}

#[test]
fn a_panic_of_a_job_reaches_the_caller() {
    for workers in [1, 2, 8] {
        let work = |(): &mut (), n: u32| if n == 20 { panic!("job 20") } else { Ok(n) };
        let result =
            catch(|| with_pipeline(workers, 10, || (), work, |pipeline| drive(pipeline, 40)));
        assert_eq!(message(result), "job 20", "{workers} workers");
    }
}

#[test]
fn a_pipeline_goes_on_after_it_was_empty() {
    let work = |(): &mut (), n: u32| Ok(n);
    let twice = with_pipeline(
        2,
        4,
        || (),
        work,
        |pipeline| Ok::<_, Failure>((drive(pipeline, 10)?.len(), drive(pipeline, 7)?.len())),
    );
    assert_eq!(twice.unwrap(), (10, 7));
}
