//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Compressors with fixed-size output, and their decompressors: bytes in, bytes out.
//!
//! A builder makes one `compressor` per worker from [`Params`], calls [`Compressor::begin`] for
//! each file and [`Compressor::fit`] for each cluster. A reader keeps one [`Decoder`] per thread. A
//! new algorithm begins in `ferofs_format::algorithm`; docs/DESIGN.md lists what follows.
//!
//! | levels | how |
//! |---|---|
//! | LZ4 0 (`fast`) | own code, one hash table, larger steps where nothing matches |
//! | LZ4 1 to 6 | own code, hash chains, matches chosen by rules; higher levels try more candidates |
//! | LZ4 7 to 12 | own code, hash chains, matches chosen by a shortest path |
//! | MicroLZMA 0 to 9, 100 to 109 | liblzma's encoder with fixed output size; the dictionary is at most 16 times the output |
//! | DEFLATE 0 to 12 | libdeflate, with predicted input lengths |
//! | Zstandard 1 to 22 | libzstd, with predicted input lengths; matches are searched once |
//!
//! | feature | what it adds |
//! |---|---|
//! | `encode` (default) | the compressors, the checks of Linux's rules, and all decoders |
//! | `liblz4` | liblz4 decodes LZ4, which takes 4 to 7 % less time than the decoder in Rust |
//! | `liblz4-encode` | liblz4 can encode, so that images of other programs can be made again ([`LIBLZ4`]) |
//! | `lzma`, `deflate`, `zstd` | decoders by the libraries of these algorithms |

#![deny(unsafe_code)]

mod decoder;
#[cfg(feature = "deflate")]
mod deflate;
mod error;
mod fit;
#[cfg(feature = "encode")]
mod incompressible;
#[cfg(feature = "encode")]
mod length_search;
#[cfg(feature = "encode")]
mod linux;
mod lz4;
#[cfg(feature = "lzma")]
mod lzma;
#[cfg(feature = "encode")]
mod params;
#[cfg(feature = "encode")]
mod version;
#[cfg(feature = "zstd")]
mod zstd;

pub use crate::decoder::Portion;
pub use decoder::{Decoder, decode_lz4_in_place, decode_lz4_range};
pub use error::{DecodeError, EncodeError, ParamsError};
pub use ferofs_format::Algorithm;
pub use fit::{Compressor, Fit, MAX_DECODED, MAX_ENCODED, right_align, strip_padding};
#[cfg(feature = "encode")]
pub use incompressible::{looks_random, random_before_others};
#[cfg(feature = "encode")]
pub use linux::{ClusterPlace, LinuxChecker, LinuxRefusal, PAGE as LINUX_PAGE};
pub use lz4::{lz4_in_place_margin, lz4_window};
#[cfg(feature = "encode")]
pub use params::{Codec, Filling, LIBLZ4, LzmaBits, Params, Reencoding};
#[cfg(feature = "encode")]
pub use version::encoder_version;

/// Further names of algorithms in texts, with the level if it is not the algorithm's default.
const ALIASES: [(&str, Algorithm, Option<u8>); 2] =
    [("lz4hc", Algorithm::Lz4, Some(9)), ("libdeflate", Algorithm::Deflate, None)];

/// The names of compressors in the texts of [`Params`].
#[must_use]
pub fn compressor_names() -> Vec<&'static str> {
    let named = |algorithm: Algorithm| {
        let aliases = ALIASES.iter().filter(move |(_, of, _)| *of == algorithm);
        std::iter::once(algorithm.name()).chain(aliases.map(|(alias, ..)| *alias))
    };
    Algorithm::ALL.into_iter().flat_map(named).collect()
}

/// The properties of `algorithm` that others do not have.
#[cfg(feature = "encode")]
#[must_use]
pub fn codec(algorithm: Algorithm) -> &'static Codec {
    match algorithm {
        Algorithm::Lz4 => &lz4::CODEC,
        Algorithm::Lzma => &lzma::CODEC,
        Algorithm::Deflate => &deflate::CODEC,
        Algorithm::Zstd => &zstd::CODEC,
    }
}

/// Makes the compressor that `params` describe.
///
/// # Errors
/// [`ParamsError`] for parameters out of range.
#[cfg(feature = "encode")]
pub fn compressor(params: &Params) -> Result<Box<dyn Compressor>, ParamsError> {
    params.check()?;
    (codec(params.algorithm).encoder)(params)
}

/// An upper bound for the memory that the compressor with `params` takes for its tables, in bytes.
/// No content is longer than `longest` bytes.
#[cfg(feature = "encode")]
#[must_use]
pub fn encoder_memory(params: &Params, longest: u64) -> u64 {
    // Outputs are filled from this much content, and each trial has an output as long as that.
    let tried = longest.min(fit::window(params.window, MAX_ENCODED) as u64);
    (codec(params.algorithm).memory)(params, longest, tried)
}

/// Nanoseconds that the compressor with `params` takes on usual content for `calls` with outputs of
/// `capacity` bytes and `bytes` of input in all, on a processor core of 3 GHz. The worst content
/// takes up to five times as long.
#[cfg(feature = "encode")]
#[must_use]
pub fn encoder_time(params: &Params, capacity: usize, calls: u64, bytes: u64) -> u64 {
    let (call, byte) = (codec(params.algorithm).time)(params, capacity);
    // An output is cleared before each call.
    let output = capacity.min(MAX_ENCODED) as u64 / 10;
    calls.saturating_mul(call + output).saturating_add(bytes.saturating_mul(byte))
}

#[cfg(test)]
#[cfg(feature = "encode")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Inputs that mix random bytes and repetitions.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..300),
            (any::<u8>(), 1usize..3000).prop_map(|(byte, len)| vec![byte; len]),
            (proptest::collection::vec(0u8..4, 1..40), 1usize..60)
                .prop_map(|(text, n)| text.repeat(n)),
        ];
        proptest::collection::vec(piece, 1..20).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn trials_end_at_their_limit() {
        let text: Vec<u8> =
            (0..40_000u32).flat_map(|n| n.wrapping_mul(n).to_string().into_bytes()).collect();
        for filling in [Filling::Trials { unused: 2 }, Filling::Bytes] {
            let params = Params { filling, ..Params::new(Algorithm::Zstd, Some(3)).unwrap() };
            let mut encoder = compressor(&params).unwrap();
            let mut block = vec![0; 4096];
            encoder.limit(2_000);
            assert_eq!(encoder.fit(&text, 0, &mut block), Err(EncodeError::Work));
            encoder.limit(1 << 20);
            assert!(matches!(encoder.fit(&text, 0, &mut block), Ok(Fit::Encoded { .. })));
            assert!(encoder.searched() > Some(4096));
        }
    }

    /// Encodes each input cluster by cluster, and decodes each cluster as a whole and as a prefix.
    fn round_trip(params: &Params, inputs: &[Vec<u8>], size: usize) {
        let algorithm = params.algorithm;
        let mut encoder = compressor(params).unwrap();
        let mut decoder = Decoder::default();
        for input in inputs {
            encoder.begin();
            let mut pos = 0;
            while pos < input.len() {
                let mut block = vec![0; size];
                let Fit::Encoded { consumed, produced } =
                    encoder.fit(input, pos, &mut block).unwrap()
                else {
                    pos += size;
                    continue;
                };
                assert!(produced <= size && produced < consumed && block[0] != 0);
                right_align(&mut block, produced);
                let mut out = vec![0; consumed];
                decoder.decode(algorithm, &block, &mut out, Portion::Whole).unwrap();
                assert!(out == input[pos..pos + consumed]);
                let mut prefix = vec![0; consumed / 2];
                decoder.decode(algorithm, &block, &mut prefix, Portion::Prefix).unwrap();
                assert!(prefix == out[..consumed / 2]);
                pos += consumed;
            }
            let mut whole = vec![0; 2 * input.len() + 64];
            whole.truncate(MAX_ENCODED);
            if let Fit::Encoded { consumed, produced } =
                encoder.fit_exact(input, &mut whole).unwrap()
            {
                assert_eq!(consumed, input.len());
                let mut out = vec![0; consumed];
                decoder.decode(algorithm, &whole[..produced], &mut out, Portion::Whole).unwrap();
                assert!(&out == input);
            }
        }
    }

    #[test]
    fn each_bad_call_has_its_own_error() {
        use EncodeError::{EmptyInput, OutputTooLarge, OutputTooSmall, WindowTooSmall};
        for algorithm in Algorithm::ALL {
            let params = Params { window: 64 << 10, ..Params::new(algorithm, None).unwrap() };
            let mut c = compressor(&params).unwrap();
            let text = b"the same and the same and ".repeat(9000);
            let mut dst = vec![0; MAX_ENCODED + 1];
            assert!(matches!(c.fit(&[], 0, &mut dst[..4096]), Err(EmptyInput { .. })));
            assert!(matches!(c.fit(&text, text.len(), &mut dst[..4096]), Err(EmptyInput { .. })));
            assert!(matches!(
                c.fit(&text, 0, &mut dst[..63]),
                Err(OutputTooSmall { least: 64, .. })
            ));
            assert!(matches!(c.fit(&text, 0, &mut []), Err(OutputTooSmall { .. })));
            assert!(matches!(c.fit(&text, 0, &mut dst[..128 << 10]), Err(WindowTooSmall { .. })));
            assert!(matches!(c.fit(&text, 0, &mut dst), Err(OutputTooLarge { .. })));
            assert!(matches!(c.fit_exact(&[], &mut dst[..4096]), Err(EmptyInput { .. })));
            assert!(matches!(c.fit_exact(&text, &mut dst[..63]), Err(OutputTooSmall { .. })));
            // The errors leave the compressor usable.
            assert!(matches!(c.fit(&text, 0, &mut dst[..4096]), Ok(Fit::Encoded { .. })));
        }
    }

    #[test]
    fn fit_exact_encodes_all_input_or_nothing() {
        let text: Vec<u8> =
            (0..20_000u32).flat_map(|n| (n % 251 * n % 977).to_le_bytes()).collect();
        let mut out = vec![0; text.len()];
        for algorithm in Algorithm::ALL {
            let mut c = compressor(&Params::new(algorithm, None).unwrap()).unwrap();
            let mut dst = vec![0; text.len()];
            let Fit::Encoded { consumed, produced } = c.fit_exact(&text, &mut dst).unwrap() else {
                panic!("{algorithm:?} does not compress it");
            };
            assert_eq!(consumed, text.len());
            Decoder::default()
                .decode(algorithm, &dst[..produced], &mut out, Portion::Whole)
                .unwrap();
            assert!(out == text);
            // If the output is too small, nothing is encoded, and the next call is not affected.
            assert_eq!(c.fit_exact(&text, &mut dst[..produced / 2]), Ok(Fit::Incompressible));
            assert!(matches!(c.fit_exact(&text, &mut dst), Ok(Fit::Encoded { .. })));
        }
    }

    #[test]
    fn the_copy_of_what_nearly_fills_a_cluster_is_taken() {
        let words = |from: u32| {
            (from..from + 30_000).flat_map(|n| format!("{} ", n * n % 99_991).into_bytes())
        };
        let text: Vec<u8> = words(0).collect();
        let twice: Vec<u8> = text.iter().chain(&text).copied().chain(words(31_000)).collect();
        let filling = Filling::Trials { unused: 24 };
        let params = Params { filling, ..Params::new(Algorithm::Zstd, None).unwrap() };
        let mut c = compressor(&params).unwrap();
        let mut dst = vec![0; text.len()];
        let Fit::Encoded { produced, .. } = c.fit_exact(&text, &mut dst).unwrap() else {
            panic!("not compressed")
        };
        // The text leaves less unused than is accepted. Its copy takes some bytes.
        let output = produced + produced / 64;
        c.begin();
        let fit = c.fit(&twice, 0, &mut dst[..output]).unwrap();
        assert!(
            matches!(fit, Fit::Encoded { consumed, .. } if consumed + 8 > 2 * text.len()),
            "{fit:?}"
        );
    }

    /// LZ4 more often, as its compressors are our own.
    fn method() -> impl Strategy<Value = (Algorithm, u8)> {
        let algorithm = prop_oneof![8 => Just(Algorithm::Lz4), 3 => proptest::sample::select(Algorithm::ALL[1..].to_vec())];
        algorithm.prop_flat_map(|algorithm| {
            let levels = Params::levels(algorithm).iter().copied().filter(|level| *level < LIBLZ4);
            (Just(algorithm), proptest::sample::select(levels.collect::<Vec<_>>()))
        })
    }

    fn filling() -> impl Strategy<Value = Filling> {
        prop_oneof![
            (2u16..=64).prop_map(|unused| Filling::Trials { unused }),
            Just(Filling::Bytes),
            (9u8..=16).prop_map(|log| Filling::Blocks { log }),
        ]
    }

    proptest! {
        #[test]
        fn clusters_round_trip(
            inputs in proptest::collection::vec(content(), 1..4),
            size in 64usize..5000,
            (algorithm, level) in method(),
            max_distance in prop_oneof![Just(65535u16), 1024..=65535u16],
            filling in filling(),
        ) {
            let mut params = Params { filling, ..Params::new(algorithm, Some(level)).unwrap() };
            if algorithm == Algorithm::Lz4 {
                params.dictionary = max_distance.into();
            }
            round_trip(&params, &inputs, size);
        }

        #[test]
        fn garbage_never_panics(src: Vec<u8>, len in 0usize..2000, whole: bool, which in 0..Algorithm::ALL.len()) {
            let portion = if whole { Portion::Whole } else { Portion::Prefix };
            let algorithm = Algorithm::ALL[which];
            let _ = Decoder::default().decode(algorithm, &src, &mut vec![0; len], portion);
            let (at, mut buffer) = (src.len() / 3, src);
            let end = buffer.len();
            let _ = decode_lz4_in_place(&mut buffer, at..end, len);
        }

        #[test]
        fn clusters_do_not_depend_on_earlier_files(
            before in content(), input in content(), size in 64usize..5000, (algorithm, level) in method(),
            filling in filling(),
        ) {
            let params = Params { filling, ..Params::new(algorithm, Some(level)).unwrap() };
            let (mut used, mut fresh) = (compressor(&params).unwrap(), compressor(&params).unwrap());
            let (mut a, mut b) = (vec![0; size], vec![0; size]);
            used.fit(&before, 0, &mut a).unwrap();
            used.begin();
            a.fill(0);
            prop_assert_eq!(used.fit(&input, 0, &mut a), fresh.fit(&input, 0, &mut b));
            prop_assert!(a == b);
        }
    }
}
