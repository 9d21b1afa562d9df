//! What can be wrong with an OCI image layout.

/// What is wrong with an OCI image layout, or with a blob of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OciFault {
    /// A file that every layout has is missing.
    #[error("no OCI image layout: there is no {0}")]
    NoLayout(&'static str),
    /// The layout is of a version that this program does not know.
    #[error("an OCI image layout of version {0}, which is not known")]
    Version(String),
    /// A blob that is referred to is not there; layouts may leave out what is elsewhere.
    #[error("not in the layout")]
    Missing,
    /// A blob has another size than what refers to it says.
    #[error("{found} bytes instead of {claimed}")]
    Size {
        /// The file's.
        found: u64,
        /// What the descriptor says.
        claimed: u64,
    },
    /// A blob's bytes are others than its name says.
    #[error("damaged: its digest is {0}")]
    Digest(String),
    /// A JSON document is larger than any that means well.
    #[error("a document of {size} bytes: the limit is {limit}")]
    HugeDocument {
        /// The document's size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A manifest has more layers than any image.
    #[error("{count} layers: the limit is {limit}")]
    Layers {
        /// Layers in the manifest.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A JSON document is malformed.
    #[error("not the document that it should be: {0}")]
    Document(String),
    /// Indexes lead to indexes, again and again.
    #[error("indexes within indexes, too deep")]
    Nesting,
    /// No image is for the platform, or has the name, that was asked for.
    #[error("no image {wanted}; there are {}", List(.there))]
    NoImage {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Several images could be meant.
    #[error("several images; say which one by its platform or its name: {}", List(.0))]
    Ambiguous(Vec<String>),
    /// The only image is for another platform than was asked for.
    #[error("an image for {0}")]
    OtherPlatform(String),
    /// A layer is encrypted.
    #[error("an encrypted layer")]
    Encrypted,
    /// A layer is no tar archive.
    #[error("a layer of type {0}, which is no file system's")]
    MediaType(String),
}

struct List<'a>(&'a [String]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { f.write_str(&self.0.join(", ")) }
    }
}
