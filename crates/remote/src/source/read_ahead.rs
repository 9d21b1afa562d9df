//! Finds reads in sequence, and says what to fetch ahead of them.

use std::ops::Range;

use parking_lot::Mutex;

/// Sequences that are known at a time.
const STREAMS: usize = 8;
/// Bytes fetched ahead of a new sequence, and of one that has gone on for long: they arrive in 100 ms at 1 Gbit/s. Those behind the last read are
/// fetched in vain.
const FIRST: u64 = 512 << 10;
const LONGEST: u64 = 12 << 20;
/// A read belongs to a sequence if it starts at most this far behind its end or before it: threads read a file out of order.
const GAP: u64 = 256 << 10;

/// The sequences of reads.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    streams: [Stream; STREAMS],
    /// Counts the reads.
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The end of the last read.
    end: u64,
    /// The end of what was fetched ahead.
    announced: u64,
    /// Bytes to fetch ahead; 0 after one read.
    window: u64,
    /// The last read.
    used: u64,
}

impl ReadAhead {
    /// Records a read. Returns what should be fetched ahead now. Nothing as long as the sequence reads what `is_stored` already: the next bytes may
    /// also be stored, or not be wanted, as behind the last file of an access profile.
    pub(crate) fn next(&self, read: Range<u64>, is_stored: impl FnOnce() -> bool) -> Option<Range<u64>> {
        let mut all = self.streams.lock();
        all.clock = all.clock.saturating_add(1);
        let clock = all.clock;
        let known = all.streams.iter_mut().find(|stream| {
            stream.used > 0
                && read.start.saturating_add(GAP) >= stream.end
                && read.start <= stream.end.saturating_add(GAP)
        });
        let Some(stream) = known else {
            let oldest = all.streams.iter_mut().min_by_key(|stream| stream.used)?;
            *oldest = Stream { end: read.end, announced: read.end, window: 0, used: clock };
            return None;
        };
        stream.used = clock;
        if read.end <= stream.end {
            return None;
        }
        stream.end = read.end;
        stream.announced = stream.announced.max(read.end);
        if stream.window == 0 && is_stored() {
            return None;
        }
        // Half of the window is still ahead.
        if stream.window > 0 && stream.announced.saturating_sub(read.end) > stream.window / 2 {
            return None;
        }
        stream.window = stream.window.saturating_mul(2).clamp(FIRST, LONGEST);
        let ahead = stream.announced..read.end.saturating_add(stream.window);
        stream.announced = ahead.end.max(stream.announced);
        (!ahead.is_empty()).then_some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_fetched_ahead_and_random_reads_are_not() {
        let ahead = ReadAhead::default();
        let mut announced: Vec<Range<u64>> = Vec::new();
        for start in (0..64 << 20).step_by(128 << 10) {
            // Two other readers read at random.
            assert_eq!(
                ahead.next(
                    start * 7919 % (1 << 40) + (1 << 41)..start * 7919 % (1 << 40) + (1 << 41) + 4096,
                    || false
                ),
                None
            );
            announced.extend(ahead.next(start..start + (128 << 10), || false));
            if start > 16 << 20 {
                let end = announced.last().unwrap().end;
                assert!(end > start + (5 << 20), "{start}: {end}");
            }
        }
        assert!(announced.windows(2).all(|pair| pair[0].end == pair[1].start), "without gaps or repetitions");
        assert!(announced.len() < 16, "{announced:?}");
    }
    #[test]
    fn nothing_is_fetched_ahead_of_what_is_stored() {
        let ahead = ReadAhead::default();
        for start in (0..10 << 20).step_by(128 << 10) {
            assert_eq!(ahead.next(start..start + (128 << 10), || true), None);
        }
        let (start, end) = (10 << 20, (10 << 20) + 4096);
        assert_eq!(ahead.next(start..end, || false), Some(end..end + FIRST));
        // The bytes that were fetched ahead are stored now.
        assert!(ahead.next(end..end + FIRST, || true).is_some());
    }
}
