//! Patch files that lie: parts are decoded, changed, and encoded again, with the right lengths and the right digest.

use crate::format::columns::{compress, decompress};

/// Bytes before the header.
const START: usize = 24;
/// Offsets of the lengths of the list of changes, stored and decoded, and of relocated inodes, in the header.
const LENGTHS: [usize; 3] = [1172, 1180, 1188];
/// Bytes of the header without its tables.
pub(super) const HEADER: usize = 1216;
const LIMIT: usize = 1 << 24;

/// The parts of a patch file that are stored as frames.
pub(super) struct Parts {
    pub(super) header: Vec<u8>,
    pub(super) changes: Vec<u8>,
    pub(super) relocations: Vec<u8>,
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

fn split(patch: &[u8]) -> (Parts, &[u8]) {
    let header_len = u32::from_le_bytes(patch[12..16].try_into().unwrap()) as usize;
    let (stored, rest) = patch[START..patch.len() - 32].split_at(header_len);
    let header = decompress(stored, LIMIT, "header").unwrap();
    let (changes, rest) = rest.split_at(u64_at(&header, LENGTHS[0]));
    let (relocations, rest) = rest.split_at(u64_at(&header, LENGTHS[2]));
    let changes = decompress(changes, LIMIT, "changes").unwrap();
    let relocations = decompress(relocations, LIMIT, "relocations").unwrap();
    (Parts { header, changes, relocations }, rest)
}

/// The decoded parts of a patch file.
pub(super) fn parts(patch: &[u8]) -> Parts {
    split(patch).0
}

/// The file `patch` after `edit` changed its decoded parts. The lengths of lists are made right again.
pub(super) fn edited(patch: &[u8], edit: impl FnOnce(&mut Parts)) -> Vec<u8> {
    let (mut parts, rest) = split(patch);
    let before = [parts.changes.clone(), parts.relocations.clone()];
    edit(&mut parts);
    let changes = compress(&parts.changes, 3).unwrap();
    let relocations = compress(&parts.relocations, 3).unwrap();
    let mut set = |at: usize, len: usize| {
        parts.header[at..at + 8].copy_from_slice(&(len as u64).to_le_bytes());
    };
    set(LENGTHS[0], changes.len());
    if parts.changes != before[0] {
        set(LENGTHS[1], parts.changes.len());
    }
    set(LENGTHS[2], relocations.len());
    let header = compress(&parts.header, 3).unwrap();
    let mut file = patch[..START].to_vec();
    file[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
    for part in [&header[..], &changes, &relocations, rest] {
        file.extend_from_slice(part);
    }
    let len = file.len() as u64 + 32;
    file[16..24].copy_from_slice(&len.to_le_bytes());
    with_digest(file)
}

/// `bytes` with their digest.
pub(super) fn with_digest(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}
