//! Appends extents, refers to equal ones that the image has already, and encodes the index of a
//! file.

use ferofs_format::{Algorithm, BytePos, Incompat};

use crate::data::append::Appender;
use crate::data::encode::Encoded;
use crate::data::encode::dedupe::{ExtentFingerprint, StoredExtent};
use crate::data::encode::deflate_pages::Placed;
use crate::data::extents::index::{FileExtents, FileTail, ZeroCluster};
use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::data::stored::StoredContent;
use crate::data::zeroes::encode_zeroes;
use crate::error::{Error, Result};
use crate::tree::NodeId;

impl Appender<'_> {
    /// Appends encoded extents with these `bytes`. Returns their log, which differs from the
    /// encoder's if extents were found in the image, or if Linux cannot decode them at their
    /// places.
    pub(super) fn append_extents(
        &mut self,
        encoded: &Encoded,
        method: usize,
        mut bytes: &[u8],
    ) -> Result<ExtentLog> {
        let needs_placer = self.context.deflate_placer(method).is_some();
        if self.context.base_image.is_some() {
            let found = encoded.log.iter().filter(|extent| extent.place != ExtentPlace::Next);
            self.data.bytes_found += found.map(|extent| extent.size).sum::<u64>();
        }
        let Some(index) = self.context.extent_index else {
            let position = self.output.position();
            let placed = match needs_placer {
                true => self.placer.place_all(&encoded.log, bytes, position)?,
                false => None,
            };
            let (log, bytes) = match &placed {
                Some((log, bytes)) => (log, bytes.as_slice()),
                None => (&encoded.log, bytes),
            };
            self.output.append(bytes)?;
            return Ok(log.clone());
        };
        let mut log = ExtentLog::new(self.context.block_size.bytes64());
        log.inherit_dedupe(&encoded.log);
        let mut fingerprints = encoded.fingerprints.iter();
        for extent in encoded.log.iter() {
            if extent.place != ExtentPlace::Next {
                self.data.bytes_shared += extent.len;
                log.push_without_dedupe(extent);
                continue;
            }
            let (own, later) = bytes.split_at(extent.size as usize);
            bytes = later;
            let fingerprint = fingerprints.next().copied().flatten();
            let same =
                |stored: &StoredExtent| stored.encoded == extent.encoded && stored.method == method;
            let stored = fingerprint.map_or(Ok(None), |fingerprint| index.get(&fingerprint))?;
            if let Some(stored) = stored.filter(same) {
                self.data.bytes_shared += extent.len;
                let place = ExtentPlace::Shared { at: stored.at, partial: stored.partial };
                log.push(Extent { size: stored.size, place, ..extent });
                continue;
            }
            let at = BytePos::new(self.output.position());
            let placed = match needs_placer && extent.encoded {
                true => self.placer.place(extent, own, at.get())?,
                false => Placed::AsIs,
            };
            let extent = placed.extent(extent);
            if let Some(fingerprint) = fingerprint {
                let Extent { size, encoded, .. } = extent;
                let stored = StoredExtent { at, size, encoded, method, partial: false };
                index.insert(self.job, fingerprint, stored)?;
            }
            let mut bytes = Vec::new();
            placed.write(own, &mut bytes);
            self.output.append(&bytes)?;
            log.push(extent);
        }
        Ok(log)
    }

    /// Adds stored extents to the index of extents: they are about to be appended one after
    /// another, each with its size and fingerprint. Those that end more than `end` bytes from here
    /// are not.
    pub(super) fn index_stored(
        &self,
        extents: impl Iterator<Item = (u64, Option<ExtentFingerprint>)>,
        method: usize,
        end: usize,
    ) -> Result<()> {
        let Some(index) = self.context.extent_index else { return Ok(()) };
        let start = self.output.position();
        let mut next = start;
        for (size, fingerprint) in extents {
            let at = BytePos::new(next);
            next += size;
            if next - start > end as u64 {
                break;
            }
            if let Some(fingerprint) = fingerprint {
                let stored = StoredExtent { at, size, encoded: false, method, partial: false };
                index.insert(self.job, fingerprint, stored)?;
            }
        }
        Ok(())
    }

    /// Encodes the index of a compressed file. `first` is the position of its first extent that is
    /// not shared.
    pub(super) fn compressed(
        &mut self,
        node: NodeId,
        log: &ExtentLog,
        tail: &FileTail,
        first: BytePos,
        method: usize,
    ) -> Result<StoredContent> {
        let size = self.context.tree.node(node).size;
        let (algorithm, zeroes) = (self.algorithm(method), self.zero_cluster(log, method)?);
        let file = FileExtents { log, tail, size, first, algorithm, zeroes };
        self.indexed(file, self.context.inode_sizes.len(node))
    }

    /// The pcluster to which the holes of a file with this log refer, which is appended at its
    /// first use; `None` if it needs none.
    pub(super) fn zero_cluster(
        &mut self,
        log: &ExtentLog,
        method: usize,
    ) -> Result<Option<ZeroCluster>> {
        let Some(compression) = self.context.compression else { return Ok(None) };
        if !log.has_holes() || !compression.index.in_blocks() {
            return Ok(None);
        }
        self.data.features |= Incompat::DEDUPE;
        if let Some(known) = self.zero_clusters.get(&method) {
            return Ok(Some(*known));
        }
        let (bytes, len) = encode_zeroes(compression, method, self.context.block_size)?;
        self.align()?;
        let zeroes = ZeroCluster { at: BytePos::new(self.output.position()), len };
        self.output.append(&bytes)?;
        self.zero_clusters.insert(method, zeroes);
        Ok(Some(zeroes))
    }

    pub(super) fn algorithm(&self, method: usize) -> Algorithm {
        let method =
            self.context.compression.and_then(|compression| compression.methods.get(method));
        // Encoded content always has a method.
        method.map_or(Algorithm::Lz4, |method| method.algorithm)
    }

    /// Encodes the index of a file whose inode has `inode_len` bytes with its xattrs.
    pub(super) fn indexed(
        &mut self,
        file: FileExtents<'_>,
        inode_len: usize,
    ) -> Result<StoredContent> {
        let encoder = self.context.index_encoder();
        let (layout, index) = encoder.encode(file, inode_len).map_err(Error::Layout)?;
        self.data.features |= Incompat::LZ4_0PADDING;
        self.data.features |= match file.tail {
            FileTail::None => Incompat::empty(),
            FileTail::Inline { .. } => Incompat::ZTAILPACKING,
            FileTail::Fragment { .. } => Incompat::FRAGMENTS,
        };
        if file.log.deduplicates() {
            self.data.features |= Incompat::DEDUPE;
        }
        if !encoder.index.in_blocks() {
            self.data.features |= Incompat::BIT48;
        }
        let blocks = self.context.block_size.blocks_for(file.log.size_with_shared());
        let inline = match file.tail {
            // Less than a block, which has at most 64 KiB.
            FileTail::Inline { bytes, .. } => bytes.len() as u16,
            FileTail::None | FileTail::Fragment { .. } => 0,
        };
        Ok(StoredContent::Compressed { layout, blocks, index: self.spill.push(&index)?, inline })
    }
}
