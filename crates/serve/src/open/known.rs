//! The size of an image and the position of its hash tree, known without its server. The cache
//! keeps them, so that an image can be mounted again without a request.

use std::sync::Arc;
use std::time::Duration;

use ferofs_read::{Hex, Source};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use ferofs_verity::{Digest, Seal, Superblock};

use super::options::OpenRemote;
use super::repair::RepairedSource;
use crate::cache::{Cache, Entry, EntryInfo, write_file};
use crate::error::{Error, Result};
use crate::object::{RemoteObject, Validator};
use crate::source::{RemoteSource, Supply};

/// An image, as the cache and the process that reads it know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Bytes of the object.
    pub(super) size: u64,
    tree: Option<KnownTree>,
    /// The key in the cache, of an image without a tree.
    unverified: Option<String>,
}

/// The values in the superblock of a seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownTree {
    root: String,
    position: u64,
    /// The superblock's bytes, in hexadecimal.
    superblock: String,
}

/// The folder with what is known of images, by root and by location.
const FOLDER: &str = ".known";

impl Known {
    /// An image with a seal in it.
    pub(super) fn sealed(size: u64, root: Digest, seal: &Seal) -> Self {
        // A superblock that was parsed can be written.
        let superblock =
            seal.superblock.to_bytes().map(|bytes| Hex(&bytes).to_string()).unwrap_or_default();
        let tree = KnownTree { root: root.to_string(), position: seal.position, superblock };
        Self { size, tree: Some(tree), unverified: None }
    }

    /// An image that nothing verifies: its entry is of one location and of one state of the object.
    pub(super) fn unverified(location: &str, size: u64, validator: &Validator) -> Self {
        let state = match validator {
            // Nothing tells whether the next process gets the same bytes.
            Validator::None => format!("{}-{:?}", std::process::id(), std::time::SystemTime::now()),
            known => format!("{known:?}"),
        };
        let key = Sha256::digest(format!("{location}\n{size}\n{state}"));
        Self { size, tree: None, unverified: Some(format!("unverified-{}", Hex(&key))) }
    }

    /// Whether `object`, which a server has at `location` now, can be this image. A server without
    /// validators tells only a change of the size.
    pub(super) fn can_be(&self, location: &str, object: &dyn RemoteObject) -> bool {
        let is_unknown = self.tree.is_some() || *object.validator() == Validator::None;
        self.size == object.size()
            && (is_unknown || Self::unverified(location, self.size, object.validator()) == *self)
    }

    /// The key of its entry in the cache.
    #[must_use]
    pub fn key(&self) -> String {
        match (&self.tree, &self.unverified) {
            (Some(tree), _) => format!("verity-{}-{}-{}", tree.root, self.size, tree.position),
            (None, Some(key)) => key.clone(),
            (None, None) => "unverified".to_owned(),
        }
    }

    /// The root hash, in hexadecimal.
    #[must_use]
    pub fn roothash(&self) -> Option<&str> {
        self.tree.as_ref().map(|tree| tree.root.as_str())
    }

    /// Bytes of the object.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The seal and its root.
    pub(crate) fn seal(&self) -> Result<Option<(Seal, Digest)>> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let wrong = |problem: &str| Error::document(&self.key(), "known image", problem);
        let root: Digest = tree.root.parse().map_err(|_| wrong("no root hash"))?;
        let bytes = unhex(&tree.superblock).ok_or_else(|| wrong("no superblock of a hash tree"))?;
        Ok(Some((Seal { superblock: Superblock::parse(&bytes)?, position: tree.position }, root)))
    }

    /// Whether this image was found at `location` once.
    pub(super) fn was_at(&self, cache: &Cache, location: &str) -> Result<bool> {
        Ok(Self::read(cache, &name_of(location))?.as_ref() == Some(self))
    }

    /// The image with this root, if the cache has some of it.
    pub(super) fn by_root(
        cache: &Cache,
        root: Digest,
        position: Option<u64>,
    ) -> Result<Option<Self>> {
        let known = Self::read(cache, &format!("root-{root}.json"))?;
        let fits = |known: &Self| {
            let tree = known.tree.as_ref();
            tree.is_some_and(|tree| {
                tree.root == root.to_string() && position.is_none_or(|at| at == tree.position)
            })
        };
        Ok(known.filter(fits))
    }

    /// The image that was last found at `location`. With a server, only a location with a digest
    /// names the same image for ever.
    pub(super) fn by_location(
        cache: &Cache,
        location: &str,
        options: &OpenRemote,
    ) -> Result<Option<Self>> {
        let is_fixed = location.starts_with("oci://") && location.contains("@sha256:");
        if !(options.offline || is_fixed) {
            return Ok(None);
        }
        let known = Self::read(cache, &name_of(location))?;
        Ok(known.filter(|known| known.tree.is_some() || options.allow_unverified))
    }

    pub(super) fn remember(&self, cache: &Cache, location: &str) -> Result<()> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let folder = cache.folder().join(FOLDER);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", &folder)(error));
            }
            _ => {}
        }
        if let Some(tree) = &self.tree {
            write_file(&folder.join(format!("root-{}.json", tree.root)), &bytes)?;
        }
        write_file(&folder.join(name_of(location)), &bytes)
    }

    /// Files that cannot be read count as missing, and so do images without an entry: nobody has
    /// verified a byte of them.
    fn read(cache: &Cache, name: &str) -> Result<Option<Self>> {
        let path = cache.folder().join(FOLDER).join(name);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let known: Option<Self> = serde_json::from_slice(&bytes).ok();
                Ok(known.filter(|known| cache.info(&known.key()).is_ok_and(|info| info.is_some())))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }
}

impl Known {
    /// As [`super::RemoteImage::source`], in a process that has only the entry.
    ///
    /// # Errors
    /// [`Error::Verity`].
    pub fn source(
        &self,
        entry: &Arc<Entry>,
        supply: Arc<dyn Supply>,
        patience: Duration,
    ) -> Result<(Arc<dyn Source>, bool)> {
        let remote = Arc::new(RemoteSource::new(Arc::clone(entry), Arc::clone(&supply), patience));
        let Some((seal, root)) = self.seal()? else { return Ok((remote, false)) };
        let repaired = RepairedSource::new(remote, &seal, root, supply, patience)?;
        Ok((Arc::new(repaired), true))
    }

    /// Opens the entry in `cache`.
    ///
    /// # Errors
    /// As [`Cache::entry`].
    pub fn open_entry(&self, cache: &Cache, location: &str) -> Result<Arc<Entry>> {
        Ok(Arc::new(cache.entry(&self.key(), &self.info(location))?))
    }

    fn info(&self, location: &str) -> EntryInfo {
        EntryInfo {
            size: self.size,
            location: location.to_owned(),
            roothash: self.roothash().map(str::to_owned),
        }
    }
}

fn name_of(location: &str) -> String {
    format!("location-{}.json", Hex(&Sha256::digest(location)))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes().chunks(2);
    bytes.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
