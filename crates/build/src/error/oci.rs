//! The faults of an OCI image layout.

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
    /// A blob is not in the layout. The specification allows layouts to leave out blobs that are stored elsewhere.
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
    #[error("several images; select one by its platform or its name: {}", List(.0))]
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
