//! The error of this crate, which wraps that of reading, and the reasons why a patch, or an image's
//! history, cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use ferofs_format::FormatError;
use ferofs_read::escape::Escaped;
use ferofs_read::{Corruption, IoError};

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation with a patch or an image's history failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The threads did not do their work.
    #[error(transparent)]
    Threads(#[from] ferofs_threads::Error),
    /// An image could not be read.
    #[error(transparent)]
    Read(ferofs_read::Error),
    /// A patch, or an image's history, cannot be used.
    #[error(transparent)]
    Patch(#[from] PatchFault),
    /// The format cannot express a value of the image.
    #[error("the image cannot be written: {0}")]
    Layout(#[from] FormatError),
    /// A compressor does not support the parameters in the patch.
    #[error("{0}")]
    Params(#[from] ferofs_codec::ParamsError),
    /// A compressor failed.
    #[error("compressing failed: {0}")]
    Encode(ferofs_codec::EncodeError),
    /// A later patch of a file with several patches cannot be used. The image is in the state after
    /// the ones before it that fit.
    #[error("patch {number} of the file: {cause} ({applied} before it are applied)")]
    InSequence {
        /// The number of the patch in the file, from 1 on.
        number: usize,
        /// The number of patches before it that were applied.
        applied: u64,
        /// The reason.
        #[source]
        cause: Box<Error>,
    },
    /// A change of an image failed after its first write.
    #[error("{cause}; {image}")]
    Unfinished {
        /// Why it failed.
        #[source]
        cause: Box<Error>,
        /// The state of the image now.
        image: AfterFailure,
    },
    /// One of the files of a delta cannot be used.
    #[error("{}: {cause}", Escaped::path(path))]
    InFile {
        /// The file concerned.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: Box<Error>,
    },
    /// The operation was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// The state of an image after a change that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AfterFailure {
    /// All writes were undone.
    #[error("the image is as before")]
    Unchanged,
    /// The superblock is the old one. What was written stays, so that the same change continues
    /// there.
    #[error(
        "the image shows the old tree; the same command continues where this one stopped, and `repair` removes \
         what was written"
    )]
    Resumable,
    /// The superblock is the old one, but other writes could not be undone.
    #[error(
        "the image shows the old tree; bytes that it does not use were written and could not be restored: the next change \
         of the image, or `repair`, removes them"
    )]
    Leftovers,
    /// Writing the superblock's sector failed, and writing the old one back failed, too.
    #[error(
        "the superblock may be the old one, the new one, or damaged: `repair` restores a damaged one"
    )]
    UncertainSuperblock,
}

impl Error {
    /// An I/O failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io(IoError::new(action, path, source))
    }

    /// An I/O failure of `action` on something without a name.
    pub fn io_unnamed(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io(IoError::unnamed(action, source))
    }

    /// There was no memory for `action`.
    pub(crate) fn no_memory(action: &'static str) -> Self {
        Self::io_unnamed(action, io::ErrorKind::OutOfMemory)
    }

    /// This error, which is about the file `path`.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Io(error) => error.about(path).into(),
            Self::InFile { .. } | Self::Interrupted => self,
            cause => Self::InFile { path: path.to_owned(), cause: Box::new(cause) },
        }
    }

    /// Whether the error is about the file with the patch, not about the image.
    #[must_use]
    pub const fn is_about_patch(&self) -> bool {
        match self {
            Self::InSequence { .. } => true,
            Self::Patch(fault) => matches!(
                fault,
                PatchFault::NotAPatch
                    | PatchFault::NotADelta
                    | PatchFault::WrongBytes(_)
                    | PatchFault::Version(_)
                    | PatchFault::Length { .. }
                    | PatchFault::CutOff
                    | PatchFault::BytesAfter
                    | PatchFault::Damaged
                    | PatchFault::Malformed(_)
            ),
            _ => false,
        }
    }

    /// This failure of a change, with the state of the image after it.
    pub(crate) fn unfinished(self, image: AfterFailure) -> Self {
        Self::Unfinished { cause: Box::new(self), image }
    }
}

/// I/O errors and interruptions of all crates become the same variants here, so that callers match
/// one.
impl From<ferofs_read::Error> for Error {
    fn from(error: ferofs_read::Error) -> Self {
        match error {
            ferofs_read::Error::Io(error) => Self::Io(error),
            ferofs_read::Error::Interrupted => Self::Interrupted,
            error => Self::Read(error),
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Read(corruption.into())
    }
}

/// Without memory, the error is one of the system.
impl From<ferofs_codec::EncodeError> for Error {
    fn from(error: ferofs_codec::EncodeError) -> Self {
        match error {
            ferofs_codec::EncodeError::Memory => Self::no_memory("compress"),
            error => Self::Encode(error),
        }
    }
}

fn no_space(is_file: bool, needed: u64, available: u64) -> String {
    match is_file {
        true => {
            format!("the file system cannot extend the file from {available} to {needed} bytes")
        }
        false => format!("it has {needed} bytes, the device has {available}"),
    }
}

/// Why a patch cannot be made, read or applied, or an image's history cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchFault {
    /// The file has no patch header.
    #[error("not a patch of ferofs")]
    NotAPatch,
    /// The file is not a delta.
    #[error("not a delta of ferofs")]
    NotADelta,
    /// The old image is not the one that a delta was made from.
    #[error(
        "not the image that the delta was made from: its SHA-256 is {found}, and should be {expected}"
    )]
    OtherOld {
        /// The SHA-256 that the delta names.
        expected: String,
        /// That of the image.
        found: String,
    },
    /// A delta gives other bytes than it describes.
    #[error(
        "the delta is damaged: it gives wrong bytes for the MiB from byte {0} on; they were not written"
    )]
    WrongBytes(u64),
    /// The patch has an unknown version.
    #[error("the file has version {0}, which this program does not know")]
    Version(u32),
    /// The file's length differs from the one in its header.
    #[error("the file should have {expected} bytes, and has {found}")]
    Length {
        /// Bytes that the patch says it has.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The file of a delta ends before the delta does.
    #[error("the file is cut off")]
    CutOff,
    /// The file has other bytes after a patch or delta.
    #[error("the file has other bytes after the patch or delta: copy it again")]
    BytesAfter,
    /// The file has another patch after the first one.
    #[error("the file has several patches, one after another, and this needs a file with one")]
    Several,
    /// No patch of a file is for this image: the images that they are for.
    #[error("none of the {} patches is for this image: they are for {}", .0.len(), .0.join(", for "))]
    NoneFits(Vec<String>),
    /// The file's checksum is wrong.
    #[error("the file is damaged: its checksum is another")]
    Damaged,
    /// The checksum is right, but the contents are invalid.
    #[error("the file contradicts itself: {0}")]
    Malformed(&'static str),
    /// The patch needs a compressor of another version: only that gives the same bytes.
    #[error(
        "it needs the {algorithm} encoder of version {expected}, and this program has version {found}: create it \
         with --portable"
    )]
    Encoder {
        /// The algorithm.
        algorithm: &'static str,
        /// The version that the patch needs.
        expected: u32,
        /// The version of this program.
        found: u32,
    },
    /// The image has another UUID.
    #[error("the patch is for another image: its base has UUID {expected}, this image {found}")]
    OtherImage {
        /// The base's UUID.
        expected: String,
        /// The image's.
        found: String,
    },
    /// The patch made the image's current state, or an earlier one that the current state is built
    /// on.
    #[error("the patch has been applied already")]
    AlreadyApplied,
    /// The image has the base's UUID, but is in another state.
    #[error("{}: see the log of the image", other_state(*.expected, *.found))]
    OtherState {
        /// The number of the state that the patch was made for.
        expected: u64,
        /// The number of the state that the image is in.
        found: u64,
    },
    /// The file or device ends before the image does.
    #[error(
        "the image should have {expected} bytes, and the file has {found}: it was cut off, or is another image"
    )]
    Truncated {
        /// Bytes of the image, as its superblock says.
        expected: u64,
        /// Bytes of the file or device.
        found: u64,
    },
    /// The image has the base's UUID and the number of its state, but other bytes.
    #[error(
        "the image is not the patch's base: some of its bytes are others (it was changed, squashed or built again, or other \
         patches were applied): create a patch for the image as it is"
    )]
    BaseChanged,
    /// The patched image differs from the one that the patch was made for.
    #[error("what was written is not what the patch describes")]
    ResultDiffers,
    /// The medium is too small for the patched image.
    #[error("no space for the new image: {}", no_space(*.is_file, *.needed, *.available))]
    NoSpace {
        /// The medium is a file, for which the file system has no space.
        is_file: bool,
        /// Bytes of the patched image.
        needed: u64,
        /// Bytes of the file or of the device.
        available: u64,
    },
    /// There is other data after the image, where it would grow.
    #[error(
        "the image ends at byte {end}, but its file or device holds other data from byte {pos} on, which would be \
         overwritten: --grow-over allows that"
    )]
    TrailingData {
        /// Bytes of the image.
        end: u64,
        /// The position of the first byte after it that is not zero.
        pos: u64,
    },
    /// The hash tree of a seal follows the image.
    #[error(
        "a seal follows the image, from byte {pos} on, which would be wrong for the new image: change the image without \
         its seal (truncate it to {pos} bytes), and seal it again"
    )]
    Sealed {
        /// The position of the seal's superblock.
        pos: u64,
    },
    /// The superblock is damaged, and no record of the history has the right one.
    #[error("the superblock is damaged, and the image has no record of a patch that fits it")]
    NoRecord,
    /// The root's nid must fit in 16 bits, and no slot with such a nid is free.
    #[error(
        "no free slot for another root directory near the start of the metadata: squash the image first"
    )]
    NoRootSlot,
    /// Compressed content cannot be added to a compressed image without `LZ4_0PADDING`, the layout
    /// before Linux 5.4.
    #[error(
        "the image is compressed without LZ4_0PADDING (Linux 5.3 or legacy-compress): new content can only be stored (-z \
         none), or squash the image first"
    )]
    OldPadding,
    /// The new tree is the image's tree.
    #[error("there is nothing to patch: both trees are the same")]
    Unchanged,
    /// The image has content on other devices.
    #[error("images on several devices cannot be patched")]
    Devices,
    /// The superblock's sector has no space for the configurations of all algorithms.
    #[error("the superblock's sector has no space for the configuration of another algorithm")]
    NoConfigSpace,
    /// The image has no history.
    #[error("the image has no history: it was never patched")]
    NoHistory,
    /// The history has no state with this number.
    #[error("the image has no state {0}: see the log")]
    NoSuchState(u64),
    /// The image is in the wanted state already.
    #[error("the image is in state {0} already")]
    SameState(u64),
    /// There is other data after the image, which a new file would not have.
    #[error(
        "the file holds other data from byte {0} on, after the image, which the new image would not have"
    )]
    DataBehind(u64),
    /// A device cannot be replaced by a new image in one step.
    #[error(
        "not a regular file: a new image takes the place of the old one by a new file, which a device cannot get; squash \
         into a file, and copy that"
    )]
    NotAFile,
    /// Another process has locked the image to change it.
    #[error("another process is changing the image")]
    Busy,
}

fn other_state(expected: u64, found: u64) -> String {
    if expected == found {
        return format!(
            "the patch is for a state {expected} of this image that other patches made than its own"
        );
    }
    format!("the patch is for state {expected} of this image, which is in another one ({found})")
}
