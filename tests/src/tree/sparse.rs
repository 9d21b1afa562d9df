//! Sparse files: holes at the start, in the middle, at the end, and files without data.

use std::io;
use std::os::unix::fs::FileExt;

use super::DirWriter;
use crate::content::Content;

/// Name, size, and the ranges (start and length) that hold data.
type Sparse = (&'static [u8], u64, &'static [(u64, usize)]);

/// Creates the files; with `huge`, also one of over 4 GiB.
pub(super) fn create(writer: &DirWriter, huge: bool) -> io::Result<()> {
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
