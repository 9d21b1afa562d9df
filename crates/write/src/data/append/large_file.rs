//! Appends large files part by part. Those with the content of an earlier file get its data when it
//! is stored.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::AsFd;

use ferofs_format::{BlockAddr, BytePos, Incompat};

use crate::data::append::{Appender, PartialFile};
use crate::data::chunks::{ChunkPlan, check_table_size};
use crate::data::duplicates::Duplicates;
use crate::data::encode::Encoded;
use crate::data::extents::ExtentLog;
use crate::data::extents::index::FileTail;
use crate::data::schedule::{LargeFile, Scheduler};
use crate::data::stored::StoredContent;
use crate::data::worker::{CopySource, FileResultKind};
use crate::error::{Error, Result, Warning};
use crate::output::spill::SpillRange;
use crate::tree::{NodeId, SourcePosition};

impl Appender<'_> {
    /// Prepares for the parts of a file.
    pub(in crate::data) fn begin_large_file(&mut self, file: LargeFile) -> Result<()> {
        let LargeFile { node, bytes, plan } = file;
        // A file that is one hole has no parts.
        if let (Some(plan), 0) = (&plan, bytes) {
            self.data.contents[node.index()] = self.chunked(node, plan, BlockAddr::new(0))?;
            return Ok(());
        }
        let log = ExtentLog::new(self.context.block_size.bytes64());
        self.partial_files.push_back(PartialFile {
            node,
            left: bytes,
            start: None,
            log,
            method: 0,
            plan,
        });
        Ok(())
    }

    /// Skips the remaining parts of the file that is being scheduled if one of its parts cannot be
    /// read.
    pub(in crate::data) fn skip_rest_of_unreadable(&mut self, scheduler: &mut Scheduler<'_>) {
        if let Some(file) = self.partial_files.back_mut()
            && matches!(self.data.contents[file.node.index()], StoredContent::Skipped)
        {
            file.left -= scheduler.skip_rest(file.node);
            if file.left == 0 {
                self.partial_files.pop_back();
            }
        }
    }

    /// Appends the next part of the first partial file. Its job read `read` bytes; a job has only
    /// one part.
    pub(super) fn append_part(
        &mut self,
        kind: FileResultKind,
        bytes: &[u8],
        tail: &[u8],
        read: u64,
    ) -> Result<()> {
        let Some(mut file) = self.partial_files.pop_front() else { return Ok(()) };
        file.left -= read;
        match kind {
            FileResultKind::Unreadable(error) => self.leave_out(&file, error)?,
            _ if self.is_skipped(file.node) => {}
            kind => {
                if let Some(content) =
                    self.append_readable_part(&mut file, kind, bytes, tail, read)?
                {
                    self.data.contents[file.node.index()] = content;
                }
            }
        }
        if file.left > 0 {
            self.partial_files.push_front(file);
        }
        Ok(())
    }

    /// Appends a part. Returns the content of the file after its last part.
    fn append_readable_part(
        &mut self,
        file: &mut PartialFile,
        kind: FileResultKind,
        bytes: &[u8],
        tail: &[u8],
        read: u64,
    ) -> Result<Option<StoredContent>> {
        let (node, block, last) = (file.node, self.context.block_size, file.left == 0);
        let start = match file.start {
            Some(start) => start,
            None => {
                self.align()?;
                *file.start.insert(BytePos::new(self.output.position()))
            }
        };
        let mut file_tail = FileTail::None;
        match kind {
            FileResultKind::Encoded(encoded, method)
                if !file.log.is_flat() || !encoded.log.is_flat() =>
            {
                let log = self.append_extents(&encoded, method, bytes)?;
                file.log.extend(&log);
                file.method = method;
                file_tail = self.place_tail(encoded.tail, tail);
            }
            FileResultKind::Copied(source) => {
                let tail = self.copy(node, source, read, last)?;
                return if last { self.settled(start, tail).map(Some) } else { Ok(None) };
            }
            FileResultKind::Reserved => {
                let size = self.context.tree.node(node).size;
                let tail = if last { self.context.inline_tail(node, size) } else { 0 };
                self.output.pad_to(self.output.position() + read - tail as u64)?;
                if tail == 0 {
                    self.align()?;
                }
                let tail = self.spill.push(&vec![0; tail])?;
                return if last { self.settled(start, tail).map(Some) } else { Ok(None) };
            }
            // All parts so far are uncompressed, and the whole file may stay so.
            kind => {
                let encoded = match kind {
                    FileResultKind::Encoded(encoded, method) => Some((encoded, method)),
                    _ => None,
                };
                if let Some((encoded, _)) = &encoded {
                    file.log.extend(&encoded.log);
                }
                let flat = last && file.plan.is_none();
                let size = self.context.tree.node(node).size;
                let tail_len = if flat { self.context.inline_tail(node, size) } else { 0 };
                // With a tail, the last block of `bytes` is that of the tail.
                let whole = match tail_len {
                    0 => bytes.len(),
                    _ => (bytes.len() - 1) / block.bytes() * block.bytes(),
                };
                if let Some((Encoded { log, fingerprints, .. }, method)) = encoded {
                    let extents = log.iter().map(|extent| extent.size).zip(fingerprints);
                    self.index_stored(extents, method, whole)?;
                }
                self.output.append(&bytes[..whole])?;
                if flat {
                    let tail = match tail_len {
                        0 => SpillRange::default(),
                        len => self.spill.push(&bytes[whole..whole + len])?,
                    };
                    return self.settled(start, tail).map(Some);
                }
            }
        }
        if !last {
            return Ok(None);
        }
        let content = match &file.plan {
            Some(plan) => {
                let start = self.settle(start.get())?;
                self.chunked(node, plan, start)
            }
            None => {
                let (start, log) = self.settle_extents(start, file.log.clone(), file.method)?;
                self.compressed(node, &log, &file_tail, start, file.method)
            }
        };
        content.map(Some)
    }

    /// The content of an uncompressed file that was appended from `start` on.
    fn settled(&mut self, start: BytePos, tail: SpillRange) -> Result<StoredContent> {
        Ok(StoredContent::Flat { start: self.settle(start.get())?, tail })
    }

    /// Copies uncompressed `len` bytes from the source. Returns the tail if this is the `last` part
    /// of the file and has one.
    pub(super) fn copy(
        &mut self,
        node: NodeId,
        source: CopySource,
        len: u64,
        last: bool,
    ) -> Result<SpillRange> {
        let contents = self.context.contents;
        let size = self.context.tree.node(node).size;
        let tail = if last { self.context.inline_tail(node, size) } else { 0 };
        let whole = len - tail as u64;
        let mut bytes = vec![0; tail];
        match source {
            CopySource::At(place) => {
                let file = contents.file(place.file);
                self.output.copy(file.file().as_fd(), place.at, whole, &|bytes, at| {
                    file.read(bytes, at)
                })?;
                contents.read_at(SourcePosition { at: place.at + whole, ..place }, &mut bytes)?;
            }
            CopySource::File(offset) => self.reader.copy_file(node, offset, |file, read| {
                self.output.copy(file, offset, whole, read)?;
                read(&mut bytes, offset + whole)
            })?,
        }
        match tail {
            0 => self.align().map(|()| SpillRange::default()),
            _ => self.spill.push(&bytes),
        }
    }

    /// Leaves out a file of which a part cannot be read.
    fn leave_out(&mut self, file: &PartialFile, error: Error) -> Result<()> {
        if self.is_skipped(file.node) {
            return Ok(());
        }
        self.warnings.push(Warning::Skipped(error));
        self.data.contents[file.node.index()] = StoredContent::Skipped;
        match file.start {
            // With deduplication, other files may share the parts that were appended.
            Some(start) if self.context.extent_index.is_none() => self.output.rewind(start.get()),
            _ => Ok(()),
        }
    }

    fn chunked(
        &mut self,
        node: NodeId,
        plan: &ChunkPlan,
        start: BlockAddr,
    ) -> Result<StoredContent> {
        check_table_size(plan.table_size(), || {
            self.context.contents.path(self.context.tree, node)
        })?;
        let inode_len = self.context.inode_sizes.len(node);
        let (format, table) = plan.encode(start, inode_len).map_err(Error::Layout)?;
        self.data.features |= Incompat::CHUNKED_FILE;
        Ok(StoredContent::Chunked { format, table: self.spill.push(&table)? })
    }
}

impl Appender<'_> {
    /// Gives each duplicate the data of its first file. If the image leaves out the first file, the
    /// first of its duplicates must be read instead: returns these files, and the others as their
    /// duplicates.
    pub(in crate::data) fn resolve_duplicates(
        &mut self,
        duplicates: &Duplicates,
    ) -> (Vec<NodeId>, Duplicates) {
        let mut new_firsts: HashMap<NodeId, NodeId> = HashMap::new();
        let (mut unresolved, mut others) = (Vec::new(), Duplicates::new());
        for (id, first) in duplicates {
            if self.is_skipped(*first) {
                match new_firsts.entry(*first) {
                    Entry::Occupied(new_first) => drop(others.insert(*id, *new_first.get())),
                    Entry::Vacant(new_first) => {
                        new_first.insert(*id);
                        unresolved.push(*id);
                    }
                }
                continue;
            }
            self.data.contents[id.index()] = self.data.contents[first.index()];
            let size = self.context.tree.node(*id).size;
            self.data.bytes_shared += size;
            self.context.options.run.progress.bytes_done.add(size);
            self.context.options.run.progress.files_done.add(1);
        }
        (unresolved, others)
    }
}
