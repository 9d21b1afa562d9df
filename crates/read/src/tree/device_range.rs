//! The bytes of a device that an extent uses.
//!
//! `check` searches them for overlaps, `inspect` shows the use of each block, `patch` finds unused
//! slots, and a reader that fetches bytes itself asks for them.

use std::ops::Range;

use ferofs_format::{Algorithm, BytePos, DeviceId, Fault, FileOffset, Structure};

use crate::error::{Corruption, Result};
use crate::image::Image;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::metadata::inode::Inode;

/// Bytes of a device, not of the unified address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceRange {
    /// The device.
    pub device: DeviceId,
    /// The first byte on it.
    pub start: BytePos,
    /// The number of bytes.
    pub len: u64,
    /// `None` for bytes that are stored as they are.
    pub algorithm: Option<Algorithm>,
}

impl DeviceRange {
    /// The bytes that `extent` uses: none if it is a hole, a fragment, or inline.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for bytes that no device has.
    pub fn of(image: &Image, extent: &Extent) -> Result<Option<Self>> {
        let (at, len, algorithm) = match extent.data {
            ExtentData::Stored { at } => (at, extent.len, None),
            ExtentData::Interlaced { at } => (at, image.superblock().block_size.bytes64(), None),
            ExtentData::Encoded { algorithm, at, encoded_len, .. } => {
                (at, encoded_len, Some(algorithm))
            }
            ExtentData::Hole | ExtentData::Fragment { .. } => return Ok(None),
        };
        let Location::Device(device, start) = at else { return Ok(None) };
        image.content.volume.charge_devices()?;
        let placed = image.physical(device, start).filter(|_| image.has_range(device, start, len));
        let Some((device, start)) = placed else {
            let limit = image.device_size(device).unwrap_or(0);
            let fault = Fault::OutOfRange { field: "position", value: start.get(), limit };
            return Err(Corruption::new(Structure::Extent, fault).at(start).into());
        };
        Ok(Some(Self { device, start, len, algorithm }))
    }

    /// The bytes that reads of `wanted` in the file need of `extent`: all of a cluster, a part of
    /// what is not encoded.
    fn of_part(image: &Image, extent: &Extent, wanted: Range<u64>) -> Result<Option<Self>> {
        let Some(range) = Self::of(image, extent)? else { return Ok(None) };
        if !matches!(extent.data, ExtentData::Stored { .. }) {
            return Ok(Some(range));
        }
        let (start, end) = (wanted.start.max(extent.start.get()), wanted.end.min(extent.end()));
        let skip = start.saturating_sub(extent.start.get());
        let start_on_device = BytePos::new(range.start.get().saturating_add(skip));
        Ok(Some(Self { start: start_on_device, len: end.saturating_sub(start), ..range }))
    }

    /// The position after the last byte.
    pub const fn end(&self) -> u64 {
        // `of` has checked that the device has these bytes.
        self.start.get().saturating_add(self.len)
    }
}

impl Image {
    /// All ranges of devices that hold the data of `len` bytes of `inode` from `offset` on, without
    /// reading the data. Fragments are found in the packed inode. With them, a caller that fetches
    /// bytes itself can fetch all data of a read at once.
    ///
    /// # Errors
    /// As [`Self::extents`] and [`DeviceRange::of`].
    pub fn data_ranges(
        &self,
        inode: &Inode,
        offset: FileOffset,
        len: u64,
    ) -> Result<Vec<DeviceRange>> {
        let mut ranges = Vec::new();
        let end = offset.get().saturating_add(len);
        for extent in self.extents(inode, offset)? {
            let extent = extent?;
            if extent.start.get() >= end {
                break;
            }
            let ExtentData::Fragment { offset: in_packed } = extent.data else {
                ranges.extend(DeviceRange::of_part(self, &extent, offset.get()..end)?);
                continue;
            };
            let start = offset.get().max(extent.start.get());
            let skip = start.saturating_sub(extent.start.get());
            let len = extent.end().min(end).saturating_sub(start);
            let Some(packed) = self.superblock().packed.filter(|packed| *packed != inode.nid())
            else {
                continue;
            };
            let packed = self.inode(packed)?;
            let in_packed = FileOffset::new(in_packed.get().saturating_add(skip));
            let wanted = in_packed.get()..in_packed.get().saturating_add(len);
            for extent in self.extents(&packed, in_packed)? {
                let extent = extent?;
                if extent.start.get() >= wanted.end {
                    break;
                }
                ranges.extend(DeviceRange::of_part(self, &extent, wanted.clone())?);
            }
        }
        Ok(ranges)
    }
}
