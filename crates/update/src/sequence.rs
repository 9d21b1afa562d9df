//! Files of several patches, one after another: for several base images, or for several steps.
//! Those that fit the state of an image are applied in the order of the file, and each is a change
//! of its own.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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
use ferofs_read::{Cancel, FileSource, Source, Uuid};

/// Bytes of a stream that are read at once.
const BUFFER: usize = 1 << 20;

/// Reads the patches of a file, one after the other.
pub struct PatchReader {
    source: Arc<dyn Source>,
    /// Where the next patch starts.
    at: u64,
    /// The number of patches that were read or skipped.
    number: usize,
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

impl PatchReader {
    /// Opens the patches in the file `path`. The file must be complete: the starts and lengths of
    /// all its patches are checked, but no digest.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Patch`] for a file that has no patch, or whose last patch is cut
    /// off.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Arc::new(FileSource::open(path, 0)?))
    }

    /// As [`Self::open`], for the file in `source`.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn new(source: Arc<dyn Source>) -> Result<Self> {
        let mut reader = Self { source, at: 0, number: 0 };
        while let Some(next) = reader.start()? {
            reader.skip(&next);
        }
        Ok(Self { at: 0, number: 0, ..reader })
    }

    /// Stores the patches of a stream in a temporary file, and opens that: nothing of a patch may
    /// be used before its digest, which comes last, was checked, and none may be applied if the
    /// stream is cut off or has other bytes after the patches.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn stream(mut stream: impl Read) -> Result<Self> {
        let stored = |e| Error::io_unnamed("store the patch in a temporary file", e);
        let mut file = tempfile::tempfile().map_err(stored)?;
        let mut buffer = vec![0; BUFFER];
        let mut is_later = false;
        loop {
            let mut start = Vec::new();
            let taken = stream.by_ref().take(to_u64(Start::FIXED)).read_to_end(&mut start);
            taken.map_err(|e| Error::io_unnamed("read the patch", e))?;
            if start.is_empty() && is_later {
                return Self::new(Arc::new(FileSource::new(file, 0).map_err(stored)?));
            }
            // Before all bytes of anything else are stored.
            let expected =
                Start::file_len_of(&start).map_err(|error| bytes_after(error, is_later))?;
            let mut found = to_u64(start.len());
            file.write_all(&start).map_err(stored)?;
            while found < expected {
                let len = buffer.len().min(to_usize(expected.saturating_sub(found)));
                let read = match stream.read(buffer.get_mut(..len).unwrap_or_default()) {
                    Ok(0) => return Err(Error::Patch(PatchFault::Length { expected, found })),
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(Error::io_unnamed("read the patch", error)),
                };
                file.write_all(buffer.get(..read).unwrap_or_default()).map_err(stored)?;
                found = found.saturating_add(to_u64(read));
            }
            is_later = true;
        }
    }

    /// Opens the next patch; `None` after the last one.
    ///
    /// # Errors
    /// As [`Patch::open`].
    pub fn next_patch(&mut self) -> Result<Option<Patch>> {
        let Some(next) = self.start()? else { return Ok(None) };
        self.open_patch(&next).map(Some)
    }

    /// Opens the patch of an input that may have only one.
    ///
    /// # Errors
    /// As [`Patch::open`]; [`PatchFault::Several`] if another patch follows, [`Error::InSequence`]
    /// if anything else does.
    pub fn only_patch(&mut self) -> Result<Patch> {
        let next = self.start()?.ok_or(Error::Patch(PatchFault::NotAPatch))?;
        let patch = self.open_patch(&next)?;
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
    fn start(&mut self) -> Result<Option<Start>> {
        let size = self.source.size();
        if self.at >= size && self.at > 0 {
            return Ok(None);
        }
        let rest = Part { source: Arc::clone(&self.source), range: self.at..size };
        let start = Start::read(&rest).map_err(|error| bytes_after(error, self.at > 0))?;
        let found = rest.size();
        if start.file_len() > found {
            return Err(Error::Patch(PatchFault::Length { expected: start.file_len(), found }));
        }
        self.number = self.number.saturating_add(1);
        Ok(Some(start))
    }

    /// Opens the patch that starts with `next`, and checks its digest.
    fn open_patch(&mut self, next: &Start) -> Result<Patch> {
        let range = self.at..self.at.saturating_add(next.file_len());
        let patch = Patch::new(Box::new(Part { source: Arc::clone(&self.source), range }))?;
        self.skip(next);
        Ok(patch)
    }

    /// Passes over the patch that starts with `next`.
    fn skip(&mut self, next: &Start) {
        self.at = self.at.saturating_add(next.file_len());
    }

    /// Passes each patch that fits `image` to `change`, which makes another state of it. `image`
    /// gives the current state.
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
            let header = next.header();
            let base = Base { uuid: header.uuid, state: header.base_state, size: header.base_size };
            let fault = match check_state(image(state), header, next.appended()) {
                Ok(_) => {
                    let patch = self.open_patch(&next).map_err(|e| failed(e, applied.count))?;
                    match change(state, &patch) {
                        Ok(()) => {
                            applied.count = applied.count.saturating_add(1);
                            applied.time = Some(patch.time());
                            continue;
                        }
                        // Nothing was written: another patch may be for an image with the same
                        // superblock.
                        Err(Error::Patch(fault @ PatchFault::BaseChanged)) => fault,
                        Err(error) => return Err(failed(error, applied.count)),
                    }
                }
                Err(Error::Patch(fault)) => {
                    self.skip(&next);
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

    /// Applies the patches that fit the image on `medium`, in their order, each as [`apply_with`]
    /// does.
    ///
    /// # Errors
    /// As [`apply_with`]; [`PatchFault::NoneFits`]. After an error in a later patch, the earlier
    /// ones are applied: [`Error::InSequence`].
    pub fn apply<M: Medium>(
        &mut self,
        medium: &M,
        trailing: TrailingData,
        progress: &ApplyProgress,
        cancel: &Cancel,
    ) -> Result<AppliedPatches> {
        self.each_fitting(
            &mut &*medium,
            |medium| *medium,
            |medium, patch| apply_with(*medium, patch, trailing, progress, cancel),
        )
    }

    /// The image that the patches that fit make of `base`, in memory, in their order, each as
    /// [`overlay_with`] does.
    ///
    /// # Errors
    /// As [`overlay_with`]; [`PatchFault::NoneFits`].
    pub fn overlay(
        &mut self,
        base: Arc<dyn Source>,
        cache: &PieceCache,
        cancel: &Cancel,
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

/// The error about the start of a patch, which `is_later` than the first of its file.
fn bytes_after(error: Error, is_later: bool) -> Error {
    match error {
        Error::Patch(PatchFault::NotAPatch) if is_later => Error::Patch(PatchFault::BytesAfter),
        error => error,
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
