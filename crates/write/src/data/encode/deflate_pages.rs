//! Places DEFLATE streams so that Linux can decode them. Linux decodes page by page, and refuses a
//! stream when a page ends between the code of its last byte and the end of the stream. The builder
//! then writes a few zero bytes before the stream, which readers skip.
//!
//! Only extents that are placed to the byte (`48bit`) need this: the encoder ends streams in whole
//! blocks with a page, or at least one block after its start.

use ferofs_codec::{Algorithm, ClusterPlace, Decoder, LinuxChecker, Portion};
use ferofs_format::{BlockSize, Fault, FormatError, Structure};

use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::error::{Error, Result};

/// Decides how a stream is placed.
#[derive(Debug)]
pub(crate) struct DeflatePlacer {
    block: BlockSize,
    checker: LinuxChecker,
    decoder: Decoder,
}

/// The bytes that are appended for an encoded extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Its bytes.
    AsIs,
    /// This number of zero bytes, then its bytes.
    Padded(usize),
    /// Its decoded content: the block has no space for the zero bytes.
    Stored(Vec<u8>),
}

impl Placed {
    pub(crate) const fn extent(&self, extent: Extent) -> Extent {
        match self {
            Self::AsIs => extent,
            Self::Padded(padding) => Extent { size: extent.size + *padding as u64, ..extent },
            Self::Stored(_) => Extent { size: extent.len, encoded: false, ..extent },
        }
    }

    /// Appends the extent with these encoded `bytes` to `out`.
    pub(crate) fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
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

impl DeflatePlacer {
    pub(crate) fn new(block: BlockSize) -> Self {
        Self { block, checker: LinuxChecker::default(), decoder: Decoder::new() }
    }

    /// Decides how the encoded `bytes` of `extent` are placed at `pos`: a position in the image, or
    /// relative to a block start.
    pub(crate) fn place(&mut self, extent: Extent, bytes: &[u8], pos: u64) -> Result<Placed> {
        let offset = (pos & self.block.mask()) as usize;
        let place = ClusterPlace { block: self.block.bytes(), offset };
        match self.checker.deflate_padding(bytes, place, extent.len as usize) {
            Some(0) => Ok(Placed::AsIs),
            Some(padding) => Ok(Placed::Padded(padding)),
            None => {
                let mut content = vec![0; extent.len as usize];
                let undecodable =
                    |_| Error::Layout(FormatError::new(Structure::Extent, Fault::Decode));
                self.decoder
                    .decode(Algorithm::Deflate, bytes, &mut content, Portion::Whole)
                    .map_err(undecodable)?;
                Ok(Placed::Stored(content))
            }
        }
    }

    /// Returns the new extents and bytes for those of `log`, when the first one is at `pos`; `None`
    /// when nothing changes.
    pub(crate) fn place_all(
        &mut self,
        log: &ExtentLog,
        mut bytes: &[u8],
        pos: u64,
    ) -> Result<Option<(ExtentLog, Vec<u8>)>> {
        let (mut new, mut out, mut changed) =
            (ExtentLog::new(self.block.bytes64()), Vec::new(), false);
        new.inherit_dedupe(log);
        out.reserve(bytes.len());
        for extent in log.iter() {
            if extent.place != ExtentPlace::Next {
                new.push_without_dedupe(extent);
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
            new.push_without_dedupe(placed.extent(extent));
        }
        Ok(changed.then_some((new, out)))
    }
}
