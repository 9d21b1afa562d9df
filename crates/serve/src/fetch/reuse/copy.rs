//! Copies the blocks of a range that are stored elsewhere on this machine.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;

use ferofs_verity::Digest;

use super::known::{KnownBlocks, Reader};
use super::requests::GapBudget;
use crate::cache::UNIT;
use crate::fetch::check::{Check, Checked};
use crate::ranges::merged;
use ferofs_format::units::{to_u64, to_usize};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;
/// Places that are tried for a block: others have been evicted or changed.
const PLACES: usize = 4;

/// The outcome of [`copy_blocks`].
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The ranges that are not known.
    pub(crate) missing: Vec<Range<u64>>,
    /// The ranges that must be fetched, by one request each: the missing ones, and gaps between
    /// them.
    pub(crate) requests: Vec<Range<u64>>,
    /// Bytes that were copied and checked.
    pub(crate) reused: u64,
}

/// Copies the known blocks of `range`, which starts with a block and a unit, by `store`, after they
/// were checked; the check has what it needs. Blocks in gaps of at most `longest_gap` bytes between
/// others are not copied as far as `budget` allows; the caller records the requests that it sends.
///
/// # Errors
/// The errors of `store`.
pub(crate) fn copy_blocks(
    known: &KnownBlocks,
    check: &dyn Check,
    range: Range<u64>,
    budget: &GapBudget,
    longest_gap: u64,
    mut store: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Copied> {
    let block = check.block_size().max(1);
    let grain = block.max(UNIT);
    let digests = check.digests(&range);
    let of_grain = to_usize(grain.checked_div(block).unwrap_or(1));
    let digests: Vec<&[Digest]> = digests.chunks_exact(of_grain).collect();
    let mut grains =
        Grains { reader: Reader::new(known), check, start: range.start, size: grain, digests };
    let all = 0..grains.digests.len();
    let is_known =
        grains.digests.iter().map(|digests| digests.iter().all(|digest| known.has(digest)));
    let is_known: Vec<bool> = is_known.collect();
    let unknown = runs(all.clone(), |number| is_known.get(number) == Some(&false));
    // Behind the last whole block nothing is known.
    let rest = grains.position(all.end).min(range.end)..range.end;
    let unknown =
        unknown.into_iter().map(|run| grains.position(run.start)..grains.position(run.end));
    let missing = merged(unknown.chain([rest]).collect());
    let mut copied = Copied { missing, ..Copied::default() };
    // Once: other threads change the budget.
    copied.requests = budget.requests(&copied.missing, longest_gap);
    let is_requested = |number: usize| {
        copied.requests.iter().any(|request| request.contains(&grains.position(number)))
    };
    let mut wrong = Vec::new();
    for run in runs(all, |number| !is_requested(number)) {
        copied.reused = copied.reused.saturating_add(grains.copy(run, &mut store, &mut wrong)?);
    }
    if !wrong.is_empty() {
        copied.missing.extend(wrong.iter().cloned());
        copied.requests.extend(wrong);
        copied.requests = merged(copied.requests);
    }
    Ok(copied)
}

/// The parts of a range that are stored at a time, each of whole blocks and units.
struct Grains<'a> {
    reader: Reader<'a>,
    check: &'a dyn Check,
    /// The position of the first one.
    start: u64,
    /// Bytes of each.
    size: u64,
    /// The digests of the blocks of each.
    digests: Vec<&'a [Digest]>,
}

impl Grains<'_> {
    fn position(&self, number: usize) -> u64 {
        self.start.saturating_add(self.size.saturating_mul(to_u64(number)))
    }

    /// Copies a run of grains by `store`. Adds to `wrong` those that are not what they were.
    /// Returns how many bytes were copied.
    fn copy(
        &mut self,
        run: Range<usize>,
        store: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
        wrong: &mut Vec<Range<u64>>,
    ) -> io::Result<u64> {
        let size = to_usize(self.size);
        let step = PIECE.checked_div(size).unwrap_or(1).max(1);
        let (mut buf, mut copied) = (Vec::new(), 0u64);
        for start in run.clone().step_by(step) {
            let piece = start..run.end.min(start.saturating_add(step));
            buf.resize(piece.len().saturating_mul(size), 0);
            if self.read(piece.clone(), &mut buf) {
                store(self.position(start), &buf)?;
                copied = copied.saturating_add(to_u64(buf.len()));
                continue;
            }
            // Finds those that are right.
            for number in piece {
                let (position, buf) =
                    (self.position(number), buf.get_mut(..size).unwrap_or_default());
                if self.read_anywhere(number, buf) {
                    store(position, buf)?;
                    copied = copied.saturating_add(self.size);
                } else {
                    wrong.push(position..position.saturating_add(self.size));
                }
            }
        }
        Ok(copied)
    }

    /// Reads a run of grains from the first places of their blocks. Returns whether they are right.
    fn read(&mut self, run: Range<usize>, buf: &mut [u8]) -> bool {
        let position = self.position(run.start);
        let digests = self.digests.get(run).unwrap_or_default().concat();
        let size = buf.len().checked_div(digests.len()).unwrap_or(1).max(1);
        let mut blocks = digests.iter().zip(buf.chunks_exact_mut(size));
        blocks.all(|(digest, buf)| self.reader.read(digest, 0, buf))
            && self.check.check(position, buf) == Checked::Right
    }

    /// Reads one grain, each block from the first place where it is right. Returns false if there
    /// is none.
    fn read_anywhere(&mut self, number: usize, buf: &mut [u8]) -> bool {
        let position = self.position(number);
        let digests = self.digests.get(number).copied().unwrap_or_default();
        let size = buf.len().checked_div(digests.len()).unwrap_or(1).max(1);
        let mut blocks =
            digests.iter().zip(buf.chunks_exact_mut(size)).zip((position..).step_by(size));
        blocks.all(|((digest, buf), position)| {
            (0..PLACES).any(|place| {
                self.reader.read(digest, place, buf)
                    && self.check.check(position, buf) == Checked::Right
            })
        })
    }
}

/// Copies the parts of `range` of the hash tree that other trees have at the same place, by
/// `store`, after they were checked.
///
/// # Errors
/// The errors of `store`.
pub(crate) fn copy_hashes(
    known: &KnownBlocks,
    check: &dyn Check,
    range: &Range<u64>,
    mut store: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let leaves = check.leaves();
    let grain = check.align().max(UNIT);
    let start = range.start.max(leaves.start).next_multiple_of(grain);
    let end = range.end.min(leaves.end);
    let step = to_usize(grain);
    let mut wanted: Vec<u64> =
        (start..end).step_by(step).filter(|at| end.saturating_sub(*at) >= grain).collect();
    let (mut buf, mut reused) = (vec![0; step], 0u64);
    let mut outcome = Ok(());
    for (tree, of_tree) in known.trees() {
        wanted.retain(|at| {
            let pos = of_tree.start.saturating_add(at.saturating_sub(leaves.start));
            let is_there = pos.saturating_add(grain) <= of_tree.end && outcome.is_ok();
            let is_right = is_there
                && tree.read_exact_at(pos, &mut buf).is_ok()
                && check.check(*at, &buf) == Checked::Right;
            if is_right {
                outcome = store(*at, &buf);
                reused = reused.saturating_add(grain);
            }
            !is_right
        });
    }
    outcome.map(|()| reused)
}

/// The runs of `numbers` that have a property.
fn runs(numbers: Range<usize>, has: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers.filter(|number| has(*number)) {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end = number.saturating_add(1),
            _ => runs.push(number..number.saturating_add(1)),
        }
    }
    runs
}
