//! When the keeper gives up: a daemon that dies again and again, for example at one request, would occupy the machine for ever.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Deaths are counted for this time.
const WINDOW: Duration = Duration::from_secs(60);
/// Daemons that may crash within [`WINDOW`], and that SIGKILL may kill: sent by somebody, or because the machine has no memory.
const CRASHES: usize = 5;
const KILLS: usize = 60;
/// The pause before a new daemon grows by this time with each death, up to a limit.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The deaths of the last minute.
#[derive(Debug, Default)]
pub(super) struct RecentDeaths(VecDeque<(Instant, Cause)>);

/// Why a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Crash,
    Kill,
}

impl RecentDeaths {
    /// Adds a death. Returns the pause before the next daemon; `None`: there should be none.
    pub(super) fn add(&mut self, now: Instant, cause: Cause) -> Option<Duration> {
        self.0.push_back((now, cause));
        while self.0.front().is_some_and(|(time, _)| now.duration_since(*time) > WINDOW) {
            self.0.pop_front();
        }
        let count = |cause| self.0.iter().filter(|(_, of)| *of == cause).count();
        let is_too_often = count(Cause::Crash) > CRASHES || count(Cause::Kill) > KILLS;
        (!is_too_often).then(|| (PAUSE * u32::try_from(self.0.len()).unwrap_or(u32::MAX)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_deaths_in_a_short_time_are_too_many() {
        let start = Instant::now();
        let mut deaths = RecentDeaths::default();
        for number in 1..=CRASHES {
            let pause = deaths.add(start + Duration::from_secs(1), Cause::Crash);
            assert_eq!(pause, Some(PAUSE * u32::try_from(number).unwrap()));
        }
        for _ in 0..KILLS {
            assert!(deaths.add(start + Duration::from_secs(2), Cause::Kill).is_some());
        }
        assert_eq!(deaths.add(start + Duration::from_secs(3), Cause::Kill), None);
        let mut deaths = RecentDeaths::default();
        for _ in 0..CRASHES {
            assert!(deaths.add(start, Cause::Crash).is_some());
        }
        assert_eq!(deaths.add(start, Cause::Crash), None);
    }

    #[test]
    fn old_deaths_do_not_count() {
        let start = Instant::now();
        let mut deaths = RecentDeaths::default();
        for number in 0..100 {
            assert!(deaths.add(start + Duration::from_secs(13) * number, Cause::Crash).is_some());
        }
    }
}
