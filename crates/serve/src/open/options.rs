//! The caller's options for an image, and the values that its server gives.

use std::path::PathBuf;
use std::sync::Arc;

use ferofs_verity::Digest;

use crate::object::RemoteObject;

/// The caller's options for an image.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenRemote {
    /// The root hash that the image must have. Otherwise the one that the registry's manifest
    /// names.
    pub root: Option<Digest>,
    /// The position of the seal's superblock. Otherwise after the image's last block.
    pub hash_offset: Option<u64>,
    /// Read an image without a root hash: wrong bytes of the server, of the network or of the cache
    /// are not noticed.
    pub allow_unverified: bool,
    /// Use only what the cache has.
    pub offline: bool,
    /// Files on this machine whose blocks are copied if the image has the same ones: an older
    /// version of it. Blocks of other images in the cache are also used.
    pub reuse: Vec<PathBuf>,
}

/// The values that a server gives for an image.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connected {
    /// The object.
    pub object: Arc<dyn RemoteObject>,
    /// Its first bytes, if they came with the first answer.
    pub first_bytes: Vec<u8>,
    /// The root hash that a document names, which the location or the digest in it vouches for.
    pub root: Option<Digest>,
    /// The position of the seal that the same document names.
    pub hash_offset: Option<u64>,
    /// The access profile that the same document names, by its digest.
    pub profile: Option<Arc<dyn RemoteObject>>,
    /// The digest of that document, if it is a manifest.
    pub manifest: Option<String>,
}

impl Connected {
    /// An object of which no document tells a root hash.
    #[must_use]
    pub fn new(object: Arc<dyn RemoteObject>, first_bytes: Vec<u8>) -> Self {
        Self { object, first_bytes, root: None, hash_offset: None, profile: None, manifest: None }
    }
}
