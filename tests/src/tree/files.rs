//! Regular files: sizes around the boundaries of blocks, clusters and segments, with every kind of
//! content; similar files; and sparse files: holes at the start, in the middle, at the end, and
//! files without data.

use std::io;
use std::os::unix::fs::FileExt;

use super::DirWriter;
use crate::content::Content;

/// Sizes that detect off-by-one errors: around blocks of 512 to 4096 bytes, and around the largest
/// tail that fits after an inode.
const SIZES: [usize; 31] = [
    0, 1, 2, 31, 32, 33, 63, 64, 511, 512, 513, 1023, 1024, 1025, 2048, 4000, 4031, 4032, 4064,
    4065, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 16_385, 40_960, 65_535, 65_537,
];

/// Creates the files; the largest has `largest` bytes.
pub(super) fn create(writer: &DirWriter, largest: usize) -> io::Result<()> {
    for kind in Content::ALL {
        let dir = format!("{kind:?}").to_lowercase();
        writer.sub(dir.as_bytes(), |writer| {
            for size in SIZES {
                let name = format!("{size}");
                writer
                    .file(name.as_bytes(), &kind.bytes(size, &mut writer.rng(name.as_bytes())))?;
            }
            Ok(())
        })?;
    }
    writer.sub(b"large", |writer| {
        for (kind, share) in [(Content::Mixed, 1), (Content::Text, 3), (Content::Noise, 7)] {
            let name = format!("{kind:?}");
            writer.file(
                name.as_bytes(),
                &kind.bytes(largest / share, &mut writer.rng(name.as_bytes())),
            )?;
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

/// Name, size, and the ranges (start and length) that hold data.
type Sparse = (&'static [u8], u64, &'static [(u64, usize)]);

/// Creates the files; with `huge`, also one of over 4 GiB.
pub(super) fn create_sparse(writer: &DirWriter, huge: bool) -> io::Result<()> {
    let files: [Sparse; 8] = [
        (b"start", 200_000, &[(131_072, 68_928)]),
        (b"middle", 200_000, &[(0, 40_000), (163_840, 36_160)]),
        (b"end", 300_001, &[(0, 50_000)]),
        (b"all", 1_000_000, &[]),
        (b"all, within a block", 3_000, &[]),
        (b"comb", 400_000, &[(4_096, 4_096), (65_536, 1), (131_071, 2), (262_144, 65_536)]),
        (b"last byte", 500_000, &[(499_999, 1)]),
        (b"huge", 5 << 30, &[(3 << 30, 100)]),
    ];
    for (name, size, ranges) in files {
        if size > u32::MAX.into() && !huge {
            continue;
        }
        let file = writer.create(name)?;
        file.set_len(size)?;
        for (start, len) in ranges {
            let mut rng = writer.rng(name);
            file.write_all_at(&Content::Mixed.bytes(*len, &mut rng), *start)?;
        }
        writer.default_time(name)?;
    }
    Ok(())
}
