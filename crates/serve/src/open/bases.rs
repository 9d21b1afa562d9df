//! Finds the images on this machine that may have blocks of another image: those of the cache, and
//! files that the caller names.

use std::path::PathBuf;
use std::sync::Arc;

use ferofs_read::FileSource;

use super::known::Known;
use crate::cache::Cache;
use crate::error::{Result, open_file};
use crate::fetch::Base;

/// Opens files whose blocks may be used.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub(crate) fn open_files(paths: &[PathBuf]) -> Result<Vec<Arc<FileSource>>> {
    paths.iter().map(|path| open_file(path).map(Arc::new)).collect()
}

/// The files, and the images of the cache that have a root hash: those with names most like
/// `location` first, of others the most recently used. `key` is that of the image itself.
pub(super) fn bases(
    files: Vec<Arc<FileSource>>,
    cache: Option<&Cache>,
    location: &str,
    key: &str,
) -> Vec<Base> {
    let mut bases: Vec<Base> = files.into_iter().map(Base::file).collect();
    let Some(cache) = cache else { return bases };
    // Without the list of the cache, all is fetched.
    let mut entries = cache.usage().unwrap_or_default();
    entries.retain(|entry| {
        let is_verified = entry.info.as_ref().is_some_and(|info| info.roothash.is_some());
        entry.key != key && entry.stored > 0 && is_verified
    });
    // The sort keeps the order of what is equally alike.
    entries.reverse();
    entries.sort_by_key(|entry| {
        let other = entry.info.as_ref().map_or("", |info| info.location.as_str());
        std::cmp::Reverse(common_start(location, other))
    });
    bases.extend(entries.into_iter().map(|entry| {
        let root = entry.info.and_then(|info| info.roothash?.parse().ok());
        let known = root.and_then(|root| Known::by_root(cache, root, None).ok()?);
        let known = known.filter(|known| known.key() == entry.key);
        let seal = known.and_then(|known| known.seal().ok()?).map(|(seal, _)| seal);
        Base::entry(cache, entry.key, seal)
    }));
    bases
}

fn common_start(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}
