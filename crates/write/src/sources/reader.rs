//! Reads the content of a node, for all kinds of sources. Workers of the data stage and `verify`
//! use it.

#[cfg(test)]
pub(crate) mod injected_faults;
pub(super) mod page_cache;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sources::content::{Contents, DirectoryFile};
use crate::sources::image::file::in_source;
use crate::sources::reader::page_cache::will_need;
use crate::sources::source_file::is_unchanged;
use crate::tree::{NodeId, Origin, SourcePosition, Span, Tree};
use ferofs_host::stat::wait_for_tick;

/// Reads content for one worker. It keeps the directory of the last file open.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    contents: &'a Contents,
    tree: &'a Tree,
    /// The directory of the last file that was read: see [`DirectoryFile::parent`].
    dir: Option<((Option<u16>, NodeId), OwnedFd)>,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(contents: &'a Contents, tree: &'a Tree) -> Self {
        Self { contents, tree, dir: None }
    }

    /// Fills `buf` with the content of `id` from `offset` on, all of which is within the file.
    pub(crate) fn read(&mut self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let node = self.tree.node(id);
        #[cfg(test)]
        injected_faults::fail_if_asked(self.tree.text(node.name), offset)?;
        match node.origin {
            Origin::File(_) | Origin::LayerFile { .. } => {
                let file = self.contents.directory_file(self.tree, id)?;
                file.map_or(Ok(()), |file| self.read_file(&file, node.size, offset, buf))
            }
            Origin::At(place) => {
                self.contents.read_at(SourcePosition { at: place.at + offset, ..place }, buf)
            }
            Origin::Memory(number) => {
                let bytes = usize::try_from(offset)
                    .ok()
                    .and_then(|start| self.contents.memory(number).get(start..));
                // Bytes that a program shares may change their length, which is its mistake.
                let bytes = bytes.and_then(|rest| rest.get(..buf.len()));
                let changed = || Error::SourceChanged(self.contents.path(self.tree, id));
                buf.copy_from_slice(bytes.ok_or_else(changed)?);
                Ok(())
            }
            Origin::Spans { first, count } => {
                self.read_spans(self.contents.spans(first, count), offset, buf)
            }
            Origin::Image { image, nid, start } => {
                let read = self.contents.image(image).read(nid, start + offset, buf);
                read.map_err(|e| in_source(self.contents.path(self.tree, id), e))
            }
            Origin::None | Origin::Zeroes => {
                buf.fill(0);
                Ok(())
            }
            Origin::Unreadable(errno) => {
                Err(Error::io("read", self.contents.path(self.tree, id), errno))
            }
        }
    }

    /// Asks the kernel to read `len` bytes of `id` from `offset` on, in the background. Returns
    /// whether it has them already, as far as this can be known; also if it cannot be asked for
    /// such content.
    pub(crate) fn read_ahead(&mut self, id: NodeId, offset: u64, len: u64) -> bool {
        match self.tree.node(id).origin {
            Origin::File(_) | Origin::LayerFile { .. } => {
                // Errors come again when a worker reads the file.
                let Ok(Some(found)) = self.contents.directory_file(self.tree, id) else {
                    return true;
                };
                let file = self.parent(&found).and_then(|parent| found.open_in(parent));
                file.is_ok_and(|file| will_need(file.as_fd(), offset, len))
            }
            Origin::At(place) => {
                will_need(self.contents.file(place.file).file().as_fd(), place.at + offset, len)
            }
            _ => true,
        }
    }

    fn parent(&mut self, found: &DirectoryFile<'_>) -> Result<BorrowedFd<'_>, Errno> {
        match &self.dir {
            Some((parent, _)) if *parent == found.parent() => {}
            _ => self.dir = Some((found.parent(), found.open_parent()?)),
        }
        self.dir.as_ref().map(|(_, fd)| fd.as_fd()).ok_or(Errno::BADF)
    }

    fn read_spans(&self, spans: &[Span], offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let before = spans.partition_point(|span| span.offset + span.len <= offset);
        for span in spans[before..].iter().take_while(|span| span.offset < end) {
            let (from, to) = (span.offset.max(offset), (span.offset + span.len).min(end));
            // Both are within the buffer.
            let piece = &mut buf[(from - offset) as usize..(to - offset) as usize];
            let at = span.place.at + (from - span.offset);
            self.contents.read_at(SourcePosition { at, ..span.place }, piece)?;
        }
        Ok(())
    }

    /// Reads from a source directory.
    fn read_file(
        &mut self,
        found: &DirectoryFile<'_>,
        size: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let contents = self.contents;
        self.use_file(found, size, |file| fill(contents, found, file, buf, offset))
    }

    /// Calls `copy` with a file of a source directory, and with a function that reads from it.
    /// `copy` takes content from `offset` on.
    #[cfg_attr(not(test), expect(unused_variables, reason = "tests inject faults by the offset"))]
    pub(crate) fn copy_file(
        &mut self,
        id: NodeId,
        offset: u64,
        copy: impl FnOnce(BorrowedFd<'_>, &dyn Fn(&mut [u8], u64) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let (contents, node) = (self.contents, self.tree.node(id));
        #[cfg(test)]
        injected_faults::fail_if_asked(self.tree.text(node.name), offset)?;
        let found = contents.directory_file(self.tree, id)?;
        let found = found.ok_or_else(|| Error::SourceChanged(contents.path(self.tree, id)))?;
        self.use_file(&found, node.size, |file| {
            copy(file, &|buf, at| fill(contents, &found, file, buf, at))
        })
    }

    /// Calls `using` with a file of a source directory, and checks that the file is still as the
    /// directory walk found it.
    fn use_file(
        &mut self,
        found: &DirectoryFile<'_>,
        size: u64,
        using: impl FnOnce(BorrowedFd<'_>) -> Result<()>,
    ) -> Result<()> {
        let io = |action, e| file_error(found, action, e);
        wait_for_tick(found.expected.ctime());
        let file = self
            .parent(found)
            .and_then(|parent| found.open_in(parent))
            .map_err(|e| io("open", e))?;
        using(file.as_fd())?;
        // The bytes are valid only if the file is still as the directory walk found it; so this
        // check comes after reading.
        match is_unchanged(file.as_fd(), found.expected, size).map_err(|e| io("stat", e))? {
            true => Ok(()),
            false => Err(Error::SourceChanged(found.path())),
        }
    }
}

/// Fills `buf` with the bytes of `file` from `offset` on.
fn fill(
    contents: &Contents,
    found: &DirectoryFile<'_>,
    file: BorrowedFd<'_>,
    buf: &mut [u8],
    offset: u64,
) -> Result<()> {
    match contents.fill(file, buf, offset).map_err(|e| file_error(found, "read", e))? {
        true => Ok(()),
        false => Err(Error::SourceChanged(found.path())),
    }
}

fn file_error(found: &DirectoryFile<'_>, action: &'static str, error: Errno) -> Error {
    match error {
        // The name of the file, or of a directory above it, now belongs to something of another
        // type.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::SPIPE | Errno::ISDIR => {
            Error::SourceChanged(found.path())
        }
        error => Error::io(action, found.path(), error),
    }
}
