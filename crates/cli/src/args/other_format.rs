//! What a file is that is not an image, a patch or a delta: the message about it says what to do.

use std::path::Path;

use ferofs::build::KnownFormat;
use ferofs::patch::{ApplyError, DeltaFile, Patch, PatchFault};
use ferofs::read::{FileSource, Image, Source};

use crate::exit::Failure;

/// Bytes up to the end of the superblock.
const IMAGE_MIN: u64 = 1024 + 128;
/// Bytes in which the most formats are recognised.
const START: u64 = 256 << 10;

/// Adds to the error of bytes that are not an image what they are instead.
pub(super) fn with_other_format(failure: Failure, bytes: &dyn Source) -> Failure {
    let is_image = bytes.size() >= IMAGE_MIN && !failure.is_no_image();
    match (!is_image).then(|| other_format(bytes)).flatten() {
        Some(text) => failure.with_hint(text),
        None if bytes.size() < IMAGE_MIN => {
            failure.with_hint("the file is too short to be an EROFS image")
        }
        None => failure,
    }
}

/// The failure of a patch or a delta that cannot be used. If `path` is another kind of file, it
/// says which.
pub(crate) fn unusable_update(error: ApplyError, path: &Path) -> Failure {
    let mut cause = &error;
    while let ApplyError::InFile { cause: inner, .. } = cause {
        cause = inner;
    }
    let is_other =
        matches!(cause, ApplyError::Patch(PatchFault::NotAPatch | PatchFault::NotADelta));
    let failure = match error {
        ApplyError::Patch(_) | ApplyError::InSequence { .. } => Failure::about(path, error),
        error => Failure::without_subject(error),
    };
    let is_image = || FileSource::open(path, 0).is_ok_and(|source| Image::open(source).is_ok());
    match () {
        // What was read of a pipe is gone, and to open it again would wait for a writer.
        () if !is_other || !path.is_file() => failure,
        () if Patch::open(path).is_ok() => {
            failure.with_hint("it is a patch: ferofs patch apply IMAGE PATCH")
        }
        () if DeltaFile::open(path).is_ok() => {
            failure.with_hint("it is a delta: ferofs delta apply OLD DELTA NEW")
        }
        () if is_image() => {
            failure.with_hint("it is an image, which comes before the patch or the delta")
        }
        () => failure,
    }
}

/// What these bytes are instead of an image, and how to make an image of it.
pub(crate) fn other_format(source: &dyn Source) -> Option<String> {
    let mut start = vec![0; source.size().min(START) as usize];
    source.read_exact_at(0, &mut start).ok()?;
    if is_tar(&start) || is_compressed(&start) {
        return Some("this is an archive: use ferofs build FILE IMAGE".to_owned());
    }
    KnownFormat::of(&start).map(|format| format!("this is {format}"))
}

/// Whether `start` begins a file compressed as sources of a build may be: with gzip, xz, lzip or
/// Zstandard.
fn is_compressed(start: &[u8]) -> bool {
    let magics: [&[u8]; 4] = [b"\x1f\x8b", b"\xfd7zXZ\0", b"LZIP", b"\x28\xb5\x2f\xfd"];
    magics.iter().any(|magic| start.starts_with(magic))
}

/// Whether `start` begins a tar archive.
pub(super) fn is_tar(start: &[u8]) -> bool {
    start.get(257..).is_some_and(|magic| magic.starts_with(b"ustar"))
}
