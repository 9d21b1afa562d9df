//! Mutants of deltas: changed bytes anywhere, or changed numbers in the decoded header, plans and
//! copies, with the header's digest mended.

use anyhow::{Context, Result};
use ferofs_tests::rng::Rng;

use super::Pair;
use crate::hostile::mutate::EXTREMES;

/// Bytes before the header, of which the last ones are its digest; and of the lengths of a piece.
const START: usize = 32;
const DIGEST: usize = 16;
const LENGTHS: usize = 28;
/// Bytes of the header's fields.
const FIELDS: usize = 112;

/// A delta, with the parts decoded that are stored as frames.
struct Parts {
    start: Vec<u8>,
    header: Vec<u8>,
    pieces: Vec<Piece>,
}

struct Piece {
    lengths: Vec<u8>,
    copies: Vec<u8>,
    plan: Vec<u8>,
    payload: Vec<u8>,
}

/// A mutant of the delta of `pair`, perhaps with bytes of that of `other`.
pub(super) fn mutant(pair: &Pair, other: &Pair, rng: &mut Rng) -> Result<(String, Vec<u8>)> {
    if rng.below(3) == 0 {
        let mut bytes = pair.delta.clone();
        for _ in 0..1 + rng.below(3) {
            change_bytes(&mut bytes, &other.delta, rng);
        }
        return Ok(("mutant of bytes".to_owned(), bytes));
    }
    let mut parts =
        Parts::new(&pair.delta).with_context(|| format!("the delta of {}", pair.options))?;
    let mut names = Vec::new();
    for _ in 0..[1, 1, 1, 2, 3][rng.below(5) as usize] {
        names.push(parts.change(rng));
    }
    names.sort_unstable();
    names.dedup();
    Ok((format!("mutant of {}", names.join(" and ")), parts.file()?))
}

fn extreme(rng: &mut Rng) -> u64 {
    EXTREMES[rng.below(EXTREMES.len() as u64) as usize]
}

fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64) as usize;
    let len = (1 + rng.below(40) as usize).min(bytes.len() - at);
    match rng.below(6) {
        0 => bytes.truncate(at.max(1)),
        1 => drop(bytes.drain(at..(at + len).min(bytes.len() - 1))),
        2 => rng.fill(&mut bytes[at..at + len]),
        3 => bytes[at] ^= 1 << rng.below(8),
        4 => {
            let from = rng.below(other.len() as u64) as usize;
            let part = &other[from..(from + len * 50).min(other.len())];
            bytes.splice(at..at, part.iter().copied());
        }
        _ => {
            let word = extreme(rng).to_le_bytes();
            let len = len.min(4);
            bytes[at..at + len].copy_from_slice(&word[..len]);
        }
    }
}

/// Changes one number of `columns`: seven bits in each byte, and the highest bit in all but the
/// last.
fn change_number(columns: &mut Vec<u8>, rng: &mut Rng) {
    if columns.is_empty() {
        return;
    }
    let is_last = |byte: u8| byte & 0x80 == 0;
    let at = rng.below(columns.len() as u64) as usize;
    let start = columns[..at].iter().rposition(|byte| is_last(*byte)).map_or(0, |last| last + 1);
    let end = columns[at..]
        .iter()
        .position(|byte| is_last(*byte))
        .map_or(columns.len(), |last| at + last + 1);
    let mut old = 0u64;
    for (byte, shift) in columns[start..end].iter().zip((0..64).step_by(7)) {
        old |= u64::from(byte & 0x7F) << shift;
    }
    let mut value = match rng.below(5) {
        0 => extreme(rng),
        1 => old.wrapping_add(1 + rng.below(4)),
        2 => old.saturating_sub(1 + rng.below(4)),
        3 => old.wrapping_mul(1 + rng.below(1000)),
        _ => rng.next_u64() >> rng.below(64),
    };
    let mut number = Vec::new();
    while value >= 0x80 {
        number.push(value as u8 | 0x80);
        value >>= 7;
    }
    number.push(value as u8);
    // Now and then the same number many times, as of a list that is longer.
    let times = if rng.below(10) == 0 { 1 << rng.below(17) } else { 1 };
    columns.splice(start..end, number.repeat(times));
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}

impl Parts {
    fn new(delta: &[u8]) -> Result<Self> {
        let whole = || -> Option<(Vec<u8>, Vec<u8>, Vec<Piece>)> {
            let decode = |frame: &[u8]| match frame.is_empty() {
                true => Some(Vec::new()),
                false => zstd::decode_all(frame).ok(),
            };
            let (start, rest) = delta.split_at_checked(START)?;
            let (header, mut rest) = rest.split_at_checked(word(start, 12)?)?;
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let (lengths, after) = rest.split_at_checked(LENGTHS)?;
                let (copies, after) = after.split_at_checked(word(lengths, 0)?)?;
                let (plan, after) = after.split_at_checked(word(lengths, 4)?)?;
                let (payload, after) = after.split_at_checked(word(lengths, 8)?)?;
                let (lengths, payload) = (lengths.to_vec(), payload.to_vec());
                pieces.push(Piece {
                    lengths,
                    copies: decode(copies)?,
                    plan: decode(plan)?,
                    payload,
                });
                rest = after;
            }
            Some((start.to_vec(), decode(header)?, pieces))
        };
        let (start, header, pieces) = whole().context("it is not as docs/PATCH_FORMAT.md says")?;
        Ok(Self { start, header, pieces })
    }

    fn change(&mut self, rng: &mut Rng) -> &'static str {
        let count = self.pieces.len();
        let number = rng.below(count as u64) as usize;
        let piece = &mut self.pieces[number];
        match rng.below(12) {
            0..3 => {
                let (at, len) =
                    [(0, 8), (40, 8), (80, 4), (84, 4), (88, 4), (92, 8), (100, 8), (108, 4)]
                        [rng.below(8) as usize];
                let value = extreme(rng).to_le_bytes();
                self.header[at..at + len].copy_from_slice(&value[..len]);
                "the header"
            }
            3 => {
                // Methods, if it has some, and digests.
                let at = FIELDS + rng.below((self.header.len() - FIELDS).min(200) as u64) as usize;
                self.header[at] = rng.next_u64() as u8;
                "the header's tables"
            }
            4 | 5 => {
                change_number(&mut piece.copies, rng);
                "copies"
            }
            6 => {
                let at = 12 + 4 * rng.below(4) as usize;
                let value = extreme(rng).to_le_bytes();
                piece.lengths[at..at + 4].copy_from_slice(&value[..4]);
                "lengths"
            }
            7 if !piece.payload.is_empty() => {
                let at = rng.below(piece.payload.len() as u64) as usize;
                piece.payload[at] ^= 1 << rng.below(8);
                "a payload"
            }
            8 if count > 1 => {
                self.pieces.swap(0, number);
                "the order"
            }
            _ => {
                change_number(&mut piece.plan, rng);
                "a plan"
            }
        }
    }

    fn file(mut self) -> Result<Vec<u8>> {
        let encode = |bytes: &[u8]| zstd::bulk::compress(bytes, 1);
        let header = encode(&self.header)?;
        self.start[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
        let digest = blake3::hash(&header);
        self.start[START - DIGEST..].copy_from_slice(&digest.as_bytes()[..DIGEST]);
        let mut file = [self.start, header].concat();
        for mut piece in self.pieces {
            let copies = encode(&piece.copies)?;
            let plan = if piece.plan.is_empty() { Vec::new() } else { encode(&piece.plan)? };
            piece.lengths[..4].copy_from_slice(&(copies.len() as u32).to_le_bytes());
            piece.lengths[4..8].copy_from_slice(&(plan.len() as u32).to_le_bytes());
            for part in [piece.lengths, copies, plan, piece.payload] {
                file.extend(part);
            }
        }
        Ok(file)
    }
}
