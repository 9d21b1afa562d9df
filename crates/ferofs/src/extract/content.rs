//! Writes a regular file's content; blocks of zeroes become holes.

use std::os::fd::OwnedFd;
use std::path::Path;

use ferofs_format::FileOffset;

use crate::error::{Error, Result};
use crate::read::{Extent, ExtentData, Image, Inode};

const BUFFER_SIZE: usize = 1 << 20;
/// Zeroes are left out in units of this: what file systems allocate.
const BLOCK: usize = 4096;

/// Writes all of `inode`'s content to `file`, which is empty; says how many bytes it has.
pub(super) fn write(
    image: &Image,
    inode: &Inode,
    file: &OwnedFd,
    path: &Path,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    let failed = |e| Error::io("write", path, e);
    buffer.resize(BUFFER_SIZE, 0);
    let mut offset = 0;
    while offset < inode.size() {
        if let Some(end) = hole_at(image, inode, offset)? {
            offset = end;
            continue;
        }
        let len = image.read_at(inode, FileOffset::new(offset), buffer)?;
        for (start, data) in runs(&buffer[..len]) {
            let (mut at, mut rest) = (offset + start as u64, data);
            while !rest.is_empty() {
                let written = rustix::io::pwrite(file, rest, at).map_err(failed)?;
                rest = &rest[written..];
                at += written as u64;
            }
        }
        offset += len as u64;
    }
    rustix::fs::ftruncate(file, inode.size()).map_err(failed)?;
    Ok(inode.size())
}

/// The end of the hole at `offset`, if there is one: a hole of a terabyte is not to be read.
fn hole_at(image: &Image, inode: &Inode, offset: u64) -> Result<Option<u64>> {
    match image.extents(inode, FileOffset::new(offset))?.next().transpose()? {
        Some(extent @ Extent { data: ExtentData::Hole, .. }) => Ok(Some(extent.end())),
        _ => Ok(None),
    }
}

/// The parts of `bytes` that are to be written, each with its start: all but blocks of zeroes.
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
