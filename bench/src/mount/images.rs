//! The test data, one large file and one tree, and their images. Each is made when a benchmark first needs it; later runs use it
//! again.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, scratch};

use crate::common::filesystem::DaemonPrograms;
use crate::common::linux_source;
use ferofs_devtools::{peers, shell};

const FILE_SIZE: u64 = 1250 << 20;
/// About 50,000 files.
const TREE: [&str; 2] = ["*/arch/*", "*/drivers/*"];
/// About 4,000 files.
const SMALL_TREE: [&str; 2] = ["*/fs/*", "*/net/*"];

pub(crate) struct Images {
    pub(crate) daemons: DaemonPrograms,
    dir: PathBuf,
    mkfs: PathBuf,
    quick: bool,
}

impl Images {
    pub(crate) fn new(ferofs: PathBuf, quick: bool) -> Result<Self> {
        let peers = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
        let dir = scratch::target_dir().join("bench-mount");
        fs::create_dir_all(dir.join("mount"))?;
        let daemons = DaemonPrograms { ferofs, erofsfuse: Some(peers.join("erofsfuse")) };
        Ok(Self { daemons, mkfs: peers.join("mkfs.erofs"), dir, quick })
    }

    /// The directory that all file systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// The image called `name`. The name starts with the data, `file` or `tree`, and ends with the settings and the file system.
    pub(crate) fn image(&self, name: &str) -> Result<PathBuf> {
        let source = match name.split('-').next() {
            Some("file") => self.file()?,
            Some("grid") => self.files()?,
            Some("programs") => self.programs()?,
            _ => self.tree()?,
        };
        let small = self.quick && name.starts_with("tree");
        let image = self.dir.join(if small { format!("small-{name}") } else { name.to_owned() });
        if image.exists() {
            return Ok(image);
        }
        let unfinished = self.dir.join("unfinished");
        if unfinished.exists() {
            fs::remove_file(&unfinished)?;
        }
        let (stem, file_system) =
            name.rsplit_once('.').context("an image's name ends with its file system")?;
        let mut command = match file_system {
            "erofs" => {
                let clusters = match stem.rsplit('-').next() {
                    Some("1m") => "-C1048576",
                    Some("64k") => "-C65536",
                    _ => "-C4096",
                };
                let algorithm = if stem.contains("zstd") { "-zzstd" } else { "-zlz4" };
                let mut mkfs = Command::new(&self.mkfs);
                mkfs.args(["--quiet", algorithm, clusters]).args([&unfinished, &source]);
                mkfs
            }
            "squashfs" => {
                let block = stem.rsplit('-').next().unwrap_or("128k");
                let mut mksquashfs = Command::new("mksquashfs");
                mksquashfs.args([&source, &unfinished]);
                mksquashfs.args(["-comp", "lz4", "-noappend", "-no-progress", "-quiet", "-b", block]);
                mksquashfs
            }
            "ext4" => {
                let mut mke2fs = Command::new(need::find_tool("mke2fs").context("no mke2fs")?);
                mke2fs.args(["-q", "-t", "ext4", "-d"]).args([&source, &unfinished]).arg("3G");
                mke2fs
            }
            _ => bail!("no such file system: {name}"),
        };
        shell::run(&mut command)?;
        fs::rename(&unfinished, &image)?;
        Ok(image)
    }

    /// A directory with one large file, `linux.tar`.
    fn file(&self) -> Result<PathBuf> {
        let dir = self.dir.join("file");
        fs::create_dir_all(&dir)?;
        linux_source::write_text(&dir.join("linux.tar"), FILE_SIZE)?;
        Ok(dir)
    }

    /// A directory with the large file and a second one, half as large.
    fn files(&self) -> Result<PathBuf> {
        let dir = self.dir.join("files");
        fs::create_dir_all(&dir)?;
        linux_source::write_text(&dir.join("linux.tar"), FILE_SIZE)?;
        linux_source::write_text(&dir.join("second.tar"), FILE_SIZE / 2)?;
        Ok(dir)
    }

    /// A directory with the Python modules of this machine and a git repository of 2,000 files.
    fn programs(&self) -> Result<PathBuf> {
        let dir = self.dir.join("programs");
        if !dir.exists() {
            let unfinished = self.dir.join("unfinished-programs");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            fs::create_dir_all(unfinished.join("lib"))?;
            let script = "set -e; lib=$(python3 -c 'import os; print(os.path.dirname(os.__file__))'); \
                cp -a \"$lib\" \"$0/lib/python3\"; mkdir \"$0/repository\"; cd \"$0/repository\"; git init -q .; \
                for i in $(seq 2000); do mkdir -p d$((i / 50)); echo \"file $i\" > d$((i / 50))/f$i; done; git add .; \
                git -c user.name=bench -c user.email=bench@example.org commit -qm files";
            shell::run(Command::new("sh").args(["-c", script]).arg(&unfinished))?;
            fs::rename(unfinished, &dir)?;
        }
        Ok(dir)
    }

    fn tree(&self) -> Result<PathBuf> {
        let dir = self.dir.join(if self.quick { "small-tree" } else { "tree" });
        if !dir.exists() {
            let unfinished = self.dir.join("unfinished-tree");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            fs::create_dir_all(&unfinished)?;
            let wanted = if self.quick { SMALL_TREE } else { TREE };
            let mut tar = Command::new("tar");
            tar.arg("-xf")
                .arg(linux_source::archive()?)
                .arg("-C")
                .arg(&unfinished)
                .arg("--wildcards")
                .args(wanted);
            shell::run(&mut tar)?;
            fs::rename(unfinished, &dir)?;
        }
        Ok(dir)
    }

    pub(crate) fn tree_files(&self) -> Result<usize> {
        let output = Command::new("find").arg(self.tree()?).output()?;
        Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Writes to as much memory as a run's page cache takes, and frees it again. In a virtual machine the first write to a page
    /// takes many times longer than reading data into it, because the host allocates the page then.
    pub(crate) fn touch_memory(&self) {
        let bytes = if self.quick { 512 << 20 } else { 1500 << 20 };
        drop(black_box(vec![1u8; bytes]));
    }
}
