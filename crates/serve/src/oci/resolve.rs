//! From a name to the layer that is an EROFS image.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use ferofs_verity::Digest;

use super::manifest::{
    Descriptor, HASH_OFFSET, Index, LayerKind, Manifest, PROFILE_DIGEST, PROFILE_SIZE, Parsed,
    ROOT_DIGEST, parse,
};
use super::options::{LayerChoice, OciOptions};
use super::reference::{Reference, is_digest};
use super::registry::Registry;
use crate::error::{Error, Result};
use crate::http::Client;
use crate::object::RemoteObject;
use crate::open::Connected;

/// Opens the EROFS layer of an image.
///
/// # Errors
/// [`Error::Fetch`] if the registry fails; [`Error::Document`] for documents that cannot be used;
/// [`Error::TarLayers`] for images of containers; [`Error::Credentials`].
pub fn open(
    client: Client,
    reference: &Reference,
    options: &OciOptions,
    deadline: Instant,
) -> Result<Connected> {
    let registry = Arc::new(Registry::new(client, reference, options, "pull", &[])?);
    let (manifest, digest) = find_manifest(&registry, options, deadline)?;
    match choose_layer(&manifest, options.layer.as_ref()) {
        Ok(layer) => connect(&registry, &manifest, digest, layer),
        Err(Choice::Tar(layers)) => {
            Err(Error::TarLayers { location: format!("oci://{}", registry.reference), layers })
        }
        Err(Choice::Wrong(problem)) => Err(registry.wrong("manifest", problem)),
    }
}

/// The manifest of the image for the platform, and its digest.
pub(super) fn find_manifest(
    registry: &Registry,
    options: &OciOptions,
    deadline: Instant,
) -> Result<(Manifest, String)> {
    let document = registry.manifest(registry.reference.manifest(), deadline)?;
    let wrong = |problem: String| registry.wrong("manifest", problem);
    let index = match parse(&document.bytes).map_err(wrong)? {
        Parsed::Manifest(manifest) => return Ok((*manifest, document.digest)),
        Parsed::Index(index) => index,
    };
    let platform = options.platform.clone().unwrap_or_else(this_platform);
    let chosen =
        choose_platform(&index, &platform).map_err(|problem| registry.wrong("index", problem))?;
    let document = registry.manifest(&chosen.digest, deadline)?;
    match parse(&document.bytes).map_err(wrong)? {
        Parsed::Manifest(manifest) => Ok((*manifest, document.digest)),
        Parsed::Index(_) => Err(registry.wrong("index", "names another index")),
    }
}

/// A layer of the manifest with the digest `digest` as an object that can be read, with its
/// annotations in the manifest.
pub(super) fn connect(
    registry: &Arc<Registry>,
    manifest: &Manifest,
    digest: String,
    layer: &Descriptor,
) -> Result<Connected> {
    let wrong = |problem: String| registry.wrong("manifest", problem);
    if !is_digest(&layer.digest) {
        return Err(wrong("names a layer by a digest that is not SHA-256".into()));
    }
    // Annotations of the layer are about it; those of the manifest are only about a single layer.
    let is_single = manifest.layers.len() == 1;
    let annotation = |name: &str| {
        layer
            .annotations
            .get(name)
            .or_else(|| manifest.annotations.get(name).filter(|_| is_single))
            .map(String::as_str)
    };
    let root = annotation(ROOT_DIGEST).map(|text| {
        let hex = text.split_once(':').map_or(text, |(_, hex)| hex);
        hex.parse::<Digest>()
            .map_err(|_| wrong(format!("the annotation {ROOT_DIGEST} is not a digest")))
    });
    let number = |name: &'static str| {
        let wrong = move |_| wrong(format!("the annotation {name} is not a number"));
        annotation(name).map(|text| text.parse::<u64>().map_err(wrong)).transpose()
    };
    let blob = |digest: &str, size| -> Arc<dyn RemoteObject> {
        Arc::new(registry.blob(digest.to_owned(), size, format!("oci://{}", registry.reference)))
    };
    let mut connected = Connected::new(blob(&layer.digest, layer.size), Vec::new());
    let profile = annotation(PROFILE_DIGEST).filter(|digest| is_digest(digest));
    connected.profile = profile.zip(number(PROFILE_SIZE)?).map(|(digest, size)| blob(digest, size));
    connected.root = root.transpose()?;
    connected.hash_offset = number(HASH_OFFSET)?;
    connected.manifest = Some(digest);
    Ok(connected)
}

/// The platform of this machine, by the names of Go.
pub(super) fn this_platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("linux/{architecture}")
}

/// The image of an index for a platform. One that says that it has EROFS layers is preferred.
fn choose_platform<'a>(index: &'a Index, platform: &str) -> Result<&'a Descriptor, String> {
    let mut parts = platform.split('/');
    let (os, architecture, variant) = (parts.next(), parts.next(), parts.next());
    let matches = |descriptor: &&Descriptor| {
        descriptor.platform.as_ref().is_some_and(|found| {
            Some(found.os.as_str()) == os
                && Some(found.architecture.as_str()) == architecture
                && variant.is_none_or(|variant| found.variant.as_deref() == Some(variant))
        })
    };
    let has_erofs = |descriptor: &&Descriptor| {
        descriptor
            .platform
            .as_ref()
            .is_some_and(|found| found.os_features.iter().any(|feature| feature == "erofs"))
    };
    let chosen = (index.manifests.iter().filter(matches).find(has_erofs))
        .or_else(|| index.manifests.iter().find(matches))
        // An index of one image without a platform, as tools for artifacts make it.
        .or_else(|| match index.manifests.as_slice() {
            [only] if only.platform.is_none() => Some(only),
            _ => None,
        });
    let chosen = chosen.ok_or_else(|| {
        let named = index.manifests.iter().filter_map(|image| image.platform.as_ref());
        let named: Vec<String> =
            named.map(|found| format!("{}/{}", found.os, found.architecture)).collect();
        format!("has no image for {platform}, only for: {}", named.join(", "))
    })?;
    if is_digest(&chosen.digest) {
        Ok(chosen)
    } else {
        Err("names an image by a digest that is not SHA-256".into())
    }
}

/// Why there is no layer.
enum Choice {
    /// The layers are tar archives: their number.
    Tar(usize),
    Wrong(String),
}

fn choose_layer<'a>(
    manifest: &'a Manifest,
    choice: Option<&LayerChoice>,
) -> Result<&'a Descriptor, Choice> {
    let layers = &manifest.layers;
    let wrong = |problem: String| Err(Choice::Wrong(problem));
    let layer = match choice {
        Some(LayerChoice::Index(index)) => match layers.get(*index) {
            Some(layer) => layer,
            None => {
                return wrong(format!(
                    "has {} layers, and none with the number {index}",
                    layers.len()
                ));
            }
        },
        Some(LayerChoice::Digest(digest)) => {
            match layers.iter().find(|layer| layer.digest == *digest) {
                Some(layer) => layer,
                None => return wrong("has no layer with this digest".into()),
            }
        }
        None => {
            let mut found = layers.iter().filter(|layer| layer.kind() == LayerKind::Erofs);
            match (found.next(), found.next()) {
                (Some(layer), None) => layer,
                (Some(_), Some(_)) => {
                    return wrong("has several EROFS layers: `ferofs pull` makes one image of them, --oci-layer chooses one".into());
                }
                (None, _) if layers.iter().any(|layer| layer.kind() == LayerKind::ZstdErofs) => {
                    return wrong(COMPRESSED.into());
                }
                (None, _) if layers.iter().any(|layer| layer.kind() == LayerKind::Tar) => {
                    return Err(Choice::Tar(layers.len()));
                }
                (None, _) => return wrong("has no EROFS layer".into()),
            }
        }
    };
    match layer.kind() {
        LayerKind::Tar => Err(Choice::Tar(layers.len())),
        LayerKind::ZstdErofs => wrong(COMPRESSED.into()),
        _ => Ok(layer),
    }
}

/// The problem of a layer of the type `+zstd`.
const COMPRESSED: &str = "has an EROFS layer that is compressed as a whole, so that parts of it cannot be read: \
    `ferofs pull` decompresses it into a file, and `ferofs convert` stores an image that can be read";
