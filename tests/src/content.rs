//! Generates file content with different compressibility.

use crate::rng::Rng;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Words: compresses to about a third.
    Text,
    /// Random bytes: do not compress.
    Noise,
    /// Zeroes that are written, not holes.
    Zeroes,
    /// A repeated short sequence: compresses to almost nothing, with matches that overlap their own
    /// source.
    Period,
    /// Parts of the other kinds with odd lengths, so that extents end anywhere in a block.
    Mixed,
}

impl Content {
    /// Every kind.
    pub const ALL: [Content; 5] =
        [Content::Text, Content::Noise, Content::Zeroes, Content::Period, Content::Mixed];

    /// `len` bytes of this kind.
    pub fn bytes(self, len: usize, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        self.append(len, rng, &mut bytes);
        bytes
    }

    fn append(self, len: usize, rng: &mut Rng, out: &mut Vec<u8>) {
        let end = out.len() + len;
        match self {
            Content::Text => {
                while out.len() < end {
                    out.extend_from_slice(WORDS[rng.below(WORDS.len() as u64) as usize]);
                    if rng.below(11) == 0 {
                        out.extend_from_slice(format!("{}\n", rng.below(100_000)).as_bytes());
                    }
                }
                out.truncate(end);
            }
            Content::Noise => {
                let start = out.len();
                out.resize(end, 0);
                rng.fill(&mut out[start..]);
            }
            Content::Zeroes => out.resize(end, 0),
            Content::Period => {
                let mut period = vec![0; 1 + rng.below(9) as usize];
                rng.fill(&mut period);
                out.extend(period.iter().copied().cycle().take(len));
            }
            Content::Mixed => {
                while out.len() < end {
                    let kind = [Content::Text, Content::Noise, Content::Zeroes, Content::Period]
                        [rng.below(4) as usize];
                    let part = (1 + rng.below(13_000) as usize).min(end - out.len());
                    kind.append(part, rng, out);
                }
            }
        }
    }
}

const WORDS: [&[u8]; 16] = [
    b"the ",
    b"image ",
    b"block ",
    b"cluster ",
    b"of ",
    b"a ",
    b"read-only ",
    b"file ",
    b"system ",
    b"inode ",
    b"is ",
    b"compressed ",
    b"extent ",
    b"and ",
    b"maps ",
    b"logical ",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_length_asked_for() {
        for kind in Content::ALL {
            for len in [0, 1, 4095, 4096, 50_001] {
                assert_eq!(kind.bytes(len, &mut Rng::new(7)).len(), len, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_bytes_and_another_seed_others() {
        let bytes = |seed| Content::Mixed.bytes(100_000, &mut Rng::new(seed));
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }
}
