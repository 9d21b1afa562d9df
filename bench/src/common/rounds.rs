//! Repeated measurements: the order of the measured programs, statistics over rounds, and the state
//! of the page cache.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ferofs_devtools::shell::run_quietly;

/// Statistics over the rounds of one measurement. The median of an even number of values is the
/// lower of the two middle ones, not their mean, so that each printed figure is a measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let median = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(Self { min: *values.first()?, median, max: *values.last()? })
    }
}

/// The order in which `count` programs are measured in a round. Each round starts with the next
/// program, so that slow changes of the machine's speed affect all of them alike.
pub(crate) fn rotated_order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Whether a file is in the page cache when a measurement starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCache {
    Warm,
    Cold,
}

/// Reads the file once, or evicts it from the page cache.
pub(crate) fn set_page_cache(file: &Path, state: PageCache) -> Result<()> {
    let argument = |name: &str| {
        let mut argument = OsString::from(name);
        argument.push(file);
        argument
    };
    let mut dd = Command::new("dd");
    match state {
        PageCache::Warm => run_quietly(dd.arg(argument("if=")).args(["of=/dev/null", "bs=1M"])),
        // With these options dd evicts the whole file and writes nothing: see dd's manual,
        // "nocache".
        PageCache::Cold => run_quietly(dd.arg(argument("of=")).args([
            "oflag=nocache",
            "conv=notrunc,fdatasync",
            "count=0",
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn each_program_is_first_in_one_round() {
        let starts: Vec<usize> =
            (0..3).filter_map(|round| rotated_order(3, round).next()).collect();
        assert_eq!(starts, [0, 1, 2]);
        assert_eq!(rotated_order(3, 2).collect::<Vec<_>>(), [2, 0, 1]);
    }
}
