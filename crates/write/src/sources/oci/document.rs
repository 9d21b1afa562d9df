//! The JSON documents of a layout: the fields that a build needs. No I/O.

use std::collections::BTreeMap;
use std::fmt;

use ferofs_format::Hex;
use serde::Deserialize;
use sha2::digest::DynDigest;
use sha2::{Digest as _, Sha256, Sha512};

use crate::options::oci::Platform;

/// A blob's name: the digest of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Digest {
    text: String,
    /// Where the hexadecimal digits start.
    digits: usize,
}

impl Digest {
    /// The blob's path in the layout: `blobs/sha256/...`.
    pub(super) fn path(&self) -> String {
        let (algorithm, digits) = (&self.text[..self.digits - 1], &self.text[self.digits..]);
        format!("blobs/{algorithm}/{digits}")
    }

    /// A hasher for the algorithm of this digest.
    pub(super) fn hasher(&self) -> Box<dyn DynDigest> {
        if self.text.starts_with("sha512") {
            Box::new(Sha512::new())
        } else {
            Box::new(Sha256::new())
        }
    }

    /// The text of a digest with the algorithm of this one and these `bytes`.
    pub(super) fn like(&self, bytes: &[u8]) -> String {
        format!("{}{}", &self.text[..self.digits], Hex(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    /// Accepts only an algorithm's name and hexadecimal digits, so that [`Self::path`] stays below
    /// the layout.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (algorithm, digits) = text.split_once(':').ok_or("a digest without its algorithm")?;
        let len = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err("a digest that is neither sha256 nor sha512"),
        };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != len || !digits.bytes().all(is_digit) {
            return Err(
                "a digest with a wrong number of digits, or with characters that are not lower-case hexadecimal digits",
            );
        }
        Ok(Self { digits: algorithm.len() + 1, text })
    }
}

/// The content of the file `oci-layout`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LayoutMarker {
    pub(super) image_layout_version: String,
}

/// An image index.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    pub(super) manifests: Vec<Descriptor>,
}

/// An image manifest.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    /// Every manifest has it, except those that are made up for archives of `docker save`.
    pub(super) config: Option<Descriptor>,
    /// Layers; the lowest is first.
    pub(super) layers: Vec<Descriptor>,
}

/// An image's configuration.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    variant: Option<String>,
}

impl Config {
    pub(super) fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    pub(super) platform: Option<Platform>,
}

/// The media type of a layer of docker.
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// A tar archive. Its first bytes identify its compression.
    Archive,
    Encrypted,
    Other,
}

impl Descriptor {
    /// A layer that is a tar archive.
    pub(super) fn layer(digest: Digest, size: u64) -> Self {
        Self {
            media_type: LAYER.to_owned(),
            digest,
            size,
            annotations: BTreeMap::new(),
            platform: None,
        }
    }

    pub(super) fn is_index(&self) -> bool {
        matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.index.v1+json"
                | "application/vnd.docker.distribution.manifest.list.v2+json"
        )
    }

    /// Whether this is a manifest, and not of something about an image.
    pub(super) fn is_image(&self) -> bool {
        let manifest = matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.manifest.v1+json"
                | "application/vnd.docker.distribution.manifest.v2+json"
        );
        let is_about = self.annotations.contains_key("vnd.docker.reference.type")
            || self.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
        manifest && !is_about
    }

    /// The name it has in the layout.
    pub(super) fn name(&self) -> Option<&str> {
        self.annotations.get("org.opencontainers.image.ref.name").map(String::as_str)
    }

    /// Whether `name` is the name of this image, in the short form or in containerd's long form.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name() == Some(name)
            || self.annotations.get("io.containerd.image.name").is_some_and(|n| n == name)
    }

    /// Name, platform or digest, for messages.
    pub(super) fn label(&self) -> String {
        let parts =
            [self.name().map(str::to_owned), self.platform.as_ref().map(Platform::to_string)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { self.digest.to_string() } else { parts.join(" for ") }
    }

    pub(super) fn layer_kind(&self) -> LayerKind {
        const KINDS: [&str; 4] = [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.nondistributable.v1.tar",
            LAYER,
            "application/vnd.docker.image.rootfs.foreign.diff.tar",
        ];
        let rest = KINDS.iter().find_map(|kind| self.media_type.strip_prefix(kind));
        match rest {
            Some("" | "+gzip" | "+zstd" | ".gzip" | ".zstd") => LayerKind::Archive,
            Some(rest) if rest.ends_with("+encrypted") => LayerKind::Encrypted,
            _ => LayerKind::Other,
        }
    }
}
