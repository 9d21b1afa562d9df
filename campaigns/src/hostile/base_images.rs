//! Valid images to start from: one for each set of features, made by ferofs and, if they are
//! installed, by erofs-utils; and an image with changes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use anyhow::{Context, Result, bail};
use ferofs::read::{Image, OpenOptions, Source};
use ferofs_tests::tree::DirWriter;
use ferofs_tests::{Content, Rng, Run, run};

use super::mutate::BaseImage;

/// The settings of `ferofs build`.
const FEROFS: [(&str, &[&str]); 26] = [
    ("ferofs-plain", &["-z", "none"]),
    ("ferofs-default", &["--preset", "default"]),
    ("ferofs-lz4", &["-z", "lz4"]),
    ("ferofs-dedupe", &["-z", "lz4hc", "-E", "dedupe,ztailpacking"]),
    ("ferofs-fragments", &["-z", "zstd", "-C", "64K", "-E", "fragments"]),
    ("ferofs-48bit", &["-z", "lz4hc", "-C", "16K", "-E", "48bit"]),
    ("ferofs-48bit-all-fragments", &["-z", "deflate", "-C", "16K", "-E", "48bit,all-fragments"]),
    ("ferofs-metabox", &["-z", "lz4", "-m", "4096"]),
    ("ferofs-metabox-48bit", &["-z", "lzma", "-m", "65536", "-E", "48bit,dot-omitted"]),
    ("ferofs-chunks", &["--chunk-size", "4096"]),
    ("ferofs-directories", &["-z", "lz4", "--compress-directories"]),
    ("ferofs-lzma", &["-z", "lzma", "-C", "16K"]),
    ("ferofs-deflate", &["-z", "deflate", "-C", "16K"]),
    ("ferofs-zstd", &["-z", "zstd", "-C", "16K"]),
    ("ferofs-full-index", &["-z", "lz4hc", "-C", "16K", "-E", "legacy-compress,ztailpacking"]),
    (
        "ferofs-full-index-fragments",
        &["-z", "deflate", "-C", "16K", "-E", "legacy-compress,fragments"],
    ),
    ("ferofs-blocks-of-1024", &["-z", "lz4hc", "-b", "1024", "-C", "8K"]),
    ("ferofs-blocks-of-512", &["-z", "zstd", "-b", "512", "-C", "4K", "-E", "ztailpacking"]),
    ("ferofs-48bit-dedupe", &["-z", "zstd", "-C", "8K", "-E", "48bit,dedupe"]),
    ("ferofs-small-chunks", &["-b", "512", "--chunk-size", "1024", "-E", "force-chunk-indexes"]),
    ("ferofs-metabox-fragments", &["-z", "lz4hc", "-m", "4096", "-E", "fragments"]),
    ("ferofs-smallest", &["--preset", "smallest"]),
    ("ferofs-backup", &["--preset", "backup"]),
    ("ferofs-prefix", &["-z", "lz4", "-x1", "--xattr-prefix", "user.long.prefix."]),
    ("ferofs-prefix-metabox", &["-z", "lz4", "-m", "4096", "--xattr-prefix", "user.long.prefix."]),
    ("ferofs-device", &["--chunk-size", "4096", "--chunk-device", "device"]),
];

/// Those that are also patched, as `patched-NAME`.
const PATCHED: [&str; 5] =
    ["ferofs-lz4", "ferofs-default", "ferofs-metabox", "ferofs-48bit", "ferofs-metabox-fragments"];
/// The extra device of an image, in these settings and at the end of its name.
pub(super) const DEVICE: &str = "device";

/// The settings of `mkfs.erofs` 1.9.
const EROFS_UTILS: [(&str, &[&str]); 23] = [
    ("plain", &[]),
    ("lz4", &["-zlz4"]),
    ("lz4hc", &["-zlz4hc,level=12"]),
    ("lzma", &["-zlzma"]),
    ("deflate", &["-zdeflate"]),
    ("zstd", &["-zzstd"]),
    ("two-algorithms", &["-zlz4:lzma"]),
    ("big-pclusters", &["-zlz4hc", "-C65536"]),
    ("full-index", &["-zlz4", "-Elegacy-compress"]),
    ("ztailpacking", &["-zlz4hc", "-Eztailpacking"]),
    ("ztailpacking-lzma", &["-zlzma", "-C65536", "-Eztailpacking"]),
    ("fragments", &["-zlz4hc", "-C65536", "-Efragments"]),
    ("all-fragments", &["-zlzma", "-Eall-fragments"]),
    ("all-fragments-dedupe", &["-zlz4hc", "-C16384", "-Eall-fragments,dedupe"]),
    ("dedupe", &["-zlz4", "-Ededupe"]),
    ("chunks", &["--chunksize=4096"]),
    ("48bit", &["-zlz4", "-E48bit"]),
    ("48bit-zstd", &["-zzstd", "-C65536", "-E48bit"]),
    ("metabox", &["-zlz4hc", "-m4096", "--MZ=id"]),
    ("xattr-prefixes", &["-x1", "--xattr-prefix=user.long.prefix."]),
    ("extended-inodes", &["-Eforce-inode-extended"]),
    ("blocks-of-512", &["-b512"]),
    ("compressed-directories", &["-zlz4hc", "--zD=1"]),
];

/// Builds all images in `dir`, as `NAME.erofs`.
pub(crate) fn build(dir: &Path) -> Result<()> {
    let source = dir.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    fs::create_dir_all(&source)?;
    write_tree(&source).context("the tree of the base images")?;
    for (name, options) in FEROFS {
        let image = dir.join(name).with_extension("erofs");
        // Nothing of the default preset.
        let plain: &[&str] = if options.contains(&"-z") { &["--preset", "fast"] } else { &[] };
        let device = image.with_extension(DEVICE);
        let options = options
            .iter()
            .map(|word| if *word == DEVICE { device.as_os_str() } else { word.as_ref() });
        let build = run::ferofs().args(["build", "--quiet", "--force"]).args(plain).args(options);
        must_succeed(build.args([&source, &image]))?;
    }
    patch(dir, &source).context("patched base images")?;
    let Some(peers) = env::var_os("FEROFS_PEERS").map(PathBuf::from) else {
        eprintln!("no newest erofs-utils (cargo xtask peers): images of ferofs only");
        return Ok(());
    };
    for (name, options) in EROFS_UTILS {
        let image = dir.join(name).with_extension("erofs");
        let mkfs = Run::new(peers.join("mkfs.erofs")).args(["--quiet", "-T1700000000"]);
        must_succeed(mkfs.args(options).args([&image, &source]))?;
    }
    Ok(())
}

/// Patches copies of [`PATCHED`] to a changed tree.
fn patch(dir: &Path, source: &Path) -> Result<()> {
    let (next, update) = (dir.join("next"), dir.join("update"));
    if next.exists() {
        fs::remove_dir_all(&next)?;
    }
    must_succeed(run!("cp -a", source, &next))?;
    let mut lines = fs::read_to_string(next.join("text"))?;
    lines.insert_str(9000, "an edited line");
    fs::write(next.join("text"), &lines)?;
    fs::write(next.join("new"), &lines[..6000])?;
    fs::rename(next.join("wide"), next.join("renamed"))?;
    fs::remove_file(next.join("long-link"))?;
    for name in PATCHED {
        let image = dir.join(format!("patched-{name}.erofs"));
        fs::copy(dir.join(name).with_extension("erofs"), &image)?;
        must_succeed(
            run::ferofs().args(["patch", "create", "--force", "-o"]).args([&update, &image, &next]),
        )?;
        must_succeed(run::ferofs().args(["patch", "apply"]).args([&image, &update]))?;
    }
    Ok(())
}

fn must_succeed(run: Run) -> Result<()> {
    let outcome = run.try_run()?;
    match outcome.code {
        0 => Ok(()),
        code => bail!("exit code {code}: {}", outcome.stderr),
    }
}

/// Loads the images in `dir`, in the order of their names: those that contain one of `words`, if
/// there are any.
pub(crate) fn load(dir: &Path, words: &[String]) -> Result<Vec<BaseImage>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .with_context(|| format!("{}", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension() == Some(OsStr::new("erofs")));
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        words.is_empty() || words.iter().any(|word| name.contains(word))
    });
    if paths.is_empty() {
        bail!("no base image has a name with {}", words.join(" or "));
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let device = path.with_extension(DEVICE);
            let device = device.exists().then(|| fs::read(device)).transpose()?;
            BaseImage::new(&name, fs::read(path)?, device).map_err(anyhow::Error::msg)
        })
        .collect()
}

/// A small tree of all types of inodes. Its files are small, so that much of the image is metadata.
fn write_tree(dir: &Path) -> Result<()> {
    let writer = DirWriter::open(dir, Rng::new(5), false)?;
    let text = |name: &[u8], len: usize| Content::Text.bytes(len, &mut writer.rng(name));
    let long = text(b"text", 20_000);
    writer.file(b"text", &long)?;
    writer.file(b"empty", b"")?;
    writer.file(b"one", b"1")?;
    writer.file(b"zeroes", &[0; 20_000])?;
    writer.symlink(b"link", b"text")?;
    writer.symlink(b"long-link", &[b'x'; 300])?;
    writer.sub(b"dir", |dir| {
        dir.file(b"copy", &long[4096..15_000])?;
        dir.file(b"tail", &text(b"tail", 4500))?;
        dir.file(b"block", &text(b"block", 4096))?;
        let mut noise = vec![0; 6000];
        dir.rng(b"noise").fill(&mut noise);
        dir.file(b"mixed", &[text(b"mixed", 9000), noise.clone(), text(b"end", 3000)].concat())?;
        dir.file(b"noise", &noise)?;
        dir.link(b"tail", dir, b"hard")
    })?;
    writer.sub(b"wide", |dir| {
        (0..30).try_for_each(|n| dir.file(format!("name{n:03}").as_bytes(), &text(b"wide", 10 * n)))
    })?;
    for (name, key, value) in [
        (&b"text"[..], &b"user.short"[..], &b"v"[..]),
        (b"one", b"user.long.prefix.one", b"a value that several files have"),
        (b"dir", b"user.long.prefix.two", b"a value that several files have"),
        (b"wide", b"user.long.prefix.one", b"a value that several files have"),
    ] {
        writer.xattr(name, key, value)?;
    }
    writer.finish()?;
    Ok(())
}

/// An image in memory. Bytes from the base's end to `size` read as zeros, as those of a sparse file
/// do.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) base: Arc<Vec<u8>>,
    /// The extra device, which is not changed.
    pub(crate) device: Option<Arc<Vec<u8>>>,
    /// Position and new bytes; later changes win.
    pub(crate) changes: Vec<(usize, Vec<u8>)>,
    /// The size of the image.
    pub(crate) size: u64,
}

impl TestImage {
    pub(crate) fn new(base: Arc<Vec<u8>>) -> Self {
        let size = base.len() as u64;
        Self { base, device: None, changes: Vec::new(), size }
    }

    /// Stored bytes; the limits on time and memory depend on them.
    pub(crate) fn len(&self) -> usize {
        self.base.len()
    }

    /// Opens the image with its device.
    pub(crate) fn open(self, options: &OpenOptions) -> ferofs::read::Result<Image> {
        let devices = self
            .device
            .iter()
            .map(|device| -> Box<dyn Source> { Box::new(Self::new(Arc::clone(device))) });
        let devices = devices.collect();
        Image::open_with(Box::new(self), devices, options)
    }

    /// The base with all changes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (at, new) in &self.changes {
            if let Some(old) = bytes.get_mut(*at..*at + new.len()) {
                old.copy_from_slice(new);
            }
        }
        bytes
    }

    /// Writes the image as a sparse file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.write_all_at(&self.bytes(), 0)?;
        if let Some(device) = &self.device {
            fs::write(path.with_extension(DEVICE), &device[..])?;
        }
        file.set_len(self.size)
    }
}

impl Source for TestImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn stored(&self) -> u64 {
        self.base.len() as u64
    }

    fn next_stored(&self, pos: u64) -> u64 {
        if pos < self.stored() { pos } else { self.size }
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = pos.checked_add(buf.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        let stored = self.base.len() as u64;
        if pos < stored {
            // Both are at most the length of a vector.
            let (from, to) = (pos as usize, end.min(stored) as usize);
            buf[..to - from].copy_from_slice(&self.base[from..to]);
            for (at, bytes) in &self.changes {
                let (first, last) = (from.max(*at), to.min(at + bytes.len()));
                if first < last {
                    buf[first - from..last - from].copy_from_slice(&bytes[first - at..last - at]);
                }
            }
        }
        Ok(())
    }
}
