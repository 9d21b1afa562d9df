//! Encodes any input with any algorithm, level and output size: each cluster decodes to its input
//! as a whole, as a prefix and, for LZ4, in place unless output would overwrite input.
#![no_main]

use ferofs_codec::{Algorithm, DecodeError, Decoder, Fit, Params, Portion, compressor, decode_lz4_in_place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [which, level, size, repeat, rest @ ..] = data else { return };
    if rest.is_empty() {
        return;
    }
    let Some(algorithm) = Algorithm::from_id(which % Algorithm::ALL.len() as u8) else { return };
    let Ok(params) = Params::new(algorithm, Some(*level)) else { return };
    let Ok(mut encoder) = compressor(&params) else { return };
    // Repeated input reaches the long lengths that a fuzzer would seldom find.
    let input = rest.repeat(1 + usize::from(*repeat) % 64);
    let size = 64 + usize::from(*size) * 33;
    let (mut decoder, mut pos) = (Decoder::default(), 0);
    while pos < input.len() {
        let mut block = vec![0; size];
        let Fit::Encoded { consumed, produced } = encoder.fit(&input, pos, &mut block).unwrap() else {
            pos += size;
            continue;
        };
        assert_ne!(block[0], 0);
        let mut out = vec![0; consumed];
        decoder.decode(algorithm, &block[..produced], &mut out, Portion::Whole).unwrap();
        assert!(out == input[pos..pos + consumed]);
        let mut prefix = vec![0; consumed / 2];
        decoder.decode(algorithm, &block[..produced], &mut prefix, Portion::Prefix).unwrap();
        assert!(prefix == out[..consumed / 2]);
        if algorithm == Algorithm::Lz4 {
            let pages = consumed.next_multiple_of(4096);
            let mut buffer = vec![0; pages];
            buffer[pages - produced..].copy_from_slice(&block[..produced]);
            match decode_lz4_in_place(&mut buffer, pages - produced..pages, consumed) {
                Ok(len) => assert!(len == consumed && buffer[..consumed] == out),
                Err(error) => assert_eq!(error, DecodeError::OverwritesInput),
            }
        }
        pos += consumed;
    }
});
