//! Reads one image of an OCI image layout, a directory or an archive, into a [`LayeredTree`]:
//! applies its layers in order. A layout can have several images: one is chosen by its name and
//! platform, through nested indexes.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | finds blobs, and verifies the digest of each before it is used |
//! | [`document`] | parses manifests, indexes and configurations from JSON |
//! | [`docker`] | reads archives of `docker save` that are not layouts |
//!
//! Nothing is downloaded: a blob that is not in the layout is an error. Source: the OCI Image
//! Format Specification, 1.1.

mod docker;
mod document;
mod store;

use std::path::Path;

use crate::error::faults::OciFault;
use crate::error::{Result, Warning};
use crate::options::Options;
use crate::options::oci::Platform;
use crate::options::source::Whiteouts;
use crate::sources::content::Contents;
use crate::sources::oci::document::{Config, Descriptor, Index, LayerKind, Manifest};
use crate::sources::oci::store::Store;
use crate::sources::tar;
use crate::sources::tar::tar_stream::TarStream;
use crate::tree::layered_tree::LayeredTree;

/// The most layers of an image; more are an error. Container tools stop at about 128, but a small
/// manifest could name one large layer many times.
const LAYERS_MAX: usize = 1024;

/// Whether `path` is an image layout, or an archive of `docker save`, compressed or not. An archive
/// must begin with parts of such an image: the test reads the others no further.
pub(crate) fn is_layout(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(store::MARK).is_file() && path.join(store::INDEX).is_file();
    }
    path.is_file() && tar::container_names(path).is_readable()
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
            let (chosen, is_certain) = choose(&mut store, options, contents)?;
            let manifest: Manifest = store.document(&chosen, contents)?;
            if let (Some(platform), false) = (&options.source.oci.platform, is_certain) {
                let config = manifest.config.as_ref();
                let config =
                    config.ok_or_else(|| store.error(Some(&chosen.digest), OciFault::Missing))?;
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
            LayerKind::Encrypted => {
                return Err(store.error(Some(&layer.digest), OciFault::Encrypted));
            }
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

/// The deepest nesting of indexes; more is an error. Real layouts have two levels.
const DEPTH_MAX: usize = 8;

/// The manifest of the chosen image, and whether the index states its platform. If not, the caller
/// checks the configuration.
fn choose(
    store: &mut Store,
    options: &Options,
    contents: &mut Contents,
) -> Result<(Descriptor, bool)> {
    let mut index: Index = store.index(contents)?;
    let mut name = options.source.oci.name.as_deref();
    let mut parent: Option<Descriptor> = None;
    for _ in 0..DEPTH_MAX {
        let chosen = one(&index, name, options.source.oci.platform.as_ref())
            .map_err(|fault| store.error(parent.as_ref().map(|parent| &parent.digest), fault))?;
        if !chosen.is_index() {
            let is_certain = chosen.platform.is_some();
            return Ok((chosen, is_certain));
        }
        index = store.document(&chosen, contents)?;
        // Entries of nested indexes have no names.
        name = None;
        parent = Some(chosen);
    }
    Err(store.error(parent.as_ref().map(|parent| &parent.digest), OciFault::Nesting))
}

/// The entry of `index` with this name and platform.
fn one(
    index: &Index,
    name: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Descriptor, OciFault> {
    let images = || index.manifests.iter().filter(|image| image.is_index() || image.is_image());
    let labels =
        |images: &[&Descriptor]| images.iter().map(|image| image.label()).collect::<Vec<_>>();
    let mut left: Vec<&Descriptor> =
        images().filter(|image| name.is_none_or(|name| image.is_called(name))).collect();
    // An image with several names counts once.
    left.sort_by_key(|image| image.digest.to_string());
    left.dedup_by(|a, b| a.digest == b.digest);
    let here = Platform::of_this_machine();
    let wanted = platform.unwrap_or(&here);
    if platform.is_some() || left.len() > 1 {
        left.retain(|image| image.platform.as_ref().is_none_or(|platform| platform.is(wanted)));
    }
    match left.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let name = name.map_or(String::new(), |name| format!("called {name} "));
            let available = labels(&images().collect::<Vec<_>>());
            Err(OciFault::NoImage { wanted: format!("{name}for {wanted}"), available })
        }
        several => Err(OciFault::Ambiguous(labels(several))),
    }
}

#[cfg(test)]
mod tests {
    use super::document::{Digest, Index, LayerKind, Manifest};
    use super::*;
    use crate::options::oci::Platform;

    fn digest(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    fn entry(digit: char, rest: &str) -> String {
        let kind = "application/vnd.oci.image.manifest.v1+json";
        format!(r#"{{"mediaType":"{kind}","digest":"{}","size":7{rest}}}"#, digest(digit))
    }

    fn index(entries: &[String]) -> Index {
        serde_json::from_str(&format!(r#"{{"manifests":[{}]}}"#, entries.join(","))).unwrap()
    }

    fn platform(text: &str) -> String {
        let platform: Platform = text.parse().unwrap();
        let variant = platform.variant.map_or(String::new(), |v| format!(r#","variant":"{v}""#));
        format!(
            r#","platform":{{"os":"{}","architecture":"{}"{variant}}}"#,
            platform.os, platform.architecture
        )
    }

    #[test]
    fn the_platform_chooses() {
        let about = format!(
            "{},\"annotations\":{{\"vnd.docker.reference.type\":\"x\"}}",
            platform("linux/amd64")
        );
        let index = index(&[
            entry('a', &platform("linux/amd64")),
            entry('b', &platform("linux/arm/v6")),
            entry('c', &platform("linux/arm/v7")),
            entry('d', &platform("unknown/unknown")),
            entry('e', &about),
        ]);
        let chosen = |text: &str| one(&index, None, Some(&text.parse().unwrap()));
        assert_eq!(chosen("linux/amd64").unwrap().digest.to_string(), digest('a'));
        assert_eq!(chosen("linux/arm/v7").unwrap().digest.to_string(), digest('c'));
        assert_eq!(
            chosen("linux/arm").unwrap_err(),
            OciFault::Ambiguous(vec!["linux/arm/v6".into(), "linux/arm/v7".into()])
        );
        let error = chosen("linux/s390x").unwrap_err().to_string();
        assert!(
            error.starts_with("no image for linux/s390x; available: linux/amd64, linux/arm/v6,"),
            "{error}"
        );
        assert!("linux".parse::<Platform>().is_err() && "a/b/c/d".parse::<Platform>().is_err());
    }

    #[test]
    fn names_choose_and_one_image_needs_none() {
        let name = |text: &str| {
            format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{text}"}}"#)
        };
        let two = index(&[
            entry('a', &name("one")),
            entry('b', &name("two")),
            entry('b', &name("latest")),
        ]);
        assert_eq!(one(&two, Some("two"), None).unwrap().digest.to_string(), digest('b'));
        let error = one(&two, None, None).unwrap_err();
        assert!(
            matches!(error, OciFault::Ambiguous(names) if names[0] == "one" && names.len() == 2)
        );
        assert!(matches!(one(&two, Some("none"), None), Err(OciFault::NoImage { .. })));
        // A single image is selected even if it is for another platform.
        let only = index(&[entry('a', &platform("plan9/mips"))]);
        assert!(one(&only, None, None).is_ok());
        assert!(one(&only, None, Some(&Platform::of_this_machine())).is_err());
    }

    #[test]
    fn digests_lead_nowhere_else() {
        for bad in [
            "",
            "sha256",
            "sha256:",
            "md5:00",
            "sha256:../../etc/passwd",
            &digest('G'),
            &digest('A'),
        ] {
            assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        let good = Digest::try_from(digest('0')).unwrap();
        assert_eq!(good.path(), format!("blobs/sha256/{}", "0".repeat(64)));
    }

    #[test]
    fn layers_are_recognized_by_their_type() {
        let layer =
            |kind: &str| format!(r#"{{"mediaType":"{kind}","digest":"{}","size":1}}"#, digest('1'));
        for (kind, expected) in [
            ("application/vnd.oci.image.layer.v1.tar", LayerKind::Archive),
            ("application/vnd.oci.image.layer.v1.tar+zstd", LayerKind::Archive),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", LayerKind::Archive),
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", LayerKind::Encrypted),
            ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", LayerKind::Other),
            ("application/vnd.oci.image.layer.v1.tarball", LayerKind::Other),
        ] {
            let text = format!(r#"{{"config":{},"layers":[{}]}}"#, layer("x"), layer(kind));
            let manifest: Manifest = serde_json::from_str(&text).unwrap();
            assert_eq!(manifest.layers[0].layer_kind(), expected, "{kind}");
        }
    }
}
