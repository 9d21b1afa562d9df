//! What workers do: read files, or segments of a large one, and encode them into blocks.
//!
//! A worker's result depends on the source's bytes and the options alone, never on other workers.

use ferofs_codec::{Fit, FixedOutput, right_align};
use ferofs_format::BlockSize;

use super::content::{Contents, Reader};
use super::heads::Heads;
use super::index::{self, ExtentLog};
use super::tree::{NodeId, Tree};
use crate::{Error, Result};

/// Large files are cut at multiples of this. It shows in the image: do not let it depend on the machine.
pub(crate) const SEGMENT: u64 = 4 << 20;

/// What to read, and how to encode it.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Whole files.
    Files(Vec<NodeId>),
    /// A part of a file: at most [`SEGMENT`] bytes.
    Part {
        /// The file.
        node: NodeId,
        /// Where the part starts.
        offset: u64,
        /// Its bytes.
        len: usize,
        /// Store it, and pad it to whole blocks.
        store: bool,
    },
}

/// What became of one file, or of a part.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) node: NodeId,
    /// Blocks of the piece in [`Done::blocks`].
    pub(crate) blocks: u64,
    pub(crate) kind: PieceKind,
}

#[derive(Debug)]
pub(crate) enum PieceKind {
    /// The content as it is; its last bytes, fewer than a block, are next in [`Done::tails`].
    Stored {
        /// Bytes in [`Done::tails`].
        tail: usize,
    },
    /// Extents of one block each.
    Encoded(ExtentLog),
    /// It cannot be read and is to be left out.
    Unreadable(Error),
}

/// The result of a [`Work`]. Its buffers are used again.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) blocks: Vec<u8>,
    pub(crate) tails: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) bytes_read: u64,
}

impl Done {
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.tails.clear();
        self.pieces.clear();
        self.bytes_read = 0;
    }
}

/// What all workers share.
#[derive(Clone, Copy)]
pub(crate) struct Shop<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) heads: &'a Heads,
    pub(crate) contents: &'a Contents,
    pub(crate) block: BlockSize,
    pub(crate) skip_unreadable: bool,
}

/// A worker's hands.
pub(crate) struct Worker<'a> {
    shop: Shop<'a>,
    compressor: Option<Box<dyn FixedOutput>>,
    input: Vec<u8>,
    reader: Reader<'a>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shop: Shop<'a>, compressor: Option<Box<dyn FixedOutput>>) -> Self {
        Self { shop, compressor, input: Vec::new(), reader: Reader::new(shop.contents, shop.tree) }
    }

    /// Does `work` into `done`, which is empty.
    pub(crate) fn run(&mut self, work: &Work, done: &mut Done) -> Result<()> {
        match work {
            Work::Files(files) => files.iter().try_for_each(|node| self.file(*node, done)),
            Work::Part { node, offset, len, store } => self.part(*node, *offset, *len, *store, done),
        }
    }

    fn file(&mut self, node: NodeId, done: &mut Done) -> Result<()> {
        let size = self.shop.tree.node(node).size;
        match self.read(node, 0, size as usize) {
            Err(error) if self.shop.skip_unreadable => {
                done.pieces.push(Piece { node, blocks: 0, kind: PieceKind::Unreadable(error) });
                return Ok(());
            }
            result => result?,
        }
        done.bytes_read += size;
        let block = self.shop.block.bytes();
        let tail = self.shop.heads.inline_tail(node, size, self.shop.block);
        let start = done.blocks.len();
        let whole = size as usize - tail;
        // A file of up to a block takes a block at most either way.
        if size as usize > block && self.compressor.is_some() {
            let stored = (whole.next_multiple_of(block) + tail) as u64;
            let budget = stored.saturating_sub(index::size_estimate(size, self.shop.block));
            if let Some(log) = self.encode(done, budget)? {
                done.pieces.push(Piece { node, blocks: log.count(), kind: PieceKind::Encoded(log) });
                return Ok(());
            }
            done.blocks.truncate(start);
        }
        done.blocks.extend_from_slice(&self.input[..whole]);
        done.blocks.resize(start + whole.next_multiple_of(block), 0);
        done.tails.extend_from_slice(&self.input[whole..]);
        let blocks = whole.div_ceil(block) as u64;
        done.pieces.push(Piece { node, blocks, kind: PieceKind::Stored { tail } });
        Ok(())
    }

    fn part(&mut self, node: NodeId, offset: u64, len: usize, store: bool, done: &mut Done) -> Result<()> {
        self.read(node, offset, len)?;
        done.bytes_read += len as u64;
        if !store && let Some(log) = self.encode(done, u64::MAX)? {
            done.pieces.push(Piece { node, blocks: log.count(), kind: PieceKind::Encoded(log) });
            return Ok(());
        }
        done.blocks.extend_from_slice(&self.input);
        done.blocks.resize(len.next_multiple_of(self.shop.block.bytes()), 0);
        let blocks = self.shop.block.blocks_for(len as u64);
        done.pieces.push(Piece { node, blocks, kind: PieceKind::Stored { tail: 0 } });
        Ok(())
    }

    /// Encodes the input behind `done.blocks`; `None` when that takes more than `budget` bytes.
    fn encode(&mut self, done: &mut Done, budget: u64) -> Result<Option<ExtentLog>> {
        let Some(compressor) = &mut self.compressor else { return Ok(None) };
        let block = self.shop.block.bytes();
        let src = self.input.as_slice();
        let mut log = ExtentLog::new();
        let mut pos = 0;
        compressor.begin();
        while pos < src.len() {
            if (log.count() + 1) * block as u64 > budget {
                return Ok(None);
            }
            let rest = src.len() - pos;
            let start = done.blocks.len();
            // What fits into a block as it is gains nothing, nor may it: two extents cannot start in
            // one lcluster.
            let mut stored = rest.min(block);
            if rest > block {
                done.blocks.resize(start + block, 0);
                let out = &mut done.blocks[start..];
                // The builder's sizes are in range.
                let fit = compressor.fit(src, pos, out).map_err(Error::Encode)?;
                if let Fit::Encoded { consumed, produced, .. } = fit
                    && consumed > block
                {
                    right_align(out, produced);
                    log.push(consumed, true);
                    pos += consumed;
                    stored = 0;
                }
            }
            if stored > 0 {
                done.blocks.truncate(start);
                done.blocks.extend_from_slice(&src[pos..pos + stored]);
                done.blocks.resize(start + block, 0);
                log.push(stored, false);
                pos += stored;
            }
        }
        Ok(Some(log))
    }

    /// Reads `len` bytes from `offset` into the input.
    fn read(&mut self, node: NodeId, offset: u64, len: usize) -> Result<()> {
        self.input.resize(len, 0);
        self.reader.read(node, offset, &mut self.input)
    }
}
