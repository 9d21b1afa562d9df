//! The directory of an evaluation: test data, images, and the mount point. Each image is made when an experiment first needs it; later
//! runs use it again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_tests::mount::is_mounted;

use super::super::experiments::boot::PROGRAMS_TREE;
use super::data;
use super::scale;
use super::systems::{ImageFormat, System};
use crate::common::filesystem::{Driver, FileSystem, Unavailable};
use crate::common::programs::{Programs, Tool};
use crate::common::rounds::run_quietly;
use crate::common::walk::each_file;
use crate::trees::{self, linux_source};

const MIB: u64 = 1 << 20;

/// The directory of an evaluation, and the programs that it uses.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) dir: PathBuf,
    pub(crate) programs: Programs,
}

/// The name of the large file within its image.
pub(crate) const FILE: &str = "file";

impl Workspace {
    /// Unmounts and detaches what an interrupted run left behind.
    pub(crate) fn remove_stale_mounts(&self) -> Result<()> {
        let dir = self.mount_point()?;
        // Several runs may have mounted on the same directory.
        for _ in 0..16 {
            if !is_mounted(&dir) {
                break;
            }
            run_quietly(Command::new("umount").arg("-Rl").arg(&dir))?;
        }
        let images = self.dir.join("images");
        if !images.exists() {
            return Ok(());
        }
        for image in fs::read_dir(images)? {
            let output = Command::new("losetup").args(["-nO", "NAME", "-j"]).arg(image?.path()).output()?;
            for device in String::from_utf8_lossy(&output.stdout).lines() {
                run_quietly(Command::new("losetup").args(["--detach", device.trim()]))?;
            }
        }
        Ok(())
    }

    /// The directory of a dataset: it contains one large [`FILE`], or a tree. Makes it if it does not exist.
    pub(crate) fn dataset(&self, name: &str) -> Result<PathBuf> {
        if name == PROGRAMS_TREE {
            return trees::named(name)?.get();
        }
        let dir = self.dir.join("data").join(name);
        if dir.exists() {
            return Ok(dir);
        }
        let part = self.dir.join("data").join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        fs::create_dir_all(&part)?;
        let file = part.join(FILE);
        match name {
            "text" => {
                let unavailable =
                    |error: anyhow::Error| Unavailable(format!("needs Debian's linux-source: {error:#}"));
                linux_source::write_text(&file, scale::FILE_SIZE).map_err(unavailable)?;
            }
            "mixed" => data::archive(&file, scale::FILE_SIZE)?,
            _ => {
                let percent = name.strip_prefix("saves").and_then(|text| text.parse().ok());
                data::generate(
                    &file,
                    scale::GENERATED_SIZE,
                    percent.with_context(|| format!("no such data: {name}"))?,
                )?;
            }
        }
        fs::rename(part, &dir)?;
        Ok(dir)
    }

    /// Bytes of the large file of a dataset.
    pub(crate) fn size(&self, dataset: &str) -> Result<u64> {
        Ok(fs::metadata(self.dataset(dataset)?.join(FILE))?.len())
    }

    /// The image of a dataset in this format. Makes it if it does not exist.
    pub(crate) fn image(&self, dataset: &str, format: &ImageFormat) -> Result<PathBuf> {
        let dir = self.dir.join("images");
        let image = dir.join(format!("{dataset}-{}", format.file_name()));
        if image.exists() {
            return Ok(image);
        }
        let source = self.dataset(dataset)?;
        fs::create_dir_all(&dir)?;
        let part = dir.join("part");
        if part.exists() {
            fs::remove_file(&part)?;
        }
        let build = |tool, options: &str| self.programs.build(tool, options, &source, &part).map(drop);
        match format {
            ImageFormat::Ferofs(options) => build(Tool::Ferofs, options)?,
            ImageFormat::MkfsErofs(options) => build(Tool::MkfsErofs, options)?,
            ImageFormat::Squashfs(options) => build(Tool::Mksquashfs, options)?,
            ImageFormat::Btrfs(algorithm) => self.make_btrfs(&source, &part, algorithm)?,
            ImageFormat::Ext4 => {
                let mut mke2fs = Command::new("mke2fs");
                mke2fs.args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "8192", "-d"]);
                mke2fs.args([&source, &part]).arg(format!("{}M", self.uncompressed_size(&source)? / MIB));
                run_quietly(&mut mke2fs)?;
            }
        }
        fs::rename(part, &image)?;
        Ok(image)
    }

    /// Makes a btrfs image. btrfs compresses files when they are written, so the image is mounted and the files are copied.
    fn make_btrfs(&self, source: &Path, image: &Path, algorithm: &str) -> Result<()> {
        Driver::Kernel("btrfs").check()?;
        File::create(image)?.set_len(self.uncompressed_size(source)?.max(256 * MIB))?;
        run_quietly(Command::new("mkfs.btrfs").args(["-q", "-m", "single", "-d", "single"]).arg(image))?;
        let dir = self.mount_point()?;
        let options = format!("loop,noatime,compress-force={algorithm}");
        run_quietly(Command::new("mount").args(["-t", "btrfs", "-o", &options]).args([image, &dir]))?;
        let copied = run_quietly(Command::new("cp").args(["-a", "-T"]).args([source, &dir]));
        run_quietly(Command::new("umount").arg(&dir))?;
        copied
    }

    /// Bytes that a file system without compression needs for `source`: data in blocks of 4 KiB, metadata, and a tenth more.
    fn uncompressed_size(&self, source: &Path) -> Result<u64> {
        let mut bytes = 64 * MIB;
        each_file(source, &mut |_, len| {
            bytes += len.next_multiple_of(4096) + 1024;
            Ok(())
        })?;
        Ok(bytes + bytes / 10)
    }

    /// The file system to mount, with its image made; an error if this machine cannot mount it.
    pub(crate) fn file_system(&self, dataset: &str, system: &System) -> Result<FileSystem> {
        system.driver.check()?;
        Ok(FileSystem::new(system.name.clone(), &self.image(dataset, &system.format)?, system.driver))
    }

    /// The directory that all systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> Result<PathBuf> {
        let dir = self.dir.join("mount");
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}
