//! Encodes metadata: the entries of large directories (`--zD`), and the metabox, which holds inodes (`-m`).
//! [`write`](crate::metadata::write) calls it with the bytes. Source: FORMAT.md 3, 7.

use ferofs_format::inode::DataLayout;
use ferofs_format::{Algorithm, BlockSize, BytePos};

use crate::data::encode::{Encoder, Following, SEGMENT, Sink};
use crate::data::extents::index::{FileExtents, FileTail, IndexEncoder};
use crate::data::extents::log::ExtentLog;
use crate::error::{Error, Result};
use crate::options::compression::{Compression, FileCompression};
use crate::output::Output;
use crate::progress::timings::Timings;

/// Encodes metadata in whole blocks, without inline tails and fragments.
pub(crate) struct MetadataEncoder<'a> {
    encoder: Encoder<'a>,
    index_encoder: IndexEncoder,
    file_compression: FileCompression,
    algorithm: Algorithm,
    buffer: Vec<u8>,
}

/// Content that is being encoded and appended.
#[derive(Debug)]
pub(crate) struct PendingContent {
    log: ExtentLog,
    first: BytePos,
    size: u64,
    /// The last bytes, which are not yet a whole segment.
    filling: Vec<u8>,
}

/// Content that is encoded and appended.
#[derive(Debug)]
pub(crate) struct EncodedContent {
    pub(crate) size: u64,
    pub(crate) layout: DataLayout,
    pub(crate) blocks: u64,
    /// The index, which follows the inode.
    pub(crate) index: Vec<u8>,
}

impl<'a> MetadataEncoder<'a> {
    /// `compression` comes from [`Compression::for_metadata`].
    pub(crate) fn new(
        compression: &'a Compression,
        file_compression: FileCompression,
        block: BlockSize,
        timings: &'a Timings,
    ) -> Result<Self> {
        let index_encoder =
            IndexEncoder { index: compression.index, block, big_pclusters: compression.is_big(block) };
        let no_method =
            Error::Option { option: "metadata compression", problem: "its algorithm is not in the list" };
        let algorithm = compression.methods.get(file_compression.method).ok_or(no_method)?.algorithm();
        let encoder = Encoder::new(compression, block, timings);
        Ok(Self { encoder, index_encoder, file_compression, algorithm, buffer: Vec::new() })
    }

    /// The most bytes of the index of content of `size` bytes.
    pub(crate) const fn max_index_size(&self, size: u64) -> u64 {
        self.index_encoder.max_size(size)
    }

    /// Starts content at the end of `output`. Nothing else may be appended until [`Self::finish`].
    pub(crate) fn start(&self, output: &mut Output) -> Result<PendingContent> {
        let block = self.index_encoder.block.bytes64();
        output.pad_to(output.position().next_multiple_of(block))?;
        let first = BytePos::new(output.position());
        Ok(PendingContent { log: ExtentLog::new(block), first, size: 0, filling: Vec::new() })
    }

    /// Adds bytes to the content.
    pub(crate) fn push(
        &mut self,
        pending: &mut PendingContent,
        mut bytes: &[u8],
        output: &mut Output,
    ) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT as usize - pending.filling.len()));
            pending.filling.extend_from_slice(now);
            bytes = later;
            if pending.filling.len() as u64 == SEGMENT {
                self.flush(pending, output)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, pending: &mut PendingContent, output: &mut Output) -> Result<()> {
        self.buffer.clear();
        let sink = Sink { extents: &mut self.buffer, tails: &mut Vec::new() };
        let encoded = self.encoder.encode(
            &pending.filling,
            self.file_compression,
            Following::MoreData,
            None,
            u64::MAX,
            sink,
        )?;
        if let Some(encoded) = encoded {
            pending.log.extend(&encoded.log);
        }
        output.append(&self.buffer)?;
        pending.size += pending.filling.len() as u64;
        pending.filling.clear();
        Ok(())
    }

    /// Encodes the rest, and the index for an inode of `inode_len` bytes with its xattrs.
    pub(crate) fn finish(
        &mut self,
        mut pending: PendingContent,
        inode_len: usize,
        output: &mut Output,
    ) -> Result<EncodedContent> {
        if !pending.filling.is_empty() {
            self.flush(&mut pending, output)?;
        }
        let PendingContent { log, first, size, .. } = pending;
        let file = FileExtents { log: &log, tail: &FileTail::None, size, first, algorithm: self.algorithm };
        let (layout, index) = self.index_encoder.encode(file, inode_len).map_err(Error::Layout)?;
        Ok(EncodedContent {
            size,
            layout,
            blocks: self.index_encoder.block.blocks_for(log.size_with_shared()),
            index,
        })
    }
}
