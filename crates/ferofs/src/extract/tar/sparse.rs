//! The bytes of a file that an archive stores: all, or, if the holes are large, those outside of
//! holes.
//!
//! A sparse file is stored in GNU tar's "PAX format, version 1.0": a map, then the data.

use std::ops::Range;

use ferofs_format::FileOffset;

use super::header::{BLOCK, Header};
use crate::error::{Corruption, Result};
use ferofs_format::units::to_u64;
use ferofs_read::{ExtentData, Image, Inode, Location};

/// Bytes of all holes of a file from which on it is stored as sparse. Below, holes are stored as
/// zeroes, which all tar readers support.
const SPARSE_MIN: u64 = 64 << 10;

/// The stored ranges of a file.
#[derive(Debug, Default)]
pub(super) struct StoredRanges {
    /// The ranges of its content.
    pub(super) data: Vec<Range<u64>>,
    /// Whether the file is stored as sparse, with a map.
    sparse: bool,
    size: u64,
}

impl StoredRanges {
    /// Determines the ranges of a file. A file with stored data outside of the image is refused:
    /// its size could be anything.
    pub(super) fn of(image: &Image, inode: &Inode) -> Result<Self> {
        let size = inode.size();
        let mut data: Vec<Range<u64>> = Vec::new();
        let mut holes = 0u64;
        for extent in image.extents(inode, FileOffset::new(0))? {
            let extent = extent?;
            let range = extent.start.get()..extent.end().min(size);
            match extent.data {
                ExtentData::Hole => {
                    holes = holes.saturating_add(range.end.saturating_sub(range.start));
                    continue;
                }
                ExtentData::Stored { at: Location::Device(device, pos) }
                    if !image.has_range(device, pos, extent.len) =>
                {
                    let limit = image.device_size(device).unwrap_or(0);
                    let fault = ferofs_format::Fault::OutOfRange {
                        field: "position",
                        value: pos.get(),
                        limit,
                    };
                    let corruption = Corruption::new(ferofs_format::Structure::Extent, fault);
                    return Err(corruption.at(pos).of(inode.nid()).into());
                }
                _ => {}
            }
            match data.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => {
                    // Each range needs memory until the file is written, also as text in the map.
                    image.budget().charge_names(1)?;
                    data.push(range);
                }
            }
        }
        let block = to_u64(BLOCK);
        let aligned = |range: &Range<u64>| {
            range.start.is_multiple_of(block)
                && (range.end == size || range.end.is_multiple_of(block))
        };
        if holes < SPARSE_MIN || !data.iter().all(aligned) {
            let data = (size > 0).then_some(0..size).into_iter().collect();
            return Ok(Self { data, sparse: false, size });
        }
        Ok(Self { data, sparse: true, size })
    }

    /// Bytes of all ranges.
    pub(super) fn data_len(&self) -> u64 {
        self.data.iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    /// The map, padded to a block; empty for a file that is not sparse.
    pub(super) fn map(&self) -> Vec<u8> {
        if !self.sparse {
            return Vec::new();
        }
        // An empty last range gives the size of a file that ends with a hole.
        let end = (self.data.last().is_none_or(|last| last.end < self.size))
            .then_some(self.size..self.size);
        let mut map = format!("{}\n", self.data.len().saturating_add(end.is_some().into()));
        for range in self.data.iter().chain(&end) {
            map.push_str(&format!("{}\n{}\n", range.start, range.end.saturating_sub(range.start)));
        }
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        map
    }

    /// Puts the size, and the records for a sparse file, into the header.
    pub(super) fn describe(&self, header: &mut Header, size: u64) {
        header.size = self.data_len().saturating_add(to_u64(self.map().len()));
        if !self.sparse {
            return;
        }
        let path = std::mem::take(&mut header.path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let dir = path.strip_suffix(name).unwrap_or_default();
        // A tar program without support for sparse files extracts the map and the data under this
        // name.
        header.path = [dir, b"GNUSparseFile.0/", name].concat();
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
