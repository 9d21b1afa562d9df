//! What can be wrong with bytes that claim to be an EROFS image.
//!
//! A [`Fault`] is a rule that was broken; `check` uses the same rules as its finding ids. A reader adds
//! the position in the image and the inode to a [`FormatError`], which only knows the structure.

use core::fmt;

/// The on-disk structure in which a fault was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is named as in docs/FORMAT.md")]
pub enum Structure {
    Superblock,
    CompressionConfig,
    DeviceTable,
    Inode,
    Directory,
    Xattr,
    XattrPrefix,
    ChunkIndex,
    MapHeader,
    FullIndex,
    CompactIndex,
    EncodedExtent,
    InlineData,
    Extent,
    PackedInode,
    Metabox,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::CompressionConfig => "compression configuration",
            Self::DeviceTable => "device table",
            Self::Inode => "inode",
            Self::Directory => "directory",
            Self::Xattr => "xattr",
            Self::XattrPrefix => "xattr prefix",
            Self::ChunkIndex => "chunk index",
            Self::MapHeader => "map header",
            Self::FullIndex => "full index",
            Self::CompactIndex => "compact index",
            Self::EncodedExtent => "encoded extent",
            Self::InlineData => "inline data",
            Self::Extent => "extent",
            Self::PackedInode => "packed inode",
            Self::Metabox => "metabox",
        })
    }
}

/// A rule of the format that bytes break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The structure needs more bytes than there are.
    #[error("truncated: needs {need} bytes, has {have}")]
    Truncated {
        /// Bytes that the structure needs.
        need: u64,
        /// Bytes that there are.
        have: u64,
    },
    /// Bytes are left over after the structure's end.
    #[error("{0} bytes too many")]
    TrailingBytes(u64),
    /// The magic number is not EROFS's: this is no EROFS image.
    #[error("not an EROFS image (magic {0:#010x})")]
    Magic(u32),
    /// The stored and the computed checksum differ.
    #[error("checksum is {stored:#010x}, should be {computed:#010x}")]
    Checksum {
        /// As stored in the image.
        stored: u32,
        /// As computed from its bytes.
        computed: u32,
    },
    /// Incompatible features that this program does not know.
    #[error("unknown incompatible features {0:#x}")]
    UnknownFeatures(u32),
    /// A field holds a value that the format does not have.
    #[error("{field} is {value}")]
    Field {
        /// The field's name in the format.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A field's value needs a feature that the superblock does not announce.
    #[error("uses {0}, which the superblock does not announce")]
    FeatureNotSet(&'static str),
    /// An address or size points past the end of what it points into.
    #[error("{field} {value} is past the end ({limit})")]
    OutOfRange {
        /// The field's name in the format.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The first value that is too large.
        limit: u64,
    },
    /// Arithmetic on a field's value leaves 64 bits.
    #[error("{0} overflows")]
    Overflow(&'static str),
    /// Names are not sorted.
    #[error("names out of order")]
    NameOrder,
    /// A name appears twice where each must be different.
    #[error("a name appears twice")]
    DuplicateName,
    /// A name is empty, too long, or holds a NUL or a slash.
    #[error("invalid name")]
    Name,
    /// `.` or `..` is missing or points elsewhere.
    #[error("`.` or `..` is missing or wrong")]
    DotEntry,
    /// A directory is reached more than once.
    #[error("directory is reached twice")]
    DirectoryLoop,
    /// The link count differs from the number of names.
    #[error("link count is {stored}, has {found} names")]
    LinkCount {
        /// As stored in the inode.
        stored: u64,
        /// As counted in the directories.
        found: u64,
    },
    /// A directory entry's file type differs from its inode's.
    #[error("file type differs from the inode's")]
    FileTypeMismatch,
    /// A name filter that denies an attribute which is there.
    #[error("name filter denies an attribute that is there")]
    NameFilter,
    /// Two structures, or a structure and data, take the same bytes.
    #[error("overlaps {0}")]
    Overlap(&'static str),
    /// A map that does not cover its file, or contradicts itself.
    #[error("{0}")]
    Map(&'static str),
    /// Encoded data that does not decode to what the map says.
    #[error("does not decode")]
    Decode,
    /// Encoded data that libraries decode, and Linux does not.
    #[error("{0}")]
    LinuxDecoder(&'static str),
    /// Data that Linux reads from another place than the map says.
    #[error("{0}")]
    LinuxReads(&'static str),
    /// Structures that refer to each other without end.
    #[error("nested too deeply")]
    Recursion,
}

impl Fault {
    /// Whether the bytes may be a sound image that merely needs a newer program.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::UnknownFeatures(_))
    }
}

/// A fault, and where it is within the bytes that were given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {fault}")]
pub struct FormatError {
    /// The structure that is malformed.
    pub structure: Structure,
    /// Bytes from the start of the structure to the fault.
    pub offset: u64,
    /// The broken rule.
    pub fault: Fault,
}

impl FormatError {
    /// A fault at the structure's start.
    #[must_use]
    pub const fn new(structure: Structure, fault: Fault) -> Self {
        Self { structure, offset: 0, fault }
    }

    /// The same fault, `offset` bytes into the structure.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }
}

/// The result of parsing.
pub type Result<T, E = FormatError> = core::result::Result<T, E>;
