//! Positions of metadata.

use ferofs_format::{BytePos, Fault, Structure};

use crate::error::{Corruption, Result};

/// The place of metadata: at a position of the image, or in the decoded content of the metabox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPlace {
    /// In the metabox, and not on the primary device.
    pub in_metabox: bool,
    /// Bytes from the start of either.
    pub pos: BytePos,
}

impl MetadataPlace {
    /// A position on the primary device.
    #[must_use]
    pub const fn on_device(pos: BytePos) -> Self {
        Self { in_metabox: false, pos }
    }

    /// `len` bytes further on.
    pub(crate) fn offset(self, len: u64) -> Result<Self> {
        let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.checked_add(len).ok_or_else(overflow)?, ..self })
    }

    /// The next multiple of `align`.
    pub(crate) fn align_up(self, align: u64) -> Result<Self> {
        let overflow = || Corruption::new(Structure::Inode, Fault::Overflow("position")).at(self.pos);
        Ok(Self { pos: self.pos.align_up(align).ok_or_else(overflow)?, ..self })
    }
}
