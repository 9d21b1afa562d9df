//! The faults of an entry of an archive or a layer.

/// Why an entry cannot be inserted into the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// A hard link's target does not exist, or comes later in the archive.
    #[error("a hard link to a name that does not exist, or comes later")]
    LinkTargetMissing,
    /// A definition changes a file that does not exist.
    #[error("there is no file of this name to change")]
    Missing,
    /// A hard link's target is a directory, perhaps the root.
    #[error("a hard link to a directory")]
    LinkToDirectory,
    /// A part of the path is not a directory.
    #[error("a part of the path is not a directory")]
    NotADirectory,
    /// A part of the path is in a loop of symbolic links.
    #[error("the path contains a loop of symbolic links")]
    SymlinkLoop,
    /// Directories are nested too deeply.
    #[error("more than 4096 nested directories")]
    TooDeep,
    /// The root must be a directory.
    #[error("the root is not a directory")]
    RootNotDirectory,
    /// A name has more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    NameTooLong,
    /// A symbolic link's target is empty, longer than 4095 bytes, or contains a NUL.
    #[error("a symbolic link whose target is empty, longer than 4095 bytes, or contains a NUL")]
    SymlinkTarget,
    /// Something else would replace a directory that has entries.
    #[error("a directory with entries is there")]
    DirectoryNotEmpty,
    /// A path has `..` or a NUL.
    #[error("a path with .. or a NUL")]
    Path,
    /// The nanoseconds of a time are 10^9 or more.
    #[error("a time with 1,000,000,000 nanoseconds or more")]
    Nanoseconds,
    /// The name of an extended attribute contains a NUL, or does not start with a prefix that the format knows, such as `user.`, and
    /// has more bytes after it.
    #[error(
        "an extended attribute whose name contains a NUL, or has no prefix such as user. or nothing after it"
    )]
    XattrName,
    /// Linux refuses the value of an attribute for an ACL.
    #[error("the value is not an ACL, or has an entry for a user or group without an ID")]
    Acl,
    /// A major number of 2^12 or more, or a minor number of 2^20 or more.
    #[error("a device with a major number above 4,095 or a minor number above 1,048,575")]
    DeviceNumber,
    /// An option gives the file an owner or a group that Linux does not have.
    #[error(
        "the options make {0} its user or group ID, but IDs are from 0 to 4294967294: change --uid-offset, --gid-offset, \
         --force-uid or --force-gid"
    )]
    Owner(i64),
    /// The content is not a range of a regular file.
    #[error("content from an image that is not a range of a regular file")]
    ImageRange,
    /// There are more than 2^32 entries.
    #[error("more files than an image can store")]
    TooManyFiles,
}
