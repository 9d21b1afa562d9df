//! The test data, two large files, and their images. Each is made when a run first needs it; later runs use it again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_tests::scratch;

use crate::common::filesystem::DaemonPrograms;
use crate::common::linux_source;
use ferofs_devtools::{peers, shell};

const FILE_SIZE: u64 = 1250 << 20;
pub(crate) struct Images {
    pub(crate) daemons: DaemonPrograms,
    dir: PathBuf,
    mkfs: PathBuf,
}

impl Images {
    pub(crate) fn new(ferofs: PathBuf) -> Result<Self> {
        let peers = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
        let dir = scratch::target_dir().join("bench-random");
        fs::create_dir_all(dir.join("mount"))?;
        let daemons = DaemonPrograms { ferofs, erofsfuse: Some(peers.join("erofsfuse")) };
        Ok(Self { daemons, mkfs: peers.join("mkfs.erofs"), dir })
    }

    /// The directory that all file systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// The image called `name`, which ends with algorithm and largest cluster.
    pub(crate) fn image(&self, name: &str) -> Result<PathBuf> {
        let image = self.dir.join(name);
        if image.exists() {
            return Ok(image);
        }
        let source = self.files()?;
        let unfinished = self.dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_file(&unfinished)?;
        }
        let clusters = match name.trim_end_matches(".erofs").rsplit('-').next() {
            Some("1m") => "-C1048576",
            Some("64k") => "-C65536",
            _ => "-C4096",
        };
        let algorithm = if name.contains("zstd") { "-zzstd" } else { "-zlz4" };
        let mut mkfs = Command::new(&self.mkfs);
        shell::run(mkfs.args(["--quiet", algorithm, clusters]).args([&unfinished, &source]))?;
        fs::rename(&unfinished, &image)?;
        Ok(image)
    }

    /// A directory with the large file and a second one, half as large.
    fn files(&self) -> Result<PathBuf> {
        let dir = self.dir.join("files");
        fs::create_dir_all(&dir)?;
        linux_source::write_text(&dir.join("linux.tar"), FILE_SIZE)?;
        linux_source::write_text(&dir.join("second.tar"), FILE_SIZE / 2)?;
        Ok(dir)
    }
}
