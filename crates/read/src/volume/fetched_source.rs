//! The source whose bytes the caller fetches: for programs that must not block a thread, and for
//! places without threads.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use super::source::{Access, ReadRange, Source};
use crate::error::{Error, Result};

/// Bytes that ranges to fetch are a multiple of, so that neighbouring structures come with one
/// fetch.
const GRANULE: u64 = 4096;

/// The bytes of an image that were fetched so far.
///
/// Run a read with [`Self::attempt`]. If it returns [`Attempt::Missing`], fetch these ranges in any
/// way, for example by an asynchronous HTTP client, pass the bytes to [`Self::insert`], and run the
/// same read again. Each attempt gets further, and the last one returns the result.
/// [`Image::data_ranges`](crate::Image::data_ranges) tells all data that a read needs, so that they
/// can be fetched together.
#[derive(Debug)]
pub struct FetchedSource {
    size: u64,
    state: Mutex<FetchedBytes>,
}

#[derive(Debug, Default)]
struct FetchedBytes {
    /// Fetched bytes, by position. They do not overlap.
    fetched: BTreeMap<u64, Box<[u8]>>,
    /// The ranges that reads wanted and that were not there.
    missing: Vec<Range<u64>>,
}

/// The result of [`FetchedSource::attempt`].
#[derive(Debug)]
pub enum Attempt<T> {
    /// The read is complete.
    Done(T),
    /// The read needs these ranges of bytes first.
    Missing(Vec<Range<u64>>),
}

impl FetchedSource {
    /// An image of `size` bytes, none of which were fetched.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, state: Mutex::default() }
    }

    /// Runs `read`, which reads from this source.
    ///
    /// # Errors
    /// The errors of `read`, except for missing bytes.
    pub fn attempt<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<Attempt<T>> {
        self.state.lock().missing.clear();
        let result = read();
        let missing = merged(std::mem::take(&mut self.state.lock().missing));
        match result {
            Ok(done) => Ok(Attempt::Done(done)),
            Err(Error::Io(error))
                if error.source.kind() == io::ErrorKind::WouldBlock && !missing.is_empty() =>
            {
                Ok(Attempt::Missing(missing))
            }
            Err(error) => Err(error),
        }
    }

    /// The parts of `range` that were not fetched, in units of 4 KiB. Empty if all were.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.state.lock().missing_in(range, self.size)
    }

    /// Adds fetched bytes, which start at `start`. Bytes that are there already stay.
    pub fn insert(&self, start: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let mut at = start;
        let end = start.saturating_add(to_u64(bytes.len()));
        while at < end {
            let after = state.end_of_piece(at);
            if let Some(after) = after {
                at = after;
                continue;
            }
            let next = state.fetched.range(at..end).next().map_or(end, |(next, _)| *next);
            let piece = to_usize(at.saturating_sub(start))..to_usize(next.saturating_sub(start));
            state.fetched.insert(at, bytes.get(piece).unwrap_or_default().into());
            at = next;
        }
    }

    /// Forgets all fetched bytes, to free their memory. Reads ask for them again.
    pub fn clear(&self) {
        self.state.lock().fetched.clear();
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.state.lock().fetched.values().map(|bytes| to_u64(bytes.len())).sum()
    }
}

impl FetchedBytes {
    /// The end of the piece that has the byte at `at`.
    fn end_of_piece(&self, at: u64) -> Option<u64> {
        let (start, bytes) = self.fetched.range(..=at).next_back()?;
        let end = start.saturating_add(to_u64(bytes.len()));
        (end > at).then_some(end)
    }

    fn missing_in(&self, range: Range<u64>, size: u64) -> Vec<Range<u64>> {
        let end = range.end.min(size);
        let (mut at, mut missing) = (range.start, Vec::new());
        while at < end {
            match self.end_of_piece(at) {
                Some(after) => at = after,
                None => {
                    let next = self.fetched.range(at..end).next().map_or(end, |(next, _)| *next);
                    let unit_end = next.checked_next_multiple_of(GRANULE).unwrap_or(next).min(size);
                    missing.push(at.saturating_sub(at % GRANULE)..unit_end);
                    at = next;
                }
            }
        }
        merged(missing)
    }

    /// Copies fetched bytes from `pos` on; returns whether all were there.
    fn copy(&self, mut pos: u64, mut buf: &mut [u8]) -> bool {
        while !buf.is_empty() {
            let Some((start, bytes)) = self.fetched.range(..=pos).next_back() else { return false };
            let available = bytes.get(to_usize(pos.saturating_sub(*start))..).unwrap_or_default();
            if available.is_empty() {
                return false;
            }
            let len = available.len().min(buf.len());
            let (head, tail) = std::mem::take(&mut buf).split_at_mut(len);
            head.copy_from_slice(available.split_at(len).0);
            pos = pos.saturating_add(to_u64(len));
            buf = tail;
        }
        true
    }
}

/// The same ranges in order, without overlaps.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn to_u64(len: usize) -> u64 {
    ferofs_format::units::to_u64(len)
}

/// For positions within bytes that are in memory.
fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

impl Source for FetchedSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = pos.checked_add(to_u64(buf.len())).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut state = self.state.lock();
        if state.copy(pos, buf) {
            return Ok(());
        }
        let missing = state.missing_in(pos..end, self.size);
        state.missing.extend(missing);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Reports what is missing of all ranges, not only of the first one.
    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], _: Access) -> io::Result<()> {
        let (mut result, mut is_missing) = (Ok(()), false);
        for range in ranges {
            match self.read_exact_at(range.pos, range.buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_missing = true,
                read => result = result.and(read),
            }
        }
        if is_missing { result.and(Err(io::ErrorKind::WouldBlock.into())) } else { result }
    }

    fn prefers_batches(&self) -> bool {
        true
    }

    fn read_if_cached(&self, pos: u64, buf: &mut [u8]) -> bool {
        self.state.lock().copy(pos, buf)
    }

    fn will_need(&self, pos: u64, len: u64) {
        let mut state = self.state.lock();
        let missing = state.missing_in(pos..pos.saturating_add(len), self.size);
        state.missing.extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ask_for_what_is_missing_until_they_are_complete() {
        let whole: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        let source = FetchedSource::new(20_000);
        let read = || {
            let mut buf = vec![0; 9000];
            source.read_exact_at(4000, &mut buf).map_err(Error::unreadable)?;
            Ok(buf)
        };
        let Attempt::Missing(missing) = source.attempt(read).unwrap() else {
            panic!("nothing is there")
        };
        assert_eq!((missing.len(), &missing[0]), (1, &(0..16_384)));
        source.insert(4096, &whole[4096..8192]);
        let Attempt::Missing(missing) = source.attempt(read).unwrap() else {
            panic!("a part is there")
        };
        assert_eq!(missing, [0..4096, 8192..16_384]);
        for range in missing {
            // Also over bytes that are there.
            let end = (range.end as usize + 100).min(whole.len());
            source.insert(range.start, &whole[range.start as usize..end]);
        }
        let Attempt::Done(bytes) = source.attempt(read).unwrap() else { panic!("all is there") };
        assert_eq!(bytes, whole[4000..13_000]);
        assert_eq!(source.held(), 16_484);
        assert!(source.missing(0..16_484).is_empty());
        let missing = source.missing(0..u64::MAX);
        assert_eq!((missing.len(), &missing[0]), (1, &(16_384..20_000)), "whole units");
        source.clear();
        assert_eq!(source.held(), 0);
    }

    #[test]
    fn other_errors_are_returned() {
        let source = FetchedSource::new(10);
        let read = || source.read_exact_at(5, &mut [0; 6]).map_err(Error::unreadable);
        assert!(matches!(source.attempt(read), Err(Error::Io(_))));
        let other = || Err::<(), _>(Error::unreadable(io::ErrorKind::WouldBlock.into()));
        assert!(source.attempt(other).is_err(), "not of this source: nothing is missing");
    }
}
