//! A hostile image in memory: a valid or generated base, changed bytes, and a size that may be much larger than the stored bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ferofs::read::Source;

/// An image in memory. Bytes from the base's end to `size` read as zeros, as those of a sparse file do.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) base: Arc<Vec<u8>>,
    /// Position and new bytes; later changes win.
    pub(crate) changes: Vec<(usize, Vec<u8>)>,
    /// The size of the image.
    pub(crate) size: u64,
}

impl TestImage {
    pub(crate) fn new(base: Arc<Vec<u8>>) -> Self {
        let size = base.len() as u64;
        Self { base, changes: Vec::new(), size }
    }

    /// Stored bytes; the limits on time and memory depend on them.
    pub(crate) fn len(&self) -> usize {
        self.base.len()
    }

    /// The base with all changes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (at, new) in &self.changes {
            if let Some(old) = bytes.get_mut(*at..*at + new.len()) {
                old.copy_from_slice(new);
            }
        }
        bytes
    }

    /// Writes the image as a sparse file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.write_all_at(&self.bytes(), 0)?;
        file.set_len(self.size)
    }
}

impl Source for TestImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn stored(&self) -> u64 {
        self.base.len() as u64
    }

    fn next_stored(&self, pos: u64) -> u64 {
        if pos < self.stored() { pos } else { self.size }
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = pos.checked_add(buf.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        let stored = self.base.len() as u64;
        if pos < stored {
            // Both are at most the length of a vector.
            let (from, to) = (pos as usize, end.min(stored) as usize);
            buf[..to - from].copy_from_slice(&self.base[from..to]);
            for (at, bytes) in &self.changes {
                let (first, last) = (from.max(*at), to.min(at + bytes.len()));
                if first < last {
                    buf[first - from..last - from].copy_from_slice(&bytes[first - at..last - at]);
                }
            }
        }
        Ok(())
    }
}
