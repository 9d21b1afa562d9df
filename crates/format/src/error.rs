//! The ways in which an image can be invalid.
//!
//! A [`Fault`] is a broken rule of the format; `check` reports its name. A [`FormatError`] adds the
//! structure; the reader adds the position in the image and the inode.

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

/// A broken rule of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The data needs a decoder that this program was built without.
    #[error("{0} data, and this program was built without its decoder")]
    NotBuilt(&'static str),
    /// The structure needs more bytes than there are.
    #[error("truncated: needs {need} bytes, has {have}")]
    Truncated {
        /// Bytes that the structure needs.
        need: u64,
        /// Bytes that are available.
        have: u64,
    },
    /// The file of an image or a device is shorter than the image says.
    #[error("truncated: the file has {have} bytes, and should have {need}")]
    CutOff {
        /// Bytes of the file.
        have: u64,
        /// Bytes that it should have.
        need: u64,
    },
    /// Bytes do not agree with the root hash.
    #[error("{0}")]
    Digest(&'static str),
    /// Bytes are left over after the structure's end.
    #[error("{0} bytes too many")]
    TrailingBytes(u64),
    /// The magic number differs: this is not an EROFS image.
    #[error("not an EROFS image (magic {0:#010x})")]
    Magic(u32),
    /// The stored and the computed checksum differ.
    #[error("checksum is {stored:#010x}, should be {computed:#010x}")]
    Checksum {
        /// The checksum in the image.
        stored: u32,
        /// The checksum of the image's bytes.
        computed: u32,
    },
    /// Incompatible features that this crate does not support.
    #[error("unknown incompatible features {0:#x}")]
    UnknownFeatures(u32),
    /// A field has a value that the format does not define.
    #[error("{field} is {value}")]
    Field {
        /// The field's name in the format.
        field: &'static str,
        /// The field's value.
        value: u64,
    },
    /// A structure uses a feature that the superblock does not announce.
    #[error("uses {0}, which the superblock does not announce")]
    FeatureNotSet(&'static str),
    /// An address, an offset or a size exceeds its limit.
    #[error("{field} {value} is past the end ({limit})")]
    OutOfRange {
        /// The field's name in the format.
        field: &'static str,
        /// The field's value.
        value: u64,
        /// The smallest value that is too large.
        limit: u64,
    },
    /// A computation with a field's value exceeds 64 bits.
    #[error("{0} overflows")]
    Overflow(&'static str),
    /// Names are not sorted.
    #[error("names out of order")]
    NameOrder,
    /// Two entries have the same name.
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
        /// The link count in the inode.
        stored: u64,
        /// The number of directory entries.
        found: u64,
    },
    /// A directory entry's file type differs from its inode's.
    #[error("file type differs from the inode's")]
    FileTypeMismatch,
    /// The inode's name filter says that an existing attribute is absent.
    #[error("name filter denies an attribute that is there")]
    NameFilter,
    /// Two structures, or a structure and data, overlap.
    #[error("overlaps {0}")]
    Overlap(&'static str),
    /// The map does not cover its file, or is inconsistent.
    #[error("{0}")]
    Map(&'static str),
    /// Encoded data is corrupt, or does not decode to the length in the map.
    #[error("does not decode")]
    Decode,
    /// Linux cannot decode the data, although libraries can.
    #[error("{0}")]
    LinuxDecoder(&'static str),
    /// Linux reads the data from another position than the map says.
    #[error("{0}")]
    LinuxReads(&'static str),
    /// Linux reads other bytes before this feature's first version, which no flag of the superblock
    /// announces.
    #[error("{0}")]
    OlderLinux(&'static str),
    /// Structures refer to each other in a cycle, or too deeply.
    #[error("nested too deeply")]
    Recursion,
}

impl Fault {
    /// The name of the rule, for programs that read reports. It does not change between versions.
    /// docs/CLI.md lists all names.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::NotBuilt(_) => "not-built",
            Self::Truncated { .. } | Self::CutOff { .. } => "truncated",
            Self::Digest(_) => "digest",
            Self::TrailingBytes(_) => "trailing-bytes",
            Self::Magic(_) => "magic",
            Self::Checksum { .. } => "checksum",
            Self::UnknownFeatures(_) => "unknown-features",
            Self::Field { .. } => "field-value",
            Self::FeatureNotSet(_) => "feature-not-set",
            Self::OutOfRange { .. } => "out-of-range",
            Self::Overflow(_) => "overflow",
            Self::NameOrder => "name-order",
            Self::DuplicateName => "duplicate-name",
            Self::NameFilter => "name-filter",
            Self::Overlap(_) => "overlap",
            Self::Name => "name",
            Self::DotEntry => "dot-entry",
            Self::DirectoryLoop => "directory-loop",
            Self::LinkCount { .. } => "link-count",
            Self::FileTypeMismatch => "file-type",
            Self::Map(_) => "map",
            Self::Decode => "decode",
            Self::LinuxDecoder(_) => "linux-decoder",
            Self::LinuxReads(_) => "linux-reads",
            Self::OlderLinux(_) => "older-linux",
            Self::Recursion => "recursion",
        }
    }

    /// Whether the image may be valid but needs a newer version of this crate.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::UnknownFeatures(_) | Self::NotBuilt(_))
    }
}

/// A fault and its position in a structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {fault}")]
pub struct FormatError {
    /// The invalid structure.
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
