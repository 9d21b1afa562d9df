//! Archives of `docker save` in the form before version 25, and of programs that write the same: a
//! `manifest.json` names the configuration and the layers of each image. They are read as a layout
//! whose manifests are made up here. Source: Moby, image/spec, "Combined Image JSON + Filesystem
//! Changeset Format".

use serde::Deserialize;

use super::document::{Config, Descriptor, Digest, Manifest};
use super::store::{DOCKER_MANIFEST, Store};
use crate::error::Result;
use crate::error::faults::OciFault;
use crate::options::Options;
use crate::options::oci::Platform;
use crate::sources::content::Contents;

/// An image in `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Image {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The part of a configuration that names the digests of the decompressed layers.
#[derive(Debug, Deserialize)]
struct Layers {
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

/// A manifest of the image that the options select. The layers can be found by the digests in it.
pub(super) fn manifest(
    store: &mut Store<'_>,
    options: &Options,
    contents: &mut Contents,
) -> Result<Manifest> {
    let images: Vec<Image> = store.named(DOCKER_MANIFEST, contents)?;
    let mut found = Vec::new();
    for image in images {
        let is_called = |name: &str| image.repo_tags.iter().flatten().any(|tag| tag == name);
        let config: Config = store.named(&image.config, contents)?;
        found.push((
            options.source.oci.name.as_deref().is_none_or(is_called),
            config.platform(),
            image,
        ));
    }
    let labels: Vec<String> =
        found.iter().map(|(_, platform, image)| image.label(platform)).collect();
    let wanted = options.source.oci.platform.as_ref();
    let is_wanted = |(is_called, platform, _): &(bool, Platform, Image)| {
        *is_called && wanted.is_none_or(|wanted| platform.is(wanted))
    };
    let mut chosen: Vec<Image> =
        found.into_iter().filter(is_wanted).map(|(_, _, image)| image).collect();
    let image = match (chosen.pop(), chosen.is_empty()) {
        (Some(image), true) => image,
        (Some(_), false) => return Err(store.error(None, OciFault::Ambiguous(labels))),
        (None, _) => {
            let name = options.source.oci.name.as_ref().map(|name| format!("called {name}"));
            let platform = wanted.map(|platform| format!("for {platform}"));
            let wanted = [name, platform].into_iter().flatten().collect::<Vec<_>>().join(" ");
            return Err(store.error(None, OciFault::NoImage { wanted, available: labels }));
        }
    };
    let Layers { rootfs } = store.named(&image.config, contents)?;
    if rootfs.diff_ids.len() != image.layers.len() {
        let fault = format!(
            "{} layers, but {} digests of layers",
            image.layers.len(),
            rootfs.diff_ids.len()
        );
        return Err(store.error(None, OciFault::Document(fault)));
    }
    let layers = rootfs.diff_ids.into_iter().zip(&image.layers);
    let layers = layers.map(|(digest, name)| store.layer_of_docker(name, digest, contents));
    Ok(Manifest { config: None, layers: layers.collect::<Result<Vec<Descriptor>>>()? })
}

impl Image {
    /// Name and platform, for messages.
    fn label(&self, platform: &Platform) -> String {
        let name = self.repo_tags.iter().flatten().next().unwrap_or(&self.config);
        format!("{name} for {platform}")
    }
}
