//! Garbage never crashes a decoder nor reaches outside its slices, and a prefix agrees with the
//! whole.
#![no_main]

use ferofs_codec::{Algorithm, Decoder, Portion, decode_lz4_in_place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [which, low, high, src @ ..] = data else { return };
    let Some(algorithm) = Algorithm::from_id(which % Algorithm::ALL.len() as u8) else { return };
    let len = usize::from(u16::from_le_bytes([*low, *high]));
    let mut decoder = Decoder::default();
    let mut whole = vec![0; len];
    let done = decoder.decode(algorithm, src, &mut whole, Portion::Whole);
    let mut prefix = vec![0; len / 2];
    let begun = decoder.decode(algorithm, src, &mut prefix, Portion::Prefix);
    if done.is_ok() {
        begun.unwrap();
        assert!(prefix == whole[..len / 2]);
    }
    let mut buffer = src.to_vec();
    let at = src.len() / 3;
    let _ = decode_lz4_in_place(&mut buffer, at..src.len(), len);
});
