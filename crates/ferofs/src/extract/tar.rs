//! Writes an image's tree as a tar stream in the PAX format. The bytes do not depend on time or on
//! the number of threads.
//!
//! One thread walks the image and makes headers ([`header`]), workers decode content, and the
//! caller's thread writes the results in order. Only a few chunks are in memory at any time.
//!
//! Other names of a file are hard links to its first name. Extended attributes become
//! `SCHILY.xattr` records, and ACLs also `SCHILY.acl` records, where GNU tar searches them. A file
//! with large holes is stored as sparse, in GNU's format 1.0. No maintained crate writes these
//! records, names that are not text, and sparse maps.

mod header;
mod sparse;

use std::collections::HashSet;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crossbeam_channel::{Receiver, SendError, Sender, bounded, unbounded};
use ferofs_format::FileOffset;

use super::boundary::boundary;
use super::options::{OnError, Options, Summary};
use super::walk::{File, Step, Walk};

use crate::error::{Error, IoError, Result};
use ferofs_format::units::to_u64;
use ferofs_format::xattr::acl;
use ferofs_read::names::bytes_of;
use ferofs_read::{FileType, Image, Inode, Nid, Place, READER_MEMORY};
use ferofs_threads::{fitting_workers, start};
use header::{BLOCK, Header, Kind};
use sparse::StoredRanges;

/// Bytes of a chunk from which on it ends. A cluster is not divided, so a chunk can be longer.
const CHUNK: u64 = 1 << 20;
/// Archives are padded to a multiple of this, like those of GNU tar.
const RECORD: usize = 20 * BLOCK;

/// Writes `from`, and all below it when it is a directory, to `out` as a tar archive. A single file
/// is called `name`.
///
/// Options for the target directory are ignored. A file with an invalid map is left out, and data
/// that cannot be decoded becomes zeroes: both are passed to `on_error`. Sockets are left out, as
/// tar has no type for them: they are passed to `on_error`, but do not count as failures. When the
/// image cannot be read, the archive is not complete.
///
/// # Errors
/// [`Error::Io`] when `out` fails, the image cannot be read, or no thread can be started;
/// [`Error::Interrupted`]; [`Error::Limit`].
pub fn write_tar(
    image: &Image,
    from: &Inode,
    name: &Path,
    mut out: impl Write,
    options: &Options,
    on_error: OnError<'_>,
) -> Result<Summary> {
    // Each decodes a chunk, and another one waits to be written.
    let workers = fitting_workers(options.workers, 2 * READER_MEMORY);
    let (tasks, task) = bounded::<Task>(workers);
    let (order, ordered) = bounded::<Receiver<Vec<u8>>>(workers.saturating_add(2));
    let (used, spare) = unbounded::<Vec<u8>>();
    let image = &image.cancelled_by(&options.cancel);
    let mut archive = Archive { image, options, on_error, stopped: OnceLock::new() };
    let failed = |e| IoError::unnamed("write archive", e);
    let mut written = 0u64;
    std::thread::scope(|scope| {
        start(scope, workers, || {
            let (archive, task, spare) = (&archive, task.clone(), spare.clone());
            move || archive.serve(task, spare)
        })
        .map_err(Error::of_threads)?;
        drop((task, spare));
        let mut feeder = Feeder {
            archive: &archive,
            tasks,
            order,
            parts: Vec::new(),
            weight: 0,
            left_out: HashSet::new(),
        };
        // It ends early when the writer ended, which has the error.
        let mut feed = Some(move || drop(feeder.feed(from, name)));
        start(scope, 1, || {
            let feed = feed.take();
            move || feed.map_or((), |mut feed| feed())
        })
        .map_err(Error::of_threads)?;
        for chunk in ordered {
            // The sender is gone only if the worker panicked: the scope continues the panic.
            let Ok(bytes) = chunk.recv() else { break };
            // After an error the chunk may hold zeroes instead of data.
            if archive.is_stopped() {
                break;
            }
            out.write_all(&bytes).map_err(failed)?;
            written = written.saturating_add(to_u64(bytes.len()));
            let _ = used.send(bytes);
        }
        Ok::<_, Error>(())
    })?;
    options.cancel.check()?;
    if let Some(error) = archive.stopped.take() {
        return Err(error);
    }
    // Two blocks of zeroes end an archive.
    let end = written.saturating_add(to_u64(2 * BLOCK)).next_multiple_of(to_u64(RECORD));
    let zeroes = vec![0; to_usize(end.saturating_sub(written))];
    out.write_all(&zeroes).and_then(|()| out.flush()).map_err(failed)?;
    Ok(options.progress.summary())
}

/// For the lengths of chunks and of padding, which are in memory.
fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

struct Archive<'a> {
    image: &'a Image,
    options: &'a Options,
    on_error: OnError<'a>,
    /// The error that ended the archive: a limit was reached, or the image cannot be read.
    stopped: OnceLock<Error>,
}

/// A chunk to make, and the channel that gets it.
struct Task {
    parts: Vec<Part>,
    reply: Sender<Vec<u8>>,
}

/// A part of the archive.
enum Part {
    /// Headers.
    Bytes(Vec<u8>),
    /// A range of a file's content.
    Content { inode: Inode, path: PathBuf, range: Range<u64> },
    /// This number of zeroes.
    Padding(usize),
}

impl Archive<'_> {
    /// Makes chunks until there are no more.
    fn serve(&self, tasks: Receiver<Task>, spare: Receiver<Vec<u8>>) {
        for Task { parts, reply } in tasks {
            let mut bytes = spare.try_recv().unwrap_or_default();
            bytes.clear();
            for part in parts {
                match part {
                    Part::Bytes(header) => bytes.extend(header),
                    Part::Padding(len) => bytes.resize(bytes.len().saturating_add(len), 0),
                    Part::Content { inode, path, range } => {
                        let start = bytes.len();
                        // A range is at most as long as a chunk and a cluster.
                        let len = range.end.saturating_sub(range.start);
                        bytes.resize(start.saturating_add(to_usize(len)), 0);
                        let (_, content) = bytes.split_at_mut(start);
                        if let Err(error) =
                            self.image.read_at(&inode, FileOffset::new(range.start), content)
                        {
                            content.fill(0);
                            self.report(&path, error.into());
                        }
                        self.options.progress.bytes.add(len);
                    }
                }
            }
            // This fails if the writer ended.
            let _ = reply.send(bytes);
        }
    }

    fn is_stopped(&self) -> bool {
        self.options.cancel.is_cancelled() || self.stopped.get().is_some()
    }

    /// Reports the failure of a file. A limit, or an image that cannot be read, ends the archive.
    fn report(&self, path: &Path, error: Error) {
        // An I/O error without a path is one of the image; those of single files have a path.
        let (error, is_image) = match error {
            Error::Io(error) if error.path.is_none() => (error.about(path).into(), true),
            error => (error, false),
        };
        if is_image || error.ends_all() {
            // Reported once, and not for each file.
            let _ = self.stopped.set(error);
            return;
        }
        self.options.progress.failures.add(1);
        (self.on_error)(path, &error);
    }
}

/// The writer ended: nothing receives chunks any more.
struct WriterEnded;

impl<T> From<SendError<T>> for WriterEnded {
    fn from(_: SendError<T>) -> Self {
        Self
    }
}

/// Walks the image, and divides the archive into chunks.
struct Feeder<'a, 'b> {
    archive: &'a Archive<'b>,
    tasks: Sender<Task>,
    order: Sender<Receiver<Vec<u8>>>,
    parts: Vec<Part>,
    weight: u64,
    /// Inodes with several names whose first name is not in the archive.
    left_out: HashSet<Nid>,
}

impl Feeder<'_, '_> {
    fn feed(&mut self, from: &Inode, name: &Path) -> Result<(), WriterEnded> {
        let archive = self.archive;
        if !from.is_dir() {
            let file = File { name: name.into(), inode: from.clone(), first: None };
            self.file(name, &file, None)?;
            return self.send_chunk();
        }
        let mut walk = Walk::new(archive.image, from, &archive.options.select);
        while let Some(step) = walk.next() {
            if archive.is_stopped() {
                break;
            }
            match step {
                Step::Dir(dir) => {
                    let path = walk.path(dir);
                    if let Err(error) = self.dir(&path, walk.inode(dir))? {
                        archive.report(&path, error);
                    }
                }
                Step::Files(dir, files) => {
                    let dir = walk.path(dir);
                    for file in files {
                        let first = file.first.as_ref().map(|first| walk.path_of(first));
                        self.file(&dir.join(&file.name), &file, first.as_deref())?;
                    }
                }
                Step::Failed(path, error) => archive.report(&path, error),
            }
        }
        self.send_chunk()
    }

    fn dir(&mut self, path: &Path, inode: &Inode) -> Result<Result<()>, WriterEnded> {
        let mut name = bytes_of(path.as_os_str()).into_owned();
        // The root has no name.
        name.extend(if name.is_empty() { &b"./"[..] } else { b"/" });
        let header = match self.header(&name, inode, Kind::Directory) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        self.put_header(&header)?;
        Ok(Ok(()))
    }

    fn file(&mut self, path: &Path, file: &File, first: Option<&Path>) -> Result<(), WriterEnded> {
        // Sockets are left out with all their names: that is not a failure.
        let socket = file.inode.file_type() == FileType::Socket;
        let entered = match first {
            // A link to a name that is not in the archive would link to any existing file of that
            // name.
            Some(_) if !socket && self.left_out.contains(&file.inode.nid()) => {
                let error = std::io::Error::other("its first name is not in the archive");
                Ok(Err(Error::io("link", path, error)))
            }
            Some(first) if !socket => {
                let mut header = Header::new(&bytes_of(path.as_os_str()), Kind::Link, &file.inode);
                header.link = bytes_of(first.as_os_str()).into_owned();
                self.put_header(&header).map(Ok)
            }
            _ => self.inode(path, &file.inode),
        };
        let entered = entered?;
        if file.inode.on_disk().nlink > 1 && entered.is_err() {
            self.left_out.insert(file.inode.nid());
        }
        if let Err(error) = entered {
            self.archive.report(path, error);
        }
        Ok(())
    }

    fn inode(&mut self, path: &Path, inode: &Inode) -> Result<Result<()>, WriterEnded> {
        let kind = match inode.file_type() {
            FileType::Regular => Kind::File,
            FileType::Symlink => Kind::Symlink,
            FileType::CharDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Directory => return Ok(Ok(())),
            FileType::Socket => {
                (self.archive.on_error)(path, &Error::SocketInTar(path.to_owned()));
                return Ok(Ok(()));
            }
        };
        let entry = || -> Result<(Header, StoredRanges)> {
            let mut header = self.header(&bytes_of(path.as_os_str()), inode, kind)?;
            let mut layout = StoredRanges::default();
            match kind {
                Kind::Symlink => header.link = self.archive.image.read_link(inode)?,
                Kind::File => layout = StoredRanges::of(self.archive.image, inode)?,
                _ => {}
            }
            if let Place::Device(device) = inode.on_disk().place {
                header.device = (device.major, device.minor);
            }
            layout.describe(&mut header, inode.size());
            Ok((header, layout))
        };
        let (header, layout) = match entry() {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error)),
        };
        self.put_header(&header)?;
        self.put(Part::Bytes(layout.map()), 0)?;
        for range in &layout.data {
            self.content(path, inode, range.clone())?;
        }
        let past = to_usize(layout.data_len() & to_u64(BLOCK - 1));
        self.put(Part::Padding(BLOCK.saturating_sub(past) % BLOCK), 0)?;
        Ok(Ok(()))
    }

    /// Divides content at the ends of clusters.
    fn content(
        &mut self,
        path: &Path,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<(), WriterEnded> {
        let mut at = range.start;
        while at < range.end && !self.archive.is_stopped() {
            let cut = at.saturating_add(CHUNK).min(range.end);
            // An error of the map is reported when the content is read.
            let end = boundary(self.archive.image, inode, cut).unwrap_or(cut).min(range.end);
            let part =
                Part::Content { inode: inode.clone(), path: path.to_owned(), range: at..end };
            self.put(part, end.saturating_sub(at))?;
            at = end;
        }
        Ok(())
    }

    /// The header of a name that is not a hard link.
    fn header(&self, path: &[u8], inode: &Inode, kind: Kind) -> Result<Header> {
        let mut header = Header::new(path, kind, inode);
        if self.archive.options.xattrs {
            for xattr in self.archive.image.xattrs(inode)? {
                if let Some((key, text)) = acl::record(&xattr.name, &xattr.value) {
                    header.records.push((key.to_vec(), text.into_bytes()));
                }
                header.records.push((header::xattr_key(&xattr.name), xattr.value));
            }
        }
        Ok(header)
    }

    fn put_header(&mut self, header: &Header) -> Result<(), WriterEnded> {
        self.archive.options.progress.names.add(1);
        let bytes = header.to_bytes();
        let weight = to_u64(bytes.len());
        self.put(Part::Bytes(bytes), weight)
    }

    fn put(&mut self, part: Part, weight: u64) -> Result<(), WriterEnded> {
        self.parts.push(part);
        self.weight = self.weight.saturating_add(weight);
        if self.weight >= CHUNK { self.send_chunk() } else { Ok(()) }
    }

    fn send_chunk(&mut self) -> Result<(), WriterEnded> {
        self.weight = 0;
        let (reply, chunk) = bounded(1);
        self.order.send(chunk)?;
        Ok(self.tasks.send(Task { parts: std::mem::take(&mut self.parts), reply })?)
    }
}

#[cfg(test)]
mod tests;
