//! Which bytes of a file an archive holds: all, or those outside of holes where these are large.
//!
//! A sparse file is stored as GNU tar's "PAX format, version 1.0": its map stands before its data.

use std::ops::Range;

use ferofs_format::FileOffset;

use super::header::{BLOCK, Header};
use crate::error::{Corruption, Result};
use ferofs_read::{ExtentData, Image, Inode, Location};

/// Holes of less than this in all are written as zeroes, so that any reader of tar takes the file.
const WORTH: u64 = 64 << 10;

/// What is stored of a file.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The ranges of its content.
    pub(super) data: Vec<Range<u64>>,
    /// With a map of them.
    sparse: bool,
    size: u64,
}

impl Layout {
    /// Plans a file, and refuses one whose plan leads out of the image: its size may be anything.
    pub(super) fn of(image: &Image, inode: &Inode) -> Result<Self> {
        let size = inode.size();
        let mut data: Vec<Range<u64>> = Vec::new();
        let mut holes = 0;
        for extent in image.extents(inode, FileOffset::new(0))? {
            let extent = extent?;
            let range = extent.start.get()..extent.end().min(size);
            match extent.data {
                ExtentData::Hole => {
                    holes += range.end - range.start;
                    continue;
                }
                ExtentData::Stored { at: Location::Device(device, pos) }
                    if !image.has_range(device, pos, extent.len) =>
                {
                    let limit = image.device_size(device).unwrap_or(0);
                    let fault =
                        ferofs_format::Fault::OutOfRange { field: "position", value: pos.get(), limit };
                    let corruption = Corruption::new(ferofs_format::Structure::Extent, fault);
                    return Err(corruption.at(pos).of(inode.nid()).into());
                }
                _ => {}
            }
            match data.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => {
                    // It is kept until its file is done, as text, too.
                    image.budget().charge_names(1)?;
                    data.push(range);
                }
            }
        }
        let aligned = |range: &Range<u64>| {
            range.start.is_multiple_of(BLOCK as u64)
                && (range.end == size || range.end.is_multiple_of(BLOCK as u64))
        };
        if holes < WORTH || !data.iter().all(aligned) {
            let data = (size > 0).then_some(0..size).into_iter().collect();
            return Ok(Self { data, sparse: false, size });
        }
        Ok(Self { data, sparse: true, size })
    }

    /// Bytes of all ranges.
    pub(super) fn data_len(&self) -> u64 {
        self.data.iter().map(|range| range.end - range.start).sum()
    }

    /// The map, padded to a block; empty for a file that is not sparse.
    pub(super) fn map(&self) -> Vec<u8> {
        if !self.sparse {
            return Vec::new();
        }
        // The last range says where the file ends.
        let end = (self.data.last().is_none_or(|last| last.end < self.size)).then_some(self.size..self.size);
        let mut map = format!("{}\n", self.data.len() + usize::from(end.is_some()));
        for range in self.data.iter().chain(&end) {
            map.push_str(&format!("{}\n{}\n", range.start, range.end - range.start));
        }
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        map
    }

    /// Tells the header what follows it.
    pub(super) fn describe(&self, header: &mut Header, size: u64) {
        header.size = self.data_len() + self.map().len() as u64;
        if !self.sparse {
            return;
        }
        let path = std::mem::take(&mut header.path);
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        // Who does not know sparse files extracts something under this name that is clearly not the file.
        header.path = [&path[..name], b"GNUSparseFile.0/", &path[name..]].concat();
        for (key, value) in [
            ("GNU.sparse.major", b"1".to_vec()),
            ("GNU.sparse.minor", b"0".to_vec()),
            ("GNU.sparse.name", path),
            ("GNU.sparse.realsize", size.to_string().into_bytes()),
        ] {
            header.records.push((key.into(), value));
        }
    }
}
