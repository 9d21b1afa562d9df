//! Metadata that is compressed: what large directories list (`--zD`), and the metabox, which holds inodes (`-m`).
//!
//! Stands beside [`crate::metadata::emit`], which decides what is where, and gives the bytes. Sources: FORMAT.md 3, 7.

use ferofs_format::inode::DataLayout;
use ferofs_format::{Algorithm, BlockSize, BytePos};

use crate::data::encode::{Encoder, Next, Sink};
use crate::data::extents::index::{FileEnd, Form, Indexed};
use crate::data::extents::list::ExtentLog;
use crate::data::worker::SEGMENT;
use crate::options::compression::{Compression, Recipe};
use crate::output::Output;
use crate::progress::timings::Timings;
use crate::{Error, Result};

/// What encodes metadata: in blocks, without anything that stands elsewhere.
pub(crate) struct Coder<'a> {
    encoder: Encoder<'a>,
    form: Form,
    recipe: Recipe,
    algorithm: Algorithm,
    buffer: Vec<u8>,
}

/// Content that is being encoded, and appended.
#[derive(Debug)]
pub(crate) struct Stream {
    log: ExtentLog,
    first: BytePos,
    size: u64,
    /// Bytes that make no segment yet.
    filling: Vec<u8>,
}

/// Content that was appended, and how it is found again.
#[derive(Debug)]
pub(crate) struct Dense {
    pub(crate) size: u64,
    pub(crate) layout: DataLayout,
    pub(crate) blocks: u64,
    /// What follows the inode.
    pub(crate) index: Vec<u8>,
}

impl<'a> Coder<'a> {
    /// `compression` is one for metadata: see [`Compression::for_metadata`].
    pub(crate) fn new(
        compression: &'a Compression,
        recipe: Recipe,
        block: BlockSize,
        timings: &'a Timings,
    ) -> Result<Self> {
        let form = Form { index: compression.index, block, big: compression.is_big(block) };
        let no_method =
            Error::Option { option: "metadata compression", problem: "there is no such algorithm" };
        let algorithm = compression.methods.get(recipe.method).ok_or(no_method)?.algorithm();
        let encoder = Encoder::new(compression, block, timings);
        Ok(Self { encoder, form, recipe, algorithm, buffer: Vec::new() })
    }

    /// The most bytes that follow an inode whose content has `size` bytes.
    pub(crate) const fn index_max(&self, size: u64) -> u64 {
        self.form.size_estimate(size)
    }

    /// Starts content at the end of `output`, to which nothing else is appended until it is finished.
    pub(crate) fn start(&self, output: &mut Output) -> Result<Stream> {
        let block = self.form.block.bytes64();
        output.pad_to(output.position().next_multiple_of(block))?;
        let first = BytePos::new(output.position());
        Ok(Stream { log: ExtentLog::new(block), first, size: 0, filling: Vec::new() })
    }

    /// Takes more content.
    pub(crate) fn push(&mut self, stream: &mut Stream, mut bytes: &[u8], output: &mut Output) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT as usize - stream.filling.len()));
            stream.filling.extend_from_slice(now);
            bytes = later;
            if stream.filling.len() as u64 == SEGMENT {
                self.flush(stream, output)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, stream: &mut Stream, output: &mut Output) -> Result<()> {
        self.buffer.clear();
        let sink = Sink { extents: &mut self.buffer, tails: &mut Vec::new() };
        let encoded = self.encoder.encode(&stream.filling, self.recipe, Next::More, None, u64::MAX, sink)?;
        if let Some(encoded) = encoded {
            stream.log.extend(&encoded.log);
        }
        output.append(&self.buffer)?;
        stream.size += stream.filling.len() as u64;
        stream.filling.clear();
        Ok(())
    }

    /// All content came: an inode of `head_len` bytes with its attributes will lead to it.
    pub(crate) fn finish(
        &mut self,
        mut stream: Stream,
        head_len: usize,
        output: &mut Output,
    ) -> Result<Dense> {
        if !stream.filling.is_empty() {
            self.flush(&mut stream, output)?;
        }
        let Stream { log, first, size, .. } = stream;
        let file = Indexed { log: &log, end: &FileEnd::None, size, first, algorithm: self.algorithm };
        let (layout, index) = self.form.encode(file, head_len).map_err(Error::Layout)?;
        Ok(Dense { size, layout, blocks: self.form.block.blocks_for(log.size_with_shared()), index })
    }
}
