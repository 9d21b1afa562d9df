//! The fingerprint of an extent's content, and the place of the extent.

use std::sync::LazyLock;

use ferofs_format::BytePos;

use crate::data::encode::dedupe::anchors::anchors;
use crate::output::random::random;

/// Identifies the content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentFingerprint {
    /// The hash of its first anchor.
    pub(super) anchor: u64,
    /// Bytes before the end of that anchor.
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) digest: [u8; 16],
}

/// An extent in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredExtent {
    pub at: BytePos,
    pub size: u64,
    pub encoded: bool,
    pub method: usize,
    /// It decodes to more bytes than are used of it.
    pub partial: bool,
}

impl ExtentFingerprint {
    /// The fingerprint of an extent with this content; `None` when it has no anchor.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (at, anchor) = anchors(bytes).next()?;
        let (offset, len) = (u32::try_from(at).ok()?, u32::try_from(bytes.len()).ok()?);
        Some(Self { anchor, offset, len, digest: digest(bytes) })
    }
}

/// Half of a BLAKE3 digest with a random key, so that nobody can prepare different content with the same digest.
pub(super) fn digest(bytes: &[u8]) -> [u8; 16] {
    /// Another one in each process; zeroes if the system has no random bytes.
    static KEY: LazyLock<[u8; blake3::KEY_LEN]> = LazyLock::new(|| {
        let mut key = [0; blake3::KEY_LEN];
        // Without random bytes the digest is weaker against content that was made for it, and still right for all other content.
        let _ = random(&mut key);
        key
    });
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::keyed_hash(&KEY, bytes).as_bytes()[..16]);
    digest
}
