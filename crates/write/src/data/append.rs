//! Appends the results of workers to the image, in the order of the jobs. Everything that depends
//! on this order is decided here: positions in the image, offsets of fragments, and which file or
//! extent of several equal ones is stored.

mod extents;
mod free_space;
mod large_file;

use std::collections::{HashMap, VecDeque};

use ferofs_format::BytePos;

use crate::data::chunks::ChunkPlan;
use crate::data::encode::EncodedTail;
use crate::data::encode::deflate_pages::DeflatePlacer;
use crate::data::extents::ExtentLog;
use crate::data::extents::index::{FileExtents, FileTail, ZeroCluster};
use crate::data::identical::Fingerprint;
use crate::data::packed_inode::PackedInodeBuilder;
use crate::data::stored::{BaseImage, PackedInode, StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::data::worker::{FileResult, FileResultKind, JobResult};
use crate::error::{Error, Result, Warning};
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::reader::Reader;
use crate::tree::NodeId;
use crate::tree::inode_sizes::PACKED_LEN;

/// Appends results to `output`.
pub(super) struct Appender<'a> {
    context: WorkerContext<'a>,
    /// Opens files that are copied.
    reader: Reader<'a>,
    output: &'a mut Output,
    spill: &'a mut Spill,
    warnings: &'a mut Vec<Warning>,
    /// Large files that are not complete, in the order of their parts.
    partial_files: VecDeque<PartialFile>,
    /// Where extents with a fingerprint start.
    stored_extents: HashMap<Fingerprint, BytePos>,
    /// The logs of those that are not stored as the worker encoded them.
    changed_logs: HashMap<Fingerprint, ExtentLog>,
    pub(super) packed: PackedInodeBuilder,
    placer: DeflatePlacer,
    /// The pclusters of zeroes, by method.
    zero_clusters: HashMap<usize, ZeroCluster>,
    /// The number of the job whose result is being appended.
    job: usize,
    data: StoredData,
}

/// A large file that is not complete.
struct PartialFile {
    node: NodeId,
    /// Bytes of the parts that are not appended yet.
    left: u64,
    /// Where the first part is; `None` before it was appended.
    start: Option<BytePos>,
    log: ExtentLog,
    /// The method of the encoded parts.
    method: usize,
    /// How the file is stored if it has large holes.
    plan: Option<ChunkPlan>,
}

impl<'a> Appender<'a> {
    pub(super) fn new(
        context: WorkerContext<'a>,
        output: &'a mut Output,
        spill: &'a mut Spill,
        warnings: &'a mut Vec<Warning>,
    ) -> Self {
        let contents = vec![StoredContent::None; context.tree.nodes.len()];
        let (block, segment) = (context.block_size, context.segment());
        let earlier =
            context.base_image.and_then(BaseImage::packed).map_or(0, |earlier| earlier.size);
        // In indexes by lclusters no two extents can start in one, so that all other parts start
        // with one.
        let in_blocks =
            context.compression.is_some_and(|compression| compression.index.in_blocks());
        let first_part = segment - if in_blocks { earlier & block.mask() } else { 0 };
        let placer = context.deflate_placer(0);
        let packed =
            PackedInodeBuilder::new(spill.dir(), [first_part, segment], block, placer, earlier);
        Self {
            context,
            packed,
            reader: Reader::new(context.contents, context.tree),
            output,
            spill,
            warnings,
            partial_files: VecDeque::new(),
            stored_extents: HashMap::new(),
            changed_logs: HashMap::new(),
            placer: DeflatePlacer::new(block),
            zero_clusters: HashMap::new(),
            job: 0,
            data: StoredData { contents, ..StoredData::default() },
        }
    }

    pub(super) fn append(&mut self, number: usize, result: &mut JobResult) -> Result<()> {
        self.job = number;
        let progress = &self.context.options.run.progress;
        if !result.is_unread {
            progress.bytes_done.add(result.bytes_read);
        }
        progress.files_done.add(result.pieces.len() as u64);
        let (mut extents, mut tails) = (result.extents.as_slice(), result.tails.as_slice());
        for piece in std::mem::take(&mut result.pieces) {
            let (bytes, tail);
            (bytes, extents) = extents.split_at(piece.extents_len);
            (tail, tails) = tails.split_at(piece.tails_len);
            let node = piece.node;
            if self.partial_files.front().is_some_and(|file| file.node == node) {
                self.append_part(piece.kind, bytes, tail, result.bytes_read)?;
                continue;
            }
            self.data.contents[node.index()] = match self.earlier_file(&piece) {
                Some(earlier) => {
                    self.data.bytes_shared += self.context.tree.node(node).size;
                    self.data.contents[earlier.index()]
                }
                None => self.append_file(piece, bytes, tail)?,
            };
        }
        self.context.options.check_size(self.output.position())
    }

    /// The first file with the content of this one, if that is another file.
    fn earlier_file(&self, piece: &FileResult) -> Option<NodeId> {
        // All files before this one were looked up and appended, so this is the first of all.
        let first = self.context.identical_files.first(piece.fingerprint?)?;
        let order = self.context.order;
        if first < order.rank(piece.node) { order.id(first) } else { None }
    }

    /// Adds an encoded part of the packed inode.
    pub(super) fn append_packed(&mut self, result: &JobResult) -> Result<()> {
        match result.pieces.last() {
            Some(FileResult { kind: FileResultKind::Encoded(encoded, _), .. }) => {
                self.packed.add_encoded(encoded, &result.extents)
            }
            _ => Ok(()),
        }
    }

    /// Appends a whole file.
    fn append_file(
        &mut self,
        piece: FileResult,
        bytes: &[u8],
        tail: &[u8],
    ) -> Result<StoredContent> {
        let node = piece.node;
        match piece.kind {
            FileResultKind::Stored => {
                self.align()?;
                let start = self.output.position();
                let method = self.context.file_compression(node).map_or(0, |(_, file)| file.method);
                let blocks = piece
                    .fingerprints
                    .into_iter()
                    .map(|block| (self.context.block_size.bytes64(), block));
                self.index_stored(blocks, method, bytes.len())?;
                self.output.append(bytes)?;
                Ok(StoredContent::Flat { start: self.settle(start)?, tail: self.spill.push(tail)? })
            }
            FileResultKind::Encoded(encoded, method) => {
                // With deduplication the extent index does this, and more.
                let fingerprint =
                    piece.extents_fingerprint.filter(|_| self.context.extent_index.is_none());
                let stored =
                    fingerprint.and_then(|fingerprint| self.stored_extents.get(&fingerprint));
                let (first, log) = match stored {
                    Some(first) => {
                        self.data.bytes_shared += encoded.log.decoded_len();
                        let changed =
                            fingerprint.and_then(|fingerprint| self.changed_logs.get(&fingerprint));
                        (*first, changed.cloned().unwrap_or(encoded.log))
                    }
                    None => {
                        let first = BytePos::new(self.output.position());
                        let log = self.append_extents(&encoded, method, bytes)?;
                        let (first, log) = self.settle_extents(first, log, method)?;
                        if let Some(fingerprint) = fingerprint {
                            self.stored_extents.insert(fingerprint, first);
                            if log.size() != encoded.log.size() {
                                self.changed_logs.insert(fingerprint, log.clone());
                            }
                        }
                        (first, log)
                    }
                };
                let tail = self.place_tail(encoded.tail, tail);
                self.compressed(node, &log, &tail, first, method)
            }
            FileResultKind::Unreadable(error) => {
                self.warnings.push(Warning::Skipped(error));
                Ok(StoredContent::Skipped)
            }
            FileResultKind::Copied(source) => {
                self.align()?;
                let (start, size) = (self.output.position(), self.context.tree.node(node).size);
                let tail = self.copy(node, source, size, true)?;
                Ok(StoredContent::Flat { start: self.settle(start)?, tail })
            }
            // The first file with this content comes before its duplicates and was read completely.
            // It has no entry only if its content changed meanwhile.
            FileResultKind::Duplicate | FileResultKind::Reserved => {
                Err(Error::SourceChanged(self.context.contents.path(self.context.tree, node)))
            }
        }
    }

    /// Decides where the tail of a file is stored, and adds it to the packed inode if it is a
    /// fragment.
    fn place_tail(&mut self, tail: EncodedTail, bytes: &[u8]) -> FileTail {
        match tail {
            EncodedTail::None => FileTail::None,
            EncodedTail::Inline { encoded, .. } => {
                FileTail::Inline { bytes: bytes.to_vec(), encoded }
            }
            EncodedTail::Fragment { .. } => FileTail::Fragment { offset: self.packed.push(bytes) },
        }
    }

    /// Appends the packed inode's data, and returns the result of the stage.
    pub(super) fn finish(mut self, peak_jobs: usize) -> Result<StoredData> {
        self.data.peak_jobs = peak_jobs;
        let earlier = self.context.base_image.and_then(BaseImage::packed);
        if self.packed.size() > 0 || earlier.is_some_and(|earlier| earlier.is_changed) {
            // Behind earlier content, extents are placed to the byte.
            if earlier.is_none() {
                self.align()?;
            }
            let first = BytePos::new(self.output.position());
            self.packed.append_to(self.output)?;
            let (log, mut size) = (self.packed.log().clone(), self.packed.size());
            let (mut first, mut log) = self.settle_extents(first, log, 0)?;
            if let Some(earlier) = earlier {
                (first, log) = earlier.followed_by(&log, first);
                size += earlier.size;
            }
            let (tail, algorithm) = (&FileTail::None, self.algorithm(0));
            let zeroes = self.zero_cluster(&log, 0)?;
            let file = FileExtents { log: &log, tail, size, first, algorithm, zeroes };
            let content = self.indexed(file, PACKED_LEN)?;
            self.data.packed = Some(PackedInode { size, content });
        }
        Ok(self.data)
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        matches!(self.data.contents[node.index()], StoredContent::Skipped)
    }

    /// Pads the image to a block boundary.
    fn align(&mut self) -> Result<()> {
        let position = self.output.position().next_multiple_of(self.context.block_size.bytes64());
        self.output.pad_to(position)
    }
}
