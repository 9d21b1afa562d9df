//! Regular files: sizes around the boundaries of blocks, clusters and segments, with every kind of content; and similar files.

use std::io;

use super::DirWriter;
use crate::content::Content;

/// Sizes that detect off-by-one errors: around blocks of 512 to 4096 bytes, and around the largest tail that fits after an inode.
const SIZES: [usize; 31] = [
    0, 1, 2, 31, 32, 33, 63, 64, 511, 512, 513, 1023, 1024, 1025, 2048, 4000, 4031, 4032, 4064, 4065, 4095,
    4096, 4097, 8191, 8192, 8193, 12_288, 16_385, 40_960, 65_535, 65_537,
];

/// Creates the files; the largest has `largest` bytes.
pub(super) fn create(writer: &DirWriter, largest: usize) -> io::Result<()> {
    for kind in Content::ALL {
        let dir = format!("{kind:?}").to_lowercase();
        writer.sub(dir.as_bytes(), |writer| {
            for size in SIZES {
                let name = format!("{size}");
                writer.file(name.as_bytes(), &kind.bytes(size, &mut writer.rng(name.as_bytes())))?;
            }
            Ok(())
        })?;
    }
    writer.sub(b"large", |writer| {
        for (kind, share) in [(Content::Mixed, 1), (Content::Text, 3), (Content::Noise, 7)] {
            let name = format!("{kind:?}");
            writer.file(name.as_bytes(), &kind.bytes(largest / share, &mut writer.rng(name.as_bytes())))?;
        }
        Ok(())
    })?;
    writer.sub(b"alike", |writer| {
        let bytes = Content::Mixed.bytes(50_000, &mut writer.rng(b"alike"));
        for name in [b"a", b"b", b"c"] {
            writer.file(name, &bytes)?;
        }
        writer.file(b"a prefix", &bytes[..30_000])?;
        writer.file(b"a suffix", &bytes[20_000..])
    })
}
