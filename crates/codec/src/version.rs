//! Versions of the compressors: two programs with the same version encode to the same bytes.

use crate::{Params, codec};

/// Versions of this crate are counted above those of the libraries: libzstd has 10,507, liblzma
/// 50,080,012.
pub(crate) const OWN: u32 = 100_000_000;

/// The version of the compressor with `params`. A program with the same version encodes the same
/// content with them to the same bytes.
#[must_use]
pub fn encoder_version(params: &Params) -> u32 {
    (codec(params.algorithm).version)(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lz4::liblz4_variant;
    use crate::{Algorithm, Filling, Fit, LIBLZ4, compressor};

    /// Text, records and noise, the same at each call.
    fn sample() -> Vec<u8> {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let words: Vec<Vec<u8>> = (0..400)
            .map(|_| (0..2 + next() % 9).map(|_| b'a' + (next() % 26) as u8).collect())
            .collect();
        let mut out = Vec::new();
        while out.len() < 120_000 {
            let word = &words[next() % words.len() * (next() % 100) / 100];
            out.extend_from_slice(word);
            out.push(b' ');
        }
        for number in 0..8000u32 {
            out.extend_from_slice(&(number / 3).to_le_bytes());
            out.extend_from_slice(&(next() as u16 & 0x0fff).to_le_bytes());
        }
        out.extend((0..20_000).map(|_| next() as u8));
        out.extend((10_000..30_000).flat_map(|n: u32| format!("{n}\n").into_bytes()));
        out
    }

    /// Adds all that `params` make of the sample to a FNV-1a hash. Compressors fill their output,
    /// as patches let them. Of DEFLATE patches know the length, so that the search for it does not
    /// count.
    fn digest(params: &Params, hash: &mut u64) {
        let sample = sample();
        for size in [4096, 16 << 10, 64 << 10, 256 << 10] {
            let mut encoder = compressor(params).unwrap();
            let (mut at, mut block) = (0, vec![0; size]);
            while at < sample.len() {
                let fit = match params.algorithm {
                    Algorithm::Deflate => {
                        encoder.fit_exact(&sample[at..sample.len().min(at + size)], &mut block)
                    }
                    _ => encoder.fit(&sample, at, &mut block),
                };
                let (consumed, produced) = match fit.unwrap() {
                    Fit::Encoded { consumed, produced } => (consumed, produced),
                    Fit::Incompressible => (size, 0),
                };
                at += consumed;
                for byte in (consumed as u64).to_le_bytes().iter().chain(&block[..produced]) {
                    *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
    }

    /// If this fails, a compressor writes other bytes than before: its version needs a new number, so that patches that need the old one are refused, and then the digest here
    /// changes, too.
    #[test]
    fn each_version_has_the_bytes_that_it_had() {
        let digest_of = |algorithm: Algorithm, levels: &[u8]| {
            let (mut hash, mut version) = (0xcbf2_9ce4_8422_2325, 0);
            for level in levels {
                let mut params = Params::new(algorithm, Some(*level % LIBLZ4)).unwrap();
                params.level = *level;
                version = encoder_version(&params);
                digest(&params, &mut hash);
                match algorithm {
                    Algorithm::Lz4 => params.dictionary = 20_000,
                    Algorithm::Zstd => params.filling = Filling::Bytes,
                    _ => continue,
                }
                digest(&params, &mut hash);
                if algorithm == Algorithm::Zstd {
                    params.filling = Filling::Blocks { log: 12 };
                    digest(&params, &mut hash);
                }
            }
            (version, hash)
        };
        let few = [1, 3, 6, 9];
        let liblz4_fast = match liblz4_variant(true) {
            1 => (100_011_000, 7_868_580_247_143_870_161),
            2 => (200_011_000, 145_419_013_892_634_669),
            _ => (300_011_000, 12_147_749_771_522_505_125),
        };
        let liblz4_hc = match liblz4_variant(false) {
            1 => (100_011_000, 962_389_851_632_432_311),
            _ => (300_011_000, 14_054_576_086_456_393_005),
        };
        assert_eq!(
            [
                digest_of(Algorithm::Lz4, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
                digest_of(Algorithm::Deflate, &few),
                digest_of(Algorithm::Zstd, &[1, 3, 6, 9, 12, 15, 19]),
                digest_of(Algorithm::Lzma, &few),
                digest_of(Algorithm::Lz4, &[LIBLZ4]),
                digest_of(Algorithm::Lz4, &[1, 3, 9, 10, 12].map(|level| LIBLZ4 + level)),
            ],
            [
                (2, 1_592_195_054_092_386_636),
                (126, 12_503_130_619_808_017_974),
                (500_010_507, 10_235_009_750_828_976_860),
                (150_080_042, 13_769_359_158_363_948_349),
                liblz4_fast,
                liblz4_hc,
            ]
        );
    }
}
