//! Finds the long runs of zeroes of content, which become holes. They follow from the content
//! alone, so that a directory and an archive of it give the same image.

use ferofs_format::BlockSize;

use crate::data::encode::dedupe::Match;

/// The least bytes of a hole. LZ4 encodes fewer zeroes in less than 257 bytes; a hole takes a
/// record of 16 or 32 bytes, and the content before and after it is encoded in two pclusters
/// instead of one.
pub(crate) const HOLE_MIN: usize = 64 << 10;

/// What content is compared with.
const ZEROES: [u8; 4096] = [0; 4096];

/// The runs of zeroes of `src`, the content of a file from `offset` on, that start at multiples of
/// a block. They also end there, or with `src`.
pub(crate) fn zero_runs(src: &[u8], offset: u64, block: BlockSize) -> Vec<Match> {
    let mut runs = Vec::new();
    let mut start = offset.wrapping_neg() as usize & (block.bytes() - 1);
    while src.len().saturating_sub(start) >= HOLE_MIN {
        let zero_blocks =
            src[start..].chunks(block.bytes()).take_while(|block| is_zero(block)).count();
        let len = (zero_blocks * block.bytes()).min(src.len() - start);
        if len >= HOLE_MIN {
            runs.push(Match::hole(start, len));
        }
        start += len + block.bytes();
    }
    runs
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROES.len()).all(|part| *part == ZEROES[..part.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_aligned_runs() {
        let found = |src: &[u8], offset, bits| {
            let block = BlockSize::from_bits(bits).unwrap();
            zero_runs(src, offset, block).iter().map(|run| (run.start, run.len)).collect::<Vec<_>>()
        };
        let mut src = vec![0; 300_000];
        assert_eq!(found(&src, 0, 12), [(0, 300_000)]);
        assert_eq!(found(&src, 1, 12), [(4095, 300_000 - 4095)]);
        src[5000] = 1;
        src[70_000] = 1;
        src[200_000] = 1;
        // From block 18 to 47, and from block 49 on.
        assert_eq!(found(&src, 0, 12), [(73_728, 122_880), (200_704, 99_296)]);
        assert_eq!(found(&src, 0, 9)[0], (70_144, 129_536));
        assert_eq!(found(&src, 0, 16), [(131_072, 65_536), (262_144, 37_856)][..1]);
        assert_eq!(found(&src[..HOLE_MIN], 0, 12), []);
        assert_eq!(found(&[], 7, 12), []);
    }
}
