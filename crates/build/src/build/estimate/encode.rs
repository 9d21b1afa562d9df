//! Encodes windows as the data stage does, and measures size and time.

use crate::build::estimate::metadata;
use crate::build::estimate::unreadable::is_tolerated;
use crate::build::estimate::windows::Window;
use crate::data::encode::{EncodedTail, SEGMENT};
use crate::data::identical::small::IdenticalFiles;
use crate::data::order::Order;
use crate::data::worker::context::WorkerContext;
use crate::data::worker::{Job, JobResult, PieceKind, Worker};
use crate::error::Result;
use crate::options::Options;
use crate::options::compression::{Compression, IndexKind};
use crate::options::run::RunOptions;
use crate::progress::timings::{Timings, processor_time};
use crate::sources::content::Contents;
use crate::tree::Tree;
use crate::tree::inode_sizes::InodeSizes;

/// What a window takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Bytes of content.
    pub(super) bytes: f64,
    /// Bytes in the image, with inline tails, and without what [`metadata`] computes.
    pub(super) size: f64,
    /// Of them, those of fragments.
    pub(super) fragments: f64,
    /// What encoding takes outside of the packed inode, and in it.
    pub(super) direct: Effort,
    pub(super) packed: Effort,
    /// For each whole file, its size and the bytes of its tail that follow its inode.
    pub(super) tails: Vec<(u64, u16)>,
}

/// What encoding takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Effort {
    /// Processor time of the worker, in seconds.
    pub(super) seconds: f64,
    /// Bytes of content.
    pub(super) bytes: f64,
    /// Bytes in which the compressor searched matches, with those of trials that did not fit. `None` for compressors without trials.
    pub(super) searched: Option<f64>,
}

impl Effort {
    /// Measures `run`.
    fn of<'a>(
        worker: &mut Worker<'a>,
        bytes: usize,
        run: impl FnOnce(&mut Worker<'a>) -> Result<()>,
    ) -> Result<Self> {
        let (before, started) = (worker.searched(), processor_time());
        run(worker)?;
        let seconds = processor_time().saturating_sub(started).as_secs_f64();
        // A worker creates its compressors when it needs them.
        let searched = worker.searched().map(|all| all.saturating_sub(before.unwrap_or(0)) as f64);
        Ok(Self { seconds, bytes: bytes as f64, searched })
    }
}

/// Encodes windows with one setting.
pub(super) struct Measurer<'a> {
    tree: &'a Tree,
    contents: &'a Contents,
    settings: &'a Options,
    run: &'a RunOptions,
    order: &'a Order,
    inode_sizes: &'a InodeSizes,
    compression: Option<&'a Compression>,
    identical_files: IdenticalFiles,
    timings: Timings,
}

impl<'a> Measurer<'a> {
    pub(super) fn new(
        (tree, contents): (&'a Tree, &'a Contents),
        settings: &'a Options,
        run: &'a RunOptions,
        order: &'a Order,
        inode_sizes: &'a InodeSizes,
        compression: Option<&'a Compression>,
    ) -> Self {
        let identical_files = IdenticalFiles::none(tree);
        let timings = Timings::default();
        Self { tree, contents, settings, run, order, inode_sizes, compression, identical_files, timings }
    }

    pub(super) fn measure(&self, windows: &[Window]) -> Result<Vec<Measured>> {
        let context = WorkerContext {
            tree: self.tree,
            order: self.order,
            inode_sizes: self.inode_sizes,
            identical_files: &self.identical_files,
            extent_index: None,
            base_image: None,
            contents: self.contents,
            timings: &self.timings,
            compression: self.compression,
            block_size: self.settings.image.block_size,
            skip_unreadable: true,
        };
        let worker = || (Worker::new(context), JobResult::default(), JobResult::default());
        self.run.parallel(windows.len(), worker, |(worker, result, packed), number| {
            result.clear();
            packed.clear();
            match self.window(&windows[number], worker, result, packed) {
                Err(error) if is_tolerated(&error) => Ok(Measured::default()),
                measured => measured,
            }
        })
    }

    fn window(
        &self,
        window: &Window,
        worker: &mut Worker<'_>,
        result: &mut JobResult,
        packed: &mut JobResult,
    ) -> Result<Measured> {
        let block = self.settings.image.block_size.bytes64();
        let segment = self.compression.map_or(SEGMENT, |all| all.segment(self.settings.image.block_size));
        // The end of a window cuts a pcluster, which then wastes half a block on average. In the image, another one follows, except where the
        // data stage cuts, too.
        let has_whole_blocks = self.compression.is_none_or(|all| all.index != IndexKind::Extents);
        let cut = if has_whole_blocks { block as f64 / 2.0 } else { 0.0 };
        let is_cut = match window {
            Window::Files(..) => false,
            Window::Range { node, offset, len } => {
                let end = offset + len;
                !end.is_multiple_of(segment) && end != self.tree.node(*node).size
            }
        };
        let (job, bytes) = match window {
            Window::Files(nodes, bytes) => (Job::Files(nodes.clone()), *bytes),
            Window::Range { node, offset, len } => {
                let (node, offset, len) = (*node, *offset, *len as usize);
                (Job::Part { node, offset, len, store: false, last: false }, len as u64)
            }
        };
        let mut direct = Effort::of(worker, bytes as usize, |worker| worker.run(0, &job, result))?;
        let (mut size, mut fragments, mut inline) = (0.0, Vec::new(), Vec::new());
        let mut tails = result.tails.as_slice();
        for piece in &result.pieces {
            let (tail, others) = tails.split_at(piece.tails_len.min(tails.len()));
            tails = others;
            let file = self.tree.node(piece.node).size;
            match &piece.kind {
                PieceKind::Stored if metadata::is_known(self.settings, file) => {}
                PieceKind::Stored => {
                    size += piece.extents_len as f64;
                    // Less than a block.
                    inline.push((file, piece.tails_len as u16));
                }
                PieceKind::Copied(_) | PieceKind::Reserved => size += bytes as f64,
                PieceKind::Encoded(encoded, _) => {
                    size += encoded.log.size() as f64;
                    if is_cut && !encoded.log.is_flat() {
                        size -= cut;
                    }
                    match encoded.tail {
                        EncodedTail::None => inline.push((file, 0)),
                        EncodedTail::Inline { bytes, .. } => inline.push((file, bytes as u16)),
                        EncodedTail::Fragment { .. } => {
                            inline.push((file, 0));
                            fragments.extend_from_slice(tail);
                        }
                    }
                }
                PieceKind::Duplicate | PieceKind::Unreadable(_) => {}
            }
        }
        direct.bytes -= fragments.len() as f64;
        let (mut packed_size, mut packed_effort) = (0.0, Effort::default());
        if !fragments.is_empty() {
            let whole = fragments.len() as f64;
            let (len, job) = (fragments.len(), Job::Packed(fragments));
            packed_effort = Effort::of(worker, len, |worker| worker.run(0, &job, packed))?;
            for piece in &packed.pieces {
                if let PieceKind::Encoded(encoded, _) = &piece.kind {
                    let encoded = encoded.log.size() as f64;
                    packed_size += if encoded > cut { encoded - cut } else { encoded.min(whole) };
                }
            }
        }
        let tails = if matches!(window, Window::Range { .. }) { Vec::new() } else { inline };
        let inline: f64 = tails.iter().map(|(_, bytes)| f64::from(*bytes)).sum();
        let (bytes, size) = (bytes as f64, size + packed_size + inline);
        Ok(Measured { bytes, size, fragments: packed_size, direct, packed: packed_effort, tails })
    }
}
