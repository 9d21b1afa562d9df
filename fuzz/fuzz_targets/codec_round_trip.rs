//! Any input, any algorithm and level, any output size: what is encoded decodes to the input, whole, by prefix and, where
//! it is said to, in place.
#![no_main]

use ferofs_codec::{Algorithm, Decoder, Extent, Fit, Params, compressor, decode_lz4_in_place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [which, level, size, repeat, rest @ ..] = data else { return };
    if rest.is_empty() {
        return;
    }
    let Some(algorithm) = Algorithm::from_id(which % 4) else { return };
    let Ok(params) = Params::new(algorithm, Some(*level)) else { return };
    let Ok(mut encoder) = compressor(&params) else { return };
    // Repeated input reaches the long lengths that a fuzzer would seldom find.
    let input = rest.repeat(1 + usize::from(*repeat) % 64);
    let size = 64 + usize::from(*size) * 33;
    let (mut decoder, mut pos) = (Decoder::default(), 0);
    while pos < input.len() {
        let mut block = vec![0; size];
        let Fit::Encoded { consumed, produced, in_place } = encoder.fit(&input, pos, &mut block).unwrap() else {
            pos += size;
            continue;
        };
        assert_ne!(block[0], 0);
        let mut out = vec![0; consumed];
        decoder.decode(algorithm, &block[..produced], &mut out, Extent::Whole).unwrap();
        assert!(out == input[pos..pos + consumed]);
        let mut prefix = vec![0; consumed / 2];
        decoder.decode(algorithm, &block[..produced], &mut prefix, Extent::Prefix).unwrap();
        assert!(prefix == out[..consumed / 2]);
        if in_place {
            let pages = consumed.next_multiple_of(4096);
            let mut buffer = vec![0; pages];
            buffer[pages - produced..].copy_from_slice(&block[..produced]);
            decode_lz4_in_place(&mut buffer, pages - produced..pages, consumed).unwrap();
            assert!(buffer[..consumed] == out);
        }
        pos += consumed;
    }
});
