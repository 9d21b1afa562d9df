//! An image's tree as a tar stream, in the PAX form: the same bytes whenever, and by however many threads.
//!
//! One thread walks the image and makes headers ([`header`]), workers decode content, and the caller's thread writes
//! what they give, in order. At most a few chunks wait at any time.
//!
//! Further names of a file are hard links to its first. Attributes go into `SCHILY.xattr` records, and ACLs into
//! `SCHILY.acl` records, too, which is where GNU tar looks for them. Large holes make a file sparse, in GNU's form
//! 1.0. No crate that is kept writes these records, names that are no text, and sparse maps.

mod header;
mod sparse;

use std::collections::HashSet;
use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread::Builder;

use crossbeam_channel::{Receiver, SendError, Sender, bounded, unbounded};
use ferofs_format::FileOffset;

use super::schedule::boundary;
use super::walk::{File, Step, Walk};
use super::{Complain, Options, Summary};
use crate::error::{Error, Result};
use ferofs_build::sources::tar::acl;
use ferofs_read::{FileType, Image, Inode, Nid, Place};
use ferofs_threads::start;
use header::{BLOCK, Header, Kind};
use sparse::Layout;

/// Bytes of a chunk, about: a cluster is not divided for it.
const CHUNK: u64 = 1 << 20;
/// Archives are padded to a multiple of this, as tar does.
const RECORD: u64 = 20 * BLOCK as u64;

/// Writes `from`, and all below it when it is a directory, to `out` as a tar archive. A single file is called `name`.
///
/// Options that concern a target have no meaning here. A file whose content cannot be planned is left out; what cannot
/// be decoded becomes zeroes: `complain` is told of both. When the image cannot be read, the archive is not complete. Sockets, which tar does not know, are left out: of these it
/// is told, but they are no failures.
///
/// # Errors
/// [`Error::Io`] when `out` fails, the image cannot be read, or the system gives no thread; [`Error::Interrupted`];
/// [`Error::Limit`].
pub fn write_tar(
    image: &Image,
    from: &Inode,
    name: &Path,
    mut out: impl Write,
    options: &Options,
    complain: Complain<'_>,
) -> Result<Summary> {
    let workers = options.workers.or_else(|| std::thread::available_parallelism().ok());
    let workers = workers.map_or(1, NonZeroUsize::get);
    let (works, work) = bounded::<Work>(workers);
    let (order, ordered) = bounded::<Receiver<Vec<u8>>>(workers + 2);
    let (used, spare) = unbounded::<Vec<u8>>();
    image.budget().cancel_with(&options.cancel);
    let mut archive = Archive { image, options, complain, stopped: OnceLock::new() };
    let failed = |e| Error::io_unnamed("write archive", e);
    let mut written = 0;
    std::thread::scope(|scope| {
        start(scope, workers, || {
            let (archive, work, spare) = (&archive, work.clone(), spare.clone());
            move || archive.serve(work, spare)
        })?;
        drop((work, spare));
        let mut feeder = Feeder {
            archive: &archive,
            works,
            order,
            parts: Vec::new(),
            weight: 0,
            left_out: HashSet::new(),
        };
        // It ends early when the writer is gone, who knows why.
        let feed = move || drop(feeder.feed(from, name));
        Builder::new().spawn_scoped(scope, feed).map_err(|e| Error::io_unnamed("start a thread", e))?;
        for chunk in ordered {
            // A worker that is gone has panicked, which the scope passes on.
            let Ok(bytes) = chunk.recv() else { break };
            // Zeroes stand for what could not be read.
            if archive.is_stopped() {
                break;
            }
            out.write_all(&bytes).map_err(failed)?;
            written += bytes.len() as u64;
            let _ = used.send(bytes);
        }
        Ok::<_, Error>(())
    })?;
    if options.cancel.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if let Some(error) = archive.stopped.take() {
        return Err(error);
    }
    // Two blocks of zeroes end it.
    let end = (written + 2 * BLOCK as u64).next_multiple_of(RECORD);
    let zeroes = vec![0; usize::try_from(end - written).unwrap_or(0)];
    out.write_all(&zeroes).and_then(|()| out.flush()).map_err(failed)?;
    Ok(options.progress.summary())
}

struct Archive<'a> {
    image: &'a Image,
    options: &'a Options,
    complain: Complain<'a>,
    /// Why the archive ends early: a limit was reached, or the image cannot be read.
    stopped: OnceLock<Error>,
}

/// A chunk to be made, and who waits for it.
struct Work {
    parts: Vec<Part>,
    reply: Sender<Vec<u8>>,
}

/// A part of the archive.
enum Part {
    /// Headers.
    Bytes(Vec<u8>),
    /// A range of a file's content.
    Content { inode: Inode, path: PathBuf, range: Range<u64> },
    /// So many zeroes fill up a block.
    Padding(usize),
}

impl Archive<'_> {
    /// Makes chunks until there are no more.
    fn serve(&self, works: Receiver<Work>, spare: Receiver<Vec<u8>>) {
        for Work { parts, reply } in works {
            let mut bytes = spare.try_recv().unwrap_or_default();
            bytes.clear();
            for part in parts {
                match part {
                    Part::Bytes(header) => bytes.extend(header),
                    Part::Padding(len) => bytes.resize(bytes.len() + len, 0),
                    Part::Content { inode, path, range } => {
                        let start = bytes.len();
                        // A chunk's ranges are bounded by its size, and by that of a cluster.
                        let len = usize::try_from(range.end - range.start).unwrap_or(0);
                        bytes.resize(start + len, 0);
                        let read =
                            self.image.read_at(&inode, FileOffset::new(range.start), &mut bytes[start..]);
                        if let Err(error) = read {
                            bytes[start..].fill(0);
                            self.report(&path, error.into());
                        }
                        self.options.progress.bytes.fetch_add(len as u64, Ordering::Relaxed);
                    }
                }
            }
            // The writer may have failed.
            let _ = reply.send(bytes);
        }
    }

    fn is_stopped(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed) || self.stopped.get().is_some()
    }

    /// Takes down what is wrong with a file of the image. A limit, or an image that cannot be read, ends the archive.
    fn report(&self, path: &Path, error: Error) {
        // Other errors of the system, which concern one file, have its path.
        if error.ends_all() || matches!(error, Error::Io { path: None, .. }) {
            // That is told once, and not for each file.
            let _ = self.stopped.set(error);
            return;
        }
        self.options.progress.failures.fetch_add(1, Ordering::Relaxed);
        (self.complain)(path, &error);
    }
}

/// The writer is gone.
struct Gone;

impl<T> From<SendError<T>> for Gone {
    fn from(_: SendError<T>) -> Self {
        Self
    }
}

/// Walks the image, and cuts the archive in chunks.
struct Feeder<'a, 'b> {
    archive: &'a Archive<'b>,
    works: Sender<Work>,
    order: Sender<Receiver<Vec<u8>>>,
    parts: Vec<Part>,
    weight: u64,
    /// Inodes of several names whose first one is not in the archive.
    left_out: HashSet<Nid>,
}

impl Feeder<'_, '_> {
    fn feed(&mut self, from: &Inode, name: &Path) -> Result<(), Gone> {
        let archive = self.archive;
        if !from.is_dir() {
            let file = File { name: name.into(), inode: from.clone(), first: None };
            self.file(name, &file, None)?;
            return self.hand_out();
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
        self.hand_out()
    }

    fn dir(&mut self, path: &Path, inode: &Inode) -> Result<Result<()>, Gone> {
        let mut name = path.as_os_str().as_bytes().to_vec();
        // The top has no name of its own.
        name.extend(if name.is_empty() { &b"./"[..] } else { b"/" });
        let header = match self.header(&name, inode, Kind::Directory) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        self.put_header(&header)?;
        Ok(Ok(()))
    }

    fn file(&mut self, path: &Path, file: &File, first: Option<&Path>) -> Result<(), Gone> {
        // All names of a socket are left out alike: that is no failure.
        let socket = file.inode.file_type() == FileType::Socket;
        let entered = match first {
            // A link to what is not in the archive would lead to whatever has that name where it is extracted.
            Some(_) if !socket && self.left_out.contains(&file.inode.nid()) => {
                let error = std::io::Error::other("its first name is not in the archive");
                Ok(Err(Error::io("link", path, error)))
            }
            Some(first) if !socket => {
                let mut header = Header::new(path.as_os_str().as_bytes(), Kind::Link, &file.inode);
                header.link = first.as_os_str().as_bytes().to_vec();
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

    fn inode(&mut self, path: &Path, inode: &Inode) -> Result<Result<()>, Gone> {
        let kind = match inode.file_type() {
            FileType::Regular => Kind::File,
            FileType::Symlink => Kind::Symlink,
            FileType::CharDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Directory => return Ok(Ok(())),
            FileType::Socket => {
                (self.archive.complain)(path, &Error::SocketInTar(path.to_owned()));
                return Ok(Ok(()));
            }
        };
        let entry = || -> Result<(Header, Layout)> {
            let mut header = self.header(path.as_os_str().as_bytes(), inode, kind)?;
            let mut layout = Layout::default();
            match kind {
                Kind::Symlink => header.link = self.archive.image.read_link(inode)?,
                Kind::File => layout = Layout::of(self.archive.image, inode)?,
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
        let past = usize::try_from(layout.data_len() % BLOCK as u64).unwrap_or(0);
        self.put(Part::Padding((BLOCK - past) % BLOCK), 0)?;
        Ok(Ok(()))
    }

    /// Cuts content where clusters end.
    fn content(&mut self, path: &Path, inode: &Inode, range: Range<u64>) -> Result<(), Gone> {
        let mut at = range.start;
        while at < range.end && !self.archive.is_stopped() {
            let cut = at + CHUNK.min(range.end - at);
            // What cannot be mapped is reported when it is read.
            let end = boundary(self.archive.image, inode, cut).unwrap_or(cut).min(range.end);
            let part = Part::Content { inode: inode.clone(), path: path.to_owned(), range: at..end };
            self.put(part, end - at)?;
            at = end;
        }
        Ok(())
    }

    /// The header of what has content or attributes of its own.
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

    fn put_header(&mut self, header: &Header) -> Result<(), Gone> {
        self.archive.options.progress.names.fetch_add(1, Ordering::Relaxed);
        let bytes = header.to_bytes();
        let weight = bytes.len() as u64;
        self.put(Part::Bytes(bytes), weight)
    }

    fn put(&mut self, part: Part, weight: u64) -> Result<(), Gone> {
        self.parts.push(part);
        self.weight += weight;
        if self.weight >= CHUNK { self.hand_out() } else { Ok(()) }
    }

    fn hand_out(&mut self) -> Result<(), Gone> {
        self.weight = 0;
        let (reply, chunk) = bounded(1);
        self.order.send(chunk)?;
        Ok(self.works.send(Work { parts: std::mem::take(&mut self.parts), reply })?)
    }
}

#[cfg(test)]
mod tests;
