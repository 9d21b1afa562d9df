//! Where DEFLATE streams may be: Linux inflates page by page, and refuses a stream when a page ends between the code of
//! its last byte and its end. In front of such a stream there must be a few zero bytes more, which readers skip.
//!
//! Concerns extents that are placed to the byte (`48bit`). In whole blocks, streams end with a page or at least a block
//! after its start.

use ferofs_codec::{Algorithm, ClusterPlace, Decoder, LinuxChecker, Portion};
use ferofs_format::{BlockSize, Fault, FormatError, Structure};

use crate::data::extents::list::{Extent, ExtentLog, ExtentPlace};
use crate::{Error, Result};

/// Places streams so that Linux decodes them.
#[derive(Debug)]
pub struct PageRule {
    block: BlockSize,
    checker: LinuxChecker,
    decoder: Decoder,
}

/// What to append in place of an extent's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// These bytes.
    AsIs,
    /// So many zero bytes, and then these bytes.
    Padded(usize),
    /// What they decode to: there is no room for zero bytes in the block.
    Stored(Vec<u8>),
}

impl Placed {
    /// The extent of what is appended.
    pub const fn extent(&self, extent: Extent) -> Extent {
        match self {
            Self::AsIs => extent,
            Self::Padded(padding) => Extent { size: extent.size + *padding as u64, ..extent },
            Self::Stored(_) => Extent { size: extent.len, encoded: false, ..extent },
        }
    }

    /// Appends it to `out`.
    pub fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::AsIs => out.extend_from_slice(bytes),
            Self::Padded(padding) => {
                out.resize(out.len() + padding, 0);
                out.extend_from_slice(bytes);
            }
            Self::Stored(content) => out.extend_from_slice(content),
        }
    }
}

impl PageRule {
    pub fn new(block: BlockSize) -> Self {
        Self { block, checker: LinuxChecker::default(), decoder: Decoder::new() }
    }

    /// How the encoded `bytes` of `extent` are placed at `pos`: a position in the image, or, from a block's start on.
    pub fn place(&mut self, extent: Extent, bytes: &[u8], pos: u64) -> Result<Placed> {
        let offset = (pos & self.block.mask()) as usize;
        let place = ClusterPlace { block: self.block.bytes(), offset };
        match self.checker.deflate_padding(bytes, place, extent.len as usize) {
            Some(0) => Ok(Placed::AsIs),
            Some(padding) => Ok(Placed::Padded(padding)),
            None => {
                let mut content = vec![0; extent.len as usize];
                let undecodable = |_| Error::Layout(FormatError::new(Structure::Extent, Fault::Decode));
                self.decoder
                    .decode(Algorithm::Deflate, bytes, &mut content, Portion::Whole)
                    .map_err(undecodable)?;
                Ok(Placed::Stored(content))
            }
        }
    }

    /// The extents of `log` and their `bytes`, when the first of them is at `pos`; `None` when all can stay as they are.
    pub fn place_all(
        &mut self,
        log: &ExtentLog,
        mut bytes: &[u8],
        pos: u64,
    ) -> Result<Option<(ExtentLog, Vec<u8>)>> {
        let (mut new, mut out, mut changed) = (ExtentLog::new(self.block.bytes64()), Vec::new(), false);
        new.move_as(log);
        out.reserve(bytes.len());
        for extent in log.iter() {
            if extent.place != ExtentPlace::Next {
                new.push_kept(extent);
                continue;
            }
            let (own, later) = bytes.split_at(extent.size as usize);
            bytes = later;
            let placed = match extent.encoded {
                true => self.place(extent, own, pos + out.len() as u64)?,
                false => Placed::AsIs,
            };
            changed |= placed != Placed::AsIs;
            placed.write(own, &mut out);
            new.push_kept(placed.extent(extent));
        }
        Ok(changed.then_some((new, out)))
    }
}
