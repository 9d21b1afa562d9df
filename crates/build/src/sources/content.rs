//! Where the bytes of regular files come from: each has an [`Origin`], and a [`Reader`] fetches them.
//!
//! Stands between the tree and the data stage: workers and the stage ask for bytes by node, and need not know
//! what kind of source they build from.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sources::change_time;
use crate::sources::data_ranges::{Ranges, data_ranges};
use crate::sources::open::{identity, open_dir, open_file, stat_fd};
use crate::tree::{Node, NodeId, Tree};
use crate::{Error, Result};
use ferofs_read::FileSource;

use crate::sources::image::{SourceImage, in_source};
use crate::tree::origin::{Identity, Origin, Place, Span};
use ferofs_format::DeviceId;

/// Bytes gathered before they are written to the spool.
const SPOOL_BUFFER: usize = 1 << 20;
/// Bytes that are written to the spool without being gathered: for fewer, the call costs more than the copy.
const SPOOL_DIRECT: usize = 64 << 10;

/// A file that holds the content of many: an archive, or the spool.
#[derive(Clone, Debug)]
pub struct Medium {
    id: u16,
    file: Arc<File>,
    name: PathBuf,
    /// What it was when it was opened; the spool is nobody else's.
    found: Option<(Identity, u64)>,
}

impl Medium {
    pub const fn id(&self) -> u16 {
        self.id
    }

    pub fn name(&self) -> &Path {
        &self.name
    }

    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub fn read(&self, buf: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::SourceChanged(self.name.clone()),
            _ => Error::io("read", &self.name, e),
        })
    }
}

/// Data that come in a pipe, or compressed, until they are encoded: plain bytes in a nameless file.
#[derive(Debug)]
struct Spool {
    medium: Medium,
    written: u64,
    buffer: Vec<u8>,
}

/// All that content is read from.
#[derive(Debug)]
pub struct Contents {
    /// The source directory.
    root: Option<OwnedFd>,
    /// Its name, or the archive's: for messages.
    name: PathBuf,
    media: Vec<Medium>,
    spans: Vec<Span>,
    images: Vec<SourceImage>,
    spool: Option<Spool>,
    /// Where the spool goes.
    spool_dir: PathBuf,
    /// Bytes that archives and layers have on disk; of pipes and compressed ones, what was read so far.
    pub archive_bytes: Arc<AtomicU64>,
    /// Content stays where it is: archives and images become [`Self::devices`].
    pub keeps_devices: bool,
    /// The image's extra devices.
    devices: Vec<Device>,
}

/// A source that content stays in.
#[derive(Clone, Debug)]
pub struct Device {
    pub medium: u16,
    pub bytes: u64,
    /// The image's identity, if it is one.
    pub uuid: Option<[u8; 16]>,
    /// It came in a stream, and is elsewhere now.
    is_stream: bool,
}

impl Contents {
    /// Opens the source directory.
    pub fn directory(source: impl Into<PathBuf>) -> Result<Self> {
        let name = source.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::io::retry_on_intr(|| rustix::fs::open(&name, flags, Mode::empty()))
            .map_err(|e| Error::io("open", &name, e))?;
        Ok(Self { root: Some(root), ..Self::archives(Path::new("."), name) })
    }

    /// For archives, of which the first is called `name`. If need be there will be a spool in `spool_dir`.
    pub fn archives(spool_dir: &Path, name: impl Into<PathBuf>) -> Self {
        Self {
            root: None,
            name: name.into(),
            media: Vec::new(),
            spans: Vec::new(),
            images: Vec::new(),
            spool: None,
            spool_dir: spool_dir.to_owned(),
            archive_bytes: Arc::default(),
            keeps_devices: false,
            devices: Vec::new(),
        }
    }

    /// Takes a file that content is read from.
    pub fn add_medium(&mut self, file: File, name: &Path) -> Result<Medium> {
        let stat = stat_fd(file.as_fd()).map_err(|e| Error::io("stat", name, e))?;
        // A file with holes claims more than it has.
        let bytes = stat.stx_size.min(stat.stx_blocks.saturating_mul(512));
        self.archive_bytes.fetch_add(bytes, Ordering::Relaxed);
        change_time::wait(identity(&stat).ctime);
        self.add(file, name, Some((identity(&stat), stat.stx_size)))
    }

    fn add(&mut self, file: File, name: &Path, found: Option<(Identity, u64)>) -> Result<Medium> {
        let id = u16::try_from(self.media.len()).map_err(|_| Error::DoesNotFit {
            path: name.to_owned(),
            what: "the number of sources",
            value: self.media.len() as u64,
            limit: u16::MAX.into(),
        })?;
        let medium = Medium { id, file: Arc::new(file), name: name.to_owned(), found };
        self.media.push(medium.clone());
        Ok(medium)
    }

    /// Takes the image at `path`; says its number.
    pub fn add_image(&mut self, path: &Path) -> Result<u16> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let bytes = file.metadata().map_err(|e| Error::io("stat", path, e))?.len();
        let medium = self.add_medium(file, path)?;
        let id = medium.id;
        let image = SourceImage::open(medium)?;
        if self.keeps_devices {
            let uuid = Some(image.image().superblock().uuid);
            self.devices.push(Device { medium: id, bytes, uuid, is_stream: false });
        }
        self.images.push(image);
        // There are no more images than media.
        Ok(self.images.len() as u16 - 1)
    }

    pub fn image(&self, number: u16) -> &SourceImage {
        &self.images[usize::from(number)]
    }

    /// Makes a medium of `bytes` a device that content stays in.
    pub fn add_device(&mut self, medium: u16, bytes: u64, is_stream: bool) {
        self.devices.push(Device { medium, bytes, uuid: None, is_stream });
    }

    /// A medium that stands for a stream's plain bytes, which nobody keeps.
    pub fn add_stream(&mut self, name: &Path) -> Result<u16> {
        let file = crate::output::spill::tempfile(&self.spool_dir);
        let file = file.map_err(|e| Error::io("make a temporary file in", &self.spool_dir, e))?;
        Ok(self.add(file, name, None)?.id)
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The devices, to be read as a mount would.
    pub fn device_readers(&self) -> impl Iterator<Item = Result<FileSource>> {
        self.devices.iter().map(|device| {
            let medium = self.medium(device.medium);
            let source = medium.file.try_clone().and_then(|file| FileSource::new(file, 0));
            source.map_err(|e| Error::io("open", &medium.name, e))
        })
    }

    /// The device that a medium is: they count from 1.
    pub fn device(&self, medium: u16) -> Option<DeviceId> {
        let number = self.devices.iter().position(|device| device.medium == medium)?;
        // There are no more devices than media.
        Some(DeviceId::new(number as u16 + 1))
    }

    /// Whether all content can be read.
    pub fn is_all_readable(&self) -> bool {
        !self.devices.iter().any(|device| device.is_stream)
    }

    /// Whether content from `origin` can be read.
    pub fn is_readable(&self, origin: Origin) -> bool {
        let is_stream =
            |medium: u16| self.devices.iter().any(|device| device.medium == medium && device.is_stream);
        match origin {
            Origin::Place(place) => !is_stream(place.medium),
            Origin::Spans { first, count } => {
                self.spans(first, count).iter().all(|span| !is_stream(span.place.medium))
            }
            _ => true,
        }
    }

    /// A file that was taken.
    pub fn medium(&self, id: u16) -> &Medium {
        &self.media[usize::from(id)]
    }

    /// Fills `buf` from a medium.
    pub fn read_at(&self, place: Place, buf: &mut [u8]) -> Result<()> {
        self.medium(place.medium).read(buf, place.at)
    }

    /// Takes the pieces of a file; `None` if there are too many.
    pub fn add_spans(&mut self, spans: impl Iterator<Item = Span>) -> Option<Origin> {
        let first = self.spans.len();
        self.spans.extend(spans);
        let count = self.spans.len() - first;
        if count == 0 {
            return Some(Origin::Zeroes);
        }
        Some(Origin::Spans { first: first.try_into().ok()?, count: count.try_into().ok()? })
    }

    pub fn spans(&self, first: u32, count: u32) -> &[Span] {
        &self.spans[first as usize..][..count as usize]
    }

    /// Where the spool's next byte will be.
    pub fn spool_place(&mut self) -> Result<Place> {
        if self.spool.is_none() {
            let name = self.spool_dir.clone();
            let file = crate::output::spill::tempfile(&name);
            let file = file.map_err(|e| Error::io("make a temporary file in", &name, e))?;
            let medium = self.add(file, &name, None)?;
            self.spool = Some(Spool { medium, written: 0, buffer: Vec::new() });
        }
        let Some(spool) = &self.spool else { return Ok(Place::default()) };
        Ok(Place { medium: spool.medium.id, at: spool.written + spool.buffer.len() as u64 })
    }

    /// Appends to the spool, for which somebody has asked a place.
    pub fn spool(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(spool) = &mut self.spool else { return Ok(()) };
        if bytes.len() >= SPOOL_DIRECT {
            spool.flush()?;
            return spool.write(bytes);
        }
        spool.buffer.extend_from_slice(bytes);
        if spool.buffer.len() >= SPOOL_BUFFER { spool.flush() } else { Ok(()) }
    }

    /// All that is to be read is there.
    pub fn seal(&mut self) -> Result<()> {
        match &mut self.spool {
            Some(spool) => {
                spool.flush()?;
                spool.buffer = Vec::new();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fails if an archive was changed meanwhile.
    pub fn verify(&self) -> Result<()> {
        for medium in &self.media {
            let Some(found) = medium.found else { continue };
            let stat = stat_fd(medium.file.as_fd()).map_err(|e| Error::io("stat", &medium.name, e))?;
            if (identity(&stat), stat.stx_size) != found {
                return Err(Error::SourceChanged(medium.name.clone()));
            }
        }
        Ok(())
    }

    /// The source directory, open.
    pub fn root(&self) -> Result<&OwnedFd> {
        self.root.as_ref().ok_or_else(|| Error::io("open", &self.name, Errno::NOTDIR))
    }

    /// A file's name in the source, for messages.
    pub fn path(&self, tree: &Tree, id: NodeId) -> PathBuf {
        self.name.join(tree.path(id))
    }

    /// The ranges of a file that hold data; `None` when that cannot be told, also because the file cannot be opened or was
    /// changed: [`Reader::read`] says so.
    pub fn data_ranges(&self, tree: &Tree, id: NodeId) -> Option<Ranges> {
        let node = tree.node(id);
        match node.origin {
            Origin::None | Origin::Place(_) | Origin::Unreadable(_) => None,
            Origin::File(expected) => {
                change_time::wait(expected.ctime);
                let file = self.open(tree, id).ok()?;
                let ranges = data_ranges(&file, node.size)?;
                is_same(file.as_fd(), node, expected).ok()?.then_some(ranges)
            }
            Origin::Spans { first, count } => Some(
                self.spans(first, count).iter().map(|span| (span.offset, span.offset + span.len)).collect(),
            ),
            Origin::Image { image, nid } => {
                let pieces = self.image(image).pieces(nid).ok()?;
                Some(pieces.iter().map(|piece| (piece.offset, piece.offset + piece.len)).collect())
            }
            Origin::Zeroes => Some(Ranges::new()),
        }
    }

    fn open(&self, tree: &Tree, id: NodeId) -> Result<OwnedFd, Errno> {
        let node = tree.node(id);
        let root = self.root.as_ref().ok_or(Errno::NOTDIR)?;
        let dir = open_dir(root.as_fd(), &tree.path_bytes(node.parent), OFlags::PATH)?;
        open_file(dir.as_fd(), tree.text(node.name))
    }
}

/// Whether an open file is still what was walked.
fn is_same(file: BorrowedFd<'_>, node: &Node, expected: Identity) -> Result<bool, Errno> {
    let stat = stat_fd(file)?;
    Ok(identity(&stat) == expected && stat.stx_size == node.size)
}

impl Spool {
    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let io = |e| Error::io("write a temporary file in", &self.medium.name, e);
        self.medium.file.write_all_at(bytes, self.written).map_err(io)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// A worker's hands for reading.
#[derive(Debug)]
pub struct Reader<'a> {
    contents: &'a Contents,
    tree: &'a Tree,
    /// The directory of the file before.
    dir: Option<(NodeId, OwnedFd)>,
}

impl<'a> Reader<'a> {
    pub const fn new(contents: &'a Contents, tree: &'a Tree) -> Self {
        Self { contents, tree, dir: None }
    }

    /// Fills `buf` with the content of `id` from `offset` on, all of which is within the file.
    pub fn read(&mut self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let node = self.tree.node(id);
        #[cfg(test)]
        crate::faults::fail_if_asked(self.tree.text(node.name), offset)?;
        match node.origin {
            Origin::File(expected) => self.read_file(id, node, expected, offset, buf),
            Origin::Place(place) => self.contents.read_at(Place { at: place.at + offset, ..place }, buf),
            Origin::Spans { first, count } => self.read_spans(self.contents.spans(first, count), offset, buf),
            Origin::Image { image, nid } => {
                let read = self.contents.image(image).read(nid, offset, buf);
                read.map_err(|e| in_source(self.contents.path(self.tree, id), e))
            }
            Origin::None | Origin::Zeroes => {
                buf.fill(0);
                Ok(())
            }
            Origin::Unreadable(errno) => Err(Error::io("read", self.contents.path(self.tree, id), errno)),
        }
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
            self.contents.read_at(Place { at, ..span.place }, piece)?;
        }
        Ok(())
    }

    /// Reads from the source directory, and makes sure that the file is the one that was walked.
    fn read_file(
        &mut self,
        id: NodeId,
        node: &Node,
        expected: Identity,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (contents, tree) = (self.contents, self.tree);
        let changed = || Error::SourceChanged(contents.path(tree, id));
        let io = |action, e: Errno| match e {
            // Something else has its name now, or a directory's.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::SPIPE | Errno::ISDIR => changed(),
            e => Error::io(action, contents.path(tree, id), e),
        };
        change_time::wait(expected.ctime);
        let parent = match &self.dir {
            Some((parent, fd)) if *parent == node.parent => fd.as_fd(),
            _ => {
                let path = tree.path_bytes(node.parent);
                let fd =
                    open_dir(contents.root()?.as_fd(), &path, OFlags::PATH).map_err(|e| io("open", e))?;
                self.dir.insert((node.parent, fd)).1.as_fd()
            }
        };
        let file = open_file(parent, tree.text(node.name)).map_err(|e| io("open", e))?;
        let mut filled = 0;
        while filled < buf.len() {
            match rustix::io::pread(&file, &mut buf[filled..], offset + filled as u64) {
                Ok(0) => return Err(changed()),
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(io("read", e)),
            }
        }
        // It is what the walk found, so it was not changed between that and this.
        let is_same = is_same(file.as_fd(), node, expected).map_err(|e| io("stat", e))?;
        if is_same { Ok(()) } else { Err(changed()) }
    }
}
