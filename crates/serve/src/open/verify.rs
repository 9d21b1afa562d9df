//! Checks what the cache has stored.

use std::sync::Arc;

use ferofs_verity::{Digest, Seal};

use super::known::Known;
use crate::cache::{Cache, Entry};
use crate::error::{Error, Result};
use crate::fetch::{Check as _, TreeCheck, VerifiedEntry, check_stored};

/// Checks all that is stored of the entry `key` against its root hash, and removes what is wrong:
/// it will be fetched again. Returns `None` for an entry without a root hash.
///
/// # Errors
/// [`Error::Io`], [`Error::Verity`].
pub fn verify_entry(cache: &Cache, key: &str) -> Result<Option<VerifiedEntry>> {
    let Some(info) = cache.info(key)? else { return Ok(None) };
    let root = info.roothash.as_ref().and_then(|root| root.parse().ok());
    let Some(known) = root.map(|root| Known::by_root(cache, root, None)).transpose()?.flatten()
    else {
        return Ok(None);
    };
    let (Some((seal, root)), true) = (known.seal()?, known.key() == key) else { return Ok(None) };
    verify(&Arc::new(cache.entry(key, &info)?), &seal, root).map(Some)
}

/// As [`verify_entry`], for an image with the seal `seal`.
pub(super) fn verify(entry: &Arc<Entry>, seal: &Seal, root: Digest) -> Result<VerifiedEntry> {
    let (check, mut verified) = (TreeCheck::new(entry, seal, root)?, VerifiedEntry::default());
    let border = check.border().min(entry.size());
    // The tree first, from its top: data is checked against hashes that were checked.
    for range in [border..entry.size(), 0..border] {
        check_stored(entry, &check, &range, &mut verified)
            .map_err(Error::io("check", entry.path()))?;
    }
    Ok(verified)
}
