//! Records which units of an object are stored: one bit for each unit, in two files.
//!
//! `present` has the units that were written since the system started: other processes see them at once, and they survive the
//! death of any process. Its header names the boot. `synced` has the units that were synced to the disk. After a restart of the
//! system, or a power failure, `present` starts again as a copy of `synced`.
//!
//! Eviction clears bits before it frees the bytes, and increases the generation in the header. A reader that finds the same
//! generation before and after a read has read stored bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a unit: the smallest part of an object that is fetched and stored. A block of most hash trees.
pub const UNIT: u64 = 4096;
/// Bytes before the bits in `present`.
const HEADER: u64 = 64;
const HEADER_LEN: usize = 64;
const MAGIC: [u8; 8] = *b"ferofsC1";
/// The position of the generation in the header.
const GENERATION: u64 = 24;
/// Bytes of bits that are read or copied at a time.
const PIECE: usize = 64 << 10;
/// Units of these bits.
const PIECE_UNITS: u64 = 512 << 10;

/// The number of units of `len` bytes.
pub(crate) const fn units_of(len: u64) -> u64 {
    len.div_ceil(UNIT)
}

/// The units that contain the bytes of `range`.
pub(crate) const fn units_in(range: &Range<u64>) -> Range<u64> {
    range.start / UNIT..range.end.div_ceil(UNIT)
}

/// The bytes of `units`, if all are whole ones.
pub(crate) const fn bytes_of(units: &Range<u64>) -> Range<u64> {
    units.start.saturating_mul(UNIT)..units.end.saturating_mul(UNIT)
}

/// The two files.
#[derive(Debug)]
pub(crate) struct Presence {
    present: File,
    synced: File,
    units: u64,
    /// flock(2) excludes other processes, this the other threads of this one.
    changes: Mutex<()>,
}

/// Excludes other changes until it is dropped.
struct ChangeLock<'a> {
    file: &'a File,
    _thread: parking_lot::MutexGuard<'a, ()>,
}

impl Drop for ChangeLock<'_> {
    fn drop(&mut self) {
        // It cannot fail for an open file; the lock would end with the process.
        let _ = flock(self.file, FlockOperation::Unlock);
    }
}

/// The identity of the current boot of the system.
pub(crate) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok(number.to_be_bytes())
}

impl Presence {
    /// The files of an object of `len` bytes. After a restart of the system, only synced units stay.
    pub(crate) fn open(present: File, synced: File, len: u64, boot: [u8; 16]) -> io::Result<Self> {
        let presence = Self { present, synced, units: units_of(len), changes: Mutex::new(()) };
        presence.start_again_after_boot(boot)?;
        Ok(presence)
    }

    fn lock(&self) -> io::Result<ChangeLock<'_>> {
        let thread = self.changes.lock();
        flock(&self.present, FlockOperation::LockExclusive)?;
        Ok(ChangeLock { file: &self.present, _thread: thread })
    }

    fn start_again_after_boot(&self, boot: [u8; 16]) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut header = [0; HEADER_LEN];
        let read = read_at_most(&self.present, 0, &mut header)?;
        if read == header.len() && header[..8] == MAGIC && header[8..24] == boot {
            return Ok(());
        }
        let generation = u64::from_le_bytes(header[24..32].try_into().unwrap_or_default());
        // A header of zeroes is of no boot: if this is interrupted, the next process copies again.
        self.present.write_all_at(&[0; 24], 0)?;
        self.present.set_len(HEADER)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0u64;
        loop {
            let len = read_at_most(&self.synced, at, &mut piece)?;
            if len == 0 {
                break;
            }
            let (bits, _) = piece.split_at(len);
            if bits.iter().any(|byte| *byte != 0) {
                self.present.write_all_at(bits, HEADER.saturating_add(at))?;
            }
            at = at.saturating_add(to_u64(len));
        }
        self.present.set_len(HEADER.saturating_add(self.units.div_ceil(8)))?;
        self.present.write_all_at(&generation.wrapping_add(1).to_le_bytes(), GENERATION)?;
        let mut name = [0; 24];
        name[..8].copy_from_slice(&MAGIC);
        name[8..].copy_from_slice(&boot);
        self.present.write_all_at(&name, 0)
    }

    /// The generation: it changes when units are evicted.
    pub(crate) fn generation(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.present.read_exact_at(&mut bytes, GENERATION)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The generation, after bytes of the one before have been freed.
    fn settled_generation(&self) -> io::Result<u64> {
        let _lock = self.lock()?;
        self.generation()
    }

    /// Whether all of `units` are present. Ends at the first piece of the file that lacks one: a server can claim any size.
    pub(crate) fn has_all(&self, units: Range<u64>) -> io::Result<bool> {
        let (mut at, end) = (units.start, units.end.min(self.units));
        while at < end {
            let piece = at..at.saturating_add(PIECE_UNITS).min(end);
            at = piece.end;
            if !self.missing(piece)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The runs of units in `units` that are not present.
    pub(crate) fn missing(&self, units: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.runs(units, false)
    }

    /// The runs of units in `units` that are present, or not.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "a number of units is below 2^52, and `piece` has the bytes up to `piece_end`"
    )]
    pub(crate) fn runs(&self, units: Range<u64>, wanted: bool) -> io::Result<Vec<Range<u64>>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let end = units.end.min(self.units);
        let mut at = units.start;
        let mut piece = vec![0; to_usize((end.saturating_sub(at)).div_ceil(8) + 1).min(PIECE)];
        while at < end {
            let first_byte = at / 8;
            let read = read_at_most(&self.present, HEADER + first_byte, &mut piece)?;
            // Bits behind the end of the file are 0.
            piece[read..].fill(0);
            let piece_end = end.min((first_byte + to_u64(piece.len())) * 8);
            while at < piece_end {
                let byte = piece[to_usize(at / 8 - first_byte)];
                let (same, step) = match byte {
                    0 => (!wanted, 8 - at % 8),
                    0xff => (wanted, 8 - at % 8),
                    _ => ((byte >> (at % 8) & 1 != 0) == wanted, 1),
                };
                let next = piece_end.min(at + step);
                if same {
                    match runs.last_mut() {
                        Some(run) if run.end == at => run.end = next,
                        _ => runs.push(at..next),
                    }
                }
                at = next;
            }
        }
        Ok(runs)
    }

    /// Writes these units by `write`, and then records that they are stored.
    pub(crate) fn set(
        &self,
        units: Range<u64>,
        write: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        // Not while bytes are being freed: those could be the ones that are written.
        let generation = self.settled_generation()?;
        write()?;
        let _lock = self.lock()?;
        if self.generation()? != generation {
            // The written bytes may have been freed since.
            write()?;
        }
        change_bits(&self.present, HEADER, units, true)
    }

    /// Syncs these units by `sync`, and then records that they are on the disk. Returns false if this is not certain, because units
    /// were evicted meanwhile.
    pub(crate) fn set_synced(
        &self,
        units: &[Range<u64>],
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        let generation = self.settled_generation()?;
        // Some may have been evicted before; those that are stored again after the sync are not on the disk.
        let runs: Vec<_> =
            units.iter().map(|units| self.runs(units.clone(), true)).collect::<io::Result<_>>()?;
        sync()?;
        let _lock = self.lock()?;
        if self.generation()? != generation {
            return Ok(false);
        }
        for run in runs.into_iter().flatten() {
            change_bits(&self.synced, 0, run, true)?;
        }
        Ok(true)
    }

    /// Removes units, and calls `free` to free their bytes, before any process can store them again.
    pub(crate) fn remove(
        &self,
        units: Range<u64>,
        free: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _lock = self.lock()?;
        change_bits(&self.synced, 0, units.clone(), false)?;
        self.synced.sync_data()?;
        change_bits(&self.present, HEADER, units, false)?;
        let generation = self.generation()?.wrapping_add(1);
        self.present.write_all_at(&generation.to_le_bytes(), GENERATION)?;
        free()
    }
}

/// Sets or clears the bits of `units` in `file`. The caller has the lock.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a number of units is below 2^52, and `from` and `to` are at most 8"
)]
fn change_bits(file: &File, start: u64, units: Range<u64>, value: bool) -> io::Result<()> {
    let mut at = units.start;
    while at < units.end {
        let first_byte = at / 8;
        let end = units.end.min((first_byte + to_u64(PIECE)) * 8);
        let mut bytes = vec![0; to_usize(end.div_ceil(8) - first_byte)];
        read_at_most(file, start + first_byte, &mut bytes)?;
        let before = bytes.clone();
        for (number, byte) in (first_byte..).zip(&mut bytes) {
            let from = at.max(number * 8) - number * 8;
            let to = end.min(number * 8 + 8) - number * 8;
            let [mask, _] = ((1_u16 << to) - (1_u16 << from)).to_le_bytes();
            *byte = if value { *byte | mask } else { *byte & !mask };
        }
        // On a full disk, bits that are clear already must not need a block to be cleared.
        if bytes != before {
            file.write_all_at(&bytes, start + first_byte)?;
        }
        at = end;
    }
    Ok(())
}

/// Fills `buf` as far as the file goes.
fn read_at_most(file: &File, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0usize;
    while let Some(unread) = buf.get_mut(done..).filter(|unread| !unread.is_empty()) {
        match file.read_at(unread, pos.saturating_add(to_u64(done))) {
            Ok(0) => break,
            Ok(len) => done = done.saturating_add(len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(units: u64, boot: u8) -> (Presence, File, File) {
        let (present, synced) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let again = (present.try_clone().unwrap(), synced.try_clone().unwrap());
        (Presence::open(present, synced, units * UNIT, [boot; 16]).unwrap(), again.0, again.1)
    }

    #[test]
    fn runs_are_those_of_single_bits() {
        let (presence, ..) = presence(100_000, 1);
        let set = [0..1, 7..9, 16..40, 63..64, 1000..1001, 4096..70_000, 99_999..100_000];
        for range in set.clone() {
            presence.set(range, || Ok(())).unwrap();
        }
        let is_set = |unit| set.iter().any(|range| range.contains(&unit));
        for range in [0..100_000, 5..20, 8..8, 39..41, 4000..100_000, 99_990..200_000] {
            let missing = presence.missing(range.clone()).unwrap();
            let expected: Vec<u64> =
                range.clone().filter(|unit| *unit < 100_000 && !is_set(*unit)).collect();
            assert_eq!(
                missing.iter().cloned().flatten().collect::<Vec<_>>(),
                expected,
                "{range:?}"
            );
            assert_eq!(presence.has_all(range.clone()).unwrap(), expected.is_empty(), "{range:?}");
            assert!(
                missing.windows(2).all(|pair| pair[0].end < pair[1].start),
                "runs are as long as possible"
            );
        }
    }

    /// The bits of 4 PiB are not read to their end.
    #[test]
    fn a_huge_object_is_known_to_be_incomplete() {
        let units = 1 << 40;
        let (presence, ..) = presence(units, 1);
        assert!(!presence.has_all(0..units).unwrap());
        presence.set(0..PIECE_UNITS + 9, || Ok(())).unwrap();
        assert!(
            presence.has_all(0..PIECE_UNITS + 9).unwrap() && !presence.has_all(0..units).unwrap()
        );
    }

    #[test]
    fn only_synced_units_survive_another_boot() {
        let (presence, present, synced) = presence(5000, 1);
        presence.set(10..2000, || Ok(())).unwrap();
        assert!(presence.set_synced(&[100..3000], || Ok(())).unwrap());
        let same = Presence::open(
            present.try_clone().unwrap(),
            synced.try_clone().unwrap(),
            5000 * UNIT,
            [1; 16],
        );
        assert_eq!(same.unwrap().missing(0..5000).unwrap(), [0..10, 2000..5000]);
        let next = Presence::open(present, synced, 5000 * UNIT, [2; 16]).unwrap();
        assert_eq!(next.missing(0..5000).unwrap(), [0..100, 2000..5000]);
    }

    /// Two threads' view of the same files: each has locks of its own.
    fn two_views(units: u64) -> (tempfile::TempDir, [Presence; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.path().join(name))
                .unwrap()
        };
        let view =
            || Presence::open(open("present"), open("synced"), units * UNIT, [1; 16]).unwrap();
        let views = [view(), view()];
        (folder, views)
    }

    #[test]
    fn what_is_stored_while_bytes_are_freed_is_written_after_that() {
        let (_folder, [remover, writer]) = two_views(100);
        let is_written = std::sync::atomic::AtomicBool::new(false);
        let store = || {
            writer.set(20..30, || {
                is_written.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            let mut storing = None;
            remover
                .remove(0..100, || {
                    storing = Some(scope.spawn(store));
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    // Here the bytes are freed.
                    is_written.store(false, std::sync::atomic::Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
            storing.unwrap().join().unwrap().unwrap();
        });
        assert!(is_written.into_inner());
        assert_eq!(remover.missing(0..100).unwrap(), [0..20, 30..100]);
    }

    #[test]
    fn what_is_stored_after_a_sync_does_not_count_as_synced() {
        let (_folder, [syncer, writer]) = two_views(100);
        writer.set(0..10, || Ok(())).unwrap();
        assert!(syncer.set_synced(&[0..100], || writer.set(10..20, || Ok(()))).unwrap());
        let boot = Presence::open(
            syncer.present.try_clone().unwrap(),
            syncer.synced.try_clone().unwrap(),
            100 * UNIT,
            [2; 16],
        );
        assert_eq!(boot.unwrap().missing(0..100).unwrap(), [10..100]);
    }

    #[test]
    fn removal_changes_the_generation_before_bytes_are_freed() {
        let (presence, ..) = presence(100, 1);
        presence.set(0..100, || Ok(())).unwrap();
        assert!(presence.set_synced(&[0..100], || Ok(())).unwrap());
        let before = presence.generation().unwrap();
        let mut during = None;
        presence
            .remove(20..30, || {
                during = Some((presence.generation()?, presence.missing(0..100)?));
                Ok(())
            })
            .unwrap();
        let (generation, missing) = during.unwrap();
        assert_ne!(generation, before);
        assert_eq!(missing, [20..30]);
    }
}
