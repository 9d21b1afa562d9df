//! Records which units of an object are stored: one bit for each unit, in two files.
//!
//! `present` has the units that were written since the system started: other processes see them at
//! once, and they survive the death of any process. Its header names the boot. `synced` has the
//! units that were synced to the disk. After a restart of the system, or a power failure, `present`
//! starts again as a copy of `synced`.
//!
//! Eviction clears bits before it frees the bytes, and increases the generation in the header. A
//! reader that finds the same generation before and after a read has read stored bytes.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a unit: the smallest part of an object that is fetched and stored. A block of most hash
/// trees.
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
    /// The files of an object of `len` bytes. After a restart of the system, only synced units
    /// stay.
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

    /// Whether all of `units` are present. Ends at the first piece of the file that lacks one: a
    /// server can claim any size.
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
            // Bits after the end of the file are 0.
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

    /// Syncs these units by `sync`, and then records that they are on the disk. Returns false if
    /// this is not certain, because units were evicted meanwhile.
    pub(crate) fn set_synced(
        &self,
        units: &[Range<u64>],
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        let generation = self.settled_generation()?;
        // Some may have been evicted before; those that are stored again after the sync are not on
        // the disk.
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

    /// Removes units, and calls `free` to free their bytes, before any process can store them
    /// again.
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
