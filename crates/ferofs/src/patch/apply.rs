//! Applying a patch: append, make durable, switch. The one write that matters is the superblock's sector.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::PatchFault;
use super::digest::Pieces;
use super::file::{Header, Patch};
use super::history::{History, Origin};
use super::overlay::Overlay;
use super::sector::{Front, SECTOR_POS};
use crate::read::{FileSource, Source};
use crate::{Error, Result};

/// What an image is changed on. A [`Source`] that is written, too.
///
/// Bytes past the end of the image, as its superblock tells that, may be anything.
pub trait Medium: Source {
    /// Makes sure that the first `end` bytes can be written, growing the medium if need be.
    ///
    /// # Errors
    /// `StorageFull` when there is no room, and whatever the medium reports.
    fn reserve(&self, end: u64) -> io::Result<()>;

    /// Gives back what [`Self::reserve`] took: the medium had `size` bytes before.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn release(&self, size: u64) -> io::Result<()>;

    /// Writes `bytes` at `pos`.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Whatever the medium reports.
    fn sync(&self) -> io::Result<()>;
}

/// An image in a file, or on a block device.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    is_device: bool,
}

impl FileMedium {
    /// Opens `path` for changing, and keeps others of our kind from doing so.
    ///
    /// # Errors
    /// [`Error::Io`]; [`PatchFault::Busy`].
    pub fn open(path: &Path) -> Result<Self> {
        let open = |e| Error::io("open", path, e);
        let file = File::options().read(true).write(true).open(path).map_err(open)?;
        let is_device = file.metadata().map_err(open)?.file_type().is_block_device();
        use rustix::fs::FlockOperation;
        // File systems without locks have no other writers to fear than before.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
        {
            return Err(Error::Patch(PatchFault::Busy));
        }
        Ok(Self { file, is_device })
    }

    /// For reading alone.
    fn reader(&self) -> io::Result<FileSource> {
        FileSource::new(self.file.try_clone()?, 0)
    }
}

impl Source for FileMedium {
    fn size(&self) -> u64 {
        self.reader().map_or(0, |reader| reader.size())
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, pos)
    }
}

impl Medium for FileMedium {
    fn reserve(&self, end: u64) -> io::Result<()> {
        let size = self.size();
        if end <= size {
            return Ok(());
        }
        if self.is_device {
            return Err(io::ErrorKind::StorageFull.into());
        }
        use rustix::fs::FallocateFlags;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), size, end - size) {
            // File systems that cannot reserve may run full later, which is as safe.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => Ok(result?),
        }
    }

    fn release(&self, size: u64) -> io::Result<()> {
        if self.is_device { Ok(()) } else { self.file.set_len(size) }
    }

    fn write_all_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, pos)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Makes sure that `image` is what `header`'s patch was made for; gives the digests of its pieces.
pub(crate) fn check_base(image: &dyn Source, header: &Header, cancel: &AtomicBool) -> Result<Pieces> {
    let front = Front::read(image)?;
    let fault = |fault| Err(Error::Patch(fault));
    if front.superblock().uuid != header.uuid {
        let (expected, found) = (uuid_text(&header.uuid), uuid_text(&front.superblock().uuid));
        return fault(PatchFault::OtherImage { expected, found });
    }
    if front.sector() == header.sector {
        return fault(PatchFault::AlreadyApplied);
    }
    if front.sector() != header.base_sector || front.size() != header.base_size {
        let history = History::read(image, &front)?;
        let went_back =
            history.records.last().is_some_and(|record| matches!(record.origin, Origin::Rollback(_)));
        if !went_back && history.records.iter().any(|record| record.after == header.sector) {
            return fault(PatchFault::AlreadyApplied);
        }
        let (expected, found) = (header.base_state, history.current());
        return fault(if expected == found {
            PatchFault::BaseChanged
        } else {
            PatchFault::OtherState { expected, found }
        });
    }
    // Where the root goes there was nothing, and may be what an application that was cut short has left.
    let masked = Masked { image, root: &header.root };
    if let Some((pos, bytes)) = &header.root {
        let mut found = vec![0; bytes.len()];
        image.read_exact_at(*pos, &mut found).map_err(|e| Error::io_unnamed("read the image", e))?;
        // Its sectors are written one by one.
        let is_ours = found.iter().zip(bytes).all(|(found, new)| *found == 0 || found == new);
        if !is_ours {
            return fault(PatchFault::BaseChanged);
        }
    }
    let pieces = Pieces::of(&masked, header.base_size, cancel)?;
    if pieces.digest() == header.base_digest { Ok(pieces) } else { fault(PatchFault::BaseChanged) }
}

/// The base as it was before anybody tried to patch it.
struct Masked<'a> {
    image: &'a dyn Source,
    root: &'a Option<(u64, Vec<u8>)>,
}

impl Source for Masked<'_> {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_exact_at(pos, buf)?;
        if let Some((at, bytes)) = self.root {
            let from = at.saturating_sub(pos).min(buf.len() as u64);
            let to = at.saturating_add(bytes.len() as u64).saturating_sub(pos).min(buf.len() as u64);
            if let Some(root) = buf.get_mut(from as usize..to as usize) {
                root.fill(0);
            }
        }
        Ok(())
    }
}

/// Applies `patch` to the image on `medium`: after this it shows the new tree. Whatever happens on the way, the
/// medium holds an image that shows the old tree or the new one.
///
/// # Errors
/// [`Error::Patch`] when patch and image do not belong together, or there is no room; [`Error::Io`]. The image is then
/// what it was.
pub fn apply<M: Medium>(medium: &M, patch: &Patch, cancel: &AtomicBool) -> Result<()> {
    let header = patch.header();
    let pieces = check_base(medium, header, cancel)?;
    let size = medium.size();
    match medium.reserve(header.result_size) {
        Ok(()) => {}
        Err(error) => {
            let _ = medium.release(size);
            return Err(match error.kind() {
                io::ErrorKind::StorageFull => {
                    Error::Patch(PatchFault::NoRoom { needed: header.result_size, available: size })
                }
                _ => Error::io_unnamed("make room for the patch", error),
            });
        }
    }
    let appended = append(medium, patch, &pieces, cancel);
    if let Err(error) = appended {
        // The superblock was not touched: nobody looks at what is past the end.
        let _ = medium.release(size);
        return Err(error);
    }
    switch(medium, &header.sector)
}

fn append<M: Medium>(medium: &M, patch: &Patch, pieces: &Pieces, cancel: &AtomicBool) -> Result<()> {
    let header = patch.header();
    let io = |e| Error::io_unnamed("write the image", e);
    let mut at = header.base_size;
    patch.region(medium, cancel, |bytes| {
        medium.write_all_at(at, bytes).map_err(io)?;
        at += bytes.len() as u64;
        Ok(())
    })?;
    let mut changed =
        vec![SECTOR_POS..SECTOR_POS + header.sector.len() as u64, header.base_size..header.result_size];
    if let Some((pos, bytes)) = &header.root {
        medium.write_all_at(*pos, bytes).map_err(io)?;
        changed.push(*pos..*pos + bytes.len() as u64);
    }
    medium.sync().map_err(io)?;
    let result = Patched { image: medium, header };
    let result = pieces.changed(&result, header.result_size, &changed, cancel)?;
    if result.digest() == header.result_digest {
        return Ok(());
    }
    Err(Error::Patch(PatchFault::ResultDiffers))
}

/// The image as it will be.
struct Patched<'a> {
    image: &'a dyn Source,
    header: &'a Header,
}

impl Source for Patched<'_> {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_exact_at(pos, buf)?;
        let sector = &self.header.sector;
        for (at, byte) in (SECTOR_POS..).zip(sector) {
            if let Some(place) = at.checked_sub(pos).and_then(|at| buf.get_mut(at as usize)) {
                *place = *byte;
            }
        }
        Ok(())
    }
}

/// Makes another superblock current.
pub(crate) fn switch<M: Medium>(medium: &M, sector: &[u8]) -> Result<()> {
    let io = |e| Error::io_unnamed("write the superblock", e);
    medium.write_all_at(SECTOR_POS, sector).map_err(io)?;
    medium.sync().map_err(io)
}

/// `base` with `patch` laid over it in memory.
///
/// # Errors
/// As [`apply`]; nothing is written.
pub fn overlay(base: Arc<dyn Source>, patch: &Patch, cancel: &AtomicBool) -> Result<Arc<dyn Source>> {
    let header = patch.header();
    let pieces = check_base(&*base, header, cancel)?;
    let mut region = Vec::new();
    patch.region(&*base, cancel, |bytes| {
        region.extend_from_slice(bytes);
        Ok(())
    })?;
    let mut overlay = Overlay::new(base, header.base_size, Box::new(region)).with(SECTOR_POS, &header.sector);
    let mut changed =
        vec![SECTOR_POS..SECTOR_POS + header.sector.len() as u64, header.base_size..header.result_size];
    if let Some((pos, bytes)) = &header.root {
        overlay = overlay.with(*pos, bytes);
        changed.push(*pos..*pos + bytes.len() as u64);
    }
    if pieces.changed(&overlay, header.result_size, &changed, cancel)?.digest() != header.result_digest {
        return Err(Error::Patch(PatchFault::ResultDiffers));
    }
    Ok(Arc::new(overlay))
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
