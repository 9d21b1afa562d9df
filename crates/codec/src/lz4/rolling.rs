//! LZ4 decoding of a range: what precedes it rolls through a window of at most 17 pages, the range itself goes right to
//! its output. However large the cluster, memory is the window, and nothing is copied twice.
//!
//! LZ4 looks back 65,535 bytes at most, less where an image says so. The window is longer by what copies in steps of 32
//! bytes overrun, so that an overrun never meets bytes that a match may still want.

use crate::error::DecodeError;

use super::mem;

/// Windows are whole pages of 4 KiB.
const PAGE: usize = 1 << 12;
/// Bytes by which copies may overrun, at the window's end.
const SLACK: usize = 64;

/// Bytes of the window that [`decode_range`] wants where matches look back `max_distance` bytes at most: 17 pages of
/// 4 KiB for 65,535, 3 for 8 KiB.
#[must_use]
pub fn lz4_window(max_distance: u16) -> usize {
    (usize::from(max_distance) + SLACK).next_multiple_of(PAGE)
}

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "lz4" };

/// Decodes `src` from byte `skip` of its content on, until `out` is full.
pub(crate) fn decode_range(
    src: &[u8],
    window: &mut [u8],
    skip: usize,
    out: &mut [u8],
) -> Result<(), DecodeError> {
    let wanted = out.len();
    let ring = window.len().saturating_sub(SLACK);
    if ring == 0 {
        return Err(DecodeError::MatchBeyondWindow);
    }
    let mut sink = Sink { window, ring, at: 0, left: skip, total: 0, out, len: 0 };
    let mut ip = 0;
    loop {
        let token = next(src, &mut ip)?;
        let len = length(src, &mut ip, token >> 4)?;
        if len > src.len() - ip {
            return Err(CORRUPT);
        }
        sink.literals(src, ip, len);
        ip += len;
        if sink.is_full() {
            return Ok(());
        }
        if ip == src.len() {
            return Err(DecodeError::TooShort { algorithm: "lz4", got: sink.len, wanted });
        }
        let low = next(src, &mut ip)?;
        let distance = usize::from(u16::from_le_bytes([low, next(src, &mut ip)?]));
        let len = length(src, &mut ip, token & 15)? + 4;
        if distance == 0 || distance > sink.total {
            return Err(CORRUPT);
        }
        if distance > ring {
            return Err(DecodeError::MatchBeyondWindow);
        }
        sink.repeat(distance, len);
        if sink.is_full() {
            return Ok(());
        }
    }
}

/// Where decoded bytes go: to the window while some are `left` before the range, then to `out`.
struct Sink<'a> {
    window: &'a mut [u8],
    /// Where the window starts over.
    ring: usize,
    /// Where in the window the next byte goes; below `ring`.
    at: usize,
    /// Bytes before the range that are still to come.
    left: usize,
    /// Bytes so far, of both kinds.
    total: usize,
    out: &'a mut [u8],
    /// Bytes of `out` so far.
    len: usize,
}

impl Sink<'_> {
    #[inline(always)]
    const fn is_full(&self) -> bool {
        self.left == 0 && self.len == self.out.len()
    }

    /// Whether `len` bytes come before the range, and before the window starts over: mostly.
    #[inline(always)]
    const fn is_plain(&self, len: usize) -> bool {
        len < self.left && len < self.ring - self.at
    }

    /// Takes `src[from..from + len]`, or as much as is wanted of it.
    #[inline(always)]
    fn literals(&mut self, src: &[u8], from: usize, len: usize) {
        if !self.is_plain(len) {
            return self.literals_in_parts(src, from, len);
        }
        mem::copy(self.window, self.at, src, from, len);
        self.advance(len);
    }

    #[inline(never)]
    fn literals_in_parts(&mut self, src: &[u8], mut from: usize, mut len: usize) {
        while self.left > 0 && len > 0 {
            let n = len.min(self.left).min(self.ring - self.at);
            mem::copy(self.window, self.at, src, from, n);
            self.advance(n);
            from += n;
            len -= n;
        }
        let n = len.min(self.out.len() - self.len);
        mem::copy(self.out, self.len, src, from, n);
        self.len += n;
        self.total += n;
    }

    /// Repeats `len` bytes from `distance` bytes back, or as many as are wanted. There are `distance` bytes.
    #[inline(always)]
    fn repeat(&mut self, distance: usize, len: usize) {
        if distance > self.at || !self.is_plain(len) {
            return self.repeat_in_parts(distance, len);
        }
        mem::copy_within(self.window, self.at - distance, self.at, len);
        self.advance(len);
    }

    #[inline(never)]
    fn repeat_in_parts(&mut self, distance: usize, mut len: usize) {
        while self.left > 0 && len > 0 {
            let back = self.back(distance);
            // From behind the write position to the end of the ring, or up to the write position.
            let n = len.min(self.left).min(self.ring - self.at).min(self.ring - back);
            mem::copy_within(self.window, back, self.at, n);
            self.advance(n);
            len -= n;
        }
        while len > 0 && self.len < self.out.len() && distance > self.len {
            // The match starts before the range: `distance - len` bytes of it are in the window, at most.
            let back = self.back(distance - self.len);
            let n = len.min(self.out.len() - self.len).min(distance - self.len).min(self.ring - back);
            mem::copy(self.out, self.len, self.window, back, n);
            self.len += n;
            self.total += n;
            len -= n;
        }
        let n = len.min(self.out.len() - self.len);
        if n > 0 {
            mem::copy_within(self.out, self.len - distance, self.len, n);
            self.len += n;
            self.total += n;
        }
    }

    /// Where in the window the byte is that came `distance` bytes before its next one.
    #[inline(always)]
    const fn back(&self, distance: usize) -> usize {
        if distance <= self.at { self.at - distance } else { self.at + self.ring - distance }
    }

    #[inline(always)]
    const fn advance(&mut self, n: usize) {
        self.at += n;
        if self.at == self.ring {
            self.at = 0;
        }
        self.left -= n;
        self.total += n;
    }
}

#[inline(always)]
fn next(src: &[u8], ip: &mut usize) -> Result<u8, DecodeError> {
    let byte = *src.get(*ip).ok_or(CORRUPT)?;
    *ip += 1;
    Ok(byte)
}

/// A length whose first 4 bits are `nibble`. It cannot overflow: 255 for each byte of the input.
#[inline(always)]
fn length(src: &[u8], ip: &mut usize, nibble: u8) -> Result<usize, DecodeError> {
    let mut len = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = next(src, ip)?;
            len += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Fit, Lz4Params, Method, Params};

    /// One cluster, and what it decodes to.
    fn cluster(content: &[u8], max_distance: u16) -> (Vec<u8>, Vec<u8>) {
        let method = Method::Lz4(Lz4Params { level: 3, max_distance });
        let mut encoder =
            crate::compressor(&Params { method, ..Params::new(crate::Algorithm::Lz4, None).unwrap() })
                .unwrap();
        let mut block = vec![0; 1 << 16];
        let Fit::Encoded { consumed, produced, .. } = encoder.fit(content, 0, &mut block).unwrap() else {
            return (Vec::new(), Vec::new());
        };
        block.truncate(produced);
        (block, content[..consumed].to_vec())
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..len).map(|_| next()).collect()
    }

    fn content() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..300),
            (any::<u8>(), 1usize..5000).prop_map(|(byte, len)| vec![byte; len]),
            (proptest::collection::vec(0u8..9, 1..60), 1usize..90).prop_map(|(text, n)| text.repeat(n)),
        ];
        // Twice the same, so that matches reach back as far as they can.
        proptest::collection::vec(piece, 1..60).prop_map(|pieces| [pieces.concat(), pieces.concat()].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_range_is_what_the_whole_has_there(
            content in content(),
            skip: prop::sample::Index,
            len: prop::sample::Index,
        ) {
            let (encoded, expected) = cluster(&content, u16::MAX);
            if !expected.is_empty() {
                let skip = skip.index(expected.len());
                let len = len.index(expected.len() - skip) + 1;
                let mut window = vec![0xa5; lz4_window(u16::MAX)];
                let mut out = vec![0; len];
                decode_range(&encoded, &mut window, skip, &mut out).unwrap();
                prop_assert!(out == expected[skip..skip + len]);
                let mut beyond = vec![0; expected.len() - skip + 1];
                prop_assert!(decode_range(&encoded, &mut window, skip, &mut beyond).is_err());
            }
        }

        #[test]
        fn a_window_as_long_as_matches_reach_back_is_enough(
            content in content(),
            max_distance in 1024u16..9000,
            skip: prop::sample::Index,
        ) {
            let (encoded, expected) = cluster(&content, max_distance);
            if !expected.is_empty() {
                let skip = skip.index(expected.len());
                let mut window = vec![0xa5; lz4_window(max_distance)];
                let mut out = vec![0; expected.len() - skip];
                decode_range(&encoded, &mut window, skip, &mut out).unwrap();
                prop_assert!(out == expected[skip..]);
            }
        }

        #[test]
        fn garbage_never_panics(src: Vec<u8>, len in 0usize..3000, skip in 0usize..200_000, window in 0usize..9000) {
            let mut window = vec![0; window];
            let _ = decode_range(&src, &mut window, skip, &mut vec![0; len]);
        }
    }

    #[test]
    fn matches_reach_through_a_window_that_started_over() {
        // Three times the same 50,000 bytes of noise, as an encoder would not write them: all literals, one match.
        let part = noise(50_000);
        let expected = [part.as_slice(), &part, &part, &[9; 12]].concat();
        let length = |len: usize| [vec![255; len / 255], vec![u8::try_from(len % 255).unwrap()]].concat();
        let distance = 50_000u16.to_le_bytes();
        let encoded =
            [&[0xff], &*length(50_000 - 15), &part, &distance, &*length(100_000 - 19), &[0xc0], &[9; 12]]
                .concat();
        let mut window = vec![0; lz4_window(u16::MAX)];
        let ring = window.len() - SLACK;
        for skip in [0, 1, 49_999, 65_535, 65_536, ring - 1, ring, ring + 1, 2 * ring, 149_000] {
            let mut out = vec![0; (expected.len() - skip).min(60_000)];
            decode_range(&encoded, &mut window, skip, &mut out).unwrap();
            assert!(out == expected[skip..skip + out.len()], "{skip}");
        }
        let result = decode_range(&encoded, &mut vec![0; lz4_window(40_000)], 60_000, &mut [0; 9]);
        assert!(matches!(result, Err(DecodeError::MatchBeyondWindow)), "{result:?}");
    }
}
