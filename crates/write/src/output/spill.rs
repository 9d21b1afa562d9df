//! Holds inline tails and indexes from the data stage until the metadata stage writes their inodes.
//! More than 16 MiB go to a temporary file, so that memory does not grow with the tree.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The most bytes in memory, which is enough for about 100,000 files. More bytes go to the
/// temporary file.
const IN_MEMORY: usize = 16 << 20;
/// Bytes that are read at once from the temporary file. The metadata stage reads level by level,
/// the data stage wrote in the order of reading: both have the same order only within a directory,
/// so that more bytes are rarely used.
const WINDOW_LEN: usize = 64 << 10;

/// A range of bytes in the [`Spill`]; the default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpillRange {
    /// The low and the high half of its position: each inode has a range, which takes 12 bytes so.
    at: [u32; 2],
    len: u32,
}

impl SpillRange {
    const fn new(at: u64, len: u32) -> Self {
        Self { at: [at as u32, (at >> 32) as u32], len }
    }

    const fn start(self) -> u64 {
        (self.at[1] as u64) << 32 | self.at[0] as u64
    }

    pub(crate) const fn byte_len(self) -> usize {
        self.len as usize
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Holds bytes until they are read again, in any order.
#[derive(Debug)]
pub(crate) struct Spill {
    /// Where the temporary file is created.
    dir: PathBuf,
    file: Option<File>,
    /// The most bytes in memory.
    in_memory: usize,
    /// Bytes in the temporary file.
    written: u64,
    /// The bytes after those in the file.
    recent: Vec<u8>,
    /// The bytes of the file that were read last, and their position.
    window: Vec<u8>,
    window_at: u64,
}

impl Spill {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            file: None,
            in_memory: IN_MEMORY,
            written: 0,
            recent: Vec::new(),
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// Where the temporary file is created.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds `bytes`: less than 4 GiB.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] for more bytes, and [`Error::Io`].
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<SpillRange> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(Error::DoesNotFit {
                path: PathBuf::new(),
                what: "the size of an index in bytes,",
                value: bytes.len() as u64,
                limit: u32::MAX.into(),
            });
        };
        let at = self.written + self.recent.len() as u64;
        self.recent.extend_from_slice(bytes);
        if self.recent.len() > self.in_memory {
            self.flush()?;
        }
        Ok(SpillRange::new(at, len))
    }

    fn flush(&mut self) -> Result<()> {
        let io = |e| Error::io("write a temporary file in", &self.dir, e);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile(&self.dir).map_err(io)?),
        };
        file.write_all_at(&self.recent, self.written).map_err(io)?;
        self.written += self.recent.len() as u64;
        self.recent.clear();
        Ok(())
    }

    /// The bytes of `range`.
    pub(crate) fn get(&mut self, range: SpillRange) -> Result<&[u8]> {
        let at = range.start();
        if let Some(start) = at.checked_sub(self.written) {
            let start = start as usize;
            return Ok(&self.recent[start..start + range.byte_len()]);
        }
        let Some(file) = &self.file else { return Ok(&[]) };
        let end = at + u64::from(range.len);
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            self.window_at = at.saturating_sub(WINDOW_LEN as u64 / 8);
            let wanted =
                (WINDOW_LEN as u64).max(end - self.window_at).min(self.written - self.window_at);
            self.window.resize(wanted as usize, 0);
            file.read_exact_at(&mut self.window, self.window_at)
                .map_err(|e| Error::io("read a temporary file in", &self.dir, e))?;
        }
        let start = (at - self.window_at) as usize;
        Ok(&self.window[start..start + range.byte_len()])
    }
}

/// A temporary file without a name in `dir`, or in the system's directory for temporary files.
pub(crate) fn tempfile(dir: &Path) -> std::io::Result<File> {
    tempfile::tempfile_in(dir).or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_bytes_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill { in_memory: 1 << 20, ..Spill::new(dir.path()) };
        let content = |n: usize| vec![n as u8; n * 37 % 5000];
        let ranges: Vec<SpillRange> = (0..8000).map(|n| spill.push(&content(n)).unwrap()).collect();
        assert!(spill.written > 0, "nothing was spilled");
        for n in (0..8000).step_by(3).chain((0..8000).rev().step_by(7)) {
            assert_eq!(spill.get(ranges[n]).unwrap(), content(n));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
