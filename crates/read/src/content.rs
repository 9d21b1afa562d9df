//! A file's content: maps an inode's extents, and has the engine read and decode them into the
//! caller's buffer.
//!
//! The metabox and the packed inode are files themselves, so that reading metadata or a fragment
//! can start another request, up to [`MAX_DEPTH`] deep.

mod batch;
mod prefetch;

use std::cell::{Cell, OnceCell};
use std::sync::{Arc, OnceLock};

use ferofs_format::inode::FileType;
use ferofs_format::xattr::LongPrefix;
use ferofs_format::{BlockAddr, BytePos, Compat, Fault, FileOffset, Structure};

use crate::access::requests::Pattern;
use crate::accounting::progress::Cancel;
use crate::accounting::stats::{Cause, Counter, Stats};
use crate::engine::request::Request;
use crate::engine::run::{RUN_EXTENT_SIZE, Run};
use crate::engine::state::Engine;
use crate::error::{Corruption, OfInode, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::metadata::inode::{Inode, read_inode};
use crate::metadata::map::FileMap;
use crate::metadata::slow_lookups::SlowLookups;
use crate::metadata::xattr;
use crate::volume::MetadataPlace;
use crate::volume::Volume;
use batch::{Batch, Wanted, adjacent};
use ferofs_format::units::to_u64;
use prefetch::{announce_range, announce_step};

/// Bytes at most of a symbolic link's target, without its NUL, as in Linux. A longer one is an
/// error.
const MAX_LINK: u64 = 4095;
/// Requests at most that start one another. A file's request may start one on the packed inode, and
/// that one on the metabox; valid images need no more. More means that files contain each other,
/// which is an error.
const MAX_DEPTH: u32 = 4;

/// Bytes of stack for each extent of a run, and for a whole request. They do not depend on the size
/// of clusters.
pub const BOOKKEEPING: (usize, usize) = (
    RUN_EXTENT_SIZE,
    size_of::<Run>() + size_of::<Request<'static>>() + size_of::<FileMap<'static>>(),
);

/// Bytes at most of a random request whose encoded bytes are read with one call, even if it needs
/// only parts of clusters.
const SMALL_REQUEST: usize = 16 << 10;

/// Reads metadata and content of one image. A clone shares all but the tokens that cancel its
/// reads.
#[derive(Clone)]
pub(crate) struct ContentReader {
    pub volume: Volume,
    pub engine: Arc<Engine>,
    slow_lookups: Arc<SlowLookups>,
    /// The packed inode, read once.
    packed: OnceLock<Inode>,
    /// The metabox's inode, read once.
    metabox: OnceLock<Inode>,
}

impl std::fmt::Debug for ContentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentReader")
            .field("superblock", &self.volume.superblock)
            .finish_non_exhaustive()
    }
}

impl ReadMetadata for ContentReader {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn read_metadata(
        &self,
        place: MetadataPlace,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        if place.in_metabox {
            self.check_metabox_bounds(place.pos, buf.len())?;
            self.volume
                .read_metabox(place.pos, buf, |block, bytes| self.load_metabox_block(block, bytes))
        } else {
            self.volume.read_primary(place.pos, structure, buf)
        }
    }

    fn slow_lookups(&self) -> &SlowLookups {
        &self.slow_lookups
    }
}

/// Reads an inode's content and looks at its extents, several times during one request: the map is
/// opened once.
#[derive(Debug)]
pub struct InodeReader<'a> {
    content: &'a ContentReader,
    inode: &'a Inode,
    /// Opened at its first use.
    map: Option<FileMap<'a>>,
}

impl<'a> InodeReader<'a> {
    pub(crate) const fn new(content: &'a ContentReader, inode: &'a Inode) -> Self {
        Self { content, inode, map: None }
    }

    /// Its inode.
    #[must_use]
    pub const fn inode(&self) -> &'a Inode {
        self.inode
    }

    /// The extent that covers `offset`; `None` at the content's end and after it.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the map is damaged.
    pub fn extent_at(&mut self, offset: FileOffset) -> Result<Option<Extent>> {
        if offset.get() >= self.inode.content_len() {
            return Ok(None);
        }
        let map = FileMap::opened(&mut self.map, self.content, self.inode);
        map.and_then(|map| map.extent_at(offset)).of_inode(self.inode.nid).map(Some)
    }

    /// Reads the pclusters of marked holes (`Z_EROFS_LI_HOLE`), as Linux before 7.2 does.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the map is damaged.
    pub fn without_hole_marks(mut self) -> Result<Self> {
        FileMap::opened(&mut self.map, self.content, self.inode)
            .of_inode(self.inode.nid)?
            .ignore_hole_marks();
        Ok(self)
    }

    /// Reads as [`crate::Image::read_at`] does.
    ///
    /// # Errors
    /// The same.
    pub fn read_at(&mut self, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        let Self { content, inode, map } = self;
        let buf = within_content(inode, offset, buf);
        if !buf.is_empty() {
            if let Some(recorder) = &content.engine.recorder {
                recorder.note(inode.nid, offset, buf.len());
            }
            content.fill(inode, map, offset, buf, End::Buffer).of_inode(inode.nid)?;
        }
        Ok(buf.len())
    }
}

/// The start of `buf` that the content of `inode` from `offset` on can fill.
fn within_content<'b>(inode: &Inode, offset: FileOffset, buf: &'b mut [u8]) -> &'b mut [u8] {
    let remaining = inode.content_len().saturating_sub(offset.get());
    let len = usize::try_from(remaining).unwrap_or(usize::MAX);
    buf.split_at_mut(len.min(buf.len())).0
}

/// The places where a request may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At its buffer's end.
    Buffer,
    /// Before an encoded extent that does not fit its buffer.
    Extent,
}

/// Whether a request for the next `wanted` bytes needs all of `extent`, or can read a part of it
/// without extra work.
fn is_whole(extent: &Extent, wanted: usize) -> bool {
    !matches!(extent.data, ExtentData::Encoded { .. }) || extent.len <= to_u64(wanted)
}

impl ContentReader {
    pub(crate) fn new(volume: Volume, engine: Engine) -> Self {
        let (packed, metabox) = (OnceLock::new(), OnceLock::new());
        Self { volume, engine: Arc::new(engine), slow_lookups: Arc::default(), packed, metabox }
    }

    /// The same reader; its reads also end soon after `cancel` cancels them.
    pub(crate) fn cancelled_by(&self, cancel: &Cancel) -> Self {
        let mut reader = self.clone();
        reader.volume.budget.cancel_with(cancel);
        reader
    }

    /// Counters of all reads so far, and the memory held.
    pub(crate) fn stats(&self) -> Stats {
        let (engine, volume) = (&self.engine, &self.volume);
        let pool = engine.scratch.pool();
        Stats {
            pool_bytes: to_u64(pool.len()),
            pool_peak: to_u64(pool.peak()),
            low_memory: engine.pressure.is_short(),
            held_bytes: to_u64(volume.memory.held()),
            held_peak: to_u64(volume.memory.peak()),
            ..volume.counters.snapshot()
        }
    }

    /// Reads `inode`'s content from `offset` on into `buf`; returns how many bytes that gave, which
    /// are fewer than asked only at the content's end.
    ///
    /// Any inode with content may be read: a directory's content is its blocks, a symbolic link's
    /// its target.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the content is damaged where it is read,
    /// [`crate::Error::Io`].
    pub(crate) fn read_at(
        &self,
        inode: &Inode,
        offset: FileOffset,
        buf: &mut [u8],
    ) -> Result<usize> {
        InodeReader::new(self, inode).read_at(offset, buf)
    }

    /// Reads like [`Self::read_at`], but ends before a pcluster that does not fit `buf`, unless the
    /// range starts in that pcluster: a caller that continues there decodes no pcluster twice.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub(crate) fn read_whole_at(
        &self,
        inode: &Inode,
        offset: FileOffset,
        buf: &mut [u8],
    ) -> Result<usize> {
        let buf = within_content(inode, offset, buf);
        if buf.is_empty() {
            return Ok(0);
        }
        self.fill(inode, &mut None, offset, buf, End::Extent).of_inode(inode.nid)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a target that no system could have, or damaged content.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let size = inode.size();
        if inode.file_type() != FileType::Symlink || size == 0 || size > MAX_LINK {
            let fault = Fault::Field { field: "i_size of a symbolic link", value: size };
            return Err(Corruption::new(Structure::Inode, fault)
                .at(inode.place.pos)
                .of(inode.nid)
                .into());
        }
        let mut target = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_at(inode, FileOffset::new(0), &mut target)?;
        if target.contains(&0) {
            return Err(Corruption::new(Structure::Inode, Fault::Name).of(inode.nid).into());
        }
        Ok(target)
    }

    fn metabox(&self) -> Result<&Inode> {
        if let Some(metabox) = self.metabox.get() {
            return Ok(metabox);
        }
        let no_metabox = || Corruption::new(Structure::Metabox, Fault::FeatureNotSet("METABOX"));
        let metabox = read_inode(self, self.volume.superblock.metabox.ok_or_else(no_metabox)?)?;
        Ok(self.metabox.get_or_init(|| metabox))
    }

    fn check_metabox_bounds(&self, pos: BytePos, len: usize) -> Result<()> {
        let limit = self.metabox()?.size();
        if pos.get().checked_add(to_u64(len)).is_some_and(|end| end <= limit) {
            return Ok(());
        }
        let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit };
        Err(Corruption::new(Structure::Metabox, fault).into())
    }

    /// Reads one block of the metabox's content; a shorter last block is padded with zeroes.
    #[expect(clippy::indexing_slicing, reason = "a read fills at most `buf`")]
    fn load_metabox_block(&self, block: BlockAddr, buf: &mut [u8]) -> Result<()> {
        let start = FileOffset::new(block.get() << self.volume.superblock.block_size.bits());
        let len = self.read_at(self.metabox()?, start, buf)?;
        buf[len..].fill(0);
        Ok(())
    }

    fn packed(&self) -> Result<&Inode> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let no_packed =
            || Corruption::new(Structure::PackedInode, Fault::FeatureNotSet("FRAGMENTS"));
        let packed = read_inode(self, self.volume.superblock.packed.ok_or_else(no_packed)?)?;
        Ok(self.packed.get_or_init(|| packed))
    }

    /// Fills `buf` from the packed inode's content.
    fn read_fragment(&self, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        self.read_exact(self.packed()?, BytePos::new(offset.get()), Structure::PackedInode, buf)
    }

    /// Fills `buf` from the decoded content of an inode that holds structures: the packed inode,
    /// the metabox.
    fn read_exact(
        &self,
        holder: &Inode,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        let read = self.read_at(holder, FileOffset::new(pos.get()), buf)?;
        if read == buf.len() {
            return Ok(());
        }
        let fault = Fault::OutOfRange { field: "position", value: pos.get(), limit: holder.size() };
        Err(Corruption::new(structure, fault).into())
    }

    /// Reads the table of long xattr name prefixes, which is in the packed inode or the metabox
    /// unless it is plain.
    pub(crate) fn xattr_prefixes(&self) -> Result<Vec<LongPrefix>> {
        let superblock = &self.volume.superblock;
        let plain = superblock.compat.contains(Compat::PLAIN_XATTR_PFX);
        let Some(table) = superblock.xattr_prefixes else { return Ok(Vec::new()) };
        let holder = if plain { None } else { superblock.packed.or(superblock.metabox) };
        let holder = holder.map(|nid| read_inode(self, nid)).transpose()?;
        xattr::read_prefixes(table, |at, buf| match &holder {
            Some(inode) => self.read_exact(inode, at, Structure::XattrPrefix, buf),
            None => self.read_metadata(MetadataPlace::on_device(at), Structure::XattrPrefix, buf),
        })
    }

    /// Fills `buf` with the content of `inode` from `offset` on, all of which the file has; returns
    /// how much it filled.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "a step fills 1 to `buf.len()` bytes, which the file has, before `gathered`, which a batch moves behind `offset`"
    )]
    fn fill<'a>(
        &'a self,
        inode: &'a Inode,
        map: &mut Option<FileMap<'a>>,
        mut offset: FileOffset,
        mut buf: &mut [u8],
        end: End,
    ) -> Result<usize> {
        let (volume, engine) = (&self.volume, &self.engine);
        volume.budget.charge_bytes(to_u64(buf.len()))?;
        volume.counters.add(Counter::Requests, 1);
        volume.counters.add(Counter::RequestedBytes, to_u64(buf.len()));
        if engine.pressure.became_short() {
            engine.shrink(&volume.counters);
        }
        let stop = offset.get().saturating_add(to_u64(buf.len()));
        let mut request = Request {
            volume,
            engine,
            metadata: self,
            pattern: engine.patterns.note(inode.nid(), offset, to_u64(buf.len())),
            shared: [volume.superblock.packed, volume.superblock.metabox]
                .contains(&Some(inode.nid())),
            len: buf.len(),
            left: usize::try_from(inode.size().saturating_sub(stop)).unwrap_or(usize::MAX),
            waited: Cell::new(false),
            gathered: OnceCell::new(),
        };
        let pinned_ranges = engine.pinned_ranges.current();
        let work = || {
            let mut filled = 0;
            let is_small = !request.is_sequential() && buf.len() <= SMALL_REQUEST;
            if is_small && !volume.batches && volume.device_slots.is_empty() {
                let map = FileMap::opened(map, self, inode)?;
                if let Some((device, pos, len)) = adjacent(map, offset, stop) {
                    request.gather(device, pos, len)?;
                }
            }
            // The end of the bytes that were gathered.
            let mut gathered = if volume.batches { offset.get() } else { u64::MAX };
            while !buf.is_empty() {
                if end == End::Extent && filled > 0 {
                    let extent = FileMap::opened(map, self, inode)?.extent_at(offset)?;
                    if !is_whole(&extent, buf.len()) {
                        break;
                    }
                }
                if offset.get() >= gathered {
                    let (nid, offset, ends_at_clusters, pinned) =
                        (inode.nid(), offset.get(), end == End::Extent, pinned_ranges.as_deref());
                    let map = FileMap::opened(map, self, inode)?;
                    gathered = self.read_batch(
                        &mut request,
                        map,
                        &Wanted { nid, offset, stop, ends_at_clusters, pinned },
                    )?;
                }
                let most =
                    usize::try_from(gathered - offset.get()).unwrap_or(usize::MAX).min(buf.len());
                let part = &mut buf[..most];
                let pinned =
                    pinned_ranges.as_ref().and_then(|ranges| ranges.get(inode.nid(), offset));
                let len = match pinned {
                    Some(pinned) => copy_pinned(&request, pinned, part),
                    None => {
                        self.step(&request, FileMap::opened(map, self, inode)?, offset, part)?
                    }
                };
                offset = FileOffset::new(offset.get() + to_u64(len));
                buf = &mut std::mem::take(&mut buf)[len..];
                filled += len;
            }
            if let (Pattern::Strided { next, step, count }, Some(map)) = (request.pattern, map) {
                for number in 0..count {
                    let next = next.get().saturating_add(step.saturating_mul(number));
                    announce_step(&request, map, next, inode.size());
                }
                if request.waited.get() {
                    engine.patterns.waited(inode.nid());
                }
            }
            Ok(filled)
        };
        // A request of this thread that contains this one is served already.
        let _served = if DEPTH.get() == 0 { volume.memory.serve() } else { None };
        nested(work)
    }

    /// Announces ranges of the packed inode.
    fn announce_fragments(&self, request: &Request<'_>, fragments: &[(u64, u64)]) {
        if fragments.is_empty() || request.shared {
            return;
        }
        // Errors are reported when the fragments are read.
        let Ok(packed) = self.packed() else { return };
        let request = request.of_packed();
        let _ = nested(|| {
            let mut map = FileMap::open(self, packed)?;
            for &(offset, len) in fragments {
                announce_range(
                    &request,
                    &mut map,
                    offset..offset.saturating_add(len).min(packed.size()),
                );
            }
            Ok(())
        });
    }

    /// Reads the bytes that the start of `wanted` needs with one call; returns the end of that
    /// start, after `wanted.offset`.
    fn read_batch(
        &self,
        request: &mut Request<'_>,
        map: &mut FileMap<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<u64> {
        request.gathered = OnceCell::new();
        let batch = Batch::plan(request, map, wanted);
        self.announce_fragments(request, batch.fragments());
        batch.read(request)?;
        Ok(batch.end.max(wanted.offset.saturating_add(1)))
    }

    /// Fills a prefix of `buf`, which is not empty; returns the prefix's length, at least 1.
    fn step(
        &self,
        request: &Request<'_>,
        map: &mut FileMap<'_>,
        offset: FileOffset,
        buf: &mut [u8],
    ) -> Result<usize> {
        let extent = map.extent_at(offset)?;
        if let Some(mut run) = Run::start(&self.volume, &extent, offset, buf.len()) {
            while run.wants_more() && run.extend(&map.extent_at(run.end())?) {}
            request.read_run(&run, buf)?;
            return Ok(run.decoded_len());
        }
        let have = usize::try_from(extent.end().saturating_sub(offset.get())).unwrap_or(usize::MAX);
        let (part, _) = buf.split_at_mut(have.min(buf.len()));
        self.read_extent(request, &extent, offset, part)?;
        Ok(part.len())
    }

    /// Fills `buf` with the part of `extent` that starts at `offset`.
    fn read_extent(
        &self,
        request: &Request<'_>,
        extent: &Extent,
        offset: FileOffset,
        buf: &mut [u8],
    ) -> Result<()> {
        // The extent covers `offset`.
        let skip = offset.get().saturating_sub(extent.start.get());
        match extent.data {
            ExtentData::Hole => {
                buf.fill(0);
                Ok(())
            }
            ExtentData::Stored { at } => request.read_counted(at, skip, buf, Cause::Stored),
            ExtentData::Interlaced { at } => read_interlaced(request, at, offset, buf),
            ExtentData::Fragment { offset } => {
                let overflow =
                    || Corruption::new(Structure::PackedInode, Fault::Overflow("h_fragmentoff"));
                self.read_fragment(offset.checked_add(skip).ok_or_else(overflow)?, buf)
            }
            ExtentData::Encoded { .. } => request.read_partial(extent, skip, buf),
        }
    }
}

/// Fills a prefix of `buf` from `pinned` bytes; returns its length.
fn copy_pinned(request: &Request<'_>, pinned: &[u8], buf: &mut [u8]) -> usize {
    let len = pinned.len().min(buf.len());
    request.volume.counters.add(Counter::PinnedHits, 1);
    request.volume.counters.add_len(Counter::PinnedBytes, len);
    request.copy(pinned.split_at(len).0, buf.split_at_mut(len).0);
    len
}

/// Reads from a rotated block: byte `o` of the file is at `o` modulo the block size. An extent of
/// this kind never leaves its block, see [`FileMap`].
fn read_interlaced(
    request: &Request<'_>,
    at: Location,
    offset: FileOffset,
    buf: &mut [u8],
) -> Result<()> {
    let block_size = request.volume.superblock.block_size;
    let start = offset.get() & block_size.mask();
    let to_block_end =
        usize::try_from(block_size.bytes64().saturating_sub(start)).unwrap_or(usize::MAX);
    let (head, wrapped) = buf.split_at_mut(to_block_end.min(buf.len()));
    request.read_counted(at, start, head, Cause::Stored)?;
    if wrapped.is_empty() {
        return Ok(());
    }
    request.read_counted(at, 0, wrapped, Cause::Stored)
}

thread_local! {
    /// Requests of this thread that are served, each for the one before it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs a request; fails if it is nested deeper than [`MAX_DEPTH`].
pub(crate) fn nested<T>(request: impl FnOnce() -> Result<T>) -> Result<T> {
    let depth = DEPTH.get();
    if depth == MAX_DEPTH {
        return Err(
            Corruption::new(Structure::Extent, Fault::Map("content contains itself")).into()
        );
    }
    DEPTH.set(depth.saturating_add(1));
    let result = request();
    DEPTH.set(depth);
    result
}
