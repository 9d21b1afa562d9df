//! Digests of whole images: BLAKE3 of each MiB, and BLAKE3 of these digests.
//!
//! So all processors hash at the same time, and parts that a patch does not change are not hashed
//! again.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{Cancel, Source};
use ferofs_threads as threads;

/// Bytes of a part. Another size gives other digests, so it is part of the file format.
const PART: u64 = 1 << 20;

/// Threads that hash at the same time, at most. Each has a buffer of [`PART`] bytes, and a patch is
/// applied in bounded memory on machines with many processors, too.
const WORKERS_MAX: usize = 8;

/// A BLAKE3 hash.
pub(crate) type Digest = [u8; 32];

/// The first half of the BLAKE3 hash of the bytes that a piece of a patch appends. The digest of
/// the result proves all of them once more.
pub(crate) type PieceDigest = [u8; 16];

/// The digest of the piece that appends the bytes in `range` of `source`.
pub fn of_piece(source: &dyn Source, range: Range<u64>) -> io::Result<PieceDigest> {
    let mut hasher = blake3::Hasher::new();
    hash_range(source, range, &mut hasher)?;
    let mut digest = PieceDigest::default();
    hasher.finalize_xof().fill(&mut digest);
    Ok(digest)
}

/// Passes the bytes in `range` of `source` to `hasher`.
pub(crate) fn hash_range(
    source: &dyn Source,
    range: Range<u64>,
    hasher: &mut blake3::Hasher,
) -> io::Result<()> {
    let mut at = range.start;
    let mut buffer = Vec::new();
    while at < range.end {
        buffer.resize(to_usize(range.end.saturating_sub(at).min(PART)), 0);
        source.read_exact_at(at, &mut buffer)?;
        hasher.update(&buffer);
        at = at.saturating_add(to_u64(buffer.len()));
    }
    Ok(())
}

/// The digests of an image's parts.
#[derive(Clone, Debug)]
pub struct PartDigests {
    size: u64,
    parts: Vec<Digest>,
}

impl PartDigests {
    /// Hashes the first `size` bytes of `source`; bytes past its end count as zeroes.
    pub fn of(source: &dyn Source, size: u64, cancel: &Cancel) -> Result<Self> {
        let count = to_usize(size.div_ceil(PART));
        let parts = hash(source, size, &(0..count).collect::<Vec<_>>(), cancel)?;
        Ok(Self { size, parts })
    }

    /// The digests of `source`, of `size` bytes, which differs from the image hashed before only in
    /// the ranges `changed`.
    pub fn changed(
        &self,
        source: &dyn Source,
        size: u64,
        changed: &[Range<u64>],
        cancel: &Cancel,
    ) -> Result<Self> {
        let count = to_usize(size.div_ceil(PART));
        let kept = self.parts.len().min(count);
        // The last part may have become longer.
        let first_new = if self.size == size { kept } else { kept.saturating_sub(1) };
        let touched = |part: usize| {
            let start = to_u64(part).saturating_mul(PART);
            changed
                .iter()
                .any(|range| range.start < start.saturating_add(PART) && start < range.end)
        };
        let wanted: Vec<usize> =
            (0..first_new).filter(|part| touched(*part)).chain(first_new..count).collect();
        let hashed = hash(source, size, &wanted, cancel)?;
        let mut parts = self.parts.clone();
        parts.resize(count, [0; 32]);
        for (part, digest) in wanted.into_iter().zip(hashed) {
            if let Some(slot) = parts.get_mut(part) {
                *slot = digest;
            }
        }
        Ok(Self { size, parts })
    }

    /// The image's digest.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        for part in &self.parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "numbers of jobs are below `wanted.len()`, and `present <= len <= PART`, which `buffer` has"
)]
fn hash(source: &dyn Source, size: u64, wanted: &[usize], cancel: &Cancel) -> Result<Vec<Digest>> {
    let workers = threads::fitting_workers(None, PART).min(WORKERS_MAX);
    let have = source.size();
    // The digest of a part that is a hole: an image can have terabytes of them.
    let zeroes = OnceLock::new();
    let context = || (vec![0; to_usize(PART)], 0);
    threads::parallel(workers, wanted.len(), context, |(buffer, stored), number| {
        cancel.check()?;
        let start = to_u64(wanted[number]).saturating_mul(PART);
        let len = to_usize(size.saturating_sub(start).min(PART));
        let present = to_usize(have.saturating_sub(start)).min(len);
        // Parts come in ascending order, so a hole is looked up once.
        let end = start.saturating_add(to_u64(present));
        if *stored < end {
            *stored = source.next_stored(start);
        }
        if *stored >= end && len == buffer.len() {
            return Ok(*zeroes.get_or_init(|| *blake3::hash(&vec![0; len]).as_bytes()));
        }
        buffer[present..].fill(0);
        if present > 0 {
            source
                .read_exact_at(start, &mut buffer[..present])
                .map_err(|e| Error::io_unnamed("read the image", e))?;
        }
        Ok(*blake3::hash(&buffer[..len]).as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_parts_are_hashed_again() {
        let cancel = Cancel::default();
        let mut image = vec![7u8; (3 << 20) + 5];
        let before = PartDigests::of(&image, image.len() as u64, &cancel).unwrap();
        image[2_000_000] = 8;
        image.resize((4 << 20) + 100, 9);
        let size = image.len() as u64;
        let fresh = PartDigests::of(&image, size, &cancel).unwrap();
        let followed =
            before.changed(&image, size, &[0..1, 2_000_000..2_000_001], &cancel).unwrap();
        assert_eq!(followed.digest(), fresh.digest());
        assert_ne!(before.digest(), fresh.digest());
        let missed = before.changed(&image, size, &[], &cancel).unwrap();
        assert_ne!(missed.digest(), fresh.digest());
    }

    /// Patches have these digests: they must not change.
    #[test]
    fn digests_of_an_image_and_of_a_piece() {
        let image: Vec<u8> = (0..(2 << 20) + 5_usize).map(|n| (n / 7) as u8).collect();
        let hex = |bytes: &[u8]| ferofs_format::text::Hex(bytes).to_string();
        let digest =
            PartDigests::of(&image, image.len() as u64, &Cancel::default()).unwrap().digest();
        assert_eq!(
            hex(&digest),
            "8e4614924ad7440b77ba1210965b77096cf112811903f26334a702cf8e1efec4"
        );
        assert_eq!(
            hex(&of_piece(&image, 3..(2 << 20) + 4).unwrap()),
            "58feb30b03e421dfab46f6d3cb4a7a10"
        );
    }

    #[test]
    fn holes_count_as_zeroes() {
        use std::os::unix::fs::FileExt;
        let (cancel, file) = (Cancel::default(), tempfile::tempfile().unwrap());
        file.set_len((9 << 20) + 5).unwrap();
        file.write_all_at(b"data", (5 << 20) - 2).unwrap();
        let mut bytes = vec![0; (9 << 20) + 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let source = ferofs_read::FileSource::new(file, 0).unwrap();
        let digest = |source: &dyn Source| {
            [bytes.len() as u64, 12 << 20]
                .map(|size| PartDigests::of(source, size, &cancel).unwrap().digest())
        };
        assert_eq!(digest(&source), digest(&bytes));
    }
}
