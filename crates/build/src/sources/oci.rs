//! Reads one image of an OCI image layout, a directory or an archive, into a [`LayeredTree`]: applies its layers in order.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | finds blobs, and verifies the digest of each before it is used |
//! | [`document`] | parses manifests, indexes and configurations from JSON |
//! | [`choice`] | chooses the image by name and platform |
//! | [`docker`] | reads archives of `docker save` that are no layouts |
//!
//! Nothing is downloaded: a blob that is not in the layout is an error. Source: the OCI Image Format Specification, 1.1.

mod choice;
mod docker;
mod document;
mod store;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::oci::OciFault;
use crate::error::{Result, Warning};
use crate::options::Options;
use crate::options::source::Whiteouts;
use crate::sources::content::Contents;
use crate::sources::tar;
use crate::sources::tar::tar_stream::TarStream;
use crate::tree::layered_tree::LayeredTree;
use document::{Config, LayerKind, Manifest};
use store::Store;

/// The most layers of an image; more are an error. Container tools stop at about 128, but a small manifest could name one large
/// layer many times.
const LAYERS_MAX: usize = 1024;

/// Whether `path` is an image layout, or an archive of `docker save`. In an archive, as `skopeo` and `docker save` write it, only
/// other parts of a layout may come before the marker file, and the archive must be seekable and not compressed: else the test
/// would read the whole archive.
pub(crate) fn is_layout(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(store::MARK).is_file() && path.join(store::INDEX).is_file();
    }
    path.is_file()
        && (tar::first_foreign_name(path, is_part).is_some_and(|last| last == store::MARK.as_bytes())
            || docker::is_archive(path))
}

/// Whether an archive's member is a part of a layout other than its marker file.
fn is_part(name: &[u8]) -> bool {
    const OTHERS: [&[u8]; 4] = [b"", b"index.json", b"manifest.json", b"repositories"];
    OTHERS.contains(&name) || name == b"blobs" || name.starts_with(b"blobs/")
}

/// Adds the layers of the chosen image to `layers`.
pub(crate) fn read(
    options: &Options,
    source: &Path,
    contents: &mut Contents,
    layers: &mut LayeredTree,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut store = Store::open(options, source, contents)?;
    let (manifest, digest) = match store.is_docker() {
        true => (docker::manifest(&mut store, options, contents)?, None),
        false => {
            let (chosen, is_certain) = choice::choose(&mut store, options, contents)?;
            let manifest: Manifest = store.document(&chosen, contents)?;
            if let (Some(platform), false) = (&options.source.oci.platform, is_certain) {
                let config = manifest.config.as_ref();
                let config = config.ok_or_else(|| store.error(Some(&chosen.digest), OciFault::Missing))?;
                let config: Config = store.document(config, contents)?;
                if !config.platform().is(platform) {
                    let fault = OciFault::OtherPlatform(config.platform().to_string());
                    return Err(store.error(Some(&chosen.digest), fault));
                }
            }
            (manifest, Some(chosen.digest))
        }
    };
    if manifest.layers.len() > LAYERS_MAX {
        let fault = OciFault::Layers { count: manifest.layers.len(), limit: LAYERS_MAX };
        return Err(store.error(digest.as_ref(), fault));
    }
    for (number, layer) in manifest.layers.iter().enumerate() {
        if number > 0 {
            layers.next_layer();
        }
        match layer.layer_kind() {
            LayerKind::Archive => {}
            LayerKind::Encrypted => return Err(store.error(Some(&layer.digest), OciFault::Encrypted)),
            LayerKind::Other => {
                let fault = OciFault::MediaType(layer.media_type.clone());
                return Err(store.error(Some(&layer.digest), fault));
            }
        }
        let blob = store.verified(layer, contents)?;
        let tar_stream =
            TarStream::within(options, contents, blob.place, blob.len, store.path(&layer.digest))?;
        tar::read(options, tar_stream, Whiteouts::Apply, contents, layers, warnings)?;
    }
    Ok(())
}
