//! The bytes of a device that an extent uses.
//!
//! `check` searches them for overlaps, `inspect` shows the use of each block, and `patch` finds unused slots.

use ferofs_format::{Algorithm, BytePos, DeviceId, Fault, Structure};

use crate::error::{Corruption, Result};
use crate::image::Image;
use crate::metadata::extent::{Extent, ExtentData, Location};

/// Bytes of a device, not of the unified address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            ExtentData::Encoded { algorithm, at, encoded_len, .. } => (at, encoded_len, Some(algorithm)),
            ExtentData::Hole | ExtentData::Fragment { .. } => return Ok(None),
        };
        let Location::Device(device, start) = at else { return Ok(None) };
        image.charge_devices()?;
        let placed = image.physical(device, start).filter(|_| image.has_range(device, start, len));
        let Some((device, start)) = placed else {
            let limit = image.device_size(device).unwrap_or(0);
            let fault = Fault::OutOfRange { field: "position", value: start.get(), limit };
            return Err(Corruption::new(Structure::Extent, fault).at(start).into());
        };
        Ok(Some(Self { device, start, len, algorithm }))
    }

    /// The position after the last byte.
    pub const fn end(&self) -> u64 {
        // `of` has checked that the device has these bytes.
        self.start.get().saturating_add(self.len)
    }
}
