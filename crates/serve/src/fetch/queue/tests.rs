use super::*;

fn all(range: Range<u64>) -> Vec<Range<u64>> {
    vec![range]
}

#[test]
fn demand_comes_before_prefetch_and_nothing_is_fetched_twice() {
    let mut queue = Queue::new(u64::MAX);
    queue.add(0..100, Urgency::Prefetch);
    queue.add(40..50, Urgency::Demand);
    assert_eq!(queue.next(0, 30, 1, all), Some((40..50, Urgency::Demand)));
    queue.add(45..60, Urgency::Demand);
    assert_eq!(queue.next(0, 30, 1, all), Some((50..60, Urgency::Demand)));
    assert_eq!(queue.next(0, 30, 1, all), Some((0..30, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 30, 1, all), None, "one prefetch at a time");
    queue.finished(&(0..30), 0);
    assert_eq!(queue.next(0, 30, 1, all), Some((30..40, Urgency::Prefetch)));
    queue.finished(&(30..40), 0);
    assert_eq!(queue.next(0, 100, 1, all), Some((60..100, Urgency::Prefetch)));
    queue.finished(&(60..100), 0);
    assert!(queue.is_fetched_elsewhere(&(59..61), 1));
    assert!(!queue.is_fetched_elsewhere(&(60..61), 1) && !queue.is_fetched_elsewhere(&(59..61), 0));
    assert!(!queue.is_idle());
    queue.finished(&(40..50), 0);
    queue.finished(&(50..60), 0);
    assert!(queue.is_idle());
}

#[test]
fn what_is_free_ends_before_the_next_flight() {
    let mut queue = Queue::new(u64::MAX);
    assert_eq!(queue.free_from(&(10..12), 26), 10..26);
    queue.begin(0..5, 0);
    queue.begin(20..30, 0);
    queue.begin(14..15, 0);
    assert_eq!(queue.free_from(&(10..12), 26), 10..14);
    assert_eq!(queue.free_from(&(10..12), 13), 10..13);
    assert_eq!(queue.free_from(&(2..3), 9), 2..3, "in the middle of a fetch");
    assert_eq!(queue.free_from(&(6..21), 26), 6..21);
}

#[test]
fn no_job_crosses_the_border() {
    let mut queue = Queue::new(70);
    queue.add(60..70, Urgency::Demand);
    queue.add(70..100, Urgency::Demand);
    queue.add(10..90, Urgency::Prefetch);
    assert_eq!(queue.next(0, 90, 9, all), Some((60..70, Urgency::Demand)));
    assert_eq!(queue.next(0, 90, 9, all), Some((70..100, Urgency::Demand)));
    queue.finished(&(60..70), 0);
    queue.finished(&(70..100), 0);
    queue.add(10..90, Urgency::Prefetch);
    let mut jobs = Vec::new();
    while let Some((job, _)) = queue.next(0, 90, 9, all) {
        jobs.push(job);
    }
    assert!(jobs.iter().all(|job| job.end <= 70 || job.start >= 70), "{jobs:?}");
}

#[test]
fn ranges_in_the_background_come_last_and_leave_workers_for_readers() {
    let mut queue = Queue::new(u64::MAX);
    queue.limit_background(1000);
    queue.add(0..1_000_000, Urgency::Background);
    queue.add(500..700, Urgency::Prefetch);
    queue.add(600..650, Urgency::Demand);
    assert_eq!(queue.next(1, 100, 6, all), Some((600..650, Urgency::Demand)));
    assert_eq!(queue.next(2, 100, 6, all), Some((500..600, Urgency::Prefetch)));
    assert_eq!(queue.next(3, 100, 6, all), Some((650..700, Urgency::Prefetch)));
    assert_eq!(queue.next(4, 100, 6, all), Some((0..500, Urgency::Background)));
    assert_eq!(queue.next(0, 100, 6, all), None, "a reader waits: one in the background");
    queue.finished(&(600..650), 1);
    // The parts that were being fetched are not fetched again.
    assert_eq!(queue.next(5, 100, 6, all), Some((700..1700, Urgency::Background)));
    assert_eq!(queue.next(0, 100, 6, all), None, "two of six in the background");
    // Hashes of a job in the background are not urgent.
    queue.begin(9_000_000..9_000_001, 5);
    for (range, worker) in [(0..500, 4), (500..600, 2), (650..700, 3), (600..700, 9)] {
        queue.finished(&range, worker);
    }
    assert_eq!(queue.next(6, 100, 6, all), Some((1700..2700, Urgency::Background)));
    queue.finished(&(9_000_000..9_000_001), 5);
    queue.finished(&(700..1700), 5);
    queue.finished(&(1700..2700), 6);
    assert_eq!(queue.next(6, 100, 6, all), Some((2700..3700, Urgency::Background)));
    assert!(queue.has_background() && !queue.is_idle());
    assert_eq!(queue.background_units(), 1_000_000 - 2700);
    // Two prefetches at most, in the background or not.
    queue.add(5000..5100, Urgency::Prefetch);
    queue.add(6000..6100, Urgency::Prefetch);
    assert_eq!(queue.next(7, 100, 2, all), Some((5000..5100, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 100, 2, all), None);
}

#[test]
fn failures_in_the_background_end_it_unless_they_took_long() {
    let mut queue = Queue::new(u64::MAX);
    queue.add(0..10, Urgency::Background);
    let (job, _) = queue.next(0, 1, 1, all).unwrap();
    queue.finished(&job, 0);
    queue.background_ended(job, false, true);
    assert_eq!(queue.next(0, 1, 1, all), Some((0..10, Urgency::Background)), "it is tried again");
    queue.finished(&(0..10), 0);
    queue.add(20..30, Urgency::Background);
    for _ in 1..BACKGROUND_FAILURES {
        queue.background_ended(0..10, false, false);
    }
    assert!(queue.has_background());
    queue.background_ended(0..10, false, false);
    assert!(!queue.has_background());
    queue.add(20..30, Urgency::Background);
    queue.background_ended(0..10, false, false);
    assert!(queue.has_background(), "what comes later has as many attempts");
}

#[test]
fn ranges_that_follow_each_other_are_one_request() {
    let mut queue = Queue::new(u64::MAX);
    for start in [30, 0, 20, 10, 50] {
        queue.add(start..start + 10, Urgency::Prefetch);
    }
    let stored = |range: Range<u64>| subtract(vec![range], &(12..15));
    assert_eq!(queue.next(0, 35, 9, stored), Some((30..40, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), Some((0..10, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), Some((20..30, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), Some((10..12, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), Some((15..20, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), Some((50..60, Urgency::Prefetch)));
    assert_eq!(queue.next(0, 35, 9, stored), None);
}
