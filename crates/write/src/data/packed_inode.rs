//! The packed inode: all fragments one after another, encoded like the content of a file.
//!
//! The appending thread collects fragments into parts of one segment, which workers encode beside
//! the files. Encoded parts go to a temporary file until the end of the data stage, so that the
//! extents of the packed inode follow each other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ferofs_format::BlockSize;

use crate::data::encode::Encoded;
use crate::data::encode::deflate_pages::DeflatePlacer;
use crate::data::extents::ExtentLog;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::output::spill::tempfile;

/// Bytes that are copied at once from the temporary file to the image.
const COPY_LEN: usize = 1 << 20;

/// Collects fragments, and the encoded parts of the packed inode.
#[derive(Debug)]
pub(crate) struct PackedInodeBuilder {
    /// Where the temporary file is created.
    dir: PathBuf,
    /// Bytes of a part.
    segment: usize,
    /// Bytes of the part that is being collected.
    part_len: usize,
    /// Where the first fragment is in the packed inode: content of an earlier image can be before
    /// it.
    start: u64,
    /// Bytes of all fragments.
    size: u64,
    /// The last fragments, which are not yet a whole part.
    filling: Vec<u8>,
    /// Parts that no worker has got yet.
    parts: VecDeque<Vec<u8>>,
    log: ExtentLog,
    /// The encoded parts.
    file: Option<File>,
    /// Places the extents, if Linux cannot decode them at any place.
    placer: Option<DeflatePlacer>,
}

impl PackedInodeBuilder {
    /// The first part has as many bytes as the first of `part_lens`, all others as the second.
    /// Encoded parts go to a temporary file in `dir`. The first fragment is at `start`.
    pub(crate) fn new(
        dir: &Path,
        [part_len, segment]: [u64; 2],
        block: BlockSize,
        placer: Option<DeflatePlacer>,
        start: u64,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            segment: segment as usize,
            part_len: part_len as usize,
            start,
            size: 0,
            filling: Vec::new(),
            parts: VecDeque::new(),
            log: ExtentLog::new(block.bytes64()),
            file: None,
            placer,
        }
    }

    /// Bytes of all fragments so far, without what is before the first one.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The extents of the encoded parts.
    pub(crate) const fn log(&self) -> &ExtentLog {
        &self.log
    }

    /// Adds a fragment; returns its offset in the packed inode.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> u64 {
        let offset = self.start + self.size;
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.part_len - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == self.part_len {
                self.part_len = self.segment;
                self.parts.push_back(std::mem::take(&mut self.filling));
            }
        }
        offset
    }

    /// The next part to encode.
    pub(crate) fn next_part(&mut self) -> Option<Vec<u8>> {
        self.parts.pop_front()
    }

    /// The last part to encode, which is shorter than the others. No fragment comes after it.
    pub(crate) fn last_part(&mut self) -> Option<Vec<u8>> {
        (!self.filling.is_empty()).then(|| std::mem::take(&mut self.filling))
    }

    /// Adds the next part, which was encoded into `bytes`.
    pub(crate) fn add_encoded(&mut self, encoded: &Encoded, bytes: &[u8]) -> Result<()> {
        // Positions relative to the packed inode's data are enough: it will start at a block
        // boundary.
        let placed = match &mut self.placer {
            Some(placer) => placer.place_all(&encoded.log, bytes, self.log.size())?,
            None => None,
        };
        let (log, bytes) = match &placed {
            Some((log, bytes)) => (log, bytes.as_slice()),
            None => (&encoded.log, bytes),
        };
        self.log.extend(log);
        let io = |e| Error::io("write a temporary file in", &self.dir, e);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile(&self.dir).map_err(io)?),
        };
        file.write_all(bytes).map_err(io)
    }

    /// Appends the encoded parts to `output`.
    pub(crate) fn append_to(&mut self, output: &mut Output) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let failed = |e| Error::io("read a temporary file in", &self.dir, e);
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut buffer = vec![0; COPY_LEN];
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
