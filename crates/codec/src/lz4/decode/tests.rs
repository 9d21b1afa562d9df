use proptest::prelude::*;

use super::super::{liblz4, unchecked};
use super::*;

/// Decodes `src` into the whole of `dst`, as simply as possible.
fn plainly(src: &[u8], dst: &mut [u8], portion: Portion) -> Result<usize, DecodeError> {
    let (wanted, is_prefix) = (dst.len(), portion == Portion::Prefix);
    let (mut ip, end, mut op) = (0, src.len(), 0);
    // The bytes of a copy that are wanted. A prefix may end within a copy.
    let wanted_of = |len: usize, op: usize| match len <= wanted - op {
        true => Ok(len),
        false if is_prefix => Ok(wanted - op),
        false => Err(CORRUPT),
    };
    while !is_prefix || op < wanted {
        let token = next(src, &mut ip, end)?;
        let lits = length(src, &mut ip, end, token >> 4)?;
        let len = wanted_of(lits, op)?;
        if len > end - ip {
            return Err(CORRUPT);
        }
        dst[op..op + len].copy_from_slice(&src[ip..ip + len]);
        op += len;
        if is_prefix && op == wanted {
            break;
        }
        if lits > end - ip {
            return Err(CORRUPT);
        }
        ip += lits;
        if ip == end {
            break;
        }
        let low = next(src, &mut ip, end)?;
        let distance = usize::from(low) | usize::from(next(src, &mut ip, end)?) << 8;
        let len = length(src, &mut ip, end, token & 15)?.checked_add(4).ok_or(CORRUPT)?;
        if distance == 0 || distance > op {
            return Err(CORRUPT);
        }
        let stop = op + wanted_of(len, op)?;
        repeat(dst, distance, &mut op, stop);
    }
    if op < wanted {
        return Err(DecodeError::TooShort { algorithm: "lz4", got: op, wanted });
    }
    Ok(op)
}

/// One sequence of LZ4: bytes to copy, and where a match starts (a part of what is decoded before
/// it) and how long it is.
type Sequence = (Vec<u8>, prop::sample::Index, usize);

fn sequences() -> impl Strategy<Value = Vec<Sequence>> {
    let literals = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec((literals, any::<prop::sample::Index>(), 4..300_usize), 1..12)
}

/// Writes the sequences in LZ4's form, and returns what they decode to.
fn write(sequences: &[Sequence]) -> (Vec<u8>, Vec<u8>) {
    let (mut encoded, mut plain) = (Vec::new(), vec![7; 16]);
    // The first literals let a match always find something; the last ones are those that the format
    // asks for.
    put_literals(&mut encoded, &plain.clone(), 0);
    put_match(&mut encoded, &mut plain, 1, 4);
    for (literals, back, len) in sequences {
        put_literals(&mut encoded, literals, len - 4);
        plain.extend(literals);
        let distance = back.index(plain.len()) + 1;
        put_match(&mut encoded, &mut plain, distance, *len);
    }
    put_literals(&mut encoded, &[9; 12], 0);
    plain.extend([9; 12]);
    (encoded, plain)
}

fn put_literals(encoded: &mut Vec<u8>, literals: &[u8], match_code: usize) {
    encoded.push((literals.len().min(15) << 4 | match_code.min(15)) as u8);
    put_length(encoded, literals.len());
    encoded.extend(literals);
}

fn put_match(encoded: &mut Vec<u8>, plain: &mut Vec<u8>, distance: usize, len: usize) {
    encoded.extend((distance as u16).to_le_bytes());
    put_length(encoded, len - 4);
    for _ in 0..len {
        plain.push(plain[plain.len() - distance]);
    }
}

fn put_length(encoded: &mut Vec<u8>, len: usize) {
    if let Some(mut rest) = len.checked_sub(15) {
        while rest >= 255 {
            encoded.push(255);
            rest -= 255;
        }
        encoded.push(rest as u8);
    }
}

#[test]
fn a_distance_of_0_is_refused_everywhere() {
    // A literal, a match of 8 bytes, and 12 literals.
    let stream = |distance: u8| [&[0x14, b'a', distance, 0, 0xc0][..], &[b'z'; 12]].concat();
    let wanted = 1 + 8 + 12;
    let results = |stream: &[u8]| {
        let mut out = vec![0; wanted];
        let mut buffer = [&vec![0; wanted + 32][..], stream].concat();
        let (start, end) = (buffer.len() - stream.len(), buffer.len());
        [
            decode(stream, &mut out, Portion::Whole).is_ok(),
            decode(stream, &mut out[..5], Portion::Prefix).is_ok(),
            decode_in_place(&mut buffer, start..end, wanted).is_ok(),
            super::super::decode_range(stream, &mut vec![0; 1 << 17], 2, &mut out[..5]).is_ok(),
            super::super::farthest_match(stream, wanted, Portion::Whole).is_some(),
        ]
    };
    assert_eq!(results(&stream(1)), [true; 5]);
    assert_eq!(results(&stream(0)), [false; 5]);
}

#[test]
fn long_matches_before_many_literals_decode_in_place() {
    // Copies of 32 bytes write as many as possible too much if a byte is left of the match; the
    // literals after it are almost all of the input.
    for (distance, len) in [(16, 33), (19, 33), (17, 65), (20, 34), (8, 33), (3, 33)] {
        for count in
            (12..300).chain((0..260).flat_map(|n| [14, 15, 16].map(|first| first + 255 * n)))
        {
            let (mut encoded, mut plain) = (Vec::new(), (0..20).collect::<Vec<u8>>());
            put_literals(&mut encoded, &plain.clone(), len - 4);
            put_match(&mut encoded, &mut plain, distance, len);
            let literals: Vec<u8> = (0..count).map(|at| (at % 251) as u8 | 1).collect();
            put_literals(&mut encoded, &literals, 0);
            plain.extend(&literals);
            let mut buffer =
                vec![0; plain.len().max(encoded.len()) + lz4_in_place_margin(encoded.len())];
            let start = buffer.len() - encoded.len();
            buffer[start..].copy_from_slice(&encoded);
            for decode in [unchecked::decode_with_margin, liblz4::decode_with_margin] {
                let mut buffer = buffer.clone();
                assert_eq!(
                    decode(&mut buffer, start, plain.len()),
                    Ok(plain.len()),
                    "{distance} {len} {count}"
                );
                assert!(buffer[..plain.len()] == plain, "{distance} {len} {count}");
            }
        }
    }
}

proptest! {
    #[test]
    fn what_our_encoders_may_write_is_valid_for_linux(sequences in sequences(), part: prop::sample::Index) {
        let (encoded, plain) = write(&sequences);
        let check = |len, portion| super::super::farthest_match(&encoded, len, portion);
        prop_assert!(check(plain.len(), Portion::Whole).is_some());
        prop_assert!(check(part.index(plain.len()) + 1, Portion::Prefix).is_some());
        prop_assert!(check(plain.len() + 1, Portion::Whole).is_none());
    }

    #[test]
    fn every_part_of_a_valid_stream_decodes(sequences in sequences(), part: prop::sample::Index) {
        let (encoded, plain) = write(&sequences);
        let mut whole = vec![0; plain.len()];
        prop_assert_eq!(plainly(&encoded, &mut whole, Portion::Whole), Ok(plain.len()));
        prop_assert!(whole == plain);
        whole.fill(0);
        prop_assert_eq!(unchecked::decode(&encoded, &mut whole, Portion::Whole), Ok(plain.len()));
        prop_assert!(whole == plain);
        let mut prefix = vec![0; part.index(plain.len() + 1)];
        prop_assert_eq!(unchecked::decode(&encoded, &mut prefix, Portion::Prefix), Ok(prefix.len()));
        prop_assert!(prefix == plain[..prefix.len()]);
        prefix.fill(0);
        prop_assert_eq!(plainly(&encoded, &mut prefix, Portion::Prefix), Ok(prefix.len()));
        prop_assert!(prefix == plain[..prefix.len()]);
        prop_assert_eq!(liblz4::decode(&encoded, &mut whole, Portion::Whole), Ok(plain.len()));
        let mut buffer = vec![0; plain.len() + lz4_in_place_margin(encoded.len()) + encoded.len()];
        let start = buffer.len() - encoded.len();
        buffer[start..].copy_from_slice(&encoded);
        prop_assert_eq!(liblz4::decode_with_margin(&mut buffer, start, plain.len()), Ok(plain.len()));
    }

    #[test]
    fn with_a_margin_streams_decode_in_place(sequences in sequences(), more in 0..40_usize) {
        let (encoded, plain) = write(&sequences);
        let margin = lz4_in_place_margin(encoded.len());
        let mut buffer = vec![0; plain.len().max(encoded.len()) + margin + more];
        let start = buffer.len() - encoded.len();
        buffer[start..].copy_from_slice(&encoded);
        prop_assert_eq!(unchecked::decode_with_margin(&mut buffer, start, plain.len()), Ok(plain.len()));
        prop_assert!(buffer[..plain.len()] == plain);
    }

    #[test]
    fn garbage_gives_what_the_plain_decoder_gives(
        src in prop::collection::vec(prop_oneof![Just(0_u8), Just(0x1f), Just(0xf4), Just(255), any::<u8>()], 0..300),
        len in 0..2000_usize,
        whole: bool,
    ) {
        let portion = if whole { Portion::Whole } else { Portion::Prefix };
        let (mut ours, mut expected) = (vec![0; len], vec![0; len]);
        let own = unchecked::decode(&src, &mut ours, portion);
        prop_assert_eq!(&own, &plainly(&src, &mut expected, portion));
        prop_assert!(own.is_err() || ours == expected);
        // In place, damaged input may give anything, but nothing beyond the buffer: Miri and debug
        // assertions check that.
        let mut buffer = src.clone();
        buffer.resize(src.len().max(len) + 32, 0);
        let start = buffer.len() - src.len();
        let _ = unchecked::decode_with_margin(&mut buffer, start, len);
    }

    // Which of the streams that no encoder makes are refused differs: liblz4 itself accepts some
    // distances of 0, and refuses some matches close to the end.
    #[test]
    fn the_decoders_agree_on_garbage_that_both_accept(
        src in prop::collection::vec(prop_oneof![Just(0_u8), Just(0x1f), Just(0xf4), any::<u8>()], 1..200),
        len in 0..400_usize,
        whole: bool,
    ) {
        let portion = if whole { Portion::Whole } else { Portion::Prefix };
        let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
        let own = plainly(&src, &mut ours, portion);
        let liblz4 = liblz4::decode(&src, &mut theirs, portion);
        if own.is_ok() && liblz4.is_ok() {
            prop_assert_eq!(own, liblz4);
            prop_assert!(ours == theirs);
        }
    }
}
