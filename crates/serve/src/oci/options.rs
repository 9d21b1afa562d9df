//! The options of the caller for registries and images.

use std::fmt;
use std::path::PathBuf;

use super::reference::is_digest;

/// How a registry is asked, and what of an image is meant.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct OciOptions {
    /// User and password, instead of those in files.
    pub user: Option<(String, String)>,
    /// A token of the registry, instead of one that is asked for.
    pub token: Option<String>,
    /// Ask without credentials.
    pub anonymous: bool,
    /// The file with credentials, instead of those of podman and docker.
    pub auth_file: Option<PathBuf>,
    /// Whether to use http. Otherwise only for registries on this machine.
    pub plain_http: Option<bool>,
    /// The platform: `linux/amd64`, `linux/arm/v7`. Otherwise that of this machine.
    pub platform: Option<String>,
    /// The layer, if an image has several.
    pub layer: Option<LayerChoice>,
}

impl fmt::Debug for OciOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (platform, layer) = (&self.platform, &self.layer);
        f.debug_struct("OciOptions")
            .field("platform", platform)
            .field("layer", layer)
            .finish_non_exhaustive()
    }
}

/// The choice of a layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerChoice {
    /// By its position, from 0.
    Index(usize),
    /// By its digest.
    Digest(String),
}

impl std::str::FromStr for LayerChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_digest(text) {
            return Ok(Self::Digest(text.to_owned()));
        }
        text.parse().map(Self::Index).map_err(|_| "neither a number nor a digest")
    }
}
