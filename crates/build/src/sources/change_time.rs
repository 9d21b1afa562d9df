//! Waits until a change of a file is visible in its `ctime`.
//!
//! A file system takes `ctime` from a clock that moves in ticks of up to 10 ms, or stores whole seconds. A second change
//! within one tick does not change `ctime`, so the build could not detect it.

use std::time::Duration;

use ferofs_format::inode::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The largest tick of file systems that store whole seconds only: 2 s on FAT.
const COARSE: Duration = Duration::from_secs(2);
/// Twice the longest tick, that of a kernel with 100 Hz. A `ctime` that is further ahead comes from another machine's clock, so
/// that waiting would not help.
const TICKS: Duration = Duration::from_millis(20);
/// Time between two reads of the clock: the shortest tick, that of a kernel with 1000 Hz.
const STEP: Duration = Duration::from_millis(1);

/// Waits until the next change of a file would give it a `ctime` other than this one.
pub(crate) fn wait(ctime: Timestamp) {
    while is_within_tick(ctime, now()) {
        std::thread::sleep(STEP);
    }
}

/// The clock that file systems take times from.
fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    // The kernel returns less than 10^9 nanoseconds.
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec.try_into().unwrap_or(0) }
}

/// Whether a change at `now` could give a file the time `ctime`.
fn is_within_tick(ctime: Timestamp, now: Timestamp) -> bool {
    let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let tick = if ctime.nanos == 0 { COARSE } else { Duration::ZERO };
    let left = nanos(ctime) + tick.as_nanos() as i128 - nanos(now);
    (0..=(tick + TICKS).as_nanos() as i128).contains(&left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_within_the_tick_is_waited_for() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        assert!(is_within_tick(time(5, 100), time(5, 100)));
        assert!(!is_within_tick(time(5, 100), time(5, 4_000_100)));
        assert!(is_within_tick(time(5, 0), time(6, 999_999_999)), "whole seconds");
        assert!(!is_within_tick(time(5, 0), time(7, 1)));
        assert!(!is_within_tick(time(9, 100), time(5, 100)), "another machine's clock");
        assert!(!is_within_tick(time(-5, 100), time(5, 100)));
    }

    #[test]
    fn a_new_file_is_old_enough_after_it() {
        let file = tempfile::tempfile().unwrap();
        let stat = crate::host::stat_fd(std::os::fd::AsFd::as_fd(&file)).unwrap();
        let ctime = crate::tree::Identity::of_file(&stat).ctime();
        wait(ctime);
        assert!(now() > ctime);
    }
}
