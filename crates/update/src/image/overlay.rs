//! A patched image that is put together while it is read: the base is not changed.

use std::io;
use std::sync::Arc;

use super::{SECTOR_POS, Sector};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{Access, ReadRange, Source};

/// A base image, the bytes appended to it, and the ranges that are replaced within it.
pub struct Overlay<S = Arc<dyn Source>> {
    base: S,
    /// Bytes of the base.
    base_size: u64,
    /// The appended bytes.
    region: Box<dyn Source>,
    /// Positions and bytes of replaced ranges; a later one wins.
    replaced: Vec<(u64, Vec<u8>)>,
}

impl<S: Source> Overlay<S> {
    /// The first `base_size` bytes of `base`, with `region` after them.
    pub fn new(base: S, base_size: u64, region: Box<dyn Source>) -> Self {
        Self { base, base_size, region, replaced: Vec::new() }
    }

    /// Replaces the bytes at `pos` by `bytes`.
    #[must_use]
    pub fn with(mut self, pos: u64, bytes: &[u8]) -> Self {
        if !bytes.is_empty() {
            self.replaced.push((pos, bytes.to_vec()));
        }
        self
    }

    /// The base without changes.
    pub fn of(base: S) -> Self {
        let size = base.size();
        Self::new(base, size, Box::new(Vec::new()))
    }

    /// The image with another superblock, as it is in another state of its history.
    pub fn with_sector(base: S, sector: &Sector) -> Self {
        Self::of(base).with(SECTOR_POS, sector)
    }

    /// Puts the replaced ranges into `buf`, which was read at `pos`.
    fn replace(&self, pos: u64, buf: &mut [u8]) {
        let end = pos.saturating_add(to_u64(buf.len()));
        for (at, bytes) in &self.replaced {
            let write_end = at.saturating_add(to_u64(bytes.len()));
            let (from, to) = (pos.max(*at), end.min(write_end));
            let (Some(len), Some(skip), Some(offset)) =
                (to.checked_sub(from), from.checked_sub(*at), from.checked_sub(pos))
            else {
                continue;
            };
            let ranges = |start: u64| {
                let start = to_usize(start);
                start..start.saturating_add(to_usize(len))
            };
            if let (Some(to), Some(from)) = (buf.get_mut(ranges(offset)), bytes.get(ranges(skip))) {
                to.copy_from_slice(from);
            }
        }
    }
}

impl<S: Source> Source for Overlay<S> {
    fn size(&self) -> u64 {
        self.base_size.saturating_add(self.region.size())
    }

    fn stored(&self) -> u64 {
        self.base.stored().saturating_add(self.region.size())
    }

    fn next_stored(&self, pos: u64) -> u64 {
        if pos >= self.base_size {
            return pos;
        }
        let written =
            self.replaced.iter().filter(|(at, bytes)| at.saturating_add(to_u64(bytes.len())) > pos);
        let first = written.map(|(at, _)| pos.max(*at)).min().unwrap_or(u64::MAX);
        self.base.next_stored(pos).min(first).min(self.base_size)
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let wanted = to_u64(buf.len());
        if pos.checked_add(wanted).is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from_base = self.base_size.saturating_sub(pos).min(wanted);
        let (low, high) = buf.split_at_mut(to_usize(from_base));
        if !low.is_empty() {
            // The last block of a base may be incomplete.
            let have = self.base.size().saturating_sub(pos).min(from_base);
            let (present, missing) = low.split_at_mut(to_usize(have));
            missing.fill(0);
            if !present.is_empty() {
                self.base.read_exact_at(pos, present)?;
            }
        }
        if !high.is_empty() {
            self.region.read_exact_at(pos.saturating_sub(self.base_size), high)?;
        }
        self.replace(pos, buf);
        Ok(())
    }

    /// Reads ranges of the base with one call; others one by one.
    fn read_ranges(&self, ranges: &mut [ReadRange<'_>], access: Access) -> io::Result<()> {
        let end = self.base_size.min(self.base.size());
        let is_of_base = |range: &ReadRange<'_>| {
            let len = to_u64(range.buf.len());
            range.pos.checked_add(len).is_some_and(|range_end| range_end <= end)
        };
        let mut of_base = Vec::with_capacity(ranges.len());
        for range in ranges.iter_mut() {
            if is_of_base(range) {
                of_base.push(ReadRange { pos: range.pos, buf: range.buf });
            } else {
                self.read_exact_at(range.pos, range.buf)?;
            }
        }
        self.base.read_ranges(&mut of_base, access)?;
        for range in of_base {
            self.replace(range.pos, range.buf);
        }
        Ok(())
    }

    fn prefers_batches(&self) -> bool {
        self.base.prefers_batches()
    }

    fn will_need(&self, pos: u64, len: u64) {
        if pos < self.base_size {
            self.base.will_need(pos, len.min(self.base_size.saturating_sub(pos)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_across_the_ends_of_all_ranges() {
        let base: Arc<dyn Source> = Arc::new((0..100u8).collect::<Vec<_>>());
        let overlay =
            Overlay::new(base, 104, Box::new(vec![200; 20])).with(10, &[1, 1]).with(98, &[2; 4]);
        assert_eq!(overlay.size(), 124);
        let mut expected: Vec<u8> = (0..100).collect();
        expected.resize(104, 0);
        expected.resize(124, 200);
        expected[10..12].fill(1);
        expected[98..102].fill(2);
        for start in 0..124 {
            for len in [0, 1, 3, 30, 124 - start] {
                let mut buf = vec![0; len.min(124 - start)];
                overlay.read_exact_at(start as u64, &mut buf).unwrap();
                assert_eq!(buf, expected[start..start + buf.len()], "{start} {len}");
                let (mut first, mut second) = (vec![0; 1], buf.clone());
                second.fill(9);
                let first = ReadRange { pos: 98, buf: &mut first };
                let second = ReadRange { pos: start as u64, buf: &mut second };
                let mut ranges = [first, second];
                overlay.read_ranges(&mut ranges, Access::Sparse).unwrap();
                assert_eq!((ranges[0].buf[0], &*ranges[1].buf), (2, &*buf), "{start} {len}");
            }
        }
        assert!(overlay.read_exact_at(120, &mut [0; 5]).is_err());
    }

    #[test]
    fn holes_of_the_base_stay_holes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        let base: Arc<dyn Source> =
            Arc::new(ferofs_read::FileSource::open(file.path(), 0).unwrap());
        let overlay = Overlay::new(base, 1 << 30, Box::new(vec![7; 20])).with(5000, &[1, 1]);
        assert_eq!(overlay.stored(), 20);
        let next = [0, 5001, 5002, 1 << 29, 1 << 30].map(|pos| overlay.next_stored(pos));
        assert_eq!(next, [5000, 5001, 1 << 30, 1 << 30, 1 << 30]);
    }
}
