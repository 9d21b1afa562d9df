//! Builds images of all layouts, and of random options, and lets releases of Linux read them in virtual machines.
//!
//! A release that the summary of the build promises must show the same tree as our reader. An older one must show it, too, or refuse the image or a
//! part of it: it must never show other bytes. [`LEFT_OUT`] lists what Debian's kernels lack.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs::read::{Image, OpenOptions, Source};
use ferofs_tests::rng::Rng;
use ferofs_tests::{run, scratch};

use crate::hostile::base_images::TestImage;
use crate::linux::digest::{Entry, OurReader, entries, total};
use crate::linux::guest::{self, Case};
use crate::linux::machine::{Answer, Machine};
use crate::options::generate::settings::{self, Interface};
use crate::options::generate::tree;

/// The releases that Debian's suites have.
const RELEASES: [&str; 6] = ["5.10", "6.1", "6.12", "6.18", "7.2", "7.3"];
/// The releases of the short run: the oldest that has large pclusters in Debian, the stable one, the newest.
const FEW_RELEASES: [&str; 3] = ["5.10", "6.12", "7.3"];

/// Each layout: its name, and the options of `ferofs build`.
const LAYOUTS: [(&str, &str); 31] = [
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
    ("dot-omitted", "--preset fast -z lz4 -E dot-omitted"),
    ("blocks of 512", "-z none -b 512"),
    ("blocks of 1 KiB", "-z none -b 1024"),
    ("compressed blocks of 1 KiB", "--preset fast -z lz4 -b 1024"),
    ("blocks of 16 KiB", "-z none -b 16384"),
    ("prefixes of attributes", "--preset fast -z lz4 --xattr-prefix user.number."),
    ("compressed metadata", "--preset fast -z lz4 -m 4096 --compress-directories"),
    ("label of 16 bytes", "-z none --label 0123456789abcdef"),
    ("sealed", "--preset fast -z lz4 --verity"),
];

/// What Debian leaves out of a release, and so refuses: the release, and a part of the options.
const LEFT_OUT: [(&str, &str); 1] = [("6.1", "lzma")];

/// Bytes of images for one start of a machine, which keeps them in memory.
const BATCH: usize = 128 << 20;

/// Releases of Linux read images in virtual machines; needs root or sudo once
#[derive(Args)]
#[command(override_usage = "cargo xtask test --kernels [OPTIONS]")]
pub(crate) struct KernelArgs {
    /// Three releases and ten layouts, and nothing else
    #[arg(long)]
    few: bool,
    /// Also N images of random options for each release
    #[arg(long, value_name = "N", default_value = "200", default_value_if("few", "true", "0"))]
    pub(crate) random: u64,
    /// The images of seed S
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
}

pub(crate) fn run(options: &KernelArgs) -> Result<()> {
    let work_dir = scratch::target_dir().join("kernels");
    fs::create_dir_all(&work_dir)?;
    let scratch = scratch::scratch_in_memory();
    let mut images = layouts(scratch.path(), options.few)?;
    let releases = if options.few { &FEW_RELEASES[..] } else { &RELEASES };
    let mut table = Table::default();
    for number in 0..options.random {
        images.extend(random(scratch.path(), options.seed, number)?);
        if images.iter().map(|image| image.bytes.len()).sum::<usize>() > BATCH {
            table.read(releases, &work_dir, &std::mem::take(&mut images))?;
        }
    }
    table.read(releases, &work_dir, &images)?;
    table.print(releases);
    match table.findings {
        0 => Ok(()),
        n => bail!("{n} findings; their images are in {}", work_dir.join("kept").display()),
    }
}

/// An image, and what Linux must do with it.
struct Built {
    /// The name of its layout, or none if its options are random.
    layout: Option<&'static str>,
    options: String,
    bytes: Arc<Vec<u8>>,
    /// The data on an extra device.
    device: Option<Vec<u8>>,
    /// The first release that mounts it, as the summary of the build says.
    first: Version,
    /// Its blocks are larger than the pages of the virtual machines.
    is_paged: bool,
    entries: Vec<Entry>,
}

/// A release of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    fn parse(text: &str) -> Result<Self> {
        let (major, minor) = text.split_once('.').with_context(|| text.to_owned())?;
        Ok(Self(major.parse()?, minor.parse()?))
    }
}

/// The images of [`LAYOUTS`], and patched ones.
fn layouts(dir: &Path, few: bool) -> Result<Vec<Built>> {
    let model = tree::random(&mut Rng::new(7));
    let (source, next) = (dir.join("tree"), dir.join("next"));
    fs::create_dir(&source)?;
    model.write_to(&source)?;
    let content: String = (0..60_000).map(|number| format!("{number}\n")).collect();
    fs::write(source.join("numbers"), content)?;
    fs::create_dir(&next)?;
    tree::update(&model, &mut Rng::new(8)).write_to(&next)?;
    let mut all = Vec::new();
    for (name, options) in LAYOUTS.iter().take(if few { 10 } else { LAYOUTS.len() }) {
        let words: Vec<OsString> = options.split(' ').map(OsString::from).collect();
        let mut image = build(dir, &words)?.with_context(|| format!("{name}: the build fails"))?;
        image.layout = Some(name);
        if !few && ["lz4", "default", "48bit", "compressed metadata"].contains(name) {
            all.push(patched(dir, name, &image)?);
        }
        all.push(image);
    }
    fs::remove_dir_all(source)?;
    Ok(all)
}

/// `image` after a patch to the tree in `next`.
fn patched(dir: &Path, name: &'static str, image: &Built) -> Result<Built> {
    for words in
        [&["patch", "create", "image", "next", "-o", "update"][..], &["patch", "apply", "image", "update"]]
    {
        ferofs(dir, words)?.with_context(|| format!("{name}: {words:?} fails"))?;
    }
    fs::remove_file(dir.join("update"))?;
    let bytes = Arc::new(fs::read(dir.join("image"))?);
    let entries = ours(&bytes, None)?;
    let layout = match name {
        "lz4" => "patched lz4",
        "default" => "patched default",
        "48bit" => "patched 48bit",
        _ => "patched metadata",
    };
    Ok(Built { layout: Some(layout), options: image.options.clone(), bytes, entries, device: None, ..*image })
}

/// An image of a random tree with random options, unless these contradict each other, or the image does not begin its file.
fn random(dir: &Path, seed: u64, number: u64) -> Result<Option<Built>> {
    let mut rng = Rng::new(seed).fork(&number.to_le_bytes());
    let model = tree::random(&mut rng);
    let settings = settings::image(Interface::Build, &model, &mut rng);
    if settings.has("--offset") || settings.has("--chunk-device") {
        return Ok(None);
    }
    let source = dir.join("tree");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    fs::create_dir(&source)?;
    model.write_to(&source)?;
    for (name, content) in settings.0.iter().filter_map(|setting| setting.file.as_ref()) {
        fs::write(dir.join(name), content)?;
    }
    build(dir, &settings.words())
}

/// The image of the tree in `dir`; none if the build refuses.
fn build(dir: &Path, options: &[OsString]) -> Result<Option<Built>> {
    let mut words: Vec<OsString> = ["build", "--force", "--json"].map(OsString::from).into();
    words.extend_from_slice(options);
    words.extend(["tree", "image"].map(OsString::from));
    let Some(summary) = ferofs(dir, &words)? else { return Ok(None) };
    let summary: serde_json::Value = serde_json::from_str(summary.lines().last().unwrap_or_default())?;
    let first = Version::parse(summary["linux"].as_str().context("no field linux")?)?;
    let bytes = Arc::new(fs::read(dir.join("image"))?);
    let device = dir.join("device");
    let device = if device.exists() { Some(fs::read(&device)?) } else { None };
    let entries = ours(&bytes, device.clone())?;
    let _ = fs::remove_file(dir.join("device"));
    let text: Vec<_> = options.iter().map(|word| word.to_string_lossy()).collect();
    let is_paged =
        text.windows(2).any(|pair| pair[0] == "-b" && pair[1].parse::<u64>().is_ok_and(|block| block > 4096));
    Ok(Some(Built { layout: None, options: text.join(" "), bytes, device, first, is_paged, entries }))
}

/// The output of ferofs; none if it fails.
fn ferofs(dir: &Path, words: &[impl AsRef<std::ffi::OsStr>]) -> Result<Option<String>> {
    let output = Command::new(run::ferofs_path()).args(words).current_dir(dir).output()?;
    Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// What our reader shows.
fn ours(image: &Arc<Vec<u8>>, device: Option<Vec<u8>>) -> Result<Vec<Entry>> {
    let devices = device.into_iter().map(|bytes| {
        let source: Box<dyn Source> = Box::new(TestImage::new(Arc::new(bytes)));
        source
    });
    let source = Box::new(TestImage::new(Arc::clone(image)));
    let opened = Image::open_with(source, devices.collect(), &OpenOptions::default())?;
    Ok(entries(&OurReader(&opened)))
}

/// What the releases did, by layout and release.
#[derive(Default)]
struct Table {
    cells: BTreeMap<(&'static str, &'static str), &'static str>,
    /// Images of random options: by release and result.
    random: BTreeMap<(&'static str, &'static str), u64>,
    findings: u64,
}

impl Table {
    fn read(&mut self, releases: &[&'static str], work_dir: &Path, images: &[Built]) -> Result<()> {
        let dir = work_dir.join("images");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let mut cases = Vec::new();
        for (number, image) in images.iter().enumerate() {
            fs::write(dir.join(number.to_string()), &image.bytes[..])?;
            if let Some(device) = &image.device {
                fs::write(dir.join(format!("{number}.device")), device)?;
            }
            let source = TestImage::new(Arc::clone(&image.bytes));
            cases.push(Case::new(number as u64, number, total(&image.entries), &source));
        }
        let read = |release: &'static str| {
            let machine = Machine::new(release, work_dir, &dir).context(release)?;
            machine.read(&cases).context(release)
        };
        for release in releases {
            let answers = read(release)?;
            for (number, image) in images.iter().enumerate() {
                let answer = answers.get(&(number as u64)).context("the machine did not read all images")?;
                self.judge(release, image, answer, &work_dir.join("kept"))?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, release: &'static str, image: &Built, answer: &Answer, kept: &Path) -> Result<()> {
        let mut differences = Vec::new();
        let result = match answer {
            Answer::Line(line) if line == "ok" => "reads",
            Answer::Line(line) => {
                let linux: BTreeMap<String, Result<u64, String>> = line
                    .split_whitespace()
                    .filter_map(guest::parse_entry)
                    .map(|entry| (entry.what, entry.value))
                    .collect();
                for entry in &image.entries {
                    if let Some(Ok(found)) = linux.get(&entry.what)
                        && entry.value.as_ref().ok() != Some(found)
                    {
                        differences.push(entry.what.clone());
                    }
                }
                if differences.is_empty() { "refuses" } else { "WRONG" }
            }
            Answer::Crash => "CRASHES",
            Answer::Hang => "HANGS",
        };
        match image.layout {
            Some(layout) => drop(self.cells.insert((layout, release), result)),
            None => *self.random.entry((release, result)).or_default() += 1,
        }
        let is_promised = Version::parse(release)? >= image.first && !image.is_paged;
        let is_left_out =
            LEFT_OUT.iter().any(|(at, option)| *at == release && image.options.contains(option));
        let is_fine = result == "reads" || result == "refuses" && (!is_promised || is_left_out);
        if !is_fine {
            self.findings += 1;
            fs::create_dir_all(kept)?;
            let file: PathBuf = kept.join(format!("{release}-{}.erofs", self.findings));
            fs::write(&file, &image.bytes[..])?;
            println!(
                "Linux {release} {result}: {} [{}], first {}.{}: {:?}; {}",
                image.layout.unwrap_or("random"),
                image.options,
                image.first.0,
                image.first.1,
                differences.iter().take(3).collect::<Vec<_>>(),
                file.display()
            );
        }
        Ok(())
    }

    fn print(&self, releases: &[&'static str]) {
        let line = |name: &str, cells: Vec<&str>| {
            println!("{name:<28}{}", cells.iter().map(|cell| format!("{cell:>9}")).collect::<String>());
        };
        line("Linux", releases.to_vec());
        let mut layouts: Vec<_> = self.cells.keys().map(|(layout, _)| *layout).collect();
        layouts.dedup();
        for layout in layouts {
            let cell =
                |release: &&'static str| self.cells.get(&(layout, *release)).copied().unwrap_or_default();
            line(layout, releases.iter().map(cell).collect());
        }
        for ((release, result), count) in &self.random {
            println!("Linux {release} {result} {count} images of random options");
        }
    }
}
