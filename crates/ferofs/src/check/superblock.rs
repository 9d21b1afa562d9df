//! Checks the superblock: the sizes of the image and its devices, the settings of algorithms, and
//! its tables.

use ferofs_format::device::DEVICE_SLOT_SIZE;
use ferofs_format::superblock::Compression;
use ferofs_format::{BytePos, Compat, DeviceId, Fault, Structure, superblock};

use super::checker::Checker;
use ferofs_format::units::to_u64;
use ferofs_read::error::Corruption;

impl Checker<'_> {
    /// Checks the superblock, and adds its structures to the used space.
    pub(super) fn check_superblock(&self) {
        let superblock = self.image.superblock();
        self.check_size(DeviceId::new(0), superblock.blocks, Structure::Superblock);
        let primary = 0..superblock.blocks;
        let mut ranges = vec![primary];
        for (number, slot) in (1u16..).zip(self.image.device_slots()) {
            self.check_size(DeviceId::new(number), slot.blocks, Structure::DeviceTable);
            if let Some(start) = slot.start {
                let range = start.get()..start.get().saturating_add(slot.blocks);
                if ranges.iter().any(|other| other.start < range.end && range.start < other.end) {
                    self.report_image(Corruption::new(
                        Structure::DeviceTable,
                        Fault::Overlap("another device"),
                    ));
                }
                ranges.push(range);
            }
        }
        if superblock.fixed_nsec >= 1_000_000_000 {
            let fault = Fault::Field { field: "fixed_nsec", value: superblock.fixed_nsec.into() };
            self.report_image(Corruption::new(Structure::Superblock, fault));
        }
        self.check_features();
        for fault in self.image.configs().refused_by_linux(superblock.block_size) {
            self.report_image(Corruption::new(Structure::CompressionConfig, fault));
        }
        let mut used = self.used_space();
        let configs = match superblock.compression {
            Compression::Configured { .. } => self.image.configs().to_bytes().len(),
            Compression::Lz4Only { .. } => 0,
        };
        used.add_system(
            to_u64(superblock::OFFSET),
            to_u64(superblock.size().saturating_add(configs)),
        );
        let slots = to_u64(self.image.device_slots().len().saturating_mul(DEVICE_SLOT_SIZE));
        used.add_system(superblock.device_table.get(), slots);
        let plain = superblock.compat.contains(Compat::PLAIN_XATTR_PFX)
            || superblock.packed.is_none() && superblock.metabox.is_none();
        if let (Some(table), true) = (superblock.xattr_prefixes, plain) {
            let size = |infix: &Vec<u8>| infix.len().saturating_add(3).next_multiple_of(4);
            let len = self.image.xattr_prefixes().iter().map(|prefix| size(&prefix.infix)).sum();
            used.add_system(table.start.get(), to_u64(len));
        }
    }

    /// Checks features that need another one, or a field.
    fn check_features(&self) {
        let superblock = self.image.superblock();
        if superblock.compat.contains(Compat::SHARED_EA_IN_METABOX) && superblock.metabox.is_none()
        {
            self.report_image(Corruption::new(
                Structure::Superblock,
                Fault::FeatureNotSet("METABOX"),
            ));
        }
        // Linux 7.0 and later do not mount such an image.
        let number = superblock.ishare_xattr_prefix_id;
        let prefixes = superblock.xattr_prefixes.map_or(0, |table| table.count);
        if superblock.compat.contains(Compat::ISHARE_XATTRS) && number >= prefixes {
            let fault = Fault::Field { field: "ishare_xattr_prefix_id", value: number.into() };
            self.report_image(Corruption::new(Structure::Superblock, fault));
        }
    }

    /// Checks that a device is at least as long as the image says.
    fn check_size(&self, device: DeviceId, blocks: u64, structure: Structure) {
        let block_size = self.image.superblock().block_size;
        let need = blocks.saturating_mul(block_size.bytes64());
        let have = self.image.device_size(device).unwrap_or(0);
        if need > have {
            let fault = Fault::CutOff { have, need };
            self.report_image(Corruption::new(structure, fault).at(BytePos::new(1024)));
            self.findings.only_count_beyond(have);
        }
    }
}
