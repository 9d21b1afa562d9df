//! From the layers of an image in a registry to EROFS images: fetches them into a temporary folder,
//! and builds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::build::{Builder, SourceFormat, Whiteouts};
use ferofs::read::Cancel;
use ferofs::seal::BuildSeal;
use ferofs::verity::{Digest, Params};
use ferofs_serve::oci::{ImageConfig, LayerKind, RegistryImage};
use ferofs_serve::pull::{PullOptions, decompress, pull};

use super::form::FormArgs;
use super::transfer::Transfer;
use crate::exit::{About, Concerning, Failure};
use crate::print::output::{is_strict, message};

pub(super) struct LayerFile {
    pub(super) path: PathBuf,
    /// A tar archive, or an EROFS image.
    pub(super) format: SourceFormat,
    /// The digest of its content without compression.
    pub(super) diff_id: String,
}

/// Fetches all layers of an image into `folder`. Each is verified: what arrives against the
/// manifest, and what is decompressed here against the configuration.
pub(super) fn fetch(
    image: &RegistryImage,
    config: &ImageConfig,
    folder: &Path,
    options: &PullOptions,
    cancel: &Cancel,
) -> Result<Vec<LayerFile>, Failure> {
    let location = format!("oci://{}", image.reference());
    let size = image.layers().map(|layer| layer.size).sum();
    let transfer = Transfer::start("fetched");
    let (mut files, mut known, mut done) = (Vec::new(), HashMap::new(), 0);
    for (number, (layer, diff_id)) in image.layers().zip(config.diff_ids()).enumerate() {
        cancel.check().without_subject()?;
        let format = match layer.kind {
            LayerKind::Tar => SourceFormat::Tar,
            LayerKind::Erofs | LayerKind::ZstdErofs => SourceFormat::Image,
            _ => {
                let problem = format!("layer {number} is neither a tar archive nor an EROFS image");
                return Err(Failure::about(Path::new(&location), problem));
            }
        };
        // A manifest may name the same layer several times.
        let path = match known.get(&layer.digest) {
            Some(path) => PathBuf::clone(path),
            None => {
                let mut path = folder.join(format!("layer{number}"));
                let mut connected = image.open_layer(number).map_err(Failure::complete)?;
                if layer.kind == LayerKind::ZstdErofs {
                    // The root hash is that of the content.
                    connected.root = None;
                }
                let progress = |arrived| transfer.set(done + arrived, size);
                pull(&connected, &path, options, &progress).map_err(Failure::complete)?;
                if layer.kind == LayerKind::ZstdErofs {
                    let plain = folder.join(format!("layer{number}.erofs"));
                    decompress(&path, &plain, diff_id, &location).map_err(Failure::complete)?;
                    std::fs::remove_file(&path).concerning(&path)?;
                    path = plain;
                }
                known.insert(layer.digest, path.clone());
                path
            }
        };
        done += layer.size;
        files.push(LayerFile { path, format, diff_id: diff_id.clone() });
    }
    Ok(files)
}

/// An image that is built of layers.
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    /// What becomes of whiteouts.
    pub(super) whiteouts: Whiteouts,
    /// The digest from which the UUID follows, so that the same layers always become the same
    /// image.
    pub(super) identity: &'a str,
}

/// Builds one image of `layers`, the lowest first, and seals it. Returns its root hash.
pub(super) fn build(
    layers: &[LayerFile],
    target: &Target<'_>,
    form: &FormArgs,
    cancel: &Cancel,
) -> Result<Option<Digest>, Failure> {
    build_with(target, form, cancel, |builder| {
        for layer in layers {
            builder.layer(layer.format, &layer.path);
        }
        Ok(())
    })
}

/// Builds an image of what `add` adds, and seals it. Returns its root hash.
pub(super) fn build_with(
    target: &Target<'_>,
    form: &FormArgs,
    cancel: &Cancel,
    add: impl FnOnce(&mut Builder) -> Result<(), Failure>,
) -> Result<Option<Digest>, Failure> {
    let mut builder = Builder::new();
    let options = builder.options();
    options.source.whiteouts = target.whiteouts;
    form.apply(options)?;
    options.image.uuid = Some(uuid(target.identity));
    options.image.build_time = Some(0);
    options.run.cancel = cancel.clone();
    options.run.strict = is_strict();
    let seal = BuildSeal::appended(Params::default(), None, options.run.worker_count());
    let seal = Arc::new(seal.without_subject()?);
    options.output.sealer = Some(seal.clone());
    add(&mut builder)?;
    let summary = builder.build(target.path).without_subject()?;
    for warning in &summary.warnings {
        message!("{warning}");
    }
    seal.finish().without_subject()?;
    Ok(seal.built().map(|built| built.root))
}

/// A UUID that follows from a digest: version 8, variant 1.
fn uuid(digest: &str) -> [u8; 16] {
    let hex = digest.rsplit(':').next().unwrap_or_default();
    let mut uuid = [0; 16];
    for (byte, digits) in uuid.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    }
    uuid[6] = (uuid[6] & 0x0f) | 0x80;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_follows_from_a_digest() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        assert_eq!(uuid(&digest)[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!((uuid(&digest)[6] >> 4, uuid(&digest)[8] >> 6), (8, 2));
        assert_eq!(uuid("")[0], 0);
    }
}
