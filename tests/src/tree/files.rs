//! Regular files: sizes around the boundaries of blocks, clusters and segments, in every kind of content; and files
//! that are alike.

use std::io;

use super::Plot;
use crate::content::Content;

/// Sizes where an off-by-one shows: around blocks of 512 to 4096 bytes and the tail that fits beside an inode.
const SIZES: [usize; 31] = [
    0, 1, 2, 31, 32, 33, 63, 64, 511, 512, 513, 1023, 1024, 1025, 2048, 4000, 4031, 4032, 4064, 4065, 4095,
    4096, 4097, 8191, 8192, 8193, 12_288, 16_385, 40_960, 65_535, 65_537,
];

/// Plants the files; the largest has `largest` bytes.
pub(super) fn plant(plot: &Plot, largest: usize) -> io::Result<()> {
    for kind in Content::ALL {
        let dir = format!("{kind:?}").to_lowercase();
        plot.sub(dir.as_bytes(), |plot| {
            for size in SIZES {
                let name = format!("{size}");
                plot.file(name.as_bytes(), &kind.bytes(size, &mut plot.rng(name.as_bytes())))?;
            }
            Ok(())
        })?;
    }
    plot.sub(b"large", |plot| {
        for (kind, share) in [(Content::Mixed, 1), (Content::Text, 3), (Content::Noise, 7)] {
            let name = format!("{kind:?}");
            plot.file(name.as_bytes(), &kind.bytes(largest / share, &mut plot.rng(name.as_bytes())))?;
        }
        Ok(())
    })?;
    plot.sub(b"alike", |plot| {
        let bytes = Content::Mixed.bytes(50_000, &mut plot.rng(b"alike"));
        for name in [b"a", b"b", b"c"] {
            plot.file(name, &bytes)?;
        }
        plot.file(b"a prefix", &bytes[..30_000])?;
        plot.file(b"a suffix", &bytes[20_000..])
    })
}
