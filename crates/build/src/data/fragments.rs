//! The packed inode: fragments one after another, encoded as a file of its own.
//!
//! Fragments are gathered into parts of a constant size, which workers encode while files go on. Encoded parts
//! wait in a temporary file for the end of the data stage, so that the inode's extents follow each other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::data::encode::Encoded;
use crate::data::encode::deflate_pages::PageRule;
use crate::data::extents::list::ExtentLog;
use crate::data::worker::SEGMENT;
use crate::output::Output;
use crate::{Error, Result};

/// Bytes copied at once.
const COPY: usize = 1 << 20;

/// The packed inode in the making.
#[derive(Debug)]
pub(crate) struct Packed {
    dir: PathBuf,
    /// Bytes of all fragments.
    size: u64,
    /// Fragments that fill no part yet.
    filling: Vec<u8>,
    /// Parts that nobody encodes yet.
    full: VecDeque<Vec<u8>>,
    /// Encoded parts, once the ones before are written.
    waiting: VecDeque<Option<(ExtentLog, Vec<u8>)>>,
    /// Parts that were given away.
    given: usize,
    /// Parts that were written.
    written: usize,
    log: ExtentLog,
    file: Option<File>,
    /// What limits the places of extents, if anything does.
    pages: Option<PageRule>,
}

impl Packed {
    /// Encoded parts wait in `dir`; extents usually take `unit` bytes.
    pub(crate) fn new(dir: &Path, unit: u64, pages: Option<PageRule>) -> Self {
        Self {
            dir: dir.to_owned(),
            size: 0,
            filling: Vec::new(),
            full: VecDeque::new(),
            waiting: VecDeque::new(),
            given: 0,
            written: 0,
            log: ExtentLog::new(unit),
            file: None,
            pages,
        }
    }

    /// Bytes of all fragments so far.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The extents of what was encoded.
    pub(crate) const fn log(&self) -> &ExtentLog {
        &self.log
    }

    /// Adds a fragment; returns where it starts.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> u64 {
        let offset = self.size;
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT as usize - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() as u64 == SEGMENT {
                self.full.push_back(std::mem::take(&mut self.filling));
            }
        }
        offset
    }

    /// No more fragments will come; says whether that makes another part.
    pub(crate) fn close(&mut self) -> bool {
        if !self.filling.is_empty() {
            self.full.push_back(std::mem::take(&mut self.filling));
        }
        self.has_parts()
    }

    /// Whether parts wait for somebody to encode them.
    pub(crate) fn has_parts(&self) -> bool {
        !self.full.is_empty()
    }

    /// The next part to encode, with its number.
    pub(crate) fn take(&mut self) -> Option<(usize, Vec<u8>)> {
        let part = self.full.pop_front()?;
        self.waiting.push_back(None);
        self.given += 1;
        Some((self.given - 1, part))
    }

    /// Takes back part `number`, encoded into `bytes`, which are taken.
    pub(crate) fn put(&mut self, number: usize, encoded: &Encoded, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(slot) = self.waiting.get_mut(number - self.written) {
            *slot = Some((encoded.log.clone(), std::mem::take(bytes)));
        }
        while let Some((log, bytes)) = self.waiting.front_mut().and_then(Option::take) {
            self.waiting.pop_front();
            self.written += 1;
            // The inode's data will start with a block.
            let placed = match &mut self.pages {
                Some(pages) => pages.place_all(&log, &bytes, self.log.size())?,
                None => None,
            };
            let (log, bytes) = placed.unwrap_or((log, bytes));
            self.log.extend(&log);
            let io = |e| Error::io("write a temporary file in", &self.dir, e);
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(crate::output::spill::tempfile(&self.dir).map_err(io)?),
            };
            file.write_all(&bytes).map_err(io)?;
        }
        Ok(())
    }

    /// Appends what was encoded to `output`.
    pub(crate) fn append_to(&mut self, output: &mut Output) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let failed = |e| Error::io("read a temporary file in", &self.dir, e);
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut buffer = vec![0; COPY];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => output.append(&buffer[..n])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
