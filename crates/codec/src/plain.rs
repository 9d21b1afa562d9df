//! Recognises input that will not compress before much is spent on it: bytes that are as good as evenly distributed.

/// Bytes looked at.
const SAMPLE: usize = 4096;

/// Whether the input's first bytes look like noise. Meant for the slow compressors: it costs about a microsecond.
pub(crate) fn looks_random(src: &[u8], output: usize) -> bool {
    if src.len() < SAMPLE || output < SAMPLE {
        return false;
    }
    // Two samples: noise must fill the whole output, not only begin it.
    let tail = output.min(src.len()) - SAMPLE;
    even(&src[..SAMPLE]) && (tail == 0 || even(&src[tail..tail + SAMPLE]))
}

/// The chi-square test for an even distribution of 4096 bytes: 16 of each are expected. The sum of squares is then
/// 65536 + 16 X, X having 255 degrees of freedom; X is under 400 for noise practically always, for text tens of thousands.
fn even(sample: &[u8]) -> bool {
    let mut counts = [[0u16; 256]; 2];
    let [a, b] = &mut counts;
    for pair in sample.chunks_exact(2) {
        a[usize::from(pair[0])] += 1;
        b[usize::from(pair[1])] += 1;
    }
    let squares: u32 = a.iter().zip(b.iter()).map(|(&x, &y)| u32::from(x + y).pow(2)).sum();
    squares < 65536 + 16 * 400 && !repeats(sample)
}

/// Evenly distributed bytes can still repeat: look for eight-byte strings seen before.
fn repeats(sample: &[u8]) -> bool {
    let mut table = [0u16; 1024];
    let mut found = 0;
    for (at, eight) in sample.windows(4).enumerate() {
        let word = u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let slot = &mut table[(word.wrapping_mul(0x9E37_79B1) >> 22) as usize];
        let from = usize::from(*slot);
        *slot = at as u16;
        if from < at && sample.get(from..from + 4) == Some(eight) {
            found += 1;
        }
    }
    found > 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut step = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..len).map(|_| step()).collect()
    }

    #[test]
    fn noise_is_told_from_text_and_repeats() {
        assert!(looks_random(&noise(9000), 4096));
        assert!(looks_random(&noise(70000), 65536));
        assert!(!looks_random(&b"The quick brown fox. ".repeat(500), 4096));
        assert!(!looks_random(&noise(1000).repeat(9), 4096));
        let half = [noise(8192), vec![b'x'; 60000]].concat();
        assert!(!looks_random(&half, 65536));
    }
}
