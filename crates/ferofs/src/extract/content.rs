//! Writes a regular file's content. Holes and blocks of zeroes become holes.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ferofs_format::FileOffset;
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Result};
use ferofs_format::units::to_u64;
use ferofs_read::{ExtentData, Image, Inode};

/// Bytes that are decoded and written at once; a cluster that decodes to more is written whole.
/// This fits the processor's cache, and Linux allocates the pages of one write together.
const BUFFER_SIZE: u64 = 128 << 10;
/// The unit in which zeroes become holes: the block size of most file systems.
const BLOCK: usize = 4096;

/// Writes content, and reuses its buffer.
#[derive(Debug, Default)]
pub(super) struct Content {
    buffer: Vec<u8>,
}

impl Content {
    /// Writes this range of `inode`'s content to `file`, which has no data there yet. Returns the
    /// end of the last write.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "the extent covers `offset`, and a read fills at most `window` bytes of the file"
    )]
    pub(super) fn write(
        &mut self,
        image: &Image,
        inode: &Inode,
        file: &OwnedFd,
        range: Range<u64>,
        path: &dyn Fn() -> PathBuf,
    ) -> Result<u64> {
        let (mut offset, mut end) = (range.start, 0);
        while offset < range.end {
            let remaining = range.end - offset;
            let extent = image.extents(inode, FileOffset::new(offset))?.next().transpose()?;
            let window = match extent {
                // Holes are skipped, as they can be terabytes long.
                Some(extent) if extent.data == ExtentData::Hole => {
                    offset = extent.end();
                    continue;
                }
                Some(extent) if matches!(extent.data, ExtentData::Encoded { .. }) => {
                    BUFFER_SIZE.max(extent.end() - offset)
                }
                _ => BUFFER_SIZE,
            };
            // A cluster decodes to 12 MiB at most.
            let window = usize::try_from(window.min(remaining)).unwrap_or(usize::MAX);
            if self.buffer.len() < window {
                self.buffer.resize(window, 0);
            }
            let len =
                image.read_whole_at(inode, FileOffset::new(offset), &mut self.buffer[..window])?;
            for (start, data) in runs(&self.buffer[..len]) {
                let start = offset + to_u64(start);
                image.budget().charge_bytes(to_u64(data.len()))?;
                write_all(file, data, start).map_err(|e| Error::io("write", path(), e))?;
                end = start + to_u64(data.len());
            }
            offset += to_u64(len);
        }
        Ok(end)
    }
}

fn write_all(file: &OwnedFd, mut data: &[u8], mut at: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(file, data, at))?;
        data = data.get(written..).unwrap_or_default();
        at = at.saturating_add(to_u64(written));
    }
    Ok(())
}

/// The parts of `bytes` that are not blocks of zeroes, each with its start.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the lengths are those of parts of `bytes`"
)]
fn runs(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let blocks = |from: usize, zero: bool| {
            bytes[from..]
                .chunks(BLOCK)
                .take_while(|block| is_zero(block) == zero)
                .map(<[u8]>::len)
                .sum::<usize>()
        };
        let start = at + blocks(at, true);
        let len = blocks(start, false);
        at = start + len;
        (len > 0).then(|| (start, &bytes[start..at]))
    })
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_blocks_of_zeroes_only() {
        let mut bytes = vec![0; 5 * BLOCK + 10];
        bytes[BLOCK] = 1;
        bytes[3 * BLOCK - 1] = 1;
        bytes[5 * BLOCK + 9] = 1;
        let found: Vec<_> = runs(&bytes).map(|(start, data)| (start, data.len())).collect();
        assert_eq!(found, [(BLOCK, 2 * BLOCK), (5 * BLOCK, 10)]);
        assert_eq!(runs(&[]).count(), 0);
        assert_eq!(runs(&[0; 100]).count(), 0);
    }
}
