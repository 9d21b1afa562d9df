//! Why a patch, or an image's history, cannot be used.

/// What is wrong with a patch, or between a patch and an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchFault {
    /// The file does not start as patches do.
    #[error("not a patch of ferofs")]
    NotAPatch,
    /// A patch of a form that came later.
    #[error("a patch of version {0}, which this program does not know")]
    Version(u32),
    /// The file is shorter or longer than it says.
    #[error("a patch of {expected} bytes, of which there are {found}")]
    Length {
        /// Bytes that the patch says it has.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The file's bytes are not those that were written.
    #[error("the patch is damaged: its checksum is another")]
    Damaged,
    /// A checksum is right but what it covers is not.
    #[error("the patch contradicts itself: {0}")]
    Malformed(&'static str),
    /// The image has another identity.
    #[error("the patch is for another image: its base has UUID {expected}, this image {found}")]
    OtherImage {
        /// The base's UUID.
        expected: String,
        /// The image's.
        found: String,
    },
    /// The image is what the patch makes of its base.
    #[error("the patch has been applied already")]
    AlreadyApplied,
    /// The image has the base's identity, but is in another state.
    #[error("the patch is for state {expected} of this image, which is in another one ({found})")]
    OtherState {
        /// The number of the state that the patch was made for.
        expected: u64,
        /// The number of the state that the image is in.
        found: u64,
    },
    /// The superblock is the base's, but other bytes are not.
    #[error("the image is not the patch's base: some of its bytes were changed")]
    BaseChanged,
    /// The image, with what was appended, is not what was meant to come out.
    #[error("what was written is not what the patch describes")]
    ResultDiffers,
    /// A device that is too small.
    #[error("the patched image has {needed} bytes; there is room for {available}")]
    NoRoom {
        /// Bytes of the patched image.
        needed: u64,
        /// Bytes of the device.
        available: u64,
    },
    /// Foreign bytes stand where the image would grow.
    #[error(
        "the image ends at byte {end}, but its file or device holds other data from byte {pos} on, which would be \
         overwritten: --grow-over allows that"
    )]
    Beyond {
        /// Bytes of the image.
        end: u64,
        /// The first byte behind it that is not zero.
        pos: u64,
    },
    /// No record of a history tells what the superblock was.
    #[error("the superblock is damaged, and the image has no record of a patch that fits it")]
    NoRecord,
    /// No inode near the image's start is free, and the superblock has 16 bits for the root's number.
    #[error("no room for another root directory near the start of the metadata: squash the image first")]
    NoRootSlot,
    /// Compressed content cannot be added to an image of before Linux 5.4's `LZ4_0PADDING`.
    #[error(
        "the image is compressed without LZ4_0PADDING (Linux 5.3 or legacy-compress): new content can only be stored (-z \
         none), or squash the image first"
    )]
    OldPadding,
    /// The images, or image and directory, do not differ.
    #[error("there is nothing to patch: both trees are the same")]
    Unchanged,
    /// Images whose content lies on more devices than one.
    #[error("images on several devices cannot be patched")]
    Devices,
    /// The superblock's sector has no room for what it must say.
    #[error("the superblock's sector has no room for the configuration of another algorithm")]
    NoConfigRoom,
    /// The image's own history says nothing.
    #[error("the image has no history: it was never patched")]
    NoHistory,
    /// There is no such state in the history.
    #[error("the image has no state {0}: see the log")]
    NoSuchState(u64),
    /// Going back to where one is.
    #[error("the image is in state {0} already")]
    SameState(u64),
    /// Another process changes the image.
    #[error("another process is changing the image")]
    Busy,
}
