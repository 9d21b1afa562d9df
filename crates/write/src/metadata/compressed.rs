//! Encodes metadata: the entries of large directories (`--compress-directories`), and the metabox,
//! which holds inodes (`-m`). [`write`](crate::metadata::write) passes the bytes, in order; workers
//! encode them in pieces of one segment, and the calling thread appends the results in the same
//! order. So the image does not depend on the number of workers. Source: FORMAT.md 3, 7.

use std::collections::VecDeque;

use ferofs_format::inode::DataLayout;
use ferofs_format::{Algorithm, BlockSize, BytePos, Fault, FormatError, Structure};
use ferofs_threads::{Pipeline, with_pipeline};

use crate::data::encode::{Encoder, Following, SEGMENT, Sink};
use crate::data::extents::ExtentLog;
use crate::data::extents::index::{FileExtents, FileTail, IndexEncoder};
use crate::data::stored::EarlierContent;
use crate::error::{Error, Result};
use crate::options::compression::{Compression, FileCompression};
use crate::output::Output;
use crate::progress::Timings;

/// Pieces under way for each worker, of at most one segment: with one, a worker would wait for the
/// thread that makes the next one.
const PIECES_PER_WORKER: usize = 2;

/// Encodes metadata in whole blocks, without inline tails and fragments.
pub(crate) struct MetadataEncoder<'a> {
    compression: &'a Compression,
    timings: &'a Timings,
    index_encoder: IndexEncoder,
    file_compression: FileCompression,
    algorithm: Algorithm,
    workers: usize,
}

#[derive(Debug)]
pub(crate) struct EncodedContent {
    pub size: u64,
    pub layout: DataLayout,
    pub blocks: u64,
    /// The index, which follows the inode.
    pub index: Vec<u8>,
}

/// A piece of content for a worker.
struct ContentPiece {
    bytes: Vec<u8>,
    /// The length of the inode with its xattrs if the content ends with this piece.
    ends: Option<usize>,
}

/// The result of a worker for a [`ContentPiece`].
struct EncodedPiece {
    bytes: Vec<u8>,
    /// `None` if the piece had no bytes.
    log: Option<ExtentLog>,
    size: u64,
    ends: Option<usize>,
}

/// Content whose first pieces are appended.
struct PendingContent {
    log: ExtentLog,
    first: BytePos,
    size: u64,
}

/// Takes content, one after another, and appends it to the image. Nothing else may be appended
/// meanwhile.
pub(crate) struct Queue<'q, 'a> {
    encoder: &'q MetadataEncoder<'a>,
    pipeline: &'q mut Pipeline<ContentPiece, Result<EncodedPiece>>,
    output: &'q mut Output,
    /// The last bytes, which are not yet a whole segment.
    filling: Vec<u8>,
    pending: Option<PendingContent>,
    finished: VecDeque<EncodedContent>,
    /// Content that the next one follows, in the same file.
    earlier: Option<&'q EarlierContent>,
}

impl<'a> MetadataEncoder<'a> {
    /// `compression` comes from [`Compression::for_metadata`], or places extents to the byte and
    /// does not use DEFLATE, which Linux does not decode at each place.
    pub(crate) fn new(
        compression: &'a Compression,
        file_compression: FileCompression,
        block: BlockSize,
        timings: &'a Timings,
        workers: usize,
    ) -> Result<Self> {
        let index_encoder = IndexEncoder {
            index: compression.index,
            block,
            big_pclusters: compression.is_big(block),
        };
        let no_method = Error::Option {
            option: "metadata compression",
            problem: "its algorithm is not in the list",
        };
        let algorithm =
            compression.methods.get(file_compression.method).ok_or(no_method)?.algorithm;
        Ok(Self { compression, timings, index_encoder, file_compression, algorithm, workers })
    }

    /// The most bytes of the index of content of `size` bytes.
    pub(crate) const fn max_index_size(&self, size: u64) -> u64 {
        self.index_encoder.max_size(size)
    }

    /// Calls `drive` with a queue that encodes on all workers and appends to `output`. Its first
    /// content follows the `earlier` one.
    pub(crate) fn encode_all<T>(
        &self,
        earlier: Option<&EarlierContent>,
        output: &mut Output,
        drive: impl FnOnce(&mut Queue<'_, 'a>) -> Result<T>,
    ) -> Result<T> {
        let encoder = || Encoder::new(self.compression, self.index_encoder.block, self.timings);
        let work = |encoder: &mut Encoder<'a>, piece| self.encode(encoder, piece);
        let limit = self.workers * PIECES_PER_WORKER + 1;
        with_pipeline(self.workers, limit, encoder, work, |pipeline| {
            let finished = VecDeque::new();
            drive(&mut Queue {
                encoder: self,
                pipeline,
                output,
                filling: Vec::new(),
                pending: None,
                finished,
                earlier,
            })
        })
    }

    /// Encodes and appends one content: `drive` adds it and ends it once. It follows the `earlier`
    /// content of the same file, if that exists in the image. Returns the whole file.
    ///
    /// # Errors
    /// Errors of `drive`, of encoding and of writing.
    pub(crate) fn encode_one(
        &self,
        earlier: Option<&EarlierContent>,
        output: &mut Output,
        drive: impl FnOnce(&mut Queue<'_, 'a>) -> Result<()>,
    ) -> Result<EncodedContent> {
        let content = self.encode_all(earlier, output, |queue| {
            drive(queue)?;
            queue.wait()?;
            Ok(queue.finished())
        })?;
        let fault = Fault::Map("the content has no end");
        content.ok_or(Error::Layout(FormatError::new(Structure::Inode, fault)))
    }

    fn encode(&self, encoder: &mut Encoder<'a>, piece: ContentPiece) -> Result<EncodedPiece> {
        let ContentPiece { bytes, ends } = piece;
        let size = bytes.len() as u64;
        let mut extents = Vec::new();
        let mut log = None;
        if size > 0 {
            let sink = Sink { extents: &mut extents, tails: &mut Vec::new() };
            let (file, following) = (self.file_compression, Following::MoreData);
            let encoded = encoder.encode(&bytes, file, following, None, u64::MAX, sink)?;
            log = encoded.map(|encoded| encoded.log);
        }
        Ok(EncodedPiece { bytes: extents, log, size, ends })
    }

    fn finish(&self, pending: PendingContent, inode_len: usize) -> Result<EncodedContent> {
        let PendingContent { log, first, size } = pending;
        let (tail, algorithm) = (&FileTail::None, self.algorithm);
        let file = FileExtents { log: &log, tail, size, first, algorithm, zeroes: None };
        let (layout, index) = self.index_encoder.encode(file, inode_len).map_err(Error::Layout)?;
        let blocks = self.index_encoder.block.blocks_for(log.size_with_shared());
        Ok(EncodedContent { size, layout, blocks, index })
    }
}

impl Queue<'_, '_> {
    /// Adds bytes to the content.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) =
                bytes.split_at(bytes.len().min(SEGMENT as usize - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() as u64 == SEGMENT {
                self.submit(None)?;
            }
        }
        Ok(())
    }

    /// Ends the content. Its index is made for an inode of `inode_len` bytes with its xattrs.
    pub(crate) fn end(&mut self, inode_len: usize) -> Result<()> {
        self.submit(Some(inode_len))
    }

    /// The next content that is encoded and appended, in order; `None` if it is not complete yet.
    pub(crate) fn finished(&mut self) -> Option<EncodedContent> {
        self.finished.pop_front()
    }

    /// Waits until all content that has ended is appended.
    pub(crate) fn wait(&mut self) -> Result<()> {
        while self.append_next()? {}
        Ok(())
    }

    fn submit(&mut self, ends: Option<usize>) -> Result<()> {
        if !self.pipeline.has_capacity() {
            self.append_next()?;
        }
        self.pipeline.submit(ContentPiece { bytes: std::mem::take(&mut self.filling), ends });
        Ok(())
    }

    /// Appends the oldest piece under way. Returns whether there was one.
    fn append_next(&mut self) -> Result<bool> {
        let Some(piece) = self.pipeline.next_result()? else { return Ok(false) };
        let EncodedPiece { bytes, log, size, ends } = piece?;
        let mut pending = match self.pending.take() {
            Some(pending) => pending,
            None => {
                let block = self.encoder.index_encoder.block.bytes64();
                if self.encoder.index_encoder.index.in_blocks() {
                    self.output.pad_to(self.output.position().next_multiple_of(block))?;
                }
                let first = BytePos::new(self.output.position());
                match self.earlier.take() {
                    Some(EarlierContent { size, log, .. }) => {
                        PendingContent { log: log.clone(), first, size: *size }
                    }
                    None => PendingContent { log: ExtentLog::new(block), first, size: 0 },
                }
            }
        };
        if let Some(log) = log {
            pending.log.extend(&log);
        }
        self.output.append(&bytes)?;
        pending.size += size;
        match ends {
            Some(inode_len) => self.finished.push_back(self.encoder.finish(pending, inode_len)?),
            None => self.pending = Some(pending),
        }
        Ok(true)
    }
}
