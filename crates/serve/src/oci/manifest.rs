//! The documents of registries (OCI image specification; docker's types). Only what is used is
//! read; the rest may be anything.
//!
//! serde alone: oci-spec has types for all fields, with builders that need six more procedural
//! macros, for the eight fields that are read here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The types of documents that are asked for.
pub(super) const ACCEPTED: [&str; 4] = [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_INDEX];

/// The type of images' configurations.
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The type of a layer that is an EROFS image, as containerd names it.
pub(super) const EROFS_LAYER: &str = "application/vnd.erofs.layer.v1";
/// The type of a layer that is an EROFS image, as the draft of erofs-image-spec names it.
const EROFS_IMAGE: &str = "application/vnd.erofs";

/// Annotations of layers with a hash tree (the draft of erofs-image-spec).
pub(super) const ROOT_DIGEST: &str = "org.erofs.dmverity.root_digest";
pub(super) const HASH_OFFSET: &str = "org.erofs.dmverity.hash_offset";
pub(super) const BLOCK_SIZE: &str = "org.erofs.dmverity.block_size";
/// The digest and the size of the blob with the access profile.
pub(super) const PROFILE_DIGEST: &str = "org.ferofs.profile.digest";
pub(super) const PROFILE_SIZE: &str = "org.ferofs.profile.size";
/// The type of access profiles.
pub(super) const PROFILE: &str = "application/vnd.ferofs.access-profile.v1";

/// A blob or another document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
}

/// For which machines an image is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) variant: Option<String>,
    #[serde(default, rename = "os.features", skip_serializing_if = "Vec::is_empty")]
    pub(super) os_features: Vec<String>,
}

/// A manifest of one image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(default)]
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A list of images for several platforms.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

/// Either document.
pub(super) enum Parsed {
    Manifest(Box<Manifest>),
    Index(Index),
}

/// The fields that tell which document it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    #[serde(default)]
    media_type: String,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fsLayers")]
    old_layers: Option<serde::de::IgnoredAny>,
}

/// Parses a manifest or an index. Its own field `mediaType` decides, or else its fields: a
/// registry's header is not covered by the digest.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let probe: Probe = serde_json::from_slice(bytes).map_err(wrong)?;
    if probe.manifests.is_some() && (probe.layers.is_some() || probe.old_layers.is_some()) {
        return Err("is a manifest and an index at the same time".into());
    }
    let is_index = match probe.media_type.as_str() {
        INDEX | DOCKER_INDEX => true,
        MANIFEST | DOCKER_MANIFEST => false,
        "" => probe.manifests.is_some(),
        other => return Err(format!("has the type {other}, which is not supported")),
    };
    if probe.old_layers.is_some() {
        return Err("has schema version 1, which is not supported".into());
    }
    if is_index {
        serde_json::from_slice(bytes).map(Parsed::Index).map_err(wrong)
    } else {
        serde_json::from_slice(bytes).map(Parsed::Manifest).map_err(wrong)
    }
}

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerKind {
    /// An EROFS image.
    Erofs,
    /// An EROFS image that is compressed as a whole with Zstandard.
    ZstdErofs,
    /// A tar archive.
    Tar,
    /// Something else.
    Other,
}

impl Descriptor {
    pub(super) fn kind(&self) -> LayerKind {
        let (base, suffix) = self.media_type.split_once('+').unwrap_or((&self.media_type, ""));
        // Parameters: `;version=1`.
        let base = base.split(';').next().unwrap_or_default().trim();
        match (base, suffix) {
            (EROFS_LAYER | EROFS_IMAGE, "") => LayerKind::Erofs,
            (EROFS_LAYER | EROFS_IMAGE, "zstd") => LayerKind::ZstdErofs,
            _ if base.contains(".tar") || base.contains("rootfs.diff") => LayerKind::Tar,
            _ => LayerKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_layers() {
        let kind = |media_type: &str| {
            Descriptor { media_type: media_type.into(), ..Descriptor::default() }.kind()
        };
        assert_eq!(kind("application/vnd.erofs.layer.v1"), LayerKind::Erofs);
        assert_eq!(kind("application/vnd.erofs"), LayerKind::Erofs);
        assert_eq!(kind("application/vnd.erofs.layer.v1+zstd"), LayerKind::ZstdErofs);
        assert_eq!(kind("application/vnd.erofs.layer.v1+gzip"), LayerKind::Other);
        assert_eq!(kind("application/vnd.oci.image.layer.v1.tar+gzip"), LayerKind::Tar);
        assert_eq!(kind("application/vnd.docker.image.rootfs.diff.tar.gzip"), LayerKind::Tar);
        assert_eq!(kind("application/vnd.erofs.chunk-index.v1"), LayerKind::Other);
        assert_eq!(kind(""), LayerKind::Other);
    }

    #[test]
    fn documents_tell_what_they_are() {
        let parsed = |text: &str| parse(text.as_bytes());
        assert!(matches!(parsed(r#"{"schemaVersion":2,"manifests":[]}"#), Ok(Parsed::Index(_))));
        assert!(matches!(parsed(r#"{"schemaVersion":2,"layers":[]}"#), Ok(Parsed::Manifest(_))));
        let docker =
            format!(r#"{{"schemaVersion":2,"mediaType":"{DOCKER_INDEX}","manifests":[]}}"#);
        assert!(matches!(parsed(&docker), Ok(Parsed::Index(_))));
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"schemaVersion":2,"manifests":[],"layers":[]}"#,
            r#"{"schemaVersion":1,"fsLayers":[]}"#,
            r#"{"schemaVersion":2,"mediaType":"text/html"}"#,
            r#"{"schemaVersion":2,"layers":[{"digest":"sha256:x","size":-1}]}"#,
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
