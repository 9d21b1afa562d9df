//! Finds the blobs of a layout in its directory or archive, and verifies them before use.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::document::{Descriptor, Digest, Index, LayoutMarker};
use crate::error::faults::OciFault;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::tar;
use crate::tree::{SourcePosition, layered_tree};

pub(super) use crate::skopeo::{INDEX, MANIFEST as DOCKER_MANIFEST, MARK};

/// The version that is supported; the specification has no other one yet.
const VERSION: &str = "1.";
/// Bytes of a document: the limit of registries. A larger document is an error, since a parsed
/// document needs up to 20 times as much memory.
const DOCUMENT_MAX: u64 = 4 << 20;
/// Bytes that are hashed at once.
const PIECE: u64 = 1 << 20;

/// Where a file of the layout is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob {
    pub(super) place: SourcePosition,
    pub(super) len: u64,
}

/// A layout's files.
#[derive(Debug)]
pub(super) struct Store<'a> {
    options: &'a Options,
    name: PathBuf,
    /// Files by name, of an archive.
    members: Option<BTreeMap<Vec<u8>, Blob>>,
    /// Verified blobs by digest: a manifest may name the same layer several times.
    verified: BTreeMap<String, Blob>,
    /// It has a manifest of docker instead of an index.
    is_docker: bool,
}

impl<'a> Store<'a> {
    /// Opens the layout `source`, and registers its files in `contents`.
    pub(super) fn open(
        options: &'a Options,
        source: &Path,
        contents: &mut Contents,
    ) -> Result<Self> {
        let members = match source.is_dir() {
            true => None,
            false => {
                let files = tar::files(options, source, contents)?;
                // Blobs of a compressed archive or a pipe are in the spool, and are read from it
                // next.
                contents.finish_spool()?;
                Some(
                    files
                        .into_iter()
                        .map(|(name, (place, len))| (name, Blob { place, len }))
                        .collect(),
                )
            }
        };
        let (name, verified) = (source.to_owned(), BTreeMap::new());
        let mut store = Self { options, name, members, verified, is_docker: false };
        let has = |name: &str| {
            store.members.as_ref().is_some_and(|all| all.contains_key(name.as_bytes()))
        };
        if !has(MARK) && has(DOCKER_MANIFEST) {
            store.is_docker = true;
            return Ok(store);
        }
        let blob = store.find(MARK, contents)?;
        let blob = blob.ok_or_else(|| store.error(None, OciFault::NoLayout(MARK)))?;
        let mark: LayoutMarker = store.parse(None, blob, contents)?;
        if !mark.image_layout_version.starts_with(VERSION) {
            return Err(store.error(None, OciFault::Version(mark.image_layout_version)));
        }
        Ok(store)
    }

    /// The error that a blob, or the layout, has this fault.
    pub(super) fn error(&self, blob: Option<&Digest>, fault: OciFault) -> Error {
        Error::Oci { layout: self.name.clone(), blob: blob.map(Digest::to_string), fault }
    }

    /// Whether this is an archive of `docker save` that is not a layout.
    pub(super) const fn is_docker(&self) -> bool {
        self.is_docker
    }

    /// The document with this name.
    pub(super) fn named<T: DeserializeOwned>(
        &mut self,
        name: &str,
        contents: &mut Contents,
    ) -> Result<T> {
        let blob = self.member(name, contents)?;
        self.parse(None, blob, contents)
    }

    /// The layer `name` of an archive of `docker save`. `digest` is that of its decompressed
    /// content.
    pub(super) fn layer_of_docker(
        &mut self,
        name: &str,
        digest: Digest,
        contents: &mut Contents,
    ) -> Result<Descriptor> {
        let blob = self.member(name, contents)?;
        let mut magic = [0; 4];
        let len = magic.len().min(usize::try_from(blob.len).unwrap_or(usize::MAX));
        contents.read_at(blob.place, &mut magic[..len])?;
        if tar::tar_stream::is_compressed(&magic[..len]) {
            // Nothing names the digest of the compressed bytes.
            self.verified.insert(digest.to_string(), blob);
        } else if let Some(members) = &mut self.members {
            members.insert(digest.path().into_bytes(), blob);
        }
        Ok(Descriptor::layer(digest, blob.len))
    }

    fn member(&mut self, name: &str, contents: &mut Contents) -> Result<Blob> {
        // As the names of members: without `./`.
        let clean = layered_tree::clean(name.as_bytes()).join(&b'/');
        let blob = self.find(&String::from_utf8_lossy(&clean), contents)?;
        blob.ok_or_else(|| self.error(None, OciFault::NoMember(name.to_owned())))
    }

    /// A blob's name, for messages.
    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.name.join(digest.path())
    }

    fn find(&mut self, name: &str, contents: &mut Contents) -> Result<Option<Blob>> {
        if let Some(members) = &self.members {
            return Ok(members.get(name.as_bytes()).copied());
        }
        let path = self.name.join(name);
        // Layouts are not trusted: if the file is a FIFO, opening must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => File::from(file.map_err(|e| Error::io("open", &path, e))?),
        };
        let metadata = file.metadata().map_err(|e| Error::io("stat", &path, e))?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let file = contents.add_file(file, &path)?;
        Ok(Some(Blob { place: SourcePosition { file: file.id(), at: 0 }, len: metadata.len() }))
    }

    /// The index of all images.
    pub(super) fn index(&mut self, contents: &mut Contents) -> Result<Index> {
        let blob = self.find(INDEX, contents)?;
        let blob = blob.ok_or_else(|| self.error(None, OciFault::NoLayout(INDEX)))?;
        self.parse(None, blob, contents)
    }

    /// The document that `descriptor` refers to.
    pub(super) fn document<T: DeserializeOwned>(
        &mut self,
        descriptor: &Descriptor,
        contents: &mut Contents,
    ) -> Result<T> {
        let blob = self.verified(descriptor, contents)?;
        self.parse(Some(&descriptor.digest), blob, contents)
    }

    fn parse<T: DeserializeOwned>(
        &self,
        digest: Option<&Digest>,
        blob: Blob,
        contents: &Contents,
    ) -> Result<T> {
        if blob.len > DOCUMENT_MAX {
            return Err(
                self.error(digest, OciFault::HugeDocument { size: blob.len, limit: DOCUMENT_MAX })
            );
        }
        let mut bytes = vec![0; blob.len as usize];
        contents.read_at(blob.place, &mut bytes)?;
        serde_json::from_slice(&bytes)
            .map_err(|e| self.error(digest, OciFault::Document(e.to_string())))
    }

    /// The blob that `descriptor` refers to, of the right size and with the right digest.
    pub(super) fn verified(
        &mut self,
        descriptor: &Descriptor,
        contents: &mut Contents,
    ) -> Result<Blob> {
        let digest = &descriptor.digest;
        if let Some(blob) =
            self.verified.get(&digest.to_string()).filter(|blob| blob.len == descriptor.size)
        {
            return Ok(*blob);
        }
        let blob = self.find(&digest.path(), contents)?;
        let blob = blob.ok_or_else(|| self.error(Some(digest), OciFault::Missing))?;
        if blob.len != descriptor.size {
            let fault = OciFault::Size { found: blob.len, claimed: descriptor.size };
            return Err(self.error(Some(digest), fault));
        }
        let mut hasher = digest.hasher();
        let mut buffer = vec![0; blob.len.min(PIECE) as usize];
        let mut done = 0;
        while done < blob.len {
            self.options.run.cancel.check()?;
            let piece = (blob.len - done).min(PIECE);
            let bytes = &mut buffer[..piece as usize];
            contents.read_at(SourcePosition { at: blob.place.at + done, ..blob.place }, bytes)?;
            hasher.update(bytes);
            done += piece;
        }
        let found = digest.like(&hasher.finalize());
        match found == digest.to_string() {
            true => {
                self.verified.insert(found, blob);
                Ok(blob)
            }
            false => Err(self.error(Some(digest), OciFault::Digest(found))),
        }
    }
}
