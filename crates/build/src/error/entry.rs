//! Why an entry of an archive or a layer cannot have its place in the tree.

/// Why an entry cannot be put where it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misplaced {
    /// A hard link's target is not there (yet).
    #[error("a hard link to something that is not there")]
    LinkToNothing,
    /// A hard link's target is a directory, perhaps the root.
    #[error("a hard link to a directory")]
    LinkToDirectory,
    /// The path leads through something that is no directory.
    #[error("below something that is no directory")]
    NotADirectory,
    /// The path leads through a loop of symbolic links.
    #[error("below a loop of symbolic links")]
    Loop,
    /// The path leads to more directories within directories than an image is made of.
    #[error("more than 4096 directories within each other")]
    TooDeep,
    /// The root can be nothing but a directory.
    #[error("the root is no directory")]
    Root,
    /// A name has more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    NameTooLong,
    /// A symbolic link's target is empty, longer than 4095 bytes, or has a NUL in it.
    #[error("a symbolic link to an impossible target")]
    Target,
    /// There are more than 2^32 entries.
    #[error("more files than an image can have")]
    TooMany,
}
