//! Workers: read files, or parts of large ones, decide how they are stored, and encode them.
//!
//! A worker does not write. Its result depends on the source and the options only, never on the
//! speed of other workers.

pub(crate) mod context;

use ferofs_format::units::SLOT_SIZE;

use crate::data::encode::dedupe::{ExtentFingerprint, Match};
use crate::data::encode::zero_runs::zero_runs;
use crate::data::encode::{Encoded, EncodedTail, Encoder, Following, ReusableExtents, Sink};
use crate::data::extents::{Extent, ExtentLog};
use crate::data::identical::{Fingerprint, Lookup};
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result};
use crate::options::compression::{Compression, FileCompression, Fragments, PACKED_INODE_METHOD};
use crate::progress::Activity;
use crate::sources::reader::Reader;
use crate::tree::{NodeId, Origin, SourcePosition};

/// A file of at least this many blocks without any encoded extent is stored flat, which is faster
/// to read. For a smaller file, extents that are placed to the byte save a part of a block, which
/// matters more.
const FLAT_MIN_BLOCKS: usize = 16;

/// Bytes of a whole file from which on the kernel copies it, if no other file can be identical. For
/// less, the system calls cost more than the copies that they save.
const COPY_MIN: u64 = 64 << 10;

/// The data that a worker reads and encodes.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Whole files.
    Files(Vec<NodeId>),
    /// A part of a file: at most [`SEGMENT`](crate::data::encode::SEGMENT) bytes.
    Part {
        /// The file.
        node: NodeId,
        /// Where the part starts.
        offset: u64,
        /// Bytes of the part.
        len: usize,
        /// What the worker does with it.
        form: PartForm,
        /// Whether the file ends with this part.
        last: bool,
    },
    /// A part of the packed inode.
    Packed(Vec<u8>),
}

/// What a worker does with a part of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartForm {
    /// Encodes it, if the file is compressed.
    Encoded,
    /// Stores it uncompressed, padded to whole blocks.
    Stored,
    /// Nothing: the source has a hole there, and the image gets one. It can be longer than a
    /// segment.
    Hole,
}

/// The result for one file, or for a part of one.
#[derive(Debug)]
pub(crate) struct FileResult {
    pub node: NodeId,
    /// How many bytes of [`JobResult::extents`] belong to it.
    pub extents_len: usize,
    /// How many bytes of [`JobResult::tails`] belong to it.
    pub tails_len: usize,
    /// Identifies the file's content, if another file may have the same.
    pub fingerprint: Option<Fingerprint>,
    /// Identifies the file's extents, if another file with a different tail may share them.
    pub extents_fingerprint: Option<Fingerprint>,
    /// With deduplication, identify the whole blocks of a stored file.
    pub fingerprints: Vec<Option<ExtentFingerprint>>,
    pub kind: FileResultKind,
}

impl FileResult {
    /// A piece without bytes and fingerprints.
    const fn new(node: NodeId, kind: FileResultKind) -> Self {
        Self {
            node,
            extents_len: 0,
            tails_len: 0,
            fingerprint: None,
            extents_fingerprint: None,
            fingerprints: Vec::new(),
            kind,
        }
    }
}

/// How a piece is stored.
#[derive(Debug)]
pub(crate) enum FileResultKind {
    /// Uncompressed, in whole blocks. The last bytes, less than a block, can be a tail.
    Stored,
    /// Stored uncompressed: the appending thread copies it from the source, and the worker does not
    /// read it.
    Copied(CopySource),
    /// A part of zeroes for which space is reserved: the appending thread leaves a hole in the
    /// image's file.
    Reserved,
    /// In extents that this method encoded.
    Encoded(Encoded, usize),
    /// An earlier file has the same content.
    Duplicate,
    /// It cannot be read, and the image leaves it out.
    Unreadable(Error),
}

/// Where the appending thread copies content from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopySource {
    /// From an archive or the spool file.
    At(SourcePosition),
    /// From the file in a source directory, from this offset on.
    File(u64),
}

/// The result of a [`Job`]. The data stage uses its buffers again for later jobs.
#[derive(Debug, Default)]
pub(crate) struct JobResult {
    pub extents: Vec<u8>,
    pub tails: Vec<u8>,
    pub pieces: Vec<FileResult>,
    pub bytes_read: u64,
    /// These bytes are a hole, or space is reserved for them: they were not read.
    pub is_unread: bool,
}

impl JobResult {
    pub(crate) fn clear(&mut self) {
        self.clear_bytes();
        self.pieces.clear();
        self.bytes_read = 0;
        self.is_unread = false;
    }

    fn clear_bytes(&mut self) {
        self.extents.clear();
        self.tails.clear();
    }
}

/// The state that one worker keeps between its jobs.
pub(crate) struct Worker<'a> {
    context: WorkerContext<'a>,
    encoder: Option<Encoder<'a>>,
    /// The content that was read last.
    input: Vec<u8>,
    reader: Reader<'a>,
    /// The number of the current job, without jobs on the packed inode.
    number: usize,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(context: WorkerContext<'a>) -> Self {
        let encoder =
            |compression| Encoder::new(compression, context.block_size, context.timings());
        Self {
            context,
            encoder: context.compression.map(encoder),
            input: Vec::new(),
            reader: Reader::new(context.contents, context.tree),
            number: 0,
        }
    }

    /// Does job number `number`. `result` is empty.
    pub(crate) fn run(&mut self, number: usize, job: &Job, result: &mut JobResult) -> Result<()> {
        self.number = number;
        match job {
            Job::Files(files) => files.iter().try_for_each(|node| self.file(*node, result)),
            Job::Part { node, offset, len, form, last } => {
                result.bytes_read += *len as u64;
                result.is_unread = *form == PartForm::Hole || self.context.is_reserved(*node);
                if self.context.is_reserved(*node) {
                    result.pieces.push(FileResult::new(*node, FileResultKind::Reserved));
                    return Ok(());
                }
                if *form == PartForm::Hole {
                    result.pieces.push(FileResult::new(*node, self.hole(*node, *len)));
                    return Ok(());
                }
                // Stored parts leave out the holes between them.
                let copied =
                    (*form != PartForm::Stored).then(|| self.copy_source(*node, *offset)).flatten();
                if let Some(source) = copied {
                    result.pieces.push(FileResult::new(*node, FileResultKind::Copied(source)));
                    return Ok(());
                }
                match self.read(*node, *offset, *len) {
                    Ok(()) => self.part(*node, *offset, *form, *last, result),
                    Err(error) => self.leave_out(*node, error, result),
                }
            }
            Job::Packed(bytes) => self.packed(bytes, result),
        }
    }

    /// Where the content of `node` can be copied from, from `offset` on. `None` if the image stores
    /// the file compressed, the source has it in another form, or somebody must see the bytes.
    fn copy_source(&self, node: NodeId, offset: u64) -> Option<CopySource> {
        let context = self.context;
        if context.file_compression(node).is_some() {
            return None;
        }
        match context.tree.node(node).origin {
            Origin::At(place) => {
                Some(CopySource::At(SourcePosition { at: place.at + offset, ..place }))
            }
            Origin::File(_) | Origin::LayerFile { .. } => {
                let is_unseen =
                    context.options.output.sealer.is_none() && context.extent_index.is_none();
                // An error while copying can be that of the image.
                let must_be_readable = !context.options.source.skip_unreadable;
                (is_unseen && must_be_readable).then_some(CopySource::File(offset))
            }
            _ => None,
        }
    }

    fn file(&mut self, node: NodeId, result: &mut JobResult) -> Result<()> {
        let context = self.context;
        let size = context.tree.node(node).size;
        result.bytes_read += size;
        if size >= COPY_MIN
            && !context.identical_files.is_candidate(node)
            && let Some(source @ CopySource::File(_)) = self.copy_source(node, 0)
        {
            result.pieces.push(FileResult::new(node, FileResultKind::Copied(source)));
            return Ok(());
        }
        if let Err(error) = self.read(node, 0, size as usize) {
            return self.leave_out(node, error, result);
        }
        let fingerprint = match self.look_up(node) {
            Lookup::Unique => None,
            Lookup::First(fingerprint) => Some(fingerprint),
            Lookup::Duplicate(fingerprint) => {
                let piece = FileResult::new(node, FileResultKind::Duplicate);
                result.pieces.push(FileResult { fingerprint: Some(fingerprint), ..piece });
                return Ok(());
            }
        };
        let (extents, tails) = (result.extents.len(), result.tails.len());
        let encoded = match context.file_compression(node) {
            Some((compression, file)) => self.encode_file(node, compression, file, result)?,
            None => None,
        };
        let mut fingerprints = Vec::new();
        let kind = match encoded {
            Some((encoded, method)) => FileResultKind::Encoded(encoded, method),
            None => {
                result.extents.truncate(extents);
                result.tails.truncate(tails);
                let whole = size as usize - context.inline_tail(node, size);
                result.extents.extend_from_slice(&self.input[..whole]);
                result
                    .extents
                    .resize(extents + whole.next_multiple_of(context.block_size.bytes()), 0);
                result.tails.extend_from_slice(&self.input[whole..]);
                if context.extent_index.is_some() {
                    let blocks = self.input[..whole].chunks_exact(context.block_size.bytes());
                    let find = || fingerprints.extend(blocks.map(ExtentFingerprint::of));
                    context.timings().time(Activity::Find, whole, find);
                }
                FileResultKind::Stored
            }
        };
        let extents_fingerprint = match &kind {
            FileResultKind::Encoded(Encoded { log, tail, .. }, method)
                if *tail != EncodedTail::None =>
            {
                context.identical_files.fingerprint_extents(
                    log,
                    *method,
                    &result.extents[extents..],
                )
            }
            _ => None,
        };
        let (extents_len, tails_len) = (result.extents.len() - extents, result.tails.len() - tails);
        result.pieces.push(FileResult {
            node,
            extents_len,
            tails_len,
            fingerprint,
            extents_fingerprint,
            fingerprints,
            kind,
        });
        Ok(())
    }

    /// Looks for an earlier file with the content of the input.
    fn look_up(&self, node: NodeId) -> Lookup {
        let context = self.context;
        if !context.identical_files.is_candidate(node) {
            return Lookup::Unique;
        }
        context.timings().time(Activity::Hash, self.input.len(), || {
            let rank = context.order.rank(node);
            context.identical_files.look_up(node, rank, &self.input, || context.encoding_key(node))
        })
    }

    /// Leaves out a file that cannot be read, if the options allow that.
    fn leave_out(&self, node: NodeId, error: Error, result: &mut JobResult) -> Result<()> {
        if !self.context.options.source.skip_unreadable || !error.is_unreadable() {
            return Err(error);
        }
        result.pieces.push(FileResult::new(node, FileResultKind::Unreadable(error)));
        Ok(())
    }

    /// A part of zeroes that are not read.
    fn hole(&self, node: NodeId, len: usize) -> FileResultKind {
        let method = self.context.file_compression(node).map_or(0, |(_, file)| file.method);
        let mut log = ExtentLog::new(self.context.block_size.bytes64());
        log.push_without_dedupe(Extent::hole(len as u64));
        let fingerprints = vec![None; log.count() as usize];
        FileResultKind::Encoded(Encoded { log, fingerprints, tail: EncodedTail::None }, method)
    }

    /// The stored extents that the input can refer to, and its holes; `None` if there are none and
    /// nothing to search in.
    fn reusable<'m>(
        &self,
        base_matches: &'m [Match],
        holes: &'m [Match],
    ) -> Option<ReusableExtents<'m>>
    where
        'a: 'm,
    {
        let index = self.context.extent_index;
        let none = index.is_none() && base_matches.is_empty() && holes.is_empty();
        (!none).then_some(ReusableExtents { index, job: self.number, base_matches, holes })
    }

    /// The parts of `bytes` that become holes. They are the content of a compressed file from
    /// `offset` on, which `method` encodes.
    fn holes(&self, bytes: &[u8], offset: u64, method: usize) -> Vec<Match> {
        match self.context.compression.is_some_and(|compression| compression.has_holes(method)) {
            true => zero_runs(bytes, offset, self.context.block_size),
            false => Vec::new(),
        }
    }

    /// The parts of the input that the base image has. The input is the content of `node` from
    /// `offset` on.
    fn base_matches(&self, node: NodeId, offset: u64, file: FileCompression) -> Result<Vec<Match>> {
        let Some(base) = self.context.base_image else { return Ok(Vec::new()) };
        base.find_extents(node, offset, &self.input, file.method)
    }

    /// Encodes a whole file. Returns `None` if the file takes less space uncompressed.
    fn encode_file(
        &mut self,
        node: NodeId,
        compression: &Compression,
        file: FileCompression,
        result: &mut JobResult,
    ) -> Result<Option<(Encoded, usize)>> {
        let (context, size) = (self.context, self.input.len());
        let (inode_len, block) = (context.rounded_inode_len(node), context.block_size.bytes());
        let slots = |len: usize| (inode_len + len).next_multiple_of(SLOT_SIZE as usize);
        let tail = context.inline_tail(node, size as u64);
        // A file of one block takes one block in both forms, unless its bytes can share a block
        // with others.
        let shares_blocks = compression.inline_tails
            || compression.fragments != Fragments::None
            || !compression.index.in_blocks();
        if size <= block && (!shares_blocks || tail == size && slots(size) <= slots(16)) {
            return Ok(None);
        }
        let index = context.index_encoder().max_size(size as u64);
        let stored = ((size - tail).next_multiple_of(block) + tail) as u64;
        let whole_fragment = compression.fragments == Fragments::All
            || compression.fragments == Fragments::Tails && size < file.pcluster;
        if whole_fragment {
            result.tails.extend_from_slice(&self.input);
            let (log, tail) = (ExtentLog::new(block as u64), EncodedTail::Fragment { bytes: size });
            return Ok(Some((Encoded { log, fingerprints: Vec::new(), tail }, file.method)));
        }
        let (base_matches, holes) =
            (self.base_matches(node, 0, file)?, self.holes(&self.input, 0, file.method));
        let reusable = self.reusable(&base_matches, &holes);
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        let following =
            Following::EndOfFile { inline_capacity: context.inline_capacity(node, size as u64) };
        let sink = Sink { extents: &mut result.extents, tails: &mut result.tails };
        // An uncompressed file starts at a block boundary, which wastes half a block on average
        // when extents do not.
        let waste = if compression.index.in_blocks() { 0 } else { block as u64 / 2 };
        let budget = (stored + waste).saturating_sub(index);
        let Some(encoded) = encoder.encode(&self.input, file, following, reusable, budget, sink)?
        else {
            return Ok(None);
        };
        let inline = match encoded.tail {
            EncodedTail::Inline { bytes, .. } => bytes as u64,
            EncodedTail::None | EncodedTail::Fragment { .. } => 0,
        };
        let flat = encoded.log.is_flat()
            && encoded.tail == EncodedTail::None
            && size >= FLAT_MIN_BLOCKS * block;
        let pays = encoded.log.size() + inline <= budget && !flat;
        Ok(pays.then_some((encoded, file.method)))
    }

    fn part(
        &mut self,
        node: NodeId,
        offset: u64,
        form: PartForm,
        last: bool,
        result: &mut JobResult,
    ) -> Result<()> {
        let context = self.context;
        let mut kind = FileResultKind::Stored;
        let file = context
            .file_compression(node)
            .map(|(_, file)| file)
            .filter(|_| form == PartForm::Encoded);
        let (base_matches, holes) = match file {
            Some(file) => (
                self.base_matches(node, offset, file)?,
                self.holes(&self.input, offset, file.method),
            ),
            None => (Vec::new(), Vec::new()),
        };
        let reusable = self.reusable(&base_matches, &holes);
        if let (Some(file), Some(encoder)) = (file, &mut self.encoder) {
            let size = context.tree.node(node).size;
            let end = Following::EndOfFile { inline_capacity: context.inline_capacity(node, size) };
            let mut following = if last { end } else { Following::MoreData };
            loop {
                let sink = Sink { extents: &mut result.extents, tails: &mut result.tails };
                let encoded =
                    encoder.encode(&self.input, file, following, reusable, u64::MAX, sink)?;
                let Some(encoded) = encoded else { break };
                // If all parts are flat the whole file is stored flat, which has no encoded tail
                // and no fragment.
                if encoded.log.is_flat() && encoded.tail != EncodedTail::None {
                    result.clear_bytes();
                    following = Following::MoreData;
                    continue;
                }
                kind = FileResultKind::Encoded(encoded, file.method);
                break;
            }
        }
        if matches!(kind, FileResultKind::Stored) {
            result.extents.extend_from_slice(&self.input);
            result.extents.resize(self.input.len().next_multiple_of(context.block_size.bytes()), 0);
        }
        let (extents_len, tails_len) = (result.extents.len(), result.tails.len());
        result.pieces.push(FileResult { extents_len, tails_len, ..FileResult::new(node, kind) });
        Ok(())
    }

    fn packed(&mut self, bytes: &[u8], result: &mut JobResult) -> Result<()> {
        // Parts start at multiples of a block, but after the content of an earlier image.
        let holes = self.holes(bytes, 0, PACKED_INODE_METHOD);
        let (Some(compression), Some(encoder)) = (self.context.compression, &mut self.encoder)
        else {
            return Ok(());
        };
        let none =
            ReusableExtents { index: None, job: self.number, base_matches: &[], holes: &holes };
        let file = compression.for_packed_inode(self.context.block_size);
        let sink = Sink { extents: &mut result.extents, tails: &mut result.tails };
        if let Some(encoded) =
            encoder.encode(bytes, file, Following::MoreData, Some(none), u64::MAX, sink)?
        {
            let kind = FileResultKind::Encoded(encoded, file.method);
            result.pieces.push(FileResult {
                extents_len: result.extents.len(),
                ..FileResult::new(NodeId::ROOT, kind)
            });
        }
        Ok(())
    }

    /// Reads `len` bytes from `offset` on into the input.
    fn read(&mut self, node: NodeId, offset: u64, len: usize) -> Result<()> {
        self.input.resize(len, 0);
        self.context
            .timings()
            .time(Activity::Read, len, || self.reader.read(node, offset, &mut self.input))
    }
}
