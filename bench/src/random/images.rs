//! The test data, two large files, and their images. Each is made when a run first needs it; later runs use it again.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use ferofs_tests::scratch;

use crate::common::programs::{Programs, Tool};
use crate::trees::linux_source;

/// Bytes of the large file.
pub(crate) const FILE_SIZE: u64 = 640 << 20;

pub(crate) struct Images {
    pub(crate) programs: Programs,
    dir: PathBuf,
}

impl Images {
    pub(crate) fn new(programs: Programs) -> Result<Self> {
        let dir = scratch::target_dir().join("bench-random");
        fs::create_dir_all(dir.join("mount"))?;
        Ok(Self { programs, dir })
    }

    /// The directory that all file systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// The image called `name`, which mkfs.erofs makes with `options`.
    pub(crate) fn image(&self, name: &str, options: &str) -> Result<PathBuf> {
        let image = self.dir.join(format!("{name}.erofs"));
        if !image.exists() {
            let unfinished = self.dir.join("unfinished");
            self.programs.build(Tool::MkfsErofs, options, &self.files()?, &unfinished)?;
            fs::rename(&unfinished, &image)?;
        }
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
