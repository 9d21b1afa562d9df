//! What is read and built: large files and a tree, as images of each kind. All are made when first wanted, and kept.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_tests::mount::is_mounted;
use ferofs_tests::rng::Rng;
use ferofs_tests::{need, scratch};

use super::super::contestant::{Contestant, Daemons, Lacks, Way};
use super::super::fio::Pattern;
use super::super::measure::quietly;
use super::super::read::linux_source;
use super::programs;
use crate::{peers, shell};

const MIB: u64 = 1 << 20;

/// How much is done.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) name: &'static str,
    /// After so many minutes nothing new is begun.
    pub(super) minutes: u64,
    pub(super) rounds: usize,
    /// A run of fio ends after so many seconds: what is slow is slow.
    pub(super) seconds: u32,
    /// Bytes of a large file.
    pub(super) content: u64,
    /// Bytes of a file that is made to be compressible to some degree.
    pub(super) made: u64,
    pub(super) subjects: &'static [&'static str],
    pub(super) savings: &'static [u64],
    pub(super) readers: &'static [u64],
    /// Programs that are started.
    pub(super) programs: usize,
    /// Whether what takes minutes is built as well.
    pub(super) slow_builds: bool,
}

pub(super) const FULL: Scale = Scale {
    name: "full",
    minutes: 84,
    rounds: 3,
    seconds: 4,
    content: 512 * MIB,
    made: 128 * MIB,
    subjects: &["text", "mixed"],
    savings: &[0, 25, 50, 75, 95],
    readers: &[1, 2, 4],
    programs: 5,
    slow_builds: true,
};

pub(super) const QUICK: Scale = Scale {
    name: "quick",
    minutes: 5,
    rounds: 1,
    seconds: 1,
    content: 64 * MIB,
    made: 32 * MIB,
    subjects: &["text"],
    savings: &[0, 50, 95],
    readers: &[1, 4],
    programs: 2,
    slow_builds: false,
};

/// Where the programs are that make images, if they are there.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) mkfs_erofs: Option<PathBuf>,
    pub(super) mksquashfs: Option<PathBuf>,
    pub(super) mkfs_btrfs: Option<PathBuf>,
    pub(super) mke2fs: Option<PathBuf>,
    pub(super) fio: Option<PathBuf>,
}

impl Tools {
    /// The newest that are there.
    pub(super) fn find() -> Self {
        let newest = |name: &str| {
            let peer = peers::installed(&scratch::target_dir()).map(|bin| bin.join(name));
            peer.or_else(|| need::find_tool(name))
        };
        Self {
            mkfs_erofs: newest("mkfs.erofs"),
            mksquashfs: newest("mksquashfs"),
            mkfs_btrfs: need::find_tool("mkfs.btrfs"),
            mke2fs: need::find_tool("mke2fs"),
            fio: need::find_tool("fio"),
        }
    }
}

pub(super) fn wanted<'a>(tool: Option<&'a Path>, name: &str) -> Result<&'a Path, Lacks> {
    tool.ok_or_else(|| Lacks(format!("needs {name}")))
}

/// What an image is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Ferofs(String),
    MkfsErofs(String),
    /// Options of mksquashfs.
    Squashfs(String),
    /// Its algorithm.
    Btrfs(&'static str),
    Ext4,
}

impl Form {
    /// A name for a file.
    fn slug(&self) -> String {
        let (kind, options) = match self {
            Self::Ferofs(options) => ("ferofs", options.as_str()),
            Self::MkfsErofs(options) => ("erofs", options.as_str()),
            Self::Squashfs(options) => ("squashfs", options.as_str()),
            Self::Btrfs(algorithm) => ("btrfs", *algorithm),
            Self::Ext4 => ("ext4", ""),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("{}.{kind}", options.chars().map(plain).collect::<String>())
    }
}

/// Who takes part: a name, what its image is made with, and how that is mounted.
#[derive(Clone, Debug)]
pub(super) struct Entrant {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) way: Way,
}

impl Display for Entrant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Entrant {
    pub(super) fn new(name: impl Into<String>, form: &Form, way: Way) -> Self {
        Self { name: name.into(), form: form.clone(), way }
    }
}

/// EROFS as in the paper: LZ4HC, clusters of 4 KiB.
pub(super) fn erofs() -> Form {
    Form::Ferofs("-z lz4hc,9".into())
}

/// squashfs with LZ4HC, too.
pub(super) fn squashfs(block: &str) -> Form {
    Form::Squashfs(format!("-comp lz4 -Xhc -b {block}"))
}

/// All who read what they have compressed, and ext4.
pub(super) fn entrants() -> Vec<Entrant> {
    let mut all = vec![
        Entrant::new("ferofs (FUSE)", &erofs(), Way::Ferofs(&[])),
        Entrant::new("EROFS (kernel)", &erofs(), Way::Kernel("erofs")),
        Entrant::new("erofsfuse", &erofs(), Way::Erofsfuse),
    ];
    for block in ["4K", "8K", "16K", "128K"] {
        let name = format!("squashfs {block} (kernel)");
        all.push(Entrant::new(name, &squashfs(block), Way::Kernel("squashfs")));
    }
    all.push(Entrant::new("squashfuse 128K", &squashfs("128K"), Way::Squashfuse));
    for algorithm in ["lzo", "zstd"] {
        let name = format!("btrfs {algorithm} (kernel)");
        all.push(Entrant::new(name, &Form::Btrfs(algorithm), Way::Kernel("btrfs")));
    }
    all.push(Entrant::new("ext4 (kernel)", &Form::Ext4, Way::Kernel("ext4")));
    all
}

/// The best-known of them.
pub(super) fn leading_entrants() -> Vec<Entrant> {
    let leading = ["ferofs (FUSE)", "EROFS (kernel)", "erofsfuse", "squashfs 128K (kernel)", "ext4 (kernel)"];
    entrants().into_iter().filter(|entrant| leading.contains(&entrant.name.as_str())).collect()
}

/// Where everything stands.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) room: PathBuf,
    pub(super) scale: &'static Scale,
    pub(super) daemons: Daemons,
    pub(super) tools: Tools,
    /// What was given to be measured as well.
    pub(super) given: Vec<PathBuf>,
}

/// The name of the large file within its image.
pub(super) const FILE: &str = "file";

impl Stage {
    /// Takes away what an interrupted run left mounted and attached.
    pub(super) fn clear(&self) -> Result<()> {
        let dir = self.mount_point()?;
        // Mounts may lie upon each other.
        for _ in 0..16 {
            if !is_mounted(&dir) {
                break;
            }
            let (program, option) = if need::is_root() { ("umount", "-Rl") } else { ("fusermount3", "-uz") };
            quietly(Command::new(program).arg(option).arg(&dir))?;
        }
        let images = self.room.join("images");
        if !need::is_root() || !images.exists() {
            return Ok(());
        }
        for image in fs::read_dir(images)? {
            let output = Command::new("losetup").args(["-nO", "NAME", "-j"]).arg(image?.path()).output()?;
            for device in String::from_utf8_lossy(&output.stdout).lines() {
                quietly(Command::new("losetup").args(["--detach", device.trim()]))?;
            }
        }
        Ok(())
    }

    /// What is read of large files: by name, and how many bytes.
    pub(super) fn subjects(&self) -> Vec<String> {
        let files = self.given.iter().filter(|path| path.is_file());
        let names = files.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        self.scale.subjects.iter().map(|name| (*name).to_owned()).chain(names).collect()
    }

    /// The name of the tree that is built and walked: the one that was given, or the programs.
    pub(super) fn tree(&self) -> &'static str {
        if self.given.iter().any(|path| path.is_dir()) { "tree" } else { "programs" }
    }

    /// The directory of a subject: with one large [`FILE`] in it, or the tree of programs.
    pub(super) fn subject(&self, name: &str) -> Result<PathBuf> {
        let dir = self.room.join("data").join(name);
        if dir.exists() {
            return Ok(dir);
        }
        let part = self.room.join("data").join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        fs::create_dir_all(&part)?;
        let file = part.join(FILE);
        let given = self.given.iter().find(|path| path.file_name().is_some_and(|file| *file == *name));
        match name {
            "text" => {
                let lacks = |error: anyhow::Error| Lacks(format!("needs Debian's linux-source: {error:#}"));
                linux_source(&file, self.scale.content).map_err(lacks)?;
            }
            "mixed" => archive(&file, self.scale.content)?,
            "tree" => {
                let dir = self.given.iter().find(|path| path.is_dir()).context("no tree was given")?;
                shell::run(Command::new("cp").args(["-a", "-T"]).args([dir, &part]))?;
            }
            "programs" => programs::plant(&part, self.scale.programs)?,
            _ if given.is_some() => drop(fs::copy(given.context("it is there")?, &file)?),
            _ => {
                let percent = name.strip_prefix("saves").and_then(|text| text.parse().ok());
                make(&file, self.scale.made, percent.with_context(|| format!("no such data: {name}"))?)?;
            }
        }
        fs::rename(part, &dir)?;
        Ok(dir)
    }

    /// Bytes of a subject's large file.
    pub(super) fn size(&self, subject: &str) -> Result<u64> {
        Ok(fs::metadata(self.subject(subject)?.join(FILE))?.len())
    }

    /// The image of a subject in this form.
    pub(super) fn image(&self, subject: &str, form: &Form) -> Result<PathBuf> {
        let dir = self.room.join("images");
        let image = dir.join(format!("{subject}-{}", form.slug()));
        if image.exists() {
            return Ok(image);
        }
        let source = self.subject(subject)?;
        fs::create_dir_all(&dir)?;
        let part = dir.join("part");
        if part.exists() {
            fs::remove_file(&part)?;
        }
        match form {
            Form::Btrfs(algorithm) => self.btrfs(&source, &part, algorithm)?,
            _ => quietly(&mut self.builder(form, &source, &part)?)?,
        }
        fs::rename(part, &image)?;
        Ok(image)
    }

    /// The command that makes an image; of btrfs there is none.
    pub(super) fn builder(&self, form: &Form, source: &Path, image: &Path) -> Result<Command> {
        let command = |program: &Path| Command::new(program);
        Ok(match form {
            Form::Ferofs(options) => {
                let mut ferofs = command(&self.daemons.ferofs);
                ferofs.arg("build").args(options.split_whitespace()).args([source, image]);
                ferofs
            }
            Form::MkfsErofs(options) => {
                let mut mkfs = command(wanted(self.tools.mkfs_erofs.as_deref(), "mkfs.erofs")?);
                mkfs.arg("--quiet").args(options.split_whitespace()).args([image, source]);
                mkfs
            }
            Form::Squashfs(options) => {
                let mut mksquashfs = command(wanted(self.tools.mksquashfs.as_deref(), "mksquashfs")?);
                let quiet = ["-noappend", "-no-progress", "-quiet"];
                mksquashfs.args([source, image]).args(options.split_whitespace()).args(quiet);
                mksquashfs
            }
            Form::Ext4 => {
                let mut mke2fs = command(wanted(self.tools.mke2fs.as_deref(), "mke2fs")?);
                mke2fs.args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "8192", "-d"]);
                mke2fs.args([source, image]).arg(format!("{}M", self.roomy(source)? / MIB));
                mke2fs
            }
            Form::Btrfs(_) => bail!("btrfs is made by mounting"),
        })
    }

    /// btrfs compresses what is written to it mounted.
    fn btrfs(&self, source: &Path, image: &Path, algorithm: &str) -> Result<()> {
        let mkfs = wanted(self.tools.mkfs_btrfs.as_deref(), "mkfs.btrfs")?;
        Way::Kernel("btrfs").check()?;
        File::create(image)?.set_len(self.roomy(source)?.max(256 * MIB))?;
        quietly(Command::new(mkfs).args(["-q", "-m", "single", "-d", "single"]).arg(image))?;
        let dir = self.mount_point()?;
        let options = format!("loop,noatime,compress-force={algorithm}");
        quietly(Command::new("mount").args(["-t", "btrfs", "-o", &options]).args([image, &dir]))?;
        let copied = quietly(Command::new("cp").args(["-a", "-T"]).args([source, &dir]));
        quietly(Command::new("umount").arg(&dir))?;
        copied
    }

    /// Bytes that a file system without compression needs for `source`.
    fn roomy(&self, source: &Path) -> Result<u64> {
        let mut bytes = 64 * MIB;
        super::super::extract::each_file(source, &mut |_, len| {
            bytes += len.next_multiple_of(4096) + 1024;
            Ok(())
        })?;
        Ok(bytes + bytes / 10)
    }

    /// A contestant with its image made, if this machine can mount it.
    pub(super) fn contestant(&self, subject: &str, entrant: &Entrant) -> Result<Contestant> {
        entrant.way.check()?;
        Ok(Contestant::new(entrant.name.clone(), &self.image(subject, &entrant.form)?, entrant.way))
    }

    /// Where the contestants mount.
    pub(super) fn mount_point(&self) -> Result<PathBuf> {
        let dir = self.room.join("mount");
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// The start of an archive of programs and libraries, to `file`.
fn archive(file: &Path, len: u64) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "-C", "/", "-cf", "-", "usr/bin", "usr/lib"]);
    let mut tar = tar.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("tar")?;
    let text = tar.stdout.take().context("tar has no output")?;
    let got = std::io::copy(&mut text.take(len), &mut File::create(file)?)?;
    // The rest is not wanted.
    tar.kill()?;
    tar.wait()?;
    if got < len {
        return Err(Lacks(format!("needs {} MiB in /usr/bin and /usr/lib", len / MIB)).into());
    }
    Ok(())
}

/// Bytes of which compression saves about `percent`: so much of each block of 4 KiB is zero, and the rest random.
fn make(file: &Path, len: u64, percent: u64) -> Result<()> {
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

/// What a case reads, and how.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) subject: String,
    pub(super) pattern: Pattern,
}

impl Display for Content {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.subject, self.pattern)
    }
}
