//! Makes large files as test data.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ferofs_tests::rng::Rng;

use crate::common::filesystem::Unavailable;
use crate::trees::linux_source::write_start;

const MIB: u64 = 1 << 20;

/// Writes the first `len` bytes of a tar archive of this machine's programs and libraries to `file`.
pub(super) fn archive(file: &Path, len: u64) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "-C", "/", "-cf", "-", "usr/bin", "usr/lib"]);
    let got = write_start(&mut tar, file, len)?;
    if got < len {
        return Err(Unavailable(format!("needs {} MiB in /usr/bin and /usr/lib", len / MIB)).into());
    }
    Ok(())
}

/// Writes `len` bytes to `file`, of which compression saves about `percent`: this part of each block of 4 KiB is zero, the rest
/// is random.
pub(super) fn generate(file: &Path, len: u64, percent: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let mut rng = Rng::new(percent);
    let random = (4096 * (100 - percent) / 100) as usize;
    let mut block = [0; 4096];
    for _ in 0..len / 4096 {
        rng.fill(&mut block[..random]);
        out.write_all(&block)?;
    }
    Ok(out.flush()?)
}
