//! LZ4, level `fast`: one probe a position, for build speed.
//!
//! One table runs over the whole input and over all inputs: positions are kept as they count up through
//! the encoder's life, so neither a new cluster nor a new file clears anything. A candidate before the
//! cluster's start, or of an earlier file, is simply out of reach.

use crate::error::EncodeError;
use crate::fit::{self, Fit, FixedOutput};

const MIN_MATCH: usize = 4;
/// The last match starts at least so many bytes before the block's end.
const MATCH_START_MARGIN: usize = 12;
/// The last bytes are literals.
const LAST_LITERALS: usize = 5;
/// Room to keep after a match: a token, and literals that satisfy both rules whatever its length.
const RESERVE: usize = 1 + MATCH_START_MARGIN - MIN_MATCH;
const HASH_BITS: u32 = 13;
/// Every so many misses, steps get longer by one.
const SKIP_TRIGGER: u32 = 6;

/// The encoder.
#[derive(Debug)]
pub(crate) struct Fast {
    table: Box<[u32; 1 << HASH_BITS]>,
    /// What position 0 of the current input counts as.
    base: u32,
    /// Bytes of the current input that were looked at.
    seen: usize,
    max_distance: usize,
    window: usize,
}

impl Fast {
    pub(crate) fn new(max_distance: u16, window: usize) -> Self {
        let table = vec![0; 1 << HASH_BITS].into_boxed_slice();
        // The length is that of the type.
        let table = table.try_into().unwrap_or_else(|_| Box::new([0; 1 << HASH_BITS]));
        Self { table, base: 1, seen: 0, max_distance: max_distance.into(), window }
    }

    fn advance(&mut self) {
        let next = u32::try_from(self.seen).ok().and_then(|seen| self.base.checked_add(seen));
        self.seen = 0;
        // Inputs have at most 2^30 bytes; keep room for one.
        self.base = match next {
            Some(next) if next < u32::MAX - (fit::MAX_INPUT as u32) => next,
            _ => {
                self.table.fill(0);
                1
            }
        };
    }
}

fn read_u32(src: &[u8], at: usize) -> u32 {
    src.get(at..).and_then(|s| s.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn read_u64(src: &[u8], at: usize) -> u64 {
    src.get(at..).and_then(|s| s.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn hash(bytes: u64) -> usize {
    // The first five bytes, as LZ4 does on 64-bit machines.
    ((bytes << 24).wrapping_mul(889_523_592_379) >> (64 - HASH_BITS)) as usize
}

/// Bytes that two places of `src` have in common, `b` going up to `end` at most.
fn common(src: &[u8], a: usize, b: usize, end: usize) -> usize {
    let mut len = 0;
    while b + len + 8 <= end {
        let diff = read_u64(src, a + len) ^ read_u64(src, b + len);
        if diff != 0 {
            return len + (diff.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    while b + len < end && src[a + len] == src[b + len] {
        len += 1;
    }
    len
}

/// Bytes that follow a token for a run of `len`.
fn extension(len: usize) -> usize {
    if len < 15 { 0 } else { (len - 15) / 255 + 1 }
}

struct Output<'a> {
    dst: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    fn room(&self) -> usize {
        self.dst.len() - self.at
    }

    fn put(&mut self, byte: u8) {
        self.dst[self.at] = byte;
        self.at += 1;
    }

    fn put_extension(&mut self, len: usize) {
        if let Some(mut rest) = len.checked_sub(15) {
            while rest >= 255 {
                self.put(255);
                rest -= 255;
            }
            self.put(rest as u8);
        }
    }

    fn put_literals(&mut self, literals: &[u8], match_code: usize) {
        self.put(((literals.len().min(15) as u8) << 4) | match_code.min(15) as u8);
        self.put_extension(literals.len());
        self.dst[self.at..self.at + literals.len()].copy_from_slice(literals);
        self.at += literals.len();
    }
}

/// The longest run of literals that `room` bytes hold, token included.
fn literals_that_fit(room: usize) -> usize {
    let Some(room) = room.checked_sub(1) else { return 0 };
    let mut len = room.saturating_sub(extension(room));
    while len + 1 + extension(len + 1) <= room {
        len += 1;
    }
    len
}

impl FixedOutput for Fast {
    fn begin(&mut self) {
        self.advance();
    }

    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError> {
        let end = fit::check(src, pos, dst, self.window)?;
        self.seen = self.seen.max(end);
        let block = dst.len();
        let mut out = Output { dst, at: 0 };
        let match_end = end.saturating_sub(LAST_LITERALS);
        let start_limit = (end + 1).saturating_sub(MATCH_START_MARGIN);
        let oldest = self.base + pos as u32;
        let (mut anchor, mut at) = (pos, pos);
        let mut misses = 1u32 << SKIP_TRIGGER;
        while at < start_limit {
            let word = read_u64(src, at);
            let here = self.base + at as u32;
            let candidate = std::mem::replace(&mut self.table[hash(word)], here);
            let reach = oldest.max(here.saturating_sub(self.max_distance as u32));
            // An earlier cluster may have looked further ahead than it then consumed.
            if !(reach..here).contains(&candidate)
                || read_u32(src, (candidate - self.base) as usize) != word as u32
            {
                at += (misses >> SKIP_TRIGGER) as usize;
                misses += 1;
                if at - anchor > out.room() {
                    break;
                }
                continue;
            }
            let mut from = (candidate - self.base) as usize;
            let forward = MIN_MATCH + common(src, from + MIN_MATCH, at + MIN_MATCH, match_end);
            let mut len = forward;
            while at > anchor && from > pos && src[at - 1] == src[from - 1] {
                at -= 1;
                from -= 1;
                len += 1;
            }
            let literals = at - anchor;
            let fixed = 1 + extension(literals) + literals + 2;
            if fixed + RESERVE > out.room() {
                break;
            }
            // A match that is too long for what is left is cut to what fits.
            let spare = out.room() - fixed - 1 - LAST_LITERALS;
            let cut = extension(len - MIN_MATCH) > spare;
            if cut {
                len = MIN_MATCH + 14 + 255 * spare;
            }
            out.put_literals(&src[anchor..at], len - MIN_MATCH);
            let [low, high] = ((at - from) as u16).to_le_bytes();
            out.put(low);
            out.put(high);
            out.put_extension(len - MIN_MATCH);
            at += len;
            anchor = at;
            misses = 1 << SKIP_TRIGGER;
            if cut {
                break;
            }
            if at < start_limit {
                let near = at - 2;
                self.table[hash(read_u64(src, near))] = self.base + near as u32;
            }
        }
        let literals = literals_that_fit(out.room()).min(end - anchor);
        if anchor == pos && literals > 0 && block <= literals {
            return Ok(Fit::DoesNotPay);
        }
        out.put_literals(&src[anchor..anchor + literals], 0);
        let (consumed, produced) = (anchor + literals - pos, out.at);
        if !fit::pays(consumed, produced, block, pos + consumed == src.len()) {
            return Ok(Fit::DoesNotPay);
        }
        Ok(Fit::Encoded { consumed, produced, in_place: false })
    }

    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError> {
        self.begin();
        match self.fit(src, 0, dst)? {
            Fit::Encoded { consumed, .. } if consumed < src.len() => Ok(Fit::DoesNotPay),
            fit => Ok(fit),
        }
    }
}
