//! Limits on what an archive may cost. Memory and holes are limited in proportion to the bytes
//! read, so that a small archive cannot cause much work. Headers count by the bytes read, not by
//! the size that they claim.
//!
//! The number of members has no limit: each is a file of the image.
//! [`crate::SourceOptions::archive_limit_factor`] multiplies the limits.

use std::num::NonZeroU32;

use crate::error::faults::TarFault;

/// Bytes of all extended headers of one member. Linux allows 64 KiB of attribute names and 64 KiB
/// per value, and other programs refuse more than 1 MiB. A larger header is an error.
const HEADERS: u64 = 4 << 20;
/// Bytes of a long name or target: 16 times Linux's `PATH_MAX`, since some programs store deeper
/// trees. A longer one is an error.
const LONG_NAME: u64 = 64 << 10;
/// Bytes of the keywords and values of all global headers that are in force. Each member that
/// follows costs time for them. Real archives have an owner or a time there. More is an error.
const GLOBALS: u64 = 4 << 10;
/// Bytes of memory for attributes, sparse maps, entries that later ones replace, and directories
/// without a member of their own, in addition to the bytes read of the archive's file. With the
/// rest of the build they stay below 128 MiB.
const MEMORY: u64 = 32 << 20;
/// Bytes of a decompressor's window: the limit of Zstandard's command line; `xz -9` needs 64 MiB.
/// Archives that need more are an error.
const WINDOW: u64 = 128 << 20;
/// Bytes that are written or encoded for holes of sparse files, in addition to [`HOLES_PER_BYTE`]:
/// a few seconds of work. More is an error.
const HOLES: u64 = 4 << 30;
/// Bytes that are written or encoded for holes, for each byte of the decompressed archive: 1 MiB of
/// it may cost 0.25 s of encoding zeroes.
const HOLES_PER_BYTE: u64 = 256;
/// Bytes. If the holes of a file are smaller, they are encoded as zeroes; otherwise the file is
/// stored as chunks.
const ENCODED_HOLES: u64 = 256 << 20;
/// Bytes of a sparse file: four times the largest file of ext4, 16 TiB. The limit exists because an
/// image's chunk table grows with the file's size. A larger file is an error.
const SPARSE_FILE: u64 = 64 << 40;

/// Bytes of memory for a piece of a sparse file, with temporary copies.
pub(super) const PIECE: u64 = 96;
/// Bytes of memory for a warning, without its path.
pub(super) const WARNING: u64 = 128;

/// The most bytes of memory for a chunk, if the caller chose the chunk size.
pub(super) const CHUNK_ENTRY: u64 = 8;
/// Bytes of memory for an entry of a chunk table whose data stay in the archive, with temporary
/// copies.
pub(super) const TABLE_ENTRY: u64 = 48;

/// The limits, all multiplied by the same factor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits(u64);

impl Limits {
    pub(crate) fn new(factor: NonZeroU32) -> Self {
        Self(factor.get().into())
    }

    /// Fails if `read` bytes are too many for the extended headers of one member.
    pub(super) fn check_headers(self, read: u64) -> Result<(), TarFault> {
        let limit = HEADERS * self.0;
        if read > limit { Err(TarFault::HugeHeader { size: read, limit }) } else { Ok(()) }
    }

    /// Fails if `size` bytes are too many for a name.
    pub(super) fn check_name(self, size: u64) -> Result<(), TarFault> {
        let limit = LONG_NAME * self.0;
        if size > limit { Err(TarFault::HugeHeader { size, limit }) } else { Ok(()) }
    }

    /// Fails if global headers in force have too many bytes.
    pub(super) fn check_globals(self, size: u64) -> Result<(), TarFault> {
        let limit = GLOBALS * self.0;
        if size > limit { Err(TarFault::GlobalHeaders { limit }) } else { Ok(()) }
    }

    /// Fails if `memory_used` bytes of memory are too many for an archive of which `read` bytes
    /// were read.
    pub(super) fn check_memory(self, memory_used: u64, read: u64) -> Result<(), TarFault> {
        let limit = (MEMORY * self.0).saturating_add(read);
        if memory_used > limit { Err(TarFault::Memory { limit }) } else { Ok(()) }
    }

    /// Fails if holes that cost `holes` bytes are too many after `read` bytes of the decompressed
    /// archive.
    pub(super) fn check_holes(self, holes: u64, read: u64) -> Result<(), TarFault> {
        let limit = (HOLES * self.0).saturating_add(read.saturating_mul(HOLES_PER_BYTE));
        if holes > limit { Err(TarFault::Holes { limit }) } else { Ok(()) }
    }

    /// Fails if a sparse file is too large.
    pub(super) fn check_sparse_file(self, size: u64) -> Result<(), TarFault> {
        let limit = SPARSE_FILE * self.0;
        if size > limit { Err(TarFault::SparseFile { size, limit }) } else { Ok(()) }
    }

    /// The largest window of a decompressor, in bytes.
    pub(super) const fn window(self) -> u64 {
        WINDOW * self.0
    }
}

/// The largest cost, in bytes, of the holes of a file of `size` bytes with `stored` bytes of data:
/// they are encoded, or become chunks of the size with the smallest table and padding.
pub(super) fn cost_of_holes(size: u64, stored: u64) -> u64 {
    let holes = size.saturating_sub(stored);
    if holes < ENCODED_HOLES { holes } else { 4 * size.isqrt() }
}
