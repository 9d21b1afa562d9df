//! What all benches share: taking turns, what came of several rounds, and whether a file is in the page cache.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What several rounds gave. The middle is one of the values, the lower one of two, and not their mean: each figure that
/// is shown was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) middle: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(Self { least: *values.first()?, middle, most: *values.last()? })
    }
}

/// The order in which `contestants` take their turns in a round: each starts once, so that a change in the machine's mood
/// meets all of them.
pub(super) fn turns(contestants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |turn| (turn + round) % contestants)
}

/// Reads the file once, or takes it out of the page cache.
pub(super) fn set_warm(file: &Path, warm: bool) -> Result<()> {
    let argument = |name: &str| {
        let mut argument = OsString::from(name);
        argument.push(file);
        argument
    };
    let mut dd = Command::new("dd");
    if warm {
        quietly(dd.arg(argument("if=")).args(["of=/dev/null", "bs=1M"]))
    } else {
        // As dd's manual has it: drops the whole file from the cache.
        quietly(dd.arg(argument("of=")).args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0"]))
    }
}

/// Runs a command whose output nobody wants.
pub(super) fn quietly(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_one_of_the_values() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { least: 1.0, middle: 2.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.middle), Some(2.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn each_starts_a_round() {
        let starts: Vec<usize> = (0..3).filter_map(|round| turns(3, round).next()).collect();
        assert_eq!(starts, [0, 1, 2]);
        assert_eq!(turns(3, 2).collect::<Vec<_>>(), [2, 0, 1]);
    }
}
