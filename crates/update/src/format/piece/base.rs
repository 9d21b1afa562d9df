//! Reads the base image for the dictionaries of pieces, and divides parts of a piece among threads.

use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Image, Inode, Source};
use parking_lot::Mutex;

use crate::error::{Error, PatchFault, Result};
use crate::format::plan::Reference;
use crate::format::prediction::Predict;
use ferofs_format::units::to_usize;

/// Bytes of a piece's dictionary at most, as it is held in memory. A patch that refers to more is
/// malformed.
pub const REFERENCES_MAX: usize = 16 << 20;
/// Decoded bytes of extents that several threads decode at the same time. Each may hold a whole
/// extent of which it wants a part, and a decoder for it, so only one thread decodes longer
/// extents.
pub(crate) const SMALL_EXTENT: u64 = 512 << 10;

/// The base image, from which dictionaries are read.
pub struct Base<'a> {
    /// Its bytes. The source can be longer, by what is appended to it.
    pub source: &'a dyn Source,
    /// The number of its bytes.
    pub size: u64,
    /// The same image, for the content of files.
    pub image: &'a Image,
    /// What is predicted of the new bytes.
    pub prediction: Option<&'a dyn Predict>,
    /// The number of threads that read it.
    pub threads: usize,
    /// Decoded bytes of the longest extent that references may read.
    pub longest_extent: u64,
}

impl Base<'_> {
    /// Puts the bytes of all `references` into `dictionary`, one after the other.
    /// `check` is called before each part, and can end this.
    pub fn read(
        &self,
        references: &[Reference],
        dictionary: &mut Vec<u8>,
        check: impl Fn() -> Result<()> + Sync,
    ) -> Result<()> {
        let total = references
            .iter()
            .map(|reference| u64::from(reference.len()))
            .fold(0, u64::saturating_add);
        if to_usize(total) > REFERENCES_MAX {
            return Err(Error::Patch(PatchFault::Malformed("a piece refers to too much")));
        }
        // Each part is written completely below: clearing all of it first takes a visible part of
        // the time.
        resize(dictionary, to_usize(total));
        let mut rest = &mut dictionary[..];
        let mut references = references.iter().copied();
        let mut later = None;
        let parts = std::iter::from_fn(|| {
            let reference: Reference = later.take().or_else(|| references.next())?;
            let first = match reference.split() {
                Some((first, others)) => {
                    later = Some(others);
                    first
                }
                None => reference,
            };
            // The lengths were summed above.
            let (part, after) =
                std::mem::take(&mut rest).split_at_mut_checked(to_usize(first.len()))?;
            rest = after;
            Some((first, part))
        });
        // This thread reads them.
        let waiting = Mutex::new(Vec::new());
        parallel(self.threads, parts, || {
            |(reference, part): (Reference, _)| {
                check()?;
                if self.takes_much_memory(reference)? && self.threads > 1 {
                    waiting.lock().push((reference, part));
                    return Ok(());
                }
                self.read_one(reference, part)
            }
        })?;
        let waiting = waiting.into_inner();
        waiting.into_iter().try_for_each(|(reference, part)| {
            check()?;
            self.read_one(reference, part)
        })
    }

    fn predicted(&self) -> Result<&dyn Predict> {
        let malformed = PatchFault::Malformed("it refers to predicted bytes, and predicts none");
        self.prediction.ok_or(Error::Patch(malformed))
    }

    /// Whether only one thread should read `reference`, because reading it takes megabytes.
    fn takes_much_memory(&self, reference: Reference) -> Result<bool> {
        if reference.is_predicted() {
            return Ok(self.predicted()?.takes_much_memory());
        }
        let longest = self.longest_of(&[reference])?;
        if longest > self.longest_extent {
            return Err(Error::Patch(PatchFault::Malformed("a piece refers to a longer extent")));
        }
        Ok(longest > SMALL_EXTENT)
    }

    /// Decoded bytes of the longest extent that `references` read.
    pub fn longest_of(&self, references: &[Reference]) -> Result<u64> {
        references.iter().try_fold(0, |longest: u64, reference| match *reference {
            Reference::File { nid, offset, len } => {
                let inode = self.image.inode(Nid::new(nid))?;
                Ok(longest.max(longest_extent(self.image, &inode, offset, len.into())?))
            }
            Reference::Image { .. }
            | Reference::Predicted { .. }
            | Reference::PredictedMetabox { .. } => Ok(longest),
        })
    }

    fn read_one(&self, reference: Reference, part: &mut [u8]) -> Result<()> {
        match reference {
            Reference::Image { pos, .. } => {
                // Bytes past the end count as zeroes.
                let have = to_usize(self.size.saturating_sub(pos)).min(part.len());
                let (present, missing) = part.split_at_mut(have);
                if !present.is_empty() {
                    self.source
                        .read_exact_at(pos, present)
                        .map_err(|e| Error::io_unnamed("read the image", e))?;
                }
                missing.fill(0);
            }
            Reference::Predicted { pos, .. } => self.predicted()?.fill(pos, part)?,
            Reference::PredictedMetabox { pos, .. } => self.predicted()?.fill_metabox(pos, part)?,
            Reference::File { nid, offset, .. } => {
                let inode = self.image.inode(Nid::new(nid))?;
                let read = self.image.read_at(&inode, FileOffset::new(offset), part)?;
                part.get_mut(read..).unwrap_or_default().fill(0);
            }
        }
        Ok(())
    }
}

/// Makes `bytes` as long as `len`, with any content, in no more memory than that.
pub(super) fn resize(bytes: &mut Vec<u8>, len: usize) {
    if bytes.capacity() < len {
        *bytes = Vec::with_capacity(len);
    }
    bytes.resize(len, 0);
}

/// Decoded bytes of the longest extent that holds some of the `len` bytes from `offset` on of
/// `inode`, a file or the packed inode.
fn longest_extent(image: &Image, inode: &Inode, offset: u64, len: u64) -> Result<u64> {
    let end = offset.saturating_add(len);
    let mut longest = 0;
    for extent in image.extents(inode, FileOffset::new(offset))? {
        let extent = extent?;
        let start = extent.start.get();
        if start >= end {
            break;
        }
        longest = longest.max(match extent.data {
            ExtentData::Encoded { .. } => extent.len,
            ExtentData::Fragment { offset: fragment } => {
                let Some(packed) =
                    image.superblock().packed.filter(|packed| *packed != inode.nid())
                else {
                    continue;
                };
                let skipped = offset.saturating_sub(start);
                let wanted = extent.len.saturating_sub(skipped).min(len);
                longest_extent(
                    image,
                    &image.inode(packed)?,
                    fragment.get().saturating_add(skipped),
                    wanted,
                )?
            }
            ExtentData::Hole | ExtentData::Stored { .. } | ExtentData::Interlaced { .. } => 0,
        });
    }
    Ok(longest)
}

/// Calls the functions that `start` gives, one for each thread, with all `parts`, in up to
/// `threads` threads. The order of the calls is any. The parts are made when a thread takes them: a
/// list of them would take more memory than the plan that they come from.
pub(super) fn parallel<T: Send, F: FnMut(T) -> Result<()>>(
    threads: usize,
    parts: impl Iterator<Item = T> + Send,
    start: impl Fn() -> F + Sync,
) -> Result<()> {
    let mut parts = parts.peekable();
    // A thread for one part would only cost its start.
    let first = parts.next();
    let is_one = parts.peek().is_none();
    let parts = Mutex::new(first.into_iter().chain(parts));
    let work = || {
        let mut each = start();
        loop {
            let next = parts.lock().next();
            let Some(part) = next else { return Ok(()) };
            each(part)?;
        }
    };
    if threads <= 1 || is_one {
        return work();
    }
    std::thread::scope(|scope| {
        let started = ferofs_threads::start(scope, threads, || work)?;
        started.into_iter().try_for_each(|thread| ferofs_threads::pass_on(thread.join()))
    })
}
