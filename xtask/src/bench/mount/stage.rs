//! What is read: one large file and one tree, in images of each kind. All are made when first wanted, and kept.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, scratch};

use super::super::contestant::Daemons;
use super::super::read::{linux_archive, linux_source};
use crate::{peers, shell};

const FILE_SIZE: u64 = 1250 << 20;
/// About 50,000 files.
const TREE: [&str; 2] = ["*/arch/*", "*/drivers/*"];
/// About 4,000 files.
const SMALL_TREE: [&str; 2] = ["*/fs/*", "*/net/*"];

pub(super) struct Stage {
    pub(super) daemons: Daemons,
    pub(super) room: PathBuf,
    mkfs: PathBuf,
    quick: bool,
}

impl Stage {
    pub(super) fn new(ferofs: PathBuf, quick: bool) -> Result<Self> {
        let peers = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
        let room = scratch::target_dir().join("bench-mount");
        fs::create_dir_all(room.join("mount"))?;
        let daemons = Daemons { ferofs, erofsfuse: Some(peers.join("erofsfuse")) };
        Ok(Self { daemons, mkfs: peers.join("mkfs.erofs"), room, quick })
    }

    /// Where the contestants mount.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.room.join("mount")
    }

    /// The image called `name`, which says what it is made of: `file` or `tree`, and how.
    pub(super) fn image(&self, name: &str) -> Result<PathBuf> {
        let source = if name.starts_with("file") { self.file()? } else { self.tree()? };
        let small = self.quick && name.starts_with("tree");
        let image = self.room.join(if small { format!("small-{name}") } else { name.to_owned() });
        if image.exists() {
            return Ok(image);
        }
        let unfinished = self.room.join("unfinished");
        if unfinished.exists() {
            fs::remove_file(&unfinished)?;
        }
        let (stem, kind) = name.rsplit_once('.').context("an image's name has a kind")?;
        let mut command = match kind {
            "erofs" => {
                let clusters = if stem.ends_with("64k") { "-C65536" } else { "-C4096" };
                let mut mkfs = Command::new(&self.mkfs);
                mkfs.args(["--quiet", "-zlz4", clusters]).args([&unfinished, &source]);
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
            _ => bail!("no such kind of image: {name}"),
        };
        shell::run(&mut command)?;
        fs::rename(&unfinished, &image)?;
        Ok(image)
    }

    /// A directory with one large file, `linux.tar`.
    fn file(&self) -> Result<PathBuf> {
        let dir = self.room.join("file");
        fs::create_dir_all(&dir)?;
        linux_source(&dir.join("linux.tar"), FILE_SIZE)?;
        Ok(dir)
    }

    fn tree(&self) -> Result<PathBuf> {
        let dir = self.room.join(if self.quick { "small-tree" } else { "tree" });
        if !dir.exists() {
            let unfinished = self.room.join("unfinished-tree");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            fs::create_dir_all(&unfinished)?;
            let wanted = if self.quick { SMALL_TREE } else { TREE };
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(linux_archive()?).arg("-C").arg(&unfinished).arg("--wildcards").args(wanted);
            shell::run(&mut tar)?;
            fs::rename(unfinished, &dir)?;
        }
        Ok(dir)
    }

    pub(super) fn tree_files(&self) -> Result<usize> {
        let output = Command::new("find").arg(self.tree()?).output()?;
        Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Touches as much memory as a run's page cache takes, and frees it again: in a virtual machine the first touch of a
    /// page costs many times what reading into it costs, and would drown all else.
    pub(super) fn touch_memory(&self) {
        let bytes = if self.quick { 512 << 20 } else { 1500 << 20 };
        drop(black_box(vec![1u8; bytes]));
    }
}
