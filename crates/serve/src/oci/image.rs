//! An image of a registry as a whole: its manifest, its configuration, and all its layers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::config::ImageConfig;
use super::manifest::{Descriptor, LayerKind, Manifest};
use super::options::OciOptions;
use super::reference::{Reference, is_digest};
use super::registry::{MANIFEST_MAX, Registry, digest_of};
use super::resolve::{connect, find_manifest};
use super::upload::retried;
use crate::error::{Error, FetchErrorKind, Result};
use crate::http::Client;
use crate::object::RemoteObject;
use crate::open::Connected;
use ferofs_format::units::{to_u64, to_usize};

/// The most layers of an image. Container tools stop at about 128, but a small manifest could name
/// one large layer many times.
const LAYERS_MAX: usize = 1024;

/// An image of a registry.
pub struct RegistryImage {
    registry: Arc<Registry>,
    manifest: Manifest,
    digest: String,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layer {
    /// Its kind.
    pub kind: LayerKind,
    /// The digest of the blob: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The size of the blob in bytes.
    pub size: u64,
}

impl RegistryImage {
    /// Asks for the manifest of an image. Requests are sent again a few times, each until
    /// `deadline`.
    ///
    /// # Errors
    /// [`Error::Fetch`] if the registry fails; [`Error::Document`] for documents that cannot be
    /// used; [`Error::Credentials`].
    pub fn open(
        client: Client,
        reference: &Reference,
        options: &OciOptions,
        deadline: Instant,
    ) -> Result<Self> {
        let registry = Arc::new(Registry::new(client, reference, options, "pull", &[])?);
        let (manifest, digest) = again(&registry, || find_manifest(&registry, options, deadline))?;
        let wrong = |problem: String| Err(registry.wrong("manifest", problem));
        if manifest.layers.len() > LAYERS_MAX {
            return wrong(format!(
                "has {} layers; at most {LAYERS_MAX} are supported",
                manifest.layers.len()
            ));
        }
        if !manifest.layers.iter().all(|layer| is_digest(&layer.digest)) {
            return wrong("names a layer by a digest that is not SHA-256".into());
        }
        Ok(Self { registry, manifest, digest })
    }

    /// The name in the registry.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.registry.reference
    }

    /// The digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The digest of the configuration. It identifies the content of all layers, however they are
    /// compressed.
    #[must_use]
    pub fn config_digest(&self) -> &str {
        &self.manifest.config.digest
    }

    /// The annotations of the manifest.
    #[must_use]
    pub const fn annotations(&self) -> &BTreeMap<String, String> {
        &self.manifest.annotations
    }

    /// The layers, the lowest first.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = Layer> {
        self.manifest.layers.iter().map(|layer| Layer {
            kind: layer.kind(),
            digest: layer.digest.clone(),
            size: layer.size,
        })
    }

    /// The layers, as the manifest lists them.
    pub(super) fn descriptors(&self) -> &[Descriptor] {
        &self.manifest.layers
    }

    /// Fetches the configuration.
    ///
    /// # Errors
    /// [`Error::Fetch`]; [`Error::Document`] if it is too large, or does not belong to the layers.
    pub fn config(&self, deadline: Instant) -> Result<ImageConfig> {
        let Descriptor { digest, size, .. } = &self.manifest.config;
        let wrong = |problem: String| self.registry.wrong("configuration", problem);
        if !is_digest(digest) {
            return Err(wrong("is named by a digest that is not SHA-256".into()));
        }
        if *size > to_u64(MANIFEST_MAX) {
            return Err(wrong(format!("has more than {MANIFEST_MAX} bytes")));
        }
        let location = format!("oci://{}", self.registry.reference);
        let blob = self.registry.blob(digest.clone(), *size, location);
        let mut bytes = vec![0; to_usize(*size)];
        let fetched = retried(|| blob.fetch(0, &mut bytes, deadline).map_err(|error| error.kind));
        fetched.map_err(|kind| self.registry.failed(kind))?;
        if digest_of(&bytes) != *digest {
            return Err(self.registry.failed(FetchErrorKind::Digest));
        }
        let config = ImageConfig::parse(bytes).map_err(wrong)?;
        if config.diff_ids().len() != self.manifest.layers.len() {
            let (ids, layers) = (config.diff_ids().len(), self.manifest.layers.len());
            return Err(wrong(format!("is of {ids} layers, and the manifest has {layers}")));
        }
        Ok(config)
    }

    /// A layer as an object that can be fetched.
    ///
    /// # Errors
    /// [`Error::Document`] if there is no such layer, or if its annotations cannot be used.
    pub fn open_layer(&self, number: usize) -> Result<Connected> {
        let layer = self.manifest.layers.get(number);
        let layer = layer
            .ok_or_else(|| self.registry.wrong("manifest", format!("has no layer {number}")))?;
        connect(&self.registry, &self.manifest, self.digest.clone(), layer)
    }
}

/// Sends requests again while they fail for a reason that may pass.
fn again<T>(registry: &Registry, mut request: impl FnMut() -> Result<T>) -> Result<T> {
    let result = retried(|| match request() {
        Err(Error::Fetch { error, .. }) => Err(error.kind),
        other => Ok(other),
    });
    result.unwrap_or_else(|kind| Err(registry.failed(kind)))
}
