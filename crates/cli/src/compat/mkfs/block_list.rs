//! `--block-list-file`: Android's list of the blocks that each file has, made from the finished image.
//!
//! One line a file: its path on the target, then its ranges of blocks, `FIRST-LAST` or `BLOCK`. What stands among
//! the metadata has no blocks of its own.

use std::io::Write;
use std::path::Path;

use ferofs::Result;
use ferofs::read::{ExtentData, FileOffset, FileType, Image, Inode, Location};

/// Writes the list of the image's files to `out`; `mount_point` has no slashes around it.
pub(super) fn write(image: &Image, mount_point: &[u8], out: &mut impl Write) -> Result<()> {
    let io = |e| ferofs::Error::io("write", Path::new("the block list"), e);
    // Directories that are still to be listed. Those of a fresh image form a tree.
    let mut pending = vec![(image.root()?, mount_point.to_vec())];
    while let Some((dir, path)) = pending.pop() {
        for entry in image.read_dir(&dir)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            let inode = image.inode(entry.nid)?;
            match inode.file_type() {
                FileType::Directory => pending.push((inode, below)),
                FileType::Regular => {
                    let ranges = ranges(image, &inode)?;
                    if ranges.is_empty() {
                        continue;
                    }
                    let mut line = [b"/".as_slice(), &below].concat();
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

/// The ranges of blocks that a file has, first and last, in the order of its content.
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
