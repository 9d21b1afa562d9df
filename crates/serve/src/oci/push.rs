//! Stores an image in a registry: its layers, a configuration, and a manifest that names them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferofs_read::{BytesSource, FileSource, Hex, Image, Profile, Source};
use ferofs_verity::{Digest, Seal, appended_position, make_tree};
use sha2::{Digest as _, Sha256};

use super::config::ImageConfig;
use super::image::RegistryImage;
use super::manifest::{
    BLOCK_SIZE, CONFIG, Descriptor, EROFS_LAYER, HASH_OFFSET, INDEX, Index, MANIFEST, Manifest,
    PROFILE, PROFILE_DIGEST, PROFILE_SIZE, Parsed, ROOT_DIGEST, parse,
};
use super::options::OciOptions;
use super::reference::Reference;
use super::registry::{Registry, digest_of, unexpected};
use super::resolve::this_platform;
use super::upload::{Blob, Stored, mount, retried, store};
use crate::error::{Error, FetchErrorKind, Result, open_file};
use crate::http::{Client, header};
use crate::object::later;
use ferofs_format::units::{to_u64, to_usize};

/// How to store an image.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct PushOptions {
    /// The registry, and the image's platform.
    pub oci: OciOptions,
    /// A file with an access profile, which readers of the topmost layer use to prefetch.
    pub profile: Option<PathBuf>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// Repositories of the same registry that may have the layers already.
    pub mount_from: Vec<String>,
    /// Threads that hash the image.
    pub threads: usize,
    /// The configuration whose program and platform are taken over. Otherwise the one of `base`, or
    /// an empty one.
    pub config: Option<ImageConfig>,
    /// An image of the same registry whose layers are below. They are not sent: the repository
    /// takes them from that of the image.
    pub base: Option<Arc<RegistryImage>>,
}

/// The result of storing an image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// The digest of the manifest. A name with it always means this image.
    pub manifest: String,
    /// The digests of all layers, the lowest first: the SHA-256 of the files.
    pub layers: Vec<String>,
    /// The size of the given files in bytes.
    pub size: u64,
    /// The root hash of the topmost layer, if it is sealed.
    pub root: Option<Digest>,
    /// Bytes that were sent: 0 if the registry had the layers.
    pub sent: u64,
    /// Whether the given layers came from other repositories of the registry.
    pub is_mounted: bool,
}

/// The time for a request without a blob.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Bytes that are hashed at a time.
const PIECE: usize = 1 << 20;
/// The largest access profile, in bytes.
const PROFILE_MAX: u64 = 64 << 20;

/// Stores an image with these layers, the lowest first, as `reference`. Each is a file with an
/// EROFS image. `progress` is called with the number of bytes of the files that the registry has,
/// and with their size.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read; [`Error::Image`] if it is not an EROFS image, or its
/// profile is not an access profile; [`Error::Document`] if its hash tree is not that of its bytes,
/// or if the layers of the base cannot be used; [`Error::Location`] for a reference with a digest,
/// and for a base in another registry; [`Error::Fetch`], [`Error::Credentials`].
pub fn push(
    client: Client,
    layers: &[PathBuf],
    reference: &Reference,
    options: &PushOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Pushed> {
    let wrong = |problem| Error::Location { location: format!("oci://{reference}"), problem };
    if reference.digest.is_some() {
        return Err(wrong("an image is pushed to a tag: its digest follows from it"));
    }
    let mut from = options.mount_from.clone();
    if let Some(base) = &options.base {
        if base.reference().host != reference.host {
            return Err(wrong(
                "the base is in another registry: a registry takes layers from its own repositories only",
            ));
        }
        from.push(base.reference().repository.clone());
    }
    let profile = options.profile.as_deref().map(read_profile).transpose()?;
    let files = layers
        .iter()
        .map(|path| LayerFile::open(path, options.threads))
        .collect::<Result<Vec<_>>>()?;
    let size = files.iter().map(|file| file.source.size()).sum();
    let registry = Registry::new(client, reference, &options.oci, "pull,push", &from)?;
    let send = |digest: &str,
                source: &dyn Source,
                path: &Path,
                from: &[String],
                progress: &dyn Fn(u64)| {
        store(&registry, &Blob { digest: digest.to_owned(), source, path }, from, progress)
    };

    let mut descriptors = Vec::new();
    let mut config = options.config.clone();
    let mut diff_ids = Vec::new();
    if let Some(base) = &options.base {
        let known = base.config(later(Instant::now(), REQUEST_TIME))?;
        diff_ids.extend_from_slice(known.diff_ids());
        config.get_or_insert(known);
        for layer in base.descriptors() {
            take(&registry, base, &layer.digest)?;
            descriptors.push(layer.clone());
        }
    }
    diff_ids.extend(files.iter().map(|file| file.digest.clone()));
    descriptors.extend(files.iter().map(LayerFile::descriptor));
    if let (Some(bytes), Some(path)) = (&profile, &options.profile) {
        let digest = digest_of(bytes);
        send(&digest, &BytesSource(bytes.as_slice()), path, &[], &|_| ())?;
        if let Some(layer) = descriptors.last_mut() {
            layer.annotations.insert(PROFILE_DIGEST.into(), digest);
            layer.annotations.insert(PROFILE_SIZE.into(), bytes.len().to_string());
        }
    }

    let (mut done, mut sent, mut is_mounted) = (0u64, 0u64, false);
    for LayerFile { path, source, digest, .. } in &files {
        let progress = |bytes| progress(done.saturating_add(bytes), size);
        let stored = send(digest, source, path, &options.mount_from, &progress)?;
        done = done.saturating_add(source.size());
        sent = sent.saturating_add(if stored == Stored::Sent { source.size() } else { 0 });
        is_mounted |= stored == Stored::Mounted;
    }
    let platform = options.oci.platform.clone().unwrap_or_else(this_platform);
    let config = config.unwrap_or_else(ImageConfig::empty).for_platform(&platform);
    let config = config.with_layers(diff_ids).to_bytes();
    let config_digest = digest_of(&config);
    let config_path = Path::new("configuration");
    send(&config_digest, &BytesSource(config.as_slice()), config_path, &[], &|_| ())?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST.into(),
        config: Descriptor {
            media_type: CONFIG.into(),
            digest: config_digest,
            size: to_u64(config.len()),
            ..Descriptor::default()
        },
        layers: descriptors,
        annotations: options.annotations.clone(),
        ..Manifest::default()
    };
    let bytes = to_json(&registry, &manifest)?;
    let digest = digest_of(&bytes);
    put_manifest(&registry, reference.manifest(), MANIFEST, &bytes, &digest)?;
    if let Some(profile) = &profile {
        let subject = Descriptor {
            media_type: MANIFEST.into(),
            digest: digest.clone(),
            size: to_u64(bytes.len()),
            ..Descriptor::default()
        };
        refer(&registry, subject, profile)?;
    }
    Ok(Pushed {
        manifest: digest,
        layers: manifest.layers.into_iter().map(|layer| layer.digest).collect(),
        size,
        root: files.last().and_then(|file| file.seal.as_ref()).map(|(_, root)| *root),
        sent,
        is_mounted,
    })
}

/// Makes the repository have a layer of the base.
fn take(registry: &Registry, base: &RegistryImage, digest: &str) -> Result<()> {
    if mount(registry, digest, &base.reference().repository)? {
        return Ok(());
    }
    let problem = format!(
        "the registry does not take layers from {}: push to that repository",
        base.reference().repository
    );
    Err(registry.wrong("base", problem))
}

struct LayerFile<'a> {
    path: &'a Path,
    source: FileSource,
    digest: String,
    seal: Option<(Seal, Digest)>,
}

impl<'a> LayerFile<'a> {
    fn open(path: &'a Path, threads: usize) -> Result<Self> {
        let source = open_file(path)?;
        check(path)?;
        let digest = hash(path, &source)?;
        let seal = seal(path, &source, threads)?;
        Ok(Self { path, source, digest, seal })
    }

    fn descriptor(&self) -> Descriptor {
        let mut layer = Descriptor {
            media_type: EROFS_LAYER.into(),
            digest: self.digest.clone(),
            size: self.source.size(),
            ..Descriptor::default()
        };
        if let Some((seal, root)) = &self.seal {
            let params = &seal.superblock.params;
            layer
                .annotations
                .insert(ROOT_DIGEST.into(), format!("{}:{root}", params.algorithm.name()));
            layer.annotations.insert(HASH_OFFSET.into(), seal.position.to_string());
            layer.annotations.insert(BLOCK_SIZE.into(), params.data_block_size.to_string());
        }
        layer
    }
}

/// Fails for a file that readers of the registry could not read: what is not an EROFS image, is cut
/// off, or has its data elsewhere.
fn check(path: &Path) -> Result<()> {
    let wrong = |problem: String| Error::Image { path: path.to_owned(), problem };
    let image = open_file(path)?;
    let size = image.size();
    let image =
        Image::open(image).map_err(|error| wrong(format!("is not an EROFS image: {error}")))?;
    let superblock = image.superblock();
    if superblock.extra_devices > 0 {
        let problem = format!(
            "has data in {} other files (extra devices), and one layer is one file",
            superblock.extra_devices
        );
        return Err(wrong(problem));
    }
    let needed = superblock.blocks.saturating_mul(superblock.block_size.bytes64());
    if needed > size {
        return Err(wrong(format!("is cut off: it has {size} bytes instead of {needed}")));
    }
    image.root().map_err(|error| wrong(format!("has no root directory: {error}")))?;
    Ok(())
}

fn read_profile(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).map_err(Error::io("open", path))?;
    let mut bytes = Vec::new();
    // Not by the size that the system states: a device has none.
    file.take(PROFILE_MAX + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if to_u64(bytes.len()) > PROFILE_MAX {
        return Err(Error::io("read", path)(std::io::ErrorKind::FileTooLarge.into()));
    }
    // Readers ignore a profile that they cannot read.
    Profile::read(&*bytes)
        .map_err(|error| Error::Image { path: path.to_owned(), problem: error.to_string() })?;
    Ok(bytes)
}

/// The digest of a file.
fn hash(path: &Path, file: &FileSource) -> Result<String> {
    let (mut at, size, mut buffer, mut hasher) = (0, file.size(), vec![0; PIECE], Sha256::new());
    while at < size {
        buffer.truncate(to_usize(size.saturating_sub(at)));
        file.read_exact_at(at, &mut buffer).map_err(Error::io("read", path))?;
        hasher.update(&buffer);
        at = at.saturating_add(to_u64(buffer.len()));
    }
    Ok(format!("sha256:{}", Hex(&hasher.finalize())))
}

/// The hash tree that follows the image in its file, with its root. Compares the tree with the
/// image's bytes: a registry shall not name a root hash that no reader can verify.
fn seal(path: &Path, image: &FileSource, threads: usize) -> Result<Option<(Seal, Digest)>> {
    /// The first bytes of the seal's superblock.
    const MAGIC: [u8; 8] = *b"verity\0\0";
    let position = appended_position(image)?;
    let mut magic = [0; MAGIC.len()];
    if position.saturating_add(to_u64(MAGIC.len())) > image.size() {
        return Ok(None);
    }
    image.read_exact_at(position, &mut magic).map_err(Error::io("read", path))?;
    if magic != MAGIC {
        return Ok(None);
    }
    let seal = Seal::read(image, position)?;
    let is_same = AtomicBool::new(true);
    let root = make_tree(
        image,
        seal.superblock.data_blocks,
        &seal.superblock.params,
        threads,
        |at, bytes| {
            let mut stored = vec![0; bytes.len()];
            image.read_exact_at(seal.tree_start().saturating_add(at), &mut stored)?;
            is_same.fetch_and(stored == bytes, Ordering::Relaxed);
            Ok(())
        },
    )?;
    if !is_same.into_inner() {
        let problem =
            "does not belong to the bytes of the image: seal it again with `ferofs verity format`";
        return Err(Error::document(&path.display().to_string(), "hash tree", problem));
    }
    Ok(Some((seal, root)))
}

fn to_json(registry: &Registry, document: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|error| registry.wrong("manifest", error.to_string()))
}

/// Stores a manifest. Returns whether the registry lists it with its subject.
fn put_manifest(
    registry: &Registry,
    name: &str,
    kind: &str,
    bytes: &[u8],
    digest: &str,
) -> Result<bool> {
    let put = || {
        let url = registry.url(&format!("manifests/{name}"))?;
        let deadline = later(Instant::now(), REQUEST_TIME);
        let answer =
            registry.send("PUT", &url, &[("Content-Type", kind)], Some(bytes), deadline)?;
        match answer.status().as_u16() {
            200..=204 => {}
            _ => return Err(unexpected(&answer)),
        }
        let named = header(answer.headers(), "docker-content-digest");
        if named.is_some_and(|named| named.starts_with("sha256:") && named != digest) {
            return Err(FetchErrorKind::Digest);
        }
        Ok(header(answer.headers(), "oci-subject").is_some())
    };
    retried(put).map_err(|kind| registry.failed(kind))
}

/// Stores a manifest that refers to `subject` and names the profile, so that registries keep the
/// profile as long as the image and list it.
fn refer(registry: &Registry, subject: Descriptor, profile: &[u8]) -> Result<()> {
    const EMPTY: &[u8] = b"{}";
    const EMPTY_KIND: &str = "application/vnd.oci.empty.v1+json";
    let descriptor = |kind: &str, bytes: &[u8]| Descriptor {
        media_type: kind.into(),
        digest: digest_of(bytes),
        size: to_u64(bytes.len()),
        ..Descriptor::default()
    };
    let empty = descriptor(EMPTY_KIND, EMPTY);
    let blob =
        Blob { digest: empty.digest.clone(), source: &BytesSource(EMPTY), path: Path::new("{}") };
    store(registry, &blob, &[], &|_| ())?;
    let fallback = subject.digest.replace(':', "-");
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST.into(),
        artifact_type: Some(PROFILE.into()),
        config: empty,
        layers: vec![descriptor(PROFILE, profile)],
        subject: Some(subject),
        ..Manifest::default()
    };
    let bytes = to_json(registry, &manifest)?;
    let digest = digest_of(&bytes);
    if put_manifest(registry, &digest, MANIFEST, &bytes, &digest)? {
        return Ok(());
    }
    // The registry has no list of referrers: the distribution specification keeps it in a tag.
    let mut index = match registry.manifest(&fallback, later(Instant::now(), REQUEST_TIME)) {
        Ok(document) => match parse(&document.bytes) {
            Ok(Parsed::Index(index)) => index,
            _ => {
                return Err(registry
                    .wrong("index", format!("the tag {fallback} is not a list of referrers")));
            }
        },
        Err(Error::Fetch { error, .. }) if matches!(error.kind, FetchErrorKind::NotFound(_)) => {
            Index { schema_version: 2, media_type: INDEX.into(), manifests: Vec::new() }
        }
        Err(error) => return Err(error),
    };
    if index.manifests.iter().any(|known| known.digest == digest) {
        return Ok(());
    }
    index
        .manifests
        .push(Descriptor { artifact_type: Some(PROFILE.into()), ..descriptor(MANIFEST, &bytes) });
    let bytes = to_json(registry, &index)?;
    put_manifest(registry, &fallback, INDEX, &bytes, &digest_of(&bytes)).map(drop)
}
