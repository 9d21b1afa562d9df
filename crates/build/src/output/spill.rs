//! Bytes that wait for their inode to get a place: inline tails and indexes. Beyond some megabytes they
//! wait in a nameless temporary file, so that memory does not grow with the tree.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes kept in memory: enough for trees of some 50,000 files.
const IN_MEMORY: usize = 64 << 20;
/// Bytes read at once. Requests are in order for a directory's files, but go from one directory to another of the same level,
/// while bytes came in the order of content: more than this is rarely wanted before the next leap.
const WINDOW: usize = 64 << 10;

/// A place in the [`Spill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    at: u64,
    len: u32,
}

impl Payload {
    pub const fn len(self) -> usize {
        self.len as usize
    }
}

#[derive(Debug)]
pub struct Spill {
    /// Where the temporary file goes.
    dir: PathBuf,
    file: Option<File>,
    /// Bytes kept in memory, at most.
    in_memory: usize,
    /// Bytes in the file.
    written: u64,
    /// Bytes after those.
    recent: Vec<u8>,
    window: Vec<u8>,
    window_at: u64,
}

impl Spill {
    pub fn new(dir: &Path) -> Self {
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

    /// Where the temporary file goes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps `bytes`; a payload has less than 4 GiB.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Payload> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(Error::DoesNotFit {
                path: PathBuf::new(),
                what: "an index of bytes",
                value: bytes.len() as u64,
                limit: u32::MAX.into(),
            });
        };
        let at = self.written + self.recent.len() as u64;
        self.recent.extend_from_slice(bytes);
        if self.recent.len() > self.in_memory {
            self.flush()?;
        }
        Ok(Payload { at, len })
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

    /// The bytes of `payload`.
    pub fn get(&mut self, payload: Payload) -> Result<&[u8]> {
        if let Some(start) = payload.at.checked_sub(self.written) {
            let start = start as usize;
            return Ok(&self.recent[start..start + payload.len()]);
        }
        let Some(file) = &self.file else { return Ok(&[]) };
        let end = payload.at + u64::from(payload.len);
        if payload.at < self.window_at || end > self.window_at + self.window.len() as u64 {
            self.window_at = payload.at.saturating_sub(WINDOW as u64 / 8);
            let wanted = (WINDOW as u64).max(end - self.window_at).min(self.written - self.window_at);
            self.window.resize(wanted as usize, 0);
            file.read_exact_at(&mut self.window, self.window_at)
                .map_err(|e| Error::io("read a temporary file in", &self.dir, e))?;
        }
        let start = (payload.at - self.window_at) as usize;
        Ok(&self.window[start..start + payload.len()])
    }
}

/// A nameless file in `dir`, or where temporary files go.
pub fn tempfile(dir: &Path) -> std::io::Result<File> {
    tempfile::tempfile_in(dir).or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_pushed_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill { in_memory: 1 << 20, ..Spill::new(dir.path()) };
        let content = |n: usize| vec![n as u8; n * 37 % 5000];
        let payloads: Vec<Payload> = (0..8000).map(|n| spill.push(&content(n)).unwrap()).collect();
        assert!(spill.written > 0, "nothing was spilled");
        for n in (0..8000).step_by(3).chain((0..8000).rev().step_by(7)) {
            assert_eq!(spill.get(payloads[n]).unwrap(), content(n));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
