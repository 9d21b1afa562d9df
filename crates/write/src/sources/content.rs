//! Everything that the content of regular files is read from: the source directory, archives,
//! images, and the spool.
//!
//! The sources register it while they read the tree; the data stage reads through
//! [`super::reader::Reader`], by node.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_format::DeviceId;
use ferofs_read::{Cancel, Count, FileSource, Image};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sources::image::file::SourceImage;
use crate::sources::reader::page_cache::{self, Filled};
use crate::sources::source_file::{SourceFile, Spool, is_unchanged};
use crate::tree::{Identity, NodeId, Origin, SourcePosition, Span, Tree};
use ferofs_host::stat::{
    Ranges, allocated, data_ranges, file_system_type, keeps_inode_numbers, size, stat_fd,
    wait_for_tick,
};
use ferofs_host::{open_dir, open_file};

/// The open sources of content.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The source directory.
    root: Option<OwnedFd>,
    /// The name of the directory or of the first archive, for messages.
    name: PathBuf,
    /// Directories that are layers above other sources.
    directories: Vec<SourceDirectory>,
    files: Vec<SourceFile>,
    spans: Vec<Span>,
    images: Vec<SourceImage>,
    /// Content in memory.
    memory: Vec<Bytes>,
    spool: Option<Spool>,
    /// The directory for the spool.
    spool_dir: PathBuf,
    /// Bytes of plain archives and images on disk, plus the bytes read so far from pipes and
    /// compressed archives.
    pub archive_bytes: Arc<Count>,
    /// Reads of source files that were not in the page cache.
    disk_reads: Count,
    /// Content stays in the sources: archives and images become [`Self::devices`].
    pub is_external: bool,
    /// The extra devices of the new image.
    devices: Vec<Device>,
}

/// A source that is an extra device of the new image, because content stays in it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// The index of its file.
    pub file: u16,
    pub bytes: u64,
    /// The UUID, if the source is an image.
    pub uuid: Option<[u8; 16]>,
    /// It was read from a stream, so that its content cannot be read again.
    is_stream: bool,
}

/// A directory that is a layer above other sources. Its tree has the names under which content is
/// found, which layers above it may change.
#[derive(Debug)]
struct SourceDirectory {
    root: OwnedFd,
    name: PathBuf,
    tree: Tree,
}

/// A file of a source directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryFile<'a> {
    root: &'a OwnedFd,
    /// The name of the directory, for messages.
    directory: &'a Path,
    /// The tree of the directory, and the file's node in it.
    pub tree: &'a Tree,
    pub node: NodeId,
    /// The layer, if the directory is one above other sources.
    layer: Option<u16>,
    /// The state in which the directory walk found the file.
    pub expected: Identity,
}

impl DirectoryFile<'_> {
    /// Identifies the directory of the file among those of all layers.
    pub(crate) fn parent(&self) -> (Option<u16>, NodeId) {
        (self.layer, self.tree.node(self.node).parent)
    }

    /// Opens the directory of the file.
    pub(crate) fn open_parent(&self) -> Result<OwnedFd, Errno> {
        open_dir(self.root.as_fd(), &self.tree.path_bytes(self.parent().1), OFlags::PATH)
    }

    /// Opens the file in its directory.
    pub(crate) fn open_in(&self, parent: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        open_file(parent, self.tree.text(self.tree.node(self.node).name))
    }

    /// The path of the file, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(self.tree.path(self.node))
    }
}

/// Bytes that a program passed.
struct Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", (*self.0).as_ref().len())
    }
}

impl Contents {
    pub(crate) fn directory(source: impl Into<PathBuf>) -> Result<Self> {
        let name = source.into();
        Ok(Self { root: Some(open_root(&name)?), ..Self::archives(Path::new("."), name) })
    }

    /// Registers a directory that is a layer. `walk` reads its tree. Returns the number of the
    /// layer.
    pub(crate) fn add_directory(
        &mut self,
        source: &Path,
        walk: impl FnOnce(&OwnedFd) -> Result<Tree>,
    ) -> Result<u16> {
        let root = open_root(source)?;
        let tree = walk(&root)?;
        let layer = next_number(self.directories.len(), "the number of directories", source)?;
        self.directories.push(SourceDirectory { root, name: source.to_owned(), tree });
        Ok(layer)
    }

    /// The tree of a directory that is a layer.
    pub(crate) fn directory_tree(&self, layer: u16) -> &Tree {
        &self.directories[usize::from(layer)].tree
    }

    /// Where a file of a source directory is; `None` if its content is elsewhere.
    pub(crate) fn directory_file<'a>(
        &'a self,
        tree: &'a Tree,
        id: NodeId,
    ) -> Result<Option<DirectoryFile<'a>>> {
        Ok(match tree.node(id).origin {
            Origin::File(expected) => {
                let (root, directory) = (self.root()?, self.name.as_path());
                Some(DirectoryFile { root, directory, tree, node: id, layer: None, expected })
            }
            Origin::LayerFile { layer, node, identity } => {
                let SourceDirectory { root, name, tree } = &self.directories[usize::from(layer)];
                let (layer, expected) = (Some(layer), identity);
                Some(DirectoryFile { root, directory: name, tree, node, layer, expected })
            }
            _ => None,
        })
    }

    /// For archives and images, the first with this `name`. A spool, if one is needed, is created
    /// in `spool_dir`.
    pub(crate) fn archives(spool_dir: &Path, name: impl Into<PathBuf>) -> Self {
        Self {
            root: None,
            name: name.into(),
            directories: Vec::new(),
            files: Vec::new(),
            spans: Vec::new(),
            images: Vec::new(),
            memory: Vec::new(),
            spool: None,
            spool_dir: spool_dir.to_owned(),
            archive_bytes: Arc::default(),
            disk_reads: Count::default(),
            is_external: false,
            devices: Vec::new(),
        }
    }

    /// Registers a file that content is read from.
    pub(crate) fn add_file(&mut self, file: File, name: &Path) -> Result<SourceFile> {
        let stat = stat_fd(file.as_fd()).map_err(|e| Error::io("stat", name, e))?;
        // A sparse file has fewer bytes on disk than its size.
        let bytes = size(&stat).min(allocated(&stat));
        self.archive_bytes.add(bytes);
        let identity = Identity::of_file(&stat, keeps_inode_numbers(file_system_type(&file)));
        wait_for_tick(identity.ctime());
        self.add(file, name, Some((identity, size(&stat))))
    }

    fn add(
        &mut self,
        file: File,
        name: &Path,
        found: Option<(Identity, u64)>,
    ) -> Result<SourceFile> {
        let id = next_number(self.files.len(), "the number of sources", name)?;
        let file = SourceFile::new(id, file, name, found);
        self.files.push(file.clone());
        Ok(file)
    }

    /// Registers the image at `path`, and returns its number. Its reads end soon after
    /// `cancel` cancels them.
    pub(crate) fn add_image(&mut self, path: &Path, cancel: &Cancel) -> Result<u16> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let bytes = file.metadata().map_err(|e| Error::io("stat", path, e))?.len();
        let file = self.add_file(file, path)?;
        let id = file.id();
        let image = SourceImage::open(&file, cancel)?;
        if self.is_external {
            let uuid = Some(image.image().superblock().uuid);
            self.devices.push(Device { file: id, bytes, uuid, is_stream: false });
        }
        self.push_image(image)
    }

    /// Registers an image that a program opened, once for all of its clones, and returns its
    /// number.
    pub(crate) fn add_opened_image(&mut self, image: &Image, name: &Path) -> Result<u16> {
        let known = self.images.iter().rposition(|known| known.image().is_clone_of(image));
        match known.and_then(|number| u16::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => self.push_image(SourceImage::opened(image.clone(), name.to_owned())),
        }
    }

    fn push_image(&mut self, image: SourceImage) -> Result<u16> {
        let number = next_number(self.images.len(), "the number of source images", image.name())?;
        self.images.push(image);
        Ok(number)
    }

    /// Registers content in memory.
    pub(crate) fn add_memory(
        &mut self,
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Origin> {
        let number = u32::try_from(self.memory.len()).map_err(|_| Error::DoesNotFit {
            path: self.name.clone(),
            what: "the number of files in memory",
            value: self.memory.len() as u64,
            limit: u32::MAX.into(),
        })?;
        self.memory.push(Bytes(bytes));
        Ok(Origin::Memory(number))
    }

    /// Content in memory.
    pub(crate) fn memory(&self, number: u32) -> &[u8] {
        (*self.memory[number as usize].0).as_ref()
    }

    pub(crate) fn image(&self, number: u16) -> &SourceImage {
        &self.images[usize::from(number)]
    }

    pub(crate) fn images(&self) -> impl Iterator<Item = &SourceImage> {
        self.images.iter()
    }

    /// Makes a file of `bytes` an extra device of the new image.
    pub(crate) fn add_device(&mut self, file: u16, bytes: u64, is_stream: bool) {
        self.devices.push(Device { file, bytes, uuid: None, is_stream });
    }

    /// Registers an empty file in place of a stream whose content is not stored; returns its index.
    pub(crate) fn add_stream(&mut self, name: &Path) -> Result<u16> {
        let file = crate::output::spill::tempfile(&self.spool_dir);
        let file = file.map_err(|e| Error::io("make a temporary file in", &self.spool_dir, e))?;
        Ok(self.add(file, name, None)?.id())
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Opens the devices for reading, as a mount would.
    pub(crate) fn device_readers(&self) -> impl Iterator<Item = Result<FileSource>> {
        self.devices.iter().map(|device| {
            let file = self.file(device.file);
            let source = file.file().try_clone().and_then(|file| FileSource::new(file, 0));
            source.map_err(|e| Error::io("open", file.name(), e))
        })
    }

    /// The device number of a file; the first device has number 1.
    pub(crate) fn device(&self, file: u16) -> Option<DeviceId> {
        let number = self.devices.iter().position(|device| device.file == file)?;
        // Each device is one of the files, whose number fits.
        Some(DeviceId::new(number as u16 + 1))
    }

    /// Whether all content can be read again.
    pub(crate) fn is_all_readable(&self) -> bool {
        !self.devices.iter().any(|device| device.is_stream)
    }

    /// Whether the content from `origin` can be read again.
    pub(crate) fn is_readable(&self, origin: Origin) -> bool {
        let is_stream =
            |file: u16| self.devices.iter().any(|device| device.file == file && device.is_stream);
        match origin {
            Origin::At(place) => !is_stream(place.file),
            Origin::Spans { first, count } => {
                self.spans(first, count).iter().all(|span| !is_stream(span.place.file))
            }
            _ => true,
        }
    }

    /// The file with this index.
    pub(crate) fn file(&self, id: u16) -> &SourceFile {
        &self.files[usize::from(id)]
    }

    /// Fills `buf` with the bytes from `place` on.
    pub(crate) fn read_at(&self, place: SourcePosition, buf: &mut [u8]) -> Result<()> {
        let source = self.file(place.file);
        match self.fill(source.file().as_fd(), buf, place.at) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::SourceChanged(source.name().to_owned())),
            Err(e) => Err(Error::io("read", source.name(), e)),
        }
    }

    /// Fills `buf` with the bytes of a source file from `offset` on; returns whether the file has
    /// so many.
    pub(super) fn fill(
        &self,
        file: BorrowedFd<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<bool, Errno> {
        let filled = page_cache::fill(file, buf, offset)?;
        if filled == Filled::FromDisk {
            self.disk_reads.add(1);
        }
        Ok(filled != Filled::Ended)
    }

    /// How many reads found content that was not in the page cache.
    pub(crate) fn disk_reads(&self) -> u64 {
        self.disk_reads.get()
    }

    /// Registers the pieces of a file; `None` if there are too many.
    pub(crate) fn add_spans(&mut self, spans: impl Iterator<Item = Span>) -> Option<Origin> {
        let first = self.spans.len();
        self.spans.extend(spans);
        let count = self.spans.len() - first;
        if count == 0 {
            return Some(Origin::Zeroes);
        }
        Some(Origin::Spans { first: first.try_into().ok()?, count: count.try_into().ok()? })
    }

    pub(crate) fn spans(&self, first: u32, count: u32) -> &[Span] {
        &self.spans[first as usize..][..count as usize]
    }

    /// Where the next byte of the spool will be. The first call creates the spool.
    pub(crate) fn spool_end(&mut self) -> Result<SourcePosition> {
        let spool = match self.spool.take() {
            Some(spool) => spool,
            None => {
                let name = self.spool_dir.clone();
                let file = crate::output::spill::tempfile(&name);
                let file = file.map_err(|e| Error::io("make a temporary file in", &name, e))?;
                Spool::new(self.add(file, &name, None)?)
            }
        };
        Ok(self.spool.insert(spool).end())
    }

    /// Appends to the spool, after [`Self::spool_end`].
    pub(crate) fn append_to_spool(&mut self, bytes: &[u8]) -> Result<()> {
        self.spool.as_mut().map_or(Ok(()), |spool| spool.append(bytes))
    }

    /// Writes what is left of the spool: from now on content is only read.
    pub(crate) fn finish_spool(&mut self) -> Result<()> {
        self.spool.as_mut().map_or(Ok(()), Spool::finish)
    }

    /// Fails if another process changed an archive or image since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(SourceFile::check_unchanged)
    }

    /// The source directory, open.
    pub(crate) fn root(&self) -> Result<&OwnedFd> {
        self.root.as_ref().ok_or_else(|| Error::io("open", &self.name, Errno::NOTDIR))
    }

    /// A file's name in the source, for messages.
    pub(crate) fn path(&self, tree: &Tree, id: NodeId) -> PathBuf {
        match self.directory_file(tree, id) {
            Ok(Some(file)) => file.path(),
            _ => self.name.join(tree.path(id)),
        }
    }

    /// The ranges of a file that hold data; `None` if they are unknown. A file that cannot be
    /// opened or was changed gives `None`, too: reading it later returns the error.
    pub(crate) fn data_ranges(&self, tree: &Tree, id: NodeId) -> Option<Ranges> {
        let node = tree.node(id);
        match node.origin {
            Origin::None | Origin::At(_) | Origin::Memory(_) | Origin::Unreadable(_) => None,
            Origin::File(_) | Origin::LayerFile { .. } => {
                let found = self.directory_file(tree, id).ok()??;
                wait_for_tick(found.expected.ctime());
                let parent = found.open_parent().ok()?;
                let file = found.open_in(parent.as_fd()).ok()?;
                let ranges = data_ranges(&file, node.size)?;
                is_unchanged(file.as_fd(), found.expected, node.size).ok()?.then_some(ranges)
            }
            Origin::Spans { first, count } => Some(
                self.spans(first, count)
                    .iter()
                    .map(|span| (span.offset, span.offset + span.len))
                    .collect(),
            ),
            Origin::Image { image, nid, start } => {
                let pieces = self.image(image).pieces(nid).ok()?;
                let within = |at: u64| at.saturating_sub(start).min(node.size);
                let ranges = pieces
                    .iter()
                    .map(|piece| (within(piece.offset), within(piece.offset + piece.len)));
                Some(ranges.filter(|(from, to)| from < to).collect())
            }
            Origin::Zeroes => Some(Ranges::new()),
        }
    }
}

/// The number of the next one of `count` things of a kind, which 16 bits hold.
fn next_number(count: usize, what: &'static str, path: &Path) -> Result<u16> {
    let (value, limit) = (count as u64, u16::MAX.into());
    u16::try_from(count).map_err(|_| Error::DoesNotFit {
        path: path.to_owned(),
        what,
        value,
        limit,
    })
}

fn open_root(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(|e| Error::io("open", path, e))
}
