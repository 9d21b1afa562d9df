//! The faults of a tar archive, of an entry of an archive or a layer, and of an OCI image layout.

use ferofs_host::KnownFormat;

/// The error in a member of an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarFault {
    /// The header's checksum is wrong.
    #[error("the header's checksum is wrong: the file is not a tar archive, or is damaged")]
    Checksum,
    /// The file has another format.
    #[error("not a tar archive: {0}")]
    OtherFormat(KnownFormat),
    /// The file begins with zeroes, and more than the zeroes of an empty archive follows.
    #[error(
        "not a tar archive: it begins with zeroes. If it is a disk image, mount it, then: ferofs build DIR IMAGE"
    )]
    Zeroes,
    /// A field of the header is not a number, or is out of range.
    #[error("{0} is not a number, or is out of range")]
    Number(&'static str),
    /// A record of an extended header is malformed.
    #[error("a malformed extended header")]
    Pax,
    /// The extended headers of a member, or a long name, are too large.
    #[error(
        "an extended header of {size} bytes: the limit is {limit}, unless the limits for archives are raised"
    )]
    HugeHeader {
        /// The size according to the headers, in bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The global extended headers have too many bytes.
    #[error(
        "global headers of more than {limit} bytes, the limit unless the limits for archives are raised"
    )]
    GlobalHeaders {
        /// The limit.
        limit: u64,
    },
    /// Attributes, sparse maps, replaced members and implied directories need too much memory for
    /// the size of the archive.
    #[error(
        "attributes, sparse maps or replaced members need more than {limit} bytes of memory, the limit unless the limits for \
         archives are raised"
    )]
    Memory {
        /// The limit.
        limit: u64,
    },
    /// Holes of sparse files cause too much work for the size of the archive.
    #[error(
        "holes of sparse files cost more than {limit} bytes, the limit unless the limits for archives are raised"
    )]
    Holes {
        /// The limit.
        limit: u64,
    },
    /// A sparse file is too large.
    #[error(
        "a sparse file of {size} bytes: the limit is {limit}, unless the limits for archives are raised"
    )]
    SparseFile {
        /// The size according to the headers, in bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The archive ends within the member.
    #[error("the archive ends within this member")]
    Truncated,
    /// The archive has no bytes, not even an end mark.
    #[error("the archive is empty")]
    Empty,
    /// The map of a sparse file is malformed, or its pieces overlap or are outside the file.
    #[error("a malformed map of a sparse file")]
    Sparse,
    /// The member continues in another volume.
    #[error("a part of an archive of several volumes")]
    Volume,
    /// The member has no name.
    #[error("a member without a name")]
    NoName,
    /// The member cannot be inserted into the tree.
    #[error(transparent)]
    Entry(#[from] EntryFault),
}

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
    /// The name of an extended attribute contains a NUL, or does not start with a prefix that the
    /// format knows, such as `user.`, and has more bytes after it.
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

/// The error in an OCI image layout, or in one of its blobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OciFault {
    /// A required file is missing.
    #[error("not an OCI image layout: {0} is missing")]
    NoLayout(&'static str),
    /// A file is missing that the manifest of an archive of `docker save` names.
    #[error("{0} is missing, which manifest.json names")]
    NoMember(String),
    /// The layout has an unknown version.
    #[error("unsupported version {0} of the OCI image layout")]
    Version(String),
    /// A blob is not in the layout. The specification allows layouts to leave out blobs that are
    /// stored elsewhere.
    #[error("not in the layout")]
    Missing,
    /// A blob's size differs from the one in its descriptor.
    #[error("{found} bytes instead of {claimed}")]
    Size {
        /// The size of the blob's file.
        found: u64,
        /// The size in the descriptor.
        claimed: u64,
    },
    /// A blob's digest differs from its name.
    #[error("damaged: its digest is {0}")]
    Digest(String),
    /// A JSON document is too large.
    #[error("a document of {size} bytes: the limit is {limit}")]
    HugeDocument {
        /// The document's size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A manifest has too many layers.
    #[error("{count} layers: the limit is {limit}")]
    Layers {
        /// Layers in the manifest.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A JSON document is malformed.
    #[error("malformed document: {0}")]
    Document(String),
    /// Image indexes are nested too deeply.
    #[error("image indexes are nested too deeply")]
    Nesting,
    /// No image has the platform and the name that the options select.
    #[error("no image {wanted}; available: {}", List(.available))]
    NoImage {
        /// The selected name and platform.
        wanted: String,
        /// The platforms or names of the layout's images.
        available: Vec<String>,
    },
    /// The options match several images.
    #[error("several images; --image-name or --platform selects one: {}", List(.0))]
    Ambiguous(Vec<String>),
    /// The only image has a platform that the options do not select.
    #[error("an image for {0}")]
    OtherPlatform(String),
    /// A layer is encrypted.
    #[error("an encrypted layer")]
    Encrypted,
    /// A layer is not a tar archive.
    #[error("a layer of type {0}, which is not a file system")]
    MediaType(String),
}

struct List<'a>(&'a [String]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&self.0.join(", ")) }
    }
}
