//! The access profile that a registry has with an image: kept in the cache, so that later mounts need no request for it.

use std::io::Read;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use crate::cache::Entry;
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::numbers::to_usize;
use crate::object::{RemoteObject, Validator};

/// The largest access profile that is fetched, in bytes: about 300,000 ranges.
const LARGEST: u64 = 16 << 20;

/// Fetches the profile `object` into `entry`, unless the entry has it.
pub(super) fn keep(object: &dyn RemoteObject, entry: &Entry, deadline: Instant) -> Result<()> {
    let (location, failed) =
        (object.location(), |error| Error::Fetch { location: object.location().into(), error });
    if object.size() > LARGEST {
        let problem = format!("has {} bytes, and at most {LARGEST} are used", object.size());
        return Err(Error::Document { location: location.into(), document: "access profile", problem });
    }
    let is_right = |bytes: &[u8]| match object.validator() {
        Validator::Sha256(digest) => ferofs_read::Hex(&Sha256::digest(bytes)).to_string() == *digest,
        _ => true,
    };
    let mut kept = Vec::new();
    // One that cannot be read is replaced.
    if let Ok(Some(file)) = entry.profile()
        && file.take(LARGEST).read_to_end(&mut kept).is_ok()
        && matches!(object.validator(), Validator::Sha256(_))
        && is_right(&kept)
    {
        return Ok(());
    }
    let mut bytes = vec![0; to_usize(object.size())];
    if let Err(error) = object.fetch(0, &mut bytes, deadline) {
        // A connection of another request may have been closed by the server.
        if !error.kind.is_temporary() {
            return Err(failed(error));
        }
        object.fetch(0, &mut bytes, deadline).map_err(failed)?;
    }
    if !is_right(&bytes) {
        return Err(failed(FetchError::from(FetchErrorKind::Digest)));
    }
    entry.store_profile(&bytes)
}
