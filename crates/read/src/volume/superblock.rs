//! Reading of the superblock, the algorithms' configurations and the device table.

use ferofs_format::algorithm::{CompressionConfigs, LZ4_MAX_DISTANCE, Lz4Config};
use ferofs_format::device::{DEVICE_SLOT_SIZE, DeviceSlot};
use ferofs_format::superblock::{self, Compression, Superblock};
use ferofs_format::{BytePos, Compat, Fault, Structure};

use super::devices::check_bounds;
use super::source::Source;
use crate::error::{Corruption, Error, Locate, Result};
use crate::numbers::to_u64;

pub(crate) fn read_superblock(source: &dyn Source, verify: bool) -> Result<Superblock> {
    let offset = BytePos::new(to_u64(superblock::OFFSET));
    let mut bytes = vec![0; superblock::SIZE + 255 * superblock::EXT_SLOT_SIZE];
    let sb = Superblock::parse(read_up_to(source, offset, &mut bytes)?).located_at(offset)?;
    if verify && sb.compat.contains(Compat::SB_CHKSUM) {
        bytes.resize(sb.checksum_len(), 0);
        sb.verify_checksum(read_up_to(source, offset, &mut bytes)?).located_at(offset)?;
    }
    Ok(sb)
}

pub(crate) fn read_configs(source: &dyn Source, sb: &Superblock) -> Result<CompressionConfigs> {
    let Compression::Configured { available } = sb.compression else {
        let Compression::Lz4Only { max_distance } = sb.compression else { return Ok(Default::default()) };
        let max_distance = match max_distance {
            0 => LZ4_MAX_DISTANCE,
            distance => distance,
        };
        let lz4 = Lz4Config { max_distance, max_pcluster_blocks: 1 };
        return Ok(CompressionConfigs { lz4: Some(lz4), ..Default::default() });
    };
    let pos = BytePos::new(to_u64(superblock::OFFSET.saturating_add(sb.size())));
    // Four records of at most 64 KiB; real ones have 14 bytes.
    let mut bytes = vec![0; 4 * (2 + 14)];
    CompressionConfigs::parse(available, read_up_to(source, pos, &mut bytes)?).located_at(pos)
}

pub(crate) fn read_device_slots(source: &dyn Source, sb: &Superblock) -> Result<Vec<DeviceSlot>> {
    let mut slots = Vec::new();
    let mut at = sb.device_table;
    for _ in 0..sb.extra_devices {
        let mut bytes = [0; DEVICE_SLOT_SIZE];
        check_bounds(source, at, bytes.len(), Structure::DeviceTable)?;
        source.read_exact_at(at.get(), &mut bytes).map_err(|e| Error::io_unnamed("read image", e))?;
        slots.push(DeviceSlot::parse(&bytes, sb.incompat).located_at(at)?);
        let overflow = || Corruption::new(Structure::DeviceTable, Fault::Overflow("devt_slotoff"));
        at = at.checked_add(to_u64(bytes.len())).ok_or_else(overflow)?;
    }
    Ok(slots)
}

/// Fills as much of `buf` as the source has bytes; returns that part.
fn read_up_to<'b>(source: &dyn Source, pos: BytePos, buf: &'b mut [u8]) -> Result<&'b [u8]> {
    let have = usize::try_from(source.size().saturating_sub(pos.get())).unwrap_or(usize::MAX);
    let (buf, _) = buf.split_at_mut(have.min(buf.len()));
    source.read_exact_at(pos.get(), buf).map_err(|e| Error::io_unnamed("read image", e))?;
    Ok(buf)
}
