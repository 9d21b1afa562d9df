//! The images that Linux reads: each layout, files with large holes, and random options.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use ferofs::read::{Algorithm, Image, OpenOptions, Source};
use ferofs_tests::{Content, Model, Rng, run};

use super::Version;
use crate::hostile::base_images::TestImage;
use crate::linux::digest::{Entry, OurReader, SPARSE, entries};
use crate::linux::guest::page_cache;
use crate::options::generate::settings::{self, Interface};

/// Each layout: its name, and the options of `ferofs build`.
const LAYOUTS: [(&str, &str); 35] = [
    ("uncompressed", "-z none"),
    ("lz4", "--preset fast -z lz4"),
    ("lz4 64K", "--preset fast -z lz4 -C 64K"),
    ("default", "--preset default"),
    ("zstd", "--preset fast -z zstd -C 64K"),
    ("48bit", "-z zstd,3 -C 128K -E 48bit,fragments"),
    ("small", "--preset small"),
    ("smallest", "--preset smallest"),
    ("backup", "--preset backup"),
    ("android", "--preset android"),
    ("compressed metadata", "--preset fast -z lz4 -m 4096 --compress-directories"),
    ("lz4 full indexes", "--preset fast -z lz4 -E legacy-compress"),
    ("lz4hc", "--preset fast -z lz4hc,9 -C 16K"),
    ("chunks", "--chunk-size 4096"),
    ("chunk indexes", "--chunk-size 4096 -E force-chunk-indexes"),
    ("chunk device", "--chunk-size 4096 --chunk-device device"),
    ("lzma", "--preset fast -z lzma -C 64K"),
    ("deflate", "--preset fast -z deflate -C 64K"),
    ("two algorithms", "--preset fast -z lz4:lzma --compress-large lzma,1"),
    ("tails", "--preset fast -z lz4 -E ztailpacking"),
    ("fragments", "--preset fast -z lz4 -E fragments"),
    ("all fragments", "--preset fast -z lz4 -E all-fragments"),
    ("dedupe", "--preset fast -z lz4 -E dedupe"),
    ("compressed directories", "--preset fast -z lz4 --compress-directories"),
    ("dot-omitted", "--preset fast -z lz4 -E dot-omitted"),
    ("blocks of 512", "-z none -b 512"),
    ("blocks of 1 KiB", "-z none -b 1024"),
    ("compressed blocks of 1 KiB", "--preset fast -z lz4 -b 1024"),
    ("blocks of 16 KiB", "-z none -b 16384"),
    ("prefixes of attributes", "--preset fast -z lz4 --xattr-prefix user.number."),
    ("metadata of 16 KiB", "--preset fast -z lz4 -C 16K -m 16K"),
    ("android metadata", "--preset android -m 4096"),
    ("label of 16 bytes", "-z none --label 0123456789abcdef"),
    ("sealed", "--preset fast -z lz4 --verity"),
    ("sealed default", "--preset default --verity"),
];
/// The layouts of the short run are the first ones.
const FEW_LAYOUTS: usize = 11;

/// The name of the extra device in `--chunk-device`, also of random options.
const DEVICE: &str = "device";

/// The layouts that are also patched, and their names then.
const PATCHED: [(&str, &str); 7] = [
    ("lz4", "patched lz4"),
    ("default", "patched default"),
    ("48bit", "patched 48bit"),
    ("compressed metadata", "patched metadata"),
    ("metadata of 16 KiB", "patched metadata of 16 KiB"),
    ("android metadata", "patched android metadata"),
    ("fragments", "patched fragments"),
];

/// Images that are like an earlier one and keep its features: their name, and the options of both.
const LIKE: [(&str, &str, &str); 3] = [
    ("like one with tails", "--preset fast -E ztailpacking", "--preset fast"),
    ("like one with fragments", "--preset fast -E all-fragments", "--preset fast"),
    (
        "like one, prefixes",
        "--preset fast -E all-fragments",
        "--preset fast --xattr-prefix user.number.",
    ),
];

/// Layouts of a file of 12 MiB with holes, and the first release that shows them.
const HOLES: [(&str, &str, Version); 4] = [
    ("holes of lz4", "--preset fast -z lz4 -E holes", Version(7, 2)),
    ("holes of zstd", "--preset fast -z zstd -C 64K -E holes,legacy-compress", Version(7, 2)),
    ("holes of 48bit", "--preset fast -z lz4 -E 48bit", Version(6, 18)),
    ("holes in chunks", "-z none", Version(6, 13)),
];

/// Layouts of files with 100 MiB of data, and the first release that shows their holes. An index
/// needs bytes for each block of the file, so ferofs stores a file of 1 TiB in no index; 1.5 GiB is
/// nearly the most for this data.
const HUGE: [(&str, &str, &str, Version); 5] = [
    ("1 TiB in chunks", TERABYTE, "-z none", Version(6, 13)),
    ("1 TiB of lz4", TERABYTE, "--preset fast -z lz4 -E 48bit", Version(6, 18)),
    ("1 TiB of zstd", TERABYTE, "--preset fast -z zstd -C 64K -E 48bit", Version(6, 18)),
    ("1.5 GiB of lz4", GIGABYTES, "--preset fast -z lz4 -E holes", Version(7, 2)),
    (
        "1.5 GiB of zstd",
        GIGABYTES,
        "--preset fast -z zstd -C 64K -E holes,legacy-compress",
        Version(7, 2),
    ),
];
const TERABYTE: &str = "terabyte";
const GIGABYTES: &str = "gigabytes";
/// The first release that reads all images of [`HUGE`], and shows the holes of those of 1 TiB.
pub(super) const HUGE_SINCE: Version = Version(6, 18);
/// Parts of these files with data, and the bytes of each.
const PARTS: u64 = 100;
const PART: usize = 1 << 20;

/// Bytes of the files of a random tree. One of [`LARGE_EVERY`] trees may have more: an emulated
/// processor decodes few megabytes in a second, and small trees have all forms but the largest
/// clusters.
const SMALL_TREE: usize = 300_000;
const LARGE_EVERY: u64 = 16;

/// Bytes of the files of two images that share them.
const EQUAL: usize = 16 << 20;

/// An image, and what Linux must do with it.
pub(super) struct Built {
    /// The name of its layout, or none if its options are random.
    pub(super) layout: Option<&'static str>,
    pub(super) options: String,
    pub(super) bytes: Arc<Vec<u8>>,
    /// The data on extra devices.
    pub(super) devices: Vec<Arc<Vec<u8>>>,
    /// Another image with the same files, whose pages Linux must share.
    pub(super) equal: Option<Arc<Vec<u8>>>,
    /// If it is sealed.
    pub(super) root_hash: Option<String>,
    /// The first release that mounts it, as the summary of the build says.
    pub(super) first: Version,
    /// The first release that shows the holes of its files.
    pub(super) shows_holes: Version,
    /// Bytes of a block.
    pub(super) block: u64,
    pub(super) has_lzma: bool,
    pub(super) entries: Vec<Entry>,
}

impl Built {
    /// Bytes of the image and its devices.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.devices.iter().map(|device| device.len()).sum::<usize>()
    }
}

/// The images of all layouts, or the first ones.
pub(super) fn layouts(dir: &Path, few: bool) -> Result<Vec<Built>> {
    let model = Model::random(&mut Rng::new(7));
    let (source, next) = (dir.join("tree"), dir.join("next"));
    fs::create_dir(&source)?;
    model.write_to(&source)?;
    let content: String = (0..60_000).map(|number| format!("{number}\n")).collect();
    fs::write(source.join("numbers"), content)?;
    fs::create_dir(&next)?;
    model.update(&mut Rng::new(8)).write_to(&next)?;
    for (tree, seed) in [(&source, 9), (&next, 10)] {
        write_small_files(tree, &mut Rng::new(seed))?;
    }
    let mut all = Vec::new();
    for (name, options) in LAYOUTS.into_iter().take(if few { FEW_LAYOUTS } else { LAYOUTS.len() }) {
        let image = must_build(dir, name, options, &["tree"])?;
        let patched_name = PATCHED.into_iter().find_map(|(from, to)| (from == name).then_some(to));
        let patched = patched_name.map(|name| patched(dir, name, &image)).transpose()?;
        all.push(image);
        all.extend(patched);
    }
    if !few {
        all.extend(indexes(dir)?);
        all.push(equal(dir)?);
        for (name, old, new) in LIKE {
            must_build(dir, name, old, &["tree"])?;
            fs::rename(dir.join("image"), dir.join("old"))?;
            all.push(must_build(dir, name, &format!("{new} --like old"), &["next"])?);
        }
        write_sparse(
            &dir.join("holes"),
            12 << 20,
            &[(0, 70_000), (1 << 20, 5000), (11 << 20, 70_000)],
        )?;
        for (name, options, shows_holes) in HOLES {
            all.push(Built { shows_holes, ..must_build(dir, name, options, &["holes"])? });
        }
    }
    fs::remove_dir_all(source)?;
    Ok(all)
}

/// Files whose inodes and inline bytes fill pclusters of a metabox that Linux cannot decode in
/// place, also of those that a patch appends.
fn write_small_files(tree: &Path, rng: &mut Rng) -> Result<()> {
    let dir = tree.join("!small-files");
    fs::create_dir(&dir)?;
    for number in 0..140 {
        let path = dir.join(number.to_string());
        fs::write(&path, Content::Noise.bytes(3900, rng))?;
        // Inodes with times of their own are longer.
        let time = UNIX_EPOCH + Duration::from_secs(rng.below(1 << 30));
        File::options().write(true).open(path)?.set_modified(time)?;
    }
    Ok(())
}

/// `image` after a patch to the tree in `next`.
fn patched(dir: &Path, name: &'static str, image: &Built) -> Result<Built> {
    must(dir, &["patch", "create", "image", "next", "-o", "update"])?;
    must(dir, &["patch", "apply", "image", "update"])?;
    fs::remove_file(dir.join("update"))?;
    let bytes = Arc::new(fs::read(dir.join("image"))?);
    let (entries, ..) = ours(&bytes, &[])?;
    let (options, devices) = (image.options.clone(), Vec::new());
    Ok(Built {
        layout: Some(name),
        options,
        bytes,
        devices,
        equal: None,
        root_hash: None,
        entries,
        ..*image
    })
}

/// Two images with equal files of [`EQUAL`] bytes in all. The page cache must not grow when the
/// second one is read, unless in another domain.
fn equal(dir: &Path) -> Result<Built> {
    let (source, name, options) = (dir.join("equal"), "inode_share", "-z none --inode-digests");
    fs::create_dir(&source)?;
    for number in 0..8 {
        fs::write(
            source.join(number.to_string()),
            Content::Noise.bytes(EQUAL / 8, &mut Rng::new(number)),
        )?;
    }
    let second = must_build(dir, name, options, &["equal"])?;
    fs::write(source.join("more"), "a file of the first image")?;
    let mut first = must_build(dir, name, options, &["equal"])?;
    first.entries.extend(page_cache(0, EQUAL as u64));
    Ok(Built { equal: Some(second.bytes), first: Version(7, 0), ..first })
}

/// Images without data, which is in two images, and in two archives.
fn indexes(dir: &Path) -> Result<[Built; 2]> {
    for source in ["tree", "next"] {
        must(dir, &["build", "--quiet", "-z", "none", source, &format!("{source}.erofs")])?;
        let mut tar = Command::new("tar");
        tar.args([
            "--xattrs",
            "--xattrs-include=*",
            "-cf",
            &format!("{source}.tar"),
            "-C",
            source,
            ".",
        ]);
        let output = tar.current_dir(dir).output().context("tar")?;
        if !output.status.success() {
            bail!("tar: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok([
        must_build(dir, "index of images", "--index-only", &["tree.erofs", "next.erofs"])?,
        must_build(dir, "index of archives", "--index-only", &["tree.tar", "next.tar"])?,
    ])
}

/// The images of [`HUGE`].
pub(super) fn huge(dir: &Path) -> Result<Vec<Built>> {
    for (name, size) in [(TERABYTE, 1 << 40), (GIGABYTES, 3 << 29)] {
        let parts: Vec<_> = (0..PARTS).map(|part| (size / PARTS * part, PART)).collect();
        write_sparse(&dir.join(name), size, &parts)?;
    }
    let image = |(name, source, options, shows_holes)| -> Result<Built> {
        Ok(Built { shows_holes, ..must_build(dir, name, options, &[source])? })
    };
    HUGE.into_iter().map(image).collect()
}

/// A directory with a file of holes and of `parts`, an offset and a length each.
fn write_sparse(dir: &Path, size: u64, parts: &[(u64, usize)]) -> Result<()> {
    fs::create_dir(dir)?;
    let file = File::create(dir.join(SPARSE))?;
    file.set_len(size)?;
    for (number, (at, len)) in parts.iter().enumerate() {
        let content = if number % 2 == 0 { Content::Text } else { Content::Period };
        file.write_all_at(&content.bytes(*len, &mut Rng::new(number as u64)), *at)?;
    }
    Ok(())
}

/// An image of a random tree with random options, unless these contradict each other, or the image
/// does not begin its file.
pub(super) fn random(dir: &Path, seed: u64, number: u64) -> Result<Option<Built>> {
    let mut rng = Rng::new(seed).fork(&number.to_le_bytes());
    let limit = if number.is_multiple_of(LARGE_EVERY) { usize::MAX } else { SMALL_TREE };
    let model = Model::random_up_to(limit, &mut rng);
    let settings = settings::image(Interface::Build, &model, &mut rng);
    if settings.has("--offset") {
        return Ok(None);
    }
    // Others are built at the same time.
    let dir = &dir.join(number.to_string());
    let source = dir.join("tree");
    fs::create_dir_all(&source)?;
    model.write_to(&source)?;
    for (name, content) in settings.0.iter().filter_map(|setting| setting.file.as_ref()) {
        fs::write(dir.join(name), content)?;
    }
    let built = build(dir, &settings.words(), &["tree"])?;
    fs::remove_dir_all(dir)?;
    Ok(built.ok())
}

fn must_build(dir: &Path, name: &'static str, options: &str, sources: &[&str]) -> Result<Built> {
    let words: Vec<OsString> = options.split(' ').map(OsString::from).collect();
    let image = build(dir, &words, sources)?;
    let image = image.map_err(|error| anyhow!("{name}: the build fails: {error}"))?;
    Ok(Built { layout: Some(name), ..image })
}

/// The image of the sources in `dir`, or why the build refuses.
fn build(dir: &Path, options: &[OsString], sources: &[&str]) -> Result<Result<Built, String>> {
    let mut words: Vec<OsString> = ["build", "--force", "--json"].map(OsString::from).into();
    words.extend_from_slice(options);
    words.extend(sources.iter().chain(&["image"]).map(OsString::from));
    let summary = match ferofs(dir, &words)? {
        Ok(summary) => summary,
        Err(error) => return Ok(Err(error)),
    };
    let summary: serde_json::Value =
        serde_json::from_str(summary.lines().last().unwrap_or_default())?;
    let first = Version::parse(summary["linux"].as_str().context("no field linux")?)?;
    let root_hash = summary["verity"]["roothash"].as_str().map(str::to_owned);
    let bytes = Arc::new(fs::read(dir.join("image"))?);
    let read = |name: &&str| -> Result<Arc<Vec<u8>>> { Ok(Arc::new(fs::read(dir.join(name))?)) };
    let devices: Vec<_> = if options.iter().any(|word| word == "--index-only") {
        sources.iter().map(read).collect::<Result<_>>()?
    } else if dir.join(DEVICE).exists() {
        vec![read(&DEVICE)?]
    } else {
        Vec::new()
    };
    // The next image may have none.
    let _ = fs::remove_file(dir.join(DEVICE));
    let (entries, block, has_lzma) = ours(&bytes, &devices)?;
    let text: Vec<_> = options.iter().map(|word| word.to_string_lossy()).collect();
    let (options, shows_holes) = (text.join(" "), Version(0, 0));
    Ok(Ok(Built {
        layout: None,
        options,
        bytes,
        devices,
        equal: None,
        root_hash,
        first,
        shows_holes,
        block,
        has_lzma,
        entries,
    }))
}

fn must(dir: &Path, words: &[&str]) -> Result<String> {
    ferofs(dir, words)?.map_err(|error| anyhow!("{words:?}: {error}"))
}

/// The output of ferofs, or its message if it fails.
fn ferofs(dir: &Path, words: &[impl AsRef<OsStr>]) -> Result<Result<String, String>> {
    let output = Command::new(run::ferofs_path()).args(words).current_dir(dir).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// What our reader shows, the bytes of a block, and whether LZMA is one of the algorithms.
fn ours(image: &Arc<Vec<u8>>, devices: &[Arc<Vec<u8>>]) -> Result<(Vec<Entry>, u64, bool)> {
    let source =
        |bytes: &Arc<Vec<u8>>| -> Box<dyn Source> { Box::new(TestImage::new(Arc::clone(bytes))) };
    let devices = devices.iter().map(source).collect();
    let opened = Image::open_with(source(image), devices, &OpenOptions::default())?;
    let block = opened.superblock().block_size.bytes64();
    Ok((entries(&OurReader(&opened)), block, opened.configs().contains(Algorithm::Lzma)))
}
