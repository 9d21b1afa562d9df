//! Files of several patches, one after another: for several base images, or for several steps. Those that fit the state of an
//! image are applied in the order of the file, and each is a change of its own.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::apply::base::check_state;
use crate::apply::commit::TrailingData;
use crate::apply::lazy_region::PieceCache;
use crate::apply::medium::Medium;
use crate::apply::repair::ApplyProgress;
use crate::apply::{apply_with, overlay_with};
use crate::error::{Error, PatchFault, Result};
use crate::format::reader::Patch;
use crate::format::start::Start;
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{FileSource, Source, Uuid};

/// Bytes of a stream that are read at once.
const BUFFER: usize = 1 << 20;

/// Reads the patches of a file or of a stream, one after the other.
pub struct PatchReader {
    input: Input,
    /// The number of patches that were read or skipped.
    number: usize,
}

enum Input {
    File { source: Arc<dyn Source>, at: u64 },
    Stream(Box<dyn Read + Send>),
}

impl std::fmt::Debug for PatchReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PatchReader").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A part of a file.
struct Part {
    source: Arc<dyn Source>,
    range: Range<u64>,
}

impl Source for Part {
    fn size(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = self.range.start.checked_add(pos);
        let end = start.and_then(|start| start.checked_add(to_u64(buf.len())));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.range.end => {
                self.source.read_exact_at(start, buf)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The next patch, of which only the start was read.
struct Next {
    start: Start,
    /// The bytes that were taken from a stream.
    taken: Vec<u8>,
}

impl PatchReader {
    /// Opens the patches in the file `path`. The file must be complete: the starts and lengths of all its patches are checked, but no
    /// digest.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Patch`] for a file that has no patch, or whose last patch is cut off.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Arc::new(FileSource::open(path, 0)?))
    }

    /// As [`Self::open`], for the file in `source`.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn new(source: Arc<dyn Source>) -> Result<Self> {
        let mut reader = Self { input: Input::File { source, at: 0 }, number: 0 };
        while let Some(next) = reader.start()? {
            reader.skip(next)?;
        }
        if let Input::File { at, .. } = &mut reader.input {
            *at = 0;
        }
        reader.number = 0;
        Ok(reader)
    }

    /// Reads patches from a stream. A patch that is applied is stored in a temporary file, as nothing of it may be used before its digest,
    /// which comes last, was checked. The others are not stored.
    #[must_use]
    pub fn stream(stream: impl Read + Send + 'static) -> Self {
        Self { input: Input::Stream(Box::new(stream)), number: 0 }
    }

    /// Opens the next patch; `None` after the last one.
    ///
    /// # Errors
    /// As [`Patch::open`].
    pub fn next_patch(&mut self) -> Result<Option<Patch>> {
        let Some(next) = self.start()? else { return Ok(None) };
        self.open_patch(next).map(Some)
    }

    /// Opens the patch of an input that may have only one.
    ///
    /// # Errors
    /// As [`Patch::open`]; [`PatchFault::Several`] if another patch follows, [`Error::InSequence`] if anything else does.
    pub fn only_patch(&mut self) -> Result<Patch> {
        let next = self.start()?.ok_or(Error::Patch(PatchFault::NotAPatch))?;
        let patch = self.open_patch(next)?;
        match self.start() {
            Ok(None) => Ok(patch),
            Ok(Some(_)) => Err(Error::Patch(PatchFault::Several)),
            Err(cause) => Err(Error::InSequence {
                number: self.number.saturating_add(1),
                applied: 0,
                cause: Box::new(cause),
            }),
        }
    }

    /// Reads the start of the next patch; `None` at the end. Each input has at least one patch.
    fn start(&mut self) -> Result<Option<Next>> {
        let mut taken = Vec::new();
        let start = match &mut self.input {
            Input::File { source, at } => {
                if *at >= source.size() && *at > 0 {
                    return Ok(None);
                }
                let rest = Part { source: Arc::clone(source), range: *at..source.size() };
                let start = Start::read(&rest)?;
                let found = rest.size();
                if start.file_len() > found {
                    return Err(Error::Patch(PatchFault::Length {
                        expected: start.file_len(),
                        found,
                    }));
                }
                start
            }
            Input::Stream(stream) => {
                take(&mut **stream, Start::FIXED, &mut taken)?;
                if taken.is_empty() && self.number > 0 {
                    return Ok(None);
                }
                let more = Start::stored_header_len(&taken)?;
                take(&mut **stream, more, &mut taken)?;
                Start::read(&taken)?
            }
        };
        self.number = self.number.saturating_add(1);
        Ok(Some(Next { start, taken }))
    }

    /// Opens the patch that starts with `next`, and checks its digest.
    fn open_patch(&mut self, next: Next) -> Result<Patch> {
        let len = next.start.file_len();
        match &mut self.input {
            Input::File { source, at } => {
                let end = at.saturating_add(len);
                let patch =
                    Patch::new(Box::new(Part { source: Arc::clone(source), range: *at..end }))?;
                *at = end;
                Ok(patch)
            }
            Input::Stream(stream) => {
                let failed = |e| Error::io_unnamed("store the patch in a temporary file", e);
                let mut file = tempfile::tempfile().map_err(failed)?;
                let write = |bytes: &[u8]| file.write_all(bytes).map_err(failed);
                pass(&mut **stream, &next, write)?;
                file.seek(SeekFrom::Start(0)).map_err(failed)?;
                Patch::new(Box::new(FileSource::new(file, 0).map_err(failed)?))
            }
        }
    }

    /// Passes over the patch that starts with `next`. In a stream its digest is checked: with a wrong length, the next patch would
    /// start elsewhere.
    fn skip(&mut self, next: Next) -> Result<()> {
        match &mut self.input {
            Input::File { at, .. } => *at = at.saturating_add(next.start.file_len()),
            Input::Stream(stream) => {
                let mut last = Vec::new();
                let mut hasher = blake3::Hasher::new();
                pass(&mut **stream, &next, |bytes| {
                    last.extend_from_slice(bytes);
                    let covered = last.len().saturating_sub(blake3::OUT_LEN);
                    hasher.update(last.get(..covered).unwrap_or_default());
                    last.drain(..covered);
                    Ok(())
                })?;
                if last != hasher.finalize().as_bytes() {
                    return Err(Error::Patch(PatchFault::Damaged));
                }
            }
        }
        Ok(())
    }

    /// Passes each patch that fits `image` to `change`, which makes another state of it. `image` gives the current state.
    fn each_fitting<S>(
        &mut self,
        state: &mut S,
        image: impl Fn(&S) -> &dyn Source,
        mut change: impl FnMut(&mut S, &Patch) -> Result<()>,
    ) -> Result<AppliedPatches> {
        let mut applied = AppliedPatches::default();
        let mut refused = Vec::new();
        loop {
            let number = self.number.saturating_add(1);
            // Which patch failed, if there are others.
            let failed = |cause: Error, count: u64| match number {
                1 => cause,
                _ => Error::InSequence { number, applied: count, cause: Box::new(cause) },
            };
            let Some(next) = self.start().map_err(|e| failed(e, applied.count))? else { break };
            let header = next.start.header();
            let base = Base { uuid: header.uuid, state: header.base_state, size: header.base_size };
            let fault = match check_state(image(state), header, next.start.appended()) {
                Ok(_) => {
                    let patch = self.open_patch(next).map_err(|e| failed(e, applied.count))?;
                    match change(state, &patch) {
                        Ok(()) => {
                            applied.count = applied.count.saturating_add(1);
                            applied.time = Some(patch.time());
                            continue;
                        }
                        // Nothing was written: another patch may be for an image with the same superblock.
                        Err(Error::Patch(fault @ PatchFault::BaseChanged)) => fault,
                        Err(error) => return Err(failed(error, applied.count)),
                    }
                }
                Err(Error::Patch(fault)) => {
                    self.skip(next).map_err(|e| failed(e, applied.count))?;
                    fault
                }
                Err(error) => return Err(failed(error, applied.count)),
            };
            refused.push((base, fault));
        }
        let already = refused.iter().any(|(_, fault)| *fault == PatchFault::AlreadyApplied);
        match &refused[..] {
            _ if applied.count > 0 => Ok(applied),
            // One of several for other images, or the last state of a chain.
            _ if already => Err(Error::Patch(PatchFault::AlreadyApplied)),
            [(_, fault)] => Err(Error::Patch(fault.clone())),
            _ => Err(Error::Patch(PatchFault::NoneFits(
                refused.iter().map(|(base, _)| base.to_string()).collect(),
            ))),
        }
    }

    /// Applies the patches that fit the image on `medium`, in their order, each as [`apply_with`] does.
    ///
    /// # Errors
    /// As [`apply_with`]; [`PatchFault::NoneFits`]. After an error in a later patch, the earlier ones are applied:
    /// [`Error::InSequence`].
    pub fn apply<M: Medium>(
        &mut self,
        medium: &M,
        trailing: TrailingData,
        progress: &ApplyProgress,
        cancel: &AtomicBool,
    ) -> Result<AppliedPatches> {
        self.each_fitting(
            &mut &*medium,
            |medium| *medium,
            |medium, patch| apply_with(*medium, patch, trailing, progress, cancel),
        )
    }

    /// The image that the patches that fit make of `base`, in memory, in their order, each as [`overlay_with`] does.
    ///
    /// # Errors
    /// As [`overlay_with`]; [`PatchFault::NoneFits`].
    pub fn overlay(
        &mut self,
        base: Arc<dyn Source>,
        cache: &PieceCache,
        cancel: &AtomicBool,
    ) -> Result<(Arc<dyn Source>, AppliedPatches)> {
        let mut image = base;
        let applied = self.each_fitting(
            &mut image,
            |image| &**image,
            |image, patch| {
                *image = overlay_with(Arc::clone(image), patch, cache, cancel)?;
                Ok(())
            },
        )?;
        Ok((image, applied))
    }
}

/// The patches of a file that were applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppliedPatches {
    /// Their number.
    pub count: u64,
    /// The time of the last one, in seconds since 1970.
    pub time: Option<i64>,
}

/// The image that a patch is for, as an error names it.
struct Base {
    uuid: [u8; 16],
    state: u64,
    size: u64,
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "state {} of {} ({} bytes)", self.state, Uuid(self.uuid), self.size)
    }
}

/// Appends up to `len` bytes of `stream` to `taken`.
fn take(stream: &mut dyn Read, len: usize, taken: &mut Vec<u8>) -> Result<()> {
    let read = stream.take(to_u64(len)).read_to_end(taken);
    read.map(drop).map_err(|e| Error::io_unnamed("read the patch", e))
}

/// Passes the bytes of the patch that starts with `next` to `to`.
fn pass(stream: &mut dyn Read, next: &Next, mut to: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let expected = next.start.file_len();
    to(&next.taken)?;
    let mut found = to_u64(next.taken.len());
    let mut buffer = vec![0; BUFFER];
    while found < expected {
        buffer.truncate(to_usize(expected.saturating_sub(found)));
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Err(Error::Patch(PatchFault::Length { expected, found })),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io_unnamed("read the patch", error)),
        };
        to(buffer.get(..read).unwrap_or_default())?;
        found = found.saturating_add(to_u64(read));
    }
    Ok(())
}
