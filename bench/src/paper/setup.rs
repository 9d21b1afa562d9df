//! What the experiments work on: the systems to compare, the test data, and the images, each of
//! which is made when an experiment first needs it; later runs use it again. Also the machine, and
//! how much is measured.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ferofs_tests::mount::is_mounted;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::proc_bytes;

use super::experiments::boot::PROGRAMS_TREE;
use super::record::Machine;
use crate::common::filesystem::{Driver, FileSystem, Unavailable};
use crate::common::machine;
use crate::common::programs::{Programs, Tool};
use crate::trees::{self, each_file, packages};
use ferofs_devtools::shell::run_quietly;

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
            let output =
                Command::new("losetup").args(["-nO", "NAME", "-j"]).arg(image?.path()).output()?;
            for device in String::from_utf8_lossy(&output.stdout).lines() {
                run_quietly(Command::new("losetup").args(["--detach", device.trim()]))?;
            }
        }
        Ok(())
    }

    /// The directory of a dataset: it contains one large [`FILE`], or a tree. Makes it if it does
    /// not exist.
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
                let unavailable = |error: anyhow::Error| {
                    Unavailable(format!("needs Debian's linux-source: {error:#}"))
                };
                packages::write_text(&file, FILE_SIZE).map_err(unavailable)?;
            }
            "mixed" => archive(&file, FILE_SIZE)?,
            _ => {
                let percent = name.strip_prefix("saves").and_then(|text| text.parse().ok());
                generate(
                    &file,
                    GENERATED_SIZE,
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
        let build =
            |tool, options: &str| self.programs.build(tool, options, &source, &part).map(drop);
        match format {
            ImageFormat::Ferofs(options) => build(Tool::Ferofs, options)?,
            ImageFormat::MkfsErofs(options) => build(Tool::MkfsErofs, options)?,
            ImageFormat::Squashfs(options) => build(Tool::Mksquashfs, options)?,
            ImageFormat::Btrfs(algorithm) => self.make_btrfs(&source, &part, algorithm)?,
            ImageFormat::Ext4 => {
                let mut mke2fs = Command::new("mke2fs");
                mke2fs.args([
                    "-q",
                    "-t",
                    "ext4",
                    "-O",
                    "^has_journal",
                    "-m",
                    "0",
                    "-i",
                    "8192",
                    "-d",
                ]);
                mke2fs
                    .args([&source, &part])
                    .arg(format!("{}M", self.uncompressed_size(&source)? / MIB));
                run_quietly(&mut mke2fs)?;
            }
        }
        fs::rename(part, &image)?;
        Ok(image)
    }

    /// Makes a btrfs image. btrfs compresses files when they are written, so the image is mounted
    /// and the files are copied.
    fn make_btrfs(&self, source: &Path, image: &Path, algorithm: &str) -> Result<()> {
        Driver::Kernel("btrfs").check()?;
        File::create(image)?.set_len(self.uncompressed_size(source)?.max(256 * MIB))?;
        run_quietly(
            Command::new("mkfs.btrfs").args(["-q", "-m", "single", "-d", "single"]).arg(image),
        )?;
        let dir = self.mount_point()?;
        let options = format!("loop,noatime,compress-force={algorithm}");
        run_quietly(
            Command::new("mount").args(["-t", "btrfs", "-o", &options]).args([image, &dir]),
        )?;
        let copied = run_quietly(Command::new("cp").args(["-a", "-T"]).args([source, &dir]));
        run_quietly(Command::new("umount").arg(&dir))?;
        copied
    }

    /// Bytes that a file system without compression needs for `source`: data in blocks of 4 KiB,
    /// metadata, and a tenth more.
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
        Ok(FileSystem::new(
            system.name.clone(),
            &self.image(dataset, &system.format)?,
            system.driver,
        ))
    }

    /// The directory that all systems mount on, one after the other.
    pub(crate) fn mount_point(&self) -> Result<PathBuf> {
        let dir = self.dir.join("mount");
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// The tool that makes an image, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageFormat {
    Ferofs(String),
    MkfsErofs(String),
    Squashfs(String),
    /// With the name of its compression algorithm.
    Btrfs(&'static str),
    Ext4,
}

impl ImageFormat {
    /// A file name that differs for each format.
    fn file_name(&self) -> String {
        let (kind, options) = match self {
            Self::Ferofs(options) => ("ferofs", options.as_str()),
            Self::MkfsErofs(options) => ("erofs", options.as_str()),
            Self::Squashfs(options) => ("squashfs", options.as_str()),
            Self::Btrfs(algorithm) => ("btrfs", *algorithm),
            Self::Ext4 => ("ext4", ""),
        };
        let file_char = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("{}.{kind}", options.chars().map(file_char).collect::<String>())
    }
}

/// One of the compared systems: an image format and the driver that mounts the image.
#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) format: ImageFormat,
    pub(crate) driver: Driver,
}

impl Display for System {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl System {
    pub(crate) fn new(name: impl Into<String>, format: &ImageFormat, driver: Driver) -> Self {
        Self { name: name.into(), format: format.clone(), driver }
    }
}

/// EROFS as in the paper: LZ4HC with clusters of 4 KiB.
pub(crate) fn erofs() -> ImageFormat {
    ImageFormat::Ferofs("--preset android".into())
}

/// squashfs with LZ4HC.
pub(crate) fn squashfs(block: &str) -> ImageFormat {
    ImageFormat::Squashfs(format!("-comp lz4 -Xhc -b {block}"))
}

/// All systems: those that compress, and ext4 for comparison.
pub(crate) fn systems() -> Vec<System> {
    let mut all = vec![
        System::new("ferofs (FUSE)", &erofs(), Driver::Ferofs(&[])),
        System::new("EROFS (kernel)", &erofs(), Driver::Kernel("erofs")),
        System::new("erofsfuse", &erofs(), Driver::Erofsfuse),
    ];
    for block in ["4K", "8K", "16K", "128K"] {
        let name = format!("squashfs {block} (kernel)");
        all.push(System::new(name, &squashfs(block), Driver::Kernel("squashfs")));
    }
    all.push(System::new("squashfuse 128K", &squashfs("128K"), Driver::Squashfuse));
    for algorithm in ["lzo", "zstd"] {
        let name = format!("btrfs {algorithm} (kernel)");
        all.push(System::new(name, &ImageFormat::Btrfs(algorithm), Driver::Kernel("btrfs")));
    }
    all.push(System::new("ext4 (kernel)", &ImageFormat::Ext4, Driver::Kernel("ext4")));
    all
}

/// The systems that matter most, for experiments with many cases.
pub(crate) fn main_systems() -> Vec<System> {
    let main =
        ["ferofs (FUSE)", "EROFS (kernel)", "erofsfuse", "squashfs 128K (kernel)", "ext4 (kernel)"];
    systems().into_iter().filter(|system| main.contains(&system.name.as_str())).collect()
}

/// Writes the first `len` bytes of a tar archive of this machine's programs and libraries to
/// `file`.
fn archive(file: &Path, len: u64) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "-C", "/", "-cf", "-", "usr/bin", "usr/lib"]);
    let got = packages::write_start(&mut tar, file, len)?;
    if got < len {
        return Err(Unavailable(format!("needs {} MiB in /usr/bin and /usr/lib", len / MIB)).into());
    }
    Ok(())
}

/// Writes `len` bytes to `file`, of which compression saves about `percent`: this part of each
/// block of 4 KiB is zero, the rest is random.
fn generate(file: &Path, len: u64, percent: u64) -> Result<()> {
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

/// Writes to nine tenths of the free memory. The host of a virtual machine allocates a page when
/// the guest first writes to it, which takes longer than most measurements here; the first measured
/// system would pay for all. A separate process (dd) writes, because Linux adds the peak memory of
/// this process to that of the measured ones.
pub(crate) fn touch_memory() -> Result<()> {
    let buffer = format!("bs={}M", (free_memory()? >> 20) / 10 * 9);
    run_quietly(Command::new("dd").args([
        "if=/dev/zero",
        "of=/dev/null",
        "count=1",
        "iflag=fullblock",
        &buffer,
    ]))
}

/// Bytes of unused memory; the page cache counts as used.
pub(crate) fn free_memory() -> Result<u64> {
    proc_bytes("/proc/meminfo", "MemFree:").context("no MemFree")
}

pub(crate) fn describe(programs: &Programs, out: &Path) -> Result<Machine> {
    let mut versions = programs.versions().to_vec();
    versions.extend([
        ("btrfs-progs", "mkfs.btrfs".into(), "-V"),
        ("e2fsprogs", "mke2fs".into(), "-V"),
        ("fio", "fio".into(), "--version"),
    ]);
    let mut machine = machine::describe("paper", &versions)?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let memory =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown");
    for (name, text) in [("memory", memory), ("storage", &storage(out))] {
        machine.insert(name.to_owned(), text.trim().to_owned());
    }
    Ok(machine)
}

/// The file system and the device that contain `dir`.
fn storage(dir: &Path) -> String {
    let options = [dir.as_os_str(), "--output=fstype,source".as_ref()];
    let text =
        Command::new("df").args(options).output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last = text.lines().last().unwrap_or("unknown");
    last.split_whitespace().collect::<Vec<_>>().join(" on ")
}

/// After this time no new measurement starts.
pub(crate) const MINUTES: u64 = 14;
/// Rounds of the experiments whose figures the page shows, or which vary much; the others have one
/// round.
pub(crate) const ROUNDS: usize = 3;
/// fio stops after this time: a slow system reads less.
pub(crate) const FIO_SECONDS: u32 = 2;
/// Bytes of a large file of real data.
pub(crate) const FILE_SIZE: u64 = 256 * MIB;
/// Bytes of a generated file whose compression saves a given percentage.
pub(crate) const GENERATED_SIZE: u64 = 128 * MIB;
/// Large files of real data, by name.
pub(crate) const DATASETS: [&str; 2] = ["text", "mixed"];
/// Percentages that compression saves.
pub(crate) const SAVINGS: [u64; 5] = [0, 25, 50, 75, 95];
