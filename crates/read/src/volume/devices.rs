//! The devices of an image, and the addresses at which they hold its bytes.

use std::sync::Arc;

use ferofs_format::device::DeviceSlot;
use ferofs_format::superblock::Superblock;
use ferofs_format::{BlockAddr, BytePos, DeviceId, Fault, Structure};

use super::source::{Source, Window};
use crate::error::{Corruption, Error, Result};
use ferofs_format::units::to_u64;

struct Device {
    source: Arc<dyn Source>,
    /// The range of this device in the unified address space; `None` if it has no addresses there.
    unified: Option<std::ops::Range<u64>>,
}

/// All devices; the first one is the primary device, which holds the metadata.
pub(crate) struct Devices(Vec<Device>);

impl Devices {
    /// The primary device and the `extra` ones that the device table lists. Without `extra`, they
    /// are looked for after the image in the primary device, and may be missing if `may_miss`.
    pub(crate) fn new(
        primary: Box<dyn Source>,
        extra: Vec<Box<dyn Source>>,
        slots: &[DeviceSlot],
        superblock: &Superblock,
        may_miss: bool,
    ) -> Result<Self> {
        let primary: Arc<dyn Source> = primary.into();
        let unified: Vec<_> = slots.iter().map(|slot| unified_range(slot, superblock)).collect();
        let may_miss = may_miss && extra.is_empty();
        let extra: Vec<Arc<dyn Source>> = match extra.is_empty() {
            true => after_image(&primary, &unified),
            false => extra.into_iter().map(Arc::from).collect(),
        };
        // As Linux and erofs-utils: one too many is probably the device of another image.
        if extra.len() > slots.len() {
            return Err(Error::Option {
                option: "device",
                problem: "more devices were given than the image's device table lists",
            });
        }
        if extra.len() < slots.len() && !may_miss {
            return Err(Error::Option {
                option: "device",
                problem: "the image needs more devices than were given",
            });
        }
        let mut devices = vec![Device { source: primary, unified: None }];
        devices.extend(
            extra.into_iter().zip(unified).map(|(source, unified)| Device { source, unified }),
        );
        Ok(Self(devices))
    }

    #[expect(clippy::indexing_slicing, reason = "`new` makes at least one device")]
    pub(crate) fn primary(&self) -> &dyn Source {
        &*self.0[0].source
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> u64 {
        to_u64(self.0.len())
    }

    /// Size in bytes of a device, or `None` when there is no such device.
    pub(crate) fn size(&self, device: DeviceId) -> Option<u64> {
        Some(self.0.get(usize::from(device.get()))?.source.size())
    }

    /// Bytes that all devices store: less than their sizes where they have holes.
    pub(crate) fn stored(&self) -> u64 {
        self.0.iter().map(|device| device.source.stored()).fold(0, u64::saturating_add)
    }

    /// Whether a source prefers batches.
    pub(crate) fn prefer_batches(&self) -> bool {
        self.0.iter().any(|device| device.source.prefers_batches())
    }

    /// Whether both are the same files.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        let identities = |devices: &Self| -> Option<Vec<_>> {
            devices.0.iter().map(|device| device.source.identity()).collect()
        };
        identities(self).is_some_and(|own| identities(other) == Some(own))
    }

    /// The device that holds `pos`, and the position in it; device 0 is the unified address space.
    pub(crate) fn physical(&self, device: DeviceId, pos: BytePos) -> Option<(DeviceId, BytePos)> {
        if device.get() == 0 {
            for (number, extra) in (0u16..).zip(&self.0) {
                if let Some(range) =
                    extra.unified.as_ref().filter(|range| range.contains(&pos.get()))
                {
                    return Some((
                        DeviceId::new(number),
                        BytePos::new(pos.get().saturating_sub(range.start)),
                    ));
                }
            }
        }
        self.0.get(usize::from(device.get())).map(|_| (device, pos))
    }

    /// The source that holds `pos`, and the position in it; device 0 is the unified address space.
    pub(crate) fn locate(&self, device: DeviceId, pos: BytePos) -> Option<(&dyn Source, BytePos)> {
        let (device, pos) = self.physical(device, pos)?;
        Some((&*self.0.get(usize::from(device.get()))?.source, pos))
    }

    /// The source that holds `len` bytes at `pos`, and the position in it.
    pub(crate) fn source_of(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        len: usize,
    ) -> Result<(&dyn Source, BytePos)> {
        let (source, pos) = self.locate(device, pos).ok_or_else(|| {
            let fault = Fault::OutOfRange {
                field: "device",
                value: device.get().into(),
                limit: self.count(),
            };
            Corruption::new(structure, fault)
        })?;
        check_bounds(source, pos, len, structure)?;
        Ok((source, pos))
    }
}

fn unified_range(slot: &DeviceSlot, sb: &Superblock) -> Option<std::ops::Range<u64>> {
    let start = slot.start?.to_pos(sb.block_size)?.get();
    let len = BlockAddr::new(slot.blocks).to_pos(sb.block_size)?.get();
    Some(start..start.checked_add(len)?)
}

/// The extra devices of an image that follow it in the same file, at the addresses of its device
/// table.
fn after_image(
    image: &Arc<dyn Source>,
    unified: &[Option<std::ops::Range<u64>>],
) -> Vec<Arc<dyn Source>> {
    let windows = unified.iter().map_while(|range| {
        // The last block may be cut short.
        let range =
            range.as_ref().filter(|range| range.start < image.size() || range.is_empty())?;
        let len = range.end.min(image.size()).saturating_sub(range.start);
        let window: Arc<dyn Source> =
            Arc::new(Window { whole: Arc::clone(image), start: range.start, len });
        Some(window)
    });
    windows.collect()
}

/// Fails unless `source` has `len` bytes at `pos`.
pub(crate) fn check_bounds(
    source: &dyn Source,
    pos: BytePos,
    len: usize,
    structure: Structure,
) -> Result<()> {
    let limit = source.size();
    if pos.get().checked_add(to_u64(len)).is_some_and(|end| end <= limit) {
        return Ok(());
    }
    let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit };
    Err(Corruption::new(structure, fault).at(pos).into())
}
