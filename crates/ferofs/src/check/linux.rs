//! Finds data that ferofs reads, but that Linux refuses or reads wrongly: clusters (see
//! [`LinuxChecker`]), chunks (see [`ChunkOrder`]), and attributes (see [`confuses_attributes`]).

use ferofs_codec::{Algorithm, ClusterPlace, LINUX_PAGE, LinuxChecker, Portion};
use ferofs_format::{BytePos, DeviceId, Fault, Incompat, Structure};

use ferofs_format::units::to_u64;
use ferofs_read::error::{Corruption, Result};
use ferofs_read::{Extent, ExtentData, Image, Location, MetadataPlace};

/// Bytes after the first block that are needed to see the padding and the header of a Zstandard
/// frame.
const HEADER_MAX: usize = 18;

/// Checks consecutive chunks of a file on several devices.
///
/// Linux (seen with 6.18) reads two chunks with one request if the second one's sector number
/// follows the first one's, without comparing their devices. Holes between them do not change that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkOrder {
    last: Option<(DeviceId, BytePos)>,
}

impl ChunkOrder {
    /// Checks the next extent.
    ///
    /// # Errors
    /// Linux would read it from the device of the extent before.
    pub(super) fn check(&mut self, extent: &Extent) -> Result<()> {
        let ExtentData::Stored { at: Location::Device(device, pos) } = extent.data else {
            return Ok(());
        };
        let end = BytePos::new(pos.get().saturating_add(extent.len));
        let last = self.last.replace((device, end));
        match last {
            Some((other, last_end)) if other != device && last_end == pos => {
                const WHAT: &str = "follows the chunk before, but on another device: Linux reads it from that one's";
                Err(Corruption::new(Structure::ChunkIndex, Fault::LinuxReads(WHAT)).at(pos).into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether Linux (seen with 6.18) would search the first shared attribute in the page with the
/// inode's own ones: it compares page numbers, without comparing whether both are in the metabox.
pub(super) fn confuses_attributes(end: MetadataPlace, shared: MetadataPlace) -> bool {
    let page = |pos: u64| pos.checked_div(to_u64(LINUX_PAGE));
    end.in_metabox != shared.in_metabox
        && page(end.pos.get().saturating_sub(1)) == page(shared.pos.get())
}

/// Checks whether Linux's decoders accept an image's clusters.
pub(super) struct LinuxDecoders<'a> {
    image: &'a Image,
    checker: LinuxChecker,
    encoded: Vec<u8>,
}

impl<'a> LinuxDecoders<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, checker: LinuxChecker::default(), encoded: Vec::new() }
    }

    /// Checks an extent that ferofs decodes.
    ///
    /// # Errors
    /// Linux refuses it, or it cannot be read.
    pub(super) fn check(&mut self, extent: &Extent) -> Result<()> {
        let ExtentData::Encoded { algorithm, at, encoded_len, partial } = extent.data else {
            return Ok(());
        };
        let superblock = self.image.superblock();
        // Without LZ4_0PADDING, more bytes may follow LZ4 data.
        let is_legacy =
            algorithm == Algorithm::Lz4 && !superblock.incompat.contains(Incompat::LZ4_0PADDING);
        let block = superblock.block_size;
        let (pos, unit) = match at {
            Location::Device(_, pos) => (pos, block.bytes()),
            Location::Metadata(place) => (place.pos, block.bytes().max(LINUX_PAGE)),
        };
        if algorithm == Algorithm::Lz4 && matches!(at, Location::Device(..)) {
            self.check_lz4_buffer(algorithm, pos, encoded_len)?;
        }
        let whole = usize::try_from(encoded_len).unwrap_or(usize::MAX);
        let decoded = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let configs = self.image.configs();
        let offset =
            pos.get().checked_rem(to_u64(unit)).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.unwrap_or(usize::MAX);
        let portion = if partial || is_legacy { Portion::Prefix } else { Portion::Whole };
        let needs_whole_cluster =
            LinuxChecker::needs_whole_cluster(algorithm, decoded, portion, configs);
        let is_framed = algorithm == Algorithm::Zstd;
        // A cluster within one block that ferofs decodes is not all padding, which is all that
        // Linux checks in it here.
        if !needs_whole_cluster
            && !is_framed
            && block.bytes().checked_sub(offset).is_some_and(|remaining| whole <= remaining)
        {
            return Ok(());
        }
        let wanted = if needs_whole_cluster {
            whole
        } else {
            whole.min(block.bytes().saturating_add(HEADER_MAX))
        };
        self.encoded.resize(wanted, 0);
        match at {
            Location::Device(device, pos) => {
                self.image.read_device(device, pos, Structure::Extent, &mut self.encoded)?;
            }
            Location::Metadata(place) => {
                self.image.read_metadata(place, Structure::InlineData, &mut self.encoded)?;
            }
        }
        let place = ClusterPlace { block: block.bytes(), offset };
        self.checker.check(algorithm, &self.encoded, place, decoded, portion, configs).map_err(
            |refusal| {
                Corruption::new(Structure::Extent, Fault::LinuxDecoder(refusal.message()))
                    .at(pos)
                    .into()
            },
        )
    }

    /// Checks that an LZ4 cluster of `len` bytes at `pos` is in at most as many pages as Linux's
    /// buffer has, which is as large as the largest limit of the images that were mounted since
    /// boot. Linux takes a limit of 0 for 1, and needs no buffer for one page.
    fn check_lz4_buffer(&self, algorithm: Algorithm, pos: BytePos, len: u64) -> Result<()> {
        let page = to_u64(LINUX_PAGE.max(self.image.superblock().block_size.bytes()));
        let first = pos.get().checked_div(page).unwrap_or(0);
        let pages = pos.get().saturating_add(len).div_ceil(page).saturating_sub(first);
        let lz4 = self.image.configs().get(algorithm);
        let most = lz4.map_or(1, |config| u64::from(config.max_pcluster_blocks.max(1)));
        if pages <= most {
            return Ok(());
        }
        const WHAT: &str =
            "touches more blocks than lz4 max_pclusterblks, the size of Linux's buffer";
        Err(Corruption::new(Structure::Extent, Fault::LinuxDecoder(WHAT)).at(pos).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferofs_format::FileOffset;

    #[test]
    fn pages_of_the_metabox_and_of_the_device_are_confused() {
        let place = |in_metabox, pos| MetadataPlace { in_metabox, pos: BytePos::new(pos) };
        let confused = |end, shared| confuses_attributes(place(true, end), place(false, shared));
        assert!(confused(12_300, 12_288) && confused(16_384, 12_288));
        assert!(!confused(12_288, 12_288) && !confused(16_385, 12_288));
        assert!(!confuses_attributes(place(true, 12_300), place(true, 12_288)));
    }

    #[test]
    fn chunks_on_two_devices_must_not_follow_each_other() {
        let extent = |device, at, data: bool| Extent {
            start: FileOffset::new(0),
            len: 4096,
            data: match data {
                true => ExtentData::Stored {
                    at: Location::Device(DeviceId::new(device), BytePos::new(at)),
                },
                false => ExtentData::Hole,
            },
        };
        let judged = |extents: &[Extent]| {
            let mut chunks = ChunkOrder::default();
            extents.iter().map(|extent| chunks.check(extent).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(judged(&[extent(1, 4096, true), extent(1, 8192, true)]), [true, true]);
        assert_eq!(judged(&[extent(1, 4096, true), extent(0, 8192, true)]), [true, false]);
        assert_eq!(
            judged(&[extent(1, 4096, true), extent(0, 0, false), extent(0, 8192, true)]),
            [true, true, false]
        );
        assert_eq!(
            judged(&[extent(1, 4096, true), extent(0, 12288, true), extent(1, 8192, true)]),
            [true; 3]
        );
    }
}
