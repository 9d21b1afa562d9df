use crate::{Algorithm, Fit, Params, compressor};

/// Long runs with little between them: what takes the space is not where the estimate expects it.
#[test]
fn long_runs_are_encoded() {
    let mut src = vec![0; 12 << 20];
    let text: Vec<u8> =
        (0..1200u32).flat_map(|n| format!("{} ", n * n % 7919).into_bytes()).collect();
    for at in [9 << 20, 10 << 20] {
        src[at..at + text.len()].copy_from_slice(&text);
    }
    for (algorithm, level) in [
        (Algorithm::Deflate, 1),
        (Algorithm::Deflate, 6),
        (Algorithm::Deflate, 9),
        (Algorithm::Zstd, 3),
    ] {
        let mut params = Params::new(algorithm, Some(level)).unwrap();
        params.window = src.len();
        let mut encoder = compressor(&params).unwrap();
        let (mut at, mut clusters, mut block) = (0, 0, vec![0; 4096]);
        while at < src.len() {
            let fit = encoder.fit(&src, at, &mut block).unwrap();
            let Fit::Encoded { consumed, .. } = fit else {
                panic!("{algorithm:?}, level {level}: at {at}")
            };
            (at, clusters) = (at + consumed, clusters + 1);
        }
        assert!(clusters <= 8, "{algorithm:?}, level {level}: {clusters} clusters");
    }
}
