//! `--block-list-file`: Android's list of the blocks of each file, read from the finished image.
//!
//! One line for each file: its path on the target, then its ranges of blocks, `FIRST-LAST` or `BLOCK`. Inline data is left
//! out: it has no blocks of its own.

use std::io::Write;
use std::path::Path;

use ferofs::Result;
use ferofs::read::{ExtentData, FileOffset, FileType, Image, Inode, Location};

/// Writes the list to `out`. `mount_point` has no leading and no trailing slash.
pub(super) fn write(image: &Image, mount_point: &[u8], out: &mut impl Write) -> Result<()> {
    let io = |e| ferofs::Error::io("write", Path::new("the block list"), e);
    // Directories that are not listed yet. The image was just built, so its directories contain no cycle.
    let mut pending = vec![(image.root()?, mount_point.to_vec())];
    while let Some((dir, path)) = pending.pop() {
        for entry in image.read_dir(&dir)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let mut entry_path = path.clone();
            if !entry_path.is_empty() {
                entry_path.push(b'/');
            }
            entry_path.extend_from_slice(&entry.name);
            let inode = image.inode(entry.nid)?;
            match inode.file_type() {
                FileType::Directory => pending.push((inode, entry_path)),
                FileType::Regular => {
                    let ranges = ranges(image, &inode)?;
                    if ranges.is_empty() {
                        continue;
                    }
                    let mut line = [b"/".as_slice(), &entry_path].concat();
                    for (first, last) in ranges {
                        let range =
                            if first == last { format!(" {first}") } else { format!(" {first}-{last}") };
                        line.extend_from_slice(range.as_bytes());
                    }
                    line.push(b'\n');
                    out.write_all(&line).map_err(io)?;
                }
                _ => {}
            }
        }
    }
    out.flush().map_err(io)
}

/// The ranges of blocks of a file (first and last block), in the order of its data.
fn ranges(image: &Image, inode: &Inode) -> Result<Vec<(u64, u64)>> {
    let bits = image.superblock().block_size.bits();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for extent in image.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        let (at, len) = match extent.data {
            ExtentData::Stored { at } => (at, extent.len),
            ExtentData::Interlaced { at } => (at, 1),
            ExtentData::Encoded { at, encoded_len, .. } => (at, encoded_len),
            ExtentData::Hole | ExtentData::Fragment { .. } => continue,
        };
        let Location::Device(_, pos) = at else { continue };
        let (first, last) = (pos.get() >> bits, (pos.get() + len.max(1) - 1) >> bits);
        match ranges.last_mut() {
            Some(before) if first <= before.1 + 1 && first >= before.0 => before.1 = before.1.max(last),
            _ => ranges.push((first, last)),
        }
    }
    Ok(ranges)
}
