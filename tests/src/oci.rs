//! Writes OCI image layouts: blobs, images of layers, and the index.

use std::fs;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// The media type of an uncompressed layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// The SHA-256 of `bytes`, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A layout in a directory.
#[derive(Debug)]
pub struct Layout(pub PathBuf);

impl Layout {
    /// Makes a layout without blobs in this directory.
    ///
    /// # Errors
    /// When a file cannot be written, as in all methods.
    pub fn new(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(dir.join("blobs/sha256"))?;
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(Self(dir))
    }

    /// Adds a blob, and returns its descriptor, with `more` fields.
    pub fn add(&self, kind: &str, bytes: &[u8], more: &str) -> io::Result<String> {
        let (digest, len) = (digest(bytes), bytes.len());
        fs::write(self.0.join("blobs/sha256").join(&digest), bytes)?;
        Ok(format!(r#"{{"mediaType":"{kind}","digest":"sha256:{digest}","size":{len}{more}}}"#))
    }

    /// Adds an image for `machine` of these layers, and returns the descriptor of its manifest.
    pub fn image(&self, machine: &str, layers: &[String], more: &str) -> io::Result<String> {
        let rootfs = r#""rootfs":{"type":"layers","diff_ids":[]}"#;
        let config = format!(r#"{{"architecture":"{machine}","os":"linux",{rootfs}}}"#);
        let config = self.add(CONFIG, config.as_bytes(), "")?;
        let layers = layers.join(",");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#);
        self.add(MANIFEST, manifest.as_bytes(), more)
    }

    /// Writes the index, which lists these images.
    pub fn index(&self, images: &[String]) -> io::Result<()> {
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, images.join(","));
        fs::write(self.0.join("index.json"), index)
    }
}

/// The field of a descriptor that names the platform of an image.
pub fn platform(machine: &str) -> String {
    format!(r#","platform":{{"os":"linux","architecture":"{machine}"}}"#)
}

/// The field of a descriptor that names an image.
pub fn name(name: &str) -> String {
    format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#)
}
