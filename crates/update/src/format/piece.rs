//! The pieces of a patch file: parts of the appended bytes. A piece has a plan and a payload; the
//! payload is compressed alone, with bytes of the base as dictionary. Layout: docs/PATCH_FORMAT.md.

pub mod base;
pub mod delta;

use std::io::Write;

use parking_lot::Mutex;
use zstd::zstd_safe::{self, CParameter};

use self::base::Base;
use super::plan::{Item, Plan};
use super::reencode::Encoders;
use crate::error::{Error, PatchFault, Result};
use crate::format::piece::base::{parallel, resize};
use crate::image::digest::PieceDigest;
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of content that `create` puts into a piece, unless one extent has more.
pub const PIECE_LEN: usize = 4 << 20;
/// Bytes of a decoded payload at most: one unit of [`PIECE_LEN`] bytes that carries all its encoded
/// bytes. Larger pieces need more memory to apply, and are malformed.
pub(crate) const PAYLOAD_MAX: usize = 2 * PIECE_LEN;
/// Bytes that a piece appends at most: a unit can be followed by the padding of its blocks. A piece
/// with more is malformed.
pub(crate) const REGION_MAX: usize = 3 * PIECE_LEN;
/// Zstandard's window for a piece with its dictionary: log2 of 32 MiB, the next power of two of
/// both limits.
const WINDOW_LOG_MAX: u32 = 25;
/// The smallest window: smaller ones save no memory that counts.
const WINDOW_LOG_MIN: u32 = 16;
/// The largest window whose tables are made small.
const SMALL_WINDOW_LOG: u32 = 18;
/// Bytes of a dictionary from which on long-distance matching pays.
const LONG_DISTANCE_MIN: usize = 1 << 20;
/// Bytes of content in an extent at least, but the last one of a unit: the smallest block. It
/// bounds the calls of compressors.
const EXTENT_MIN: u64 = 512;

/// What a piece describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Data of files.
    Content,
    /// Inodes, indexes and directories, with inline tails.
    Metadata,
}

/// A part of the appended bytes, as stored.
#[derive(Clone, Debug)]
pub struct Piece {
    /// What it appends.
    pub kind: PieceKind,
    /// The encoded plan.
    pub plan: Vec<u8>,
    /// Bytes of the payload when decoded.
    pub payload_len: usize,
    /// Bytes that it appends.
    pub region_len: usize,
    /// The digest of these.
    pub digest: PieceDigest,
    /// Whether the payload is compressed.
    pub compressed: bool,
    /// Bytes of the payload as a delta; 0: as it is.
    pub delta_len: usize,
    /// The payload as stored.
    pub payload: Vec<u8>,
    /// Decoded bytes of the longest extent of the base that its references read.
    pub longest_extent: u32,
}

/// Decodes a compressed payload of `len` bytes into `out`.
fn decode_payload(stored: &[u8], dictionary: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    let malformed = || Error::Patch(PatchFault::Malformed("a piece cannot be decoded"));
    resize(out, len);
    // The whole output is one buffer, so no window is allocated, whatever the frame says.
    let no_memory = || Error::no_memory("decode");
    let mut context = zstd_safe::DCtx::try_create().ok_or_else(no_memory)?;
    // Any bytes can be a dictionary.
    context.ref_prefix(dictionary).map_err(|_| no_memory())?;
    match context.decompress(&mut out[..], stored) {
        Ok(found) if found == len => Ok(()),
        _ => Err(malformed()),
    }
}

/// Compresses `bytes` with `dictionary`; `None` if that does not make them shorter.
pub fn compress(bytes: &[u8], dictionary: &[u8], level: i32) -> std::io::Result<Option<Vec<u8>>> {
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), level, dictionary)?;
    let window = bytes.len().saturating_add(dictionary.len()).checked_next_power_of_two();
    let window_log = window.map_or(WINDOW_LOG_MAX, usize::trailing_zeros);
    let window_log = window_log.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
    encoder.window_log(window_log)?;
    encoder.long_distance_matching(dictionary.len() > LONG_DISTANCE_MIN)?;
    encoder.include_contentsize(false)?;
    // Without a length, the tables fit the dictionary alone, however small it is; without both,
    // they have 100 MB. With a length and no dictionary, they are those of another level.
    if !dictionary.is_empty() {
        encoder.set_pledged_src_size(Some(to_u64(bytes.len())))?;
    } else if window_log <= SMALL_WINDOW_LOG {
        for table in [CParameter::HashLog, CParameter::ChainLog] {
            encoder.set_parameter(table(window_log.saturating_add(1)))?;
        }
    }
    encoder.write_all(bytes)?;
    let out = encoder.finish()?;
    Ok((out.len() < bytes.len()).then_some(out))
}

/// A stored piece, as the patch's tables describe it.
pub(crate) struct StoredPiece<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) payload: &'a [u8],
    pub(crate) payload_len: usize,
    pub(crate) region_len: usize,
    pub(crate) compressed: bool,
    pub(crate) delta_len: usize,
}

/// Buffers that are used again for each piece. They get exactly the bytes that a piece needs.
#[derive(Default)]
pub(crate) struct Buffers {
    dictionary: Vec<u8>,
    delta: Vec<u8>,
    payload: Vec<u8>,
}

impl StoredPiece<'_> {
    /// Makes the bytes that the piece appends, in `region`. `check` is called between units, and
    /// can end this.
    pub(crate) fn decode(
        &self,
        base: &Base<'_>,
        encoders: &mut [Encoders],
        buffers: &mut Buffers,
        region: &mut Vec<u8>,
        check: impl Fn() -> Result<()> + Sync,
    ) -> Result<()> {
        let malformed = |what| Err(Error::Patch(PatchFault::Malformed(what)));
        let plan = self.plan;
        let sum = |len: fn(&Item) -> u64| plan.items.iter().map(len).fold(0, u64::saturating_add);
        if sum(Item::payload_len) != to_u64(self.payload_len)
            || sum(Item::region_len) != to_u64(self.region_len)
        {
            return malformed("the lengths in the plan of a piece do not add up");
        }
        let Buffers { dictionary, delta, payload } = buffers;
        base.read(&plan.references, dictionary, &check)?;
        if self.compressed && self.delta_len > 0 {
            decode_payload(self.payload, dictionary, self.delta_len, delta)?;
            delta::decode(delta, dictionary, self.payload_len, payload)?;
        } else if self.compressed {
            decode_payload(self.payload, dictionary, self.payload_len, payload)?;
        } else if self.payload.len() == self.payload_len {
            resize(payload, self.payload_len);
            payload.copy_from_slice(self.payload);
        } else {
            return malformed("a piece has another length");
        }
        resize(region, self.region_len.saturating_add(ferofs_codec::MAX_ENCODED));
        region.clear();
        for item in &plan.items {
            if let Item::Unit(unit) = item
                && to_u64(unit.extents.len())
                    > (u64::from(unit.content_len) / EXTENT_MIN).saturating_add(2)
            {
                return malformed("a unit has too many extents");
            }
        }
        let mut rest = &payload[..];
        let jobs = plan.items.iter().map(move |item| {
            // The lengths were compared above.
            let (own, after) =
                rest.split_at_checked(to_usize(item.payload_len())).unwrap_or((&[], &[]));
            rest = after;
            (item, own)
        });
        match encoders {
            [_, _, ..] if plan.items.len() > 1 => {
                region.resize(self.region_len, 0);
                return encode_in_threads(jobs, encoders, region, check);
            }
            [encoders, ..] => {
                for (item, own) in jobs {
                    check()?;
                    append(item, own, encoders, region)?;
                }
            }
            [] => {}
        }
        if region.len() == self.region_len {
            Ok(())
        } else {
            malformed("a piece makes another number of bytes")
        }
    }
}

/// Appends the bytes of `item` to `region`. `own` is its part of the payload.
fn append(item: &Item, own: &[u8], encoders: &mut Encoders, region: &mut Vec<u8>) -> Result<()> {
    match item {
        Item::Raw { .. } => {
            region.extend_from_slice(own);
            Ok(())
        }
        Item::Unit(unit) => encoders.encode(unit, own, region),
    }
}

/// Puts the bytes of all items, which follow one another, into `region`, which is as long as they
/// are. Each of `encoders` gets a thread.
fn encode_in_threads<'p>(
    jobs: impl Iterator<Item = (&'p Item, &'p [u8])> + Send,
    encoders: &mut [Encoders],
    region: &mut [u8],
    check: impl Fn() -> Result<()> + Sync,
) -> Result<()> {
    let mut rest = region;
    let parts = jobs.map_while(|(item, own)| {
        // The lengths were compared before.
        let len = to_usize(item.region_len());
        let (part, after) = std::mem::take(&mut rest).split_at_mut_checked(len)?;
        rest = after;
        Some((item, own, part))
    });
    let threads = encoders.len();
    let encoders = Mutex::new(encoders.iter_mut());
    parallel(threads, parts, || {
        let mut encoders = encoders.lock().next();
        let mut encoded = Vec::new();
        let check = &check;
        move |(item, own, part): (&Item, &[u8], &mut [u8])| {
            check()?;
            let made = match (item, &mut encoders) {
                (Item::Unit(unit), Some(encoders)) => {
                    encoded.clear();
                    encoders.encode(unit, own, &mut encoded)?;
                    &encoded[..]
                }
                _ => own,
            };
            if made.len() != part.len() {
                return Err(Error::Patch(PatchFault::Malformed(
                    "a piece makes another number of bytes",
                )));
            }
            part.copy_from_slice(made);
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small dictionary makes no small tables.
    #[test]
    fn repeated_bytes_are_found_beside_a_small_dictionary() {
        let mut state = 7u64;
        let mut byte = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let once: Vec<u8> = (0..600_000).map(|_| byte()).collect();
        for dictionary in [&[][..], &[97; 1000]] {
            let compressed = compress(&once.repeat(2), dictionary, 12).unwrap().unwrap();
            assert!(compressed.len() < once.len() + 10_000, "{}", compressed.len());
        }
    }
}
