//! `cargo xtask test --processors [--publish] [NAME]...`: the unit tests and the command on other
//! processors, whose instructions QEMU translates. `--publish` writes the row of each processor to
//! docs/results/processors.md as soon as it is known.
//!
//! For each processor the command is compiled without a warning, the unit tests of the libraries
//! run, and images, patches and deltas are made that must have the same bytes as those that this
//! machine makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{page, peers, shell};
use ferofs_tests::scratch;

use crate::dist::Release;
use crate::processor::{self, PROCESSORS, Processor};

/// The crates whose unit tests need the system more than the processor.
const FOR_THE_SYSTEM: [&str; 3] = ["ferofs-fuse", "ferofs-serve", "ferofs-cli"];

/// Options of images that must have the same bytes: each algorithm, and each way to place data.
pub(super) const IMAGES: [&str; 12] = [
    "-z none",
    "--chunk-size 4096",
    "--preset fast",
    "-z lz4hc,12 -C 64K -E ztailpacking",
    "-z zstd,3 -C 128K -E 48bit,fragments",
    "-z zstd,19 -C 64K -E all-fragments",
    "-z deflate,6 -C 32K",
    "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories",
    "-z lz4 -E dedupe -b 1024",
    "--preset android",
    "--preset backup",
    "--preset default --verity",
];

/// The page with the results of this command and of `cargo xtask test --systems`.
pub(super) const PAGE: &str = "docs/results/processors.md";

/// The columns of the table.
const HEAD: [&str; 5] =
    ["processor", "commit", "unit tests", "images of the same bytes", "patches and deltas"];

/// Tests the processors of these names, or all.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let (publish, names): (Vec<&str>, Vec<&str>) =
        options.iter().partition(|option| **option == "--publish");
    let others = PROCESSORS.into_iter().filter(|it| !it.is_own());
    let processors = processor::choose(others, &names)?;
    // Some unit tests read images of mkfs.erofs.
    peers::install_peers()?;
    let own = shell::build_ferofs("checked")?;
    let scratch = scratch::scratch();
    let expected = Expected::make(&own, scratch.path())?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for processor in processors {
        println!("{}", shell::bold(&format!("== {}", processor.name)));
        match test(&processor, &expected) {
            Ok(row) => {
                if !publish.is_empty() {
                    publish_row(&row)?;
                }
                rows.push(row);
            }
            Err(error) => {
                eprintln!("{}: {error:#}", processor.name);
                failed.push(processor.name);
            }
        }
    }
    println!("{}", page::table(&HEAD, &rows));
    if !failed.is_empty() {
        bail!("failed on {}", failed.join(", "));
    }
    Ok(())
}

/// Writes the row of one processor to the page, and keeps those of the others.
fn publish_row(row: &[String]) -> Result<()> {
    let text = fs::read_to_string(shell::repository().join(PAGE))?;
    let rows: Vec<Vec<String>> = PROCESSORS
        .iter()
        .filter_map(|processor| {
            if row.first().is_some_and(|name| name == processor.name) {
                return Some(row.to_vec());
            }
            let old = text
                .lines()
                .find_map(|line| line.strip_prefix(&format!("| {} | ", processor.name)))?;
            let cells = old.trim_end_matches(" |").split(" | ").map(str::to_owned);
            Some(std::iter::once(processor.name.to_owned()).chain(cells).collect())
        })
        .collect();
    page::publish(PAGE, &page::begin("test --processors --publish"), &page::table(&HEAD, &rows))
}

/// Builds the program of the campaigns for virtual machines with ARM processors. It is static,
/// because they have no libraries.
pub(crate) fn build_guest() -> Result<()> {
    let processors = processor::choose(PROCESSORS.into_iter(), &["aarch64"])?;
    for processor in &processors {
        processor.install(processor.target)?;
        let mut build_command = cargo(processor, "build");
        build_command
            .env("RUSTFLAGS", "-D warnings -C target-feature=+crt-static -C strip=symbols");
        shell::run(build_command.args(["--package", "ferofs-campaigns"]))?;
    }
    Ok(())
}

/// Compares what the static programs of a release make.
pub(crate) fn compare(release: &Release) -> Result<()> {
    let scratch = scratch::scratch();
    let own = release.parts.iter().find(|part| part.processor.is_own());
    let own = own.context("there is no release for this machine's processor")?;
    let expected = Expected::make(&own.ferofs, scratch.path())?;
    for part in release.parts.iter().filter(|part| !part.processor.is_own()) {
        println!("{}", shell::bold(&format!("== {}", part.processor.name)));
        expected.compare(|| part.processor.command(&part.ferofs)).context(part.processor.name)?;
        for image in &expected.images {
            shell::run(part.processor.command(&part.device).arg("check").arg(image))?;
        }
    }
    Ok(())
}

/// Compiles for the processor, runs the unit tests, and compares what its program makes.
fn test(processor: &Processor, expected: &Expected) -> Result<Vec<String>> {
    processor.install(processor.target)?;
    let mut build_command = cargo(processor, "build");
    shell::run(build_command.args(["--package", "ferofs-cli"]))?;
    let mut tests = cargo(processor, "test");
    let libraries = super::PUBLIC_CRATES.iter().filter(|name| !FOR_THE_SYSTEM.contains(name));
    tests.arg("--lib").args(libraries.flat_map(|name| ["--package", name]));
    // The memory that it measures would be that of the emulator.
    tests.args(["--", "--skip", "the_stated_memory_is_enough_for_any_plan"]);
    tests.env("PROPTEST_CASES", super::QUICK_CASES);
    let output = tests.output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("unit tests: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let passed: u64 = text.lines().filter_map(passed_in).sum();
    let program = target_dir().join(processor.target).join("debug/ferofs");
    expected.compare(|| processor.command(&program))?;
    let images = IMAGES.len().to_string();
    Ok(vec![
        processor.name.to_owned(),
        page::commit()?,
        passed.to_string(),
        images,
        "1 and 1".to_owned(),
    ])
}

/// Cargo for this processor. A warning is an error.
fn cargo(processor: &Processor, command: &str) -> Command {
    let mut cargo = shell::cargo();
    let variable = processor.target.replace('-', "_").to_uppercase();
    cargo
        .args([command, "--target-dir"])
        .arg(target_dir())
        .env(format!("CARGO_TARGET_{variable}_RUNNER"), processor.emulator().join(" "))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "-D warnings");
    processor.set_target(&mut cargo, processor.target);
    cargo
}

/// Trees, and what this machine makes of them: the programs of other processors must make the same.
struct Expected {
    /// The directory of all files.
    dir: PathBuf,
    /// Files of this repository, and a file with holes that is larger than 4 GiB.
    tree: PathBuf,
    /// The same with changes.
    changed: PathBuf,
    /// The image of each of [`IMAGES`].
    images: Vec<PathBuf>,
    /// From one of the images to `changed`.
    patch: PathBuf,
    /// The image of `changed`, and the delta from the same image to it.
    new: PathBuf,
    delta: PathBuf,
}

/// The image that the patch and the delta are for.
const PATCHED: usize = 4;

impl Expected {
    /// Lets `ferofs`, a program of this machine, make the files in `dir`.
    fn make(ferofs: &Path, dir: &Path) -> Result<Self> {
        let (tree, changed) = (dir.join("tree"), dir.join("changed"));
        for to in [&tree, &changed] {
            fs::create_dir(to)?;
            for name in ["docs", "crates/format", "crates/codec"] {
                shell::run(
                    Command::new("cp").arg("-r").arg(shell::repository().join(name)).arg(to),
                )?;
            }
            let sparse = fs::File::create(to.join("sparse"))?;
            std::os::unix::fs::FileExt::write_all_at(&sparse, b"the end", 5 << 30)?;
        }
        fs::write(changed.join("docs/CLI.md"), "shorter\n")?;
        fs::remove_dir_all(changed.join("docs/decisions"))?;
        let mut images = Vec::new();
        for (number, options) in IMAGES.iter().enumerate() {
            let image = dir.join(format!("{number}.erofs"));
            shell::run(build(&mut Command::new(ferofs), options, &tree, &image))?;
            images.push(image);
        }
        let patch = dir.join("patch");
        let image = images.get(PATCHED).context("there is no image for the patch")?;
        shell::run(create(&mut Command::new(ferofs), image, &changed, &patch))?;
        let (new, delta) = (dir.join("new.erofs"), dir.join("delta"));
        let options = IMAGES.get(PATCHED).context("there are no options for the delta")?;
        shell::run(build(&mut Command::new(ferofs), options, &changed, &new))?;
        shell::run(
            Command::new(ferofs)
                .args(["delta", "create"])
                .args([image, &new])
                .arg("-o")
                .arg(&delta),
        )?;
        Ok(Self { dir: dir.to_owned(), tree, changed, images, patch, new, delta })
    }

    /// Lets the program that `ferofs` starts make the same images and the same patch, and read,
    /// extract and apply them.
    fn compare(&self, ferofs: impl Fn() -> Command) -> Result<()> {
        let (image, extracted) = (self.dir.join("image"), self.dir.join("extracted"));
        for (options, expected) in IMAGES.iter().zip(&self.images) {
            shell::run(build(&mut ferofs(), options, &self.tree, &image))?;
            same(expected, &image).with_context(|| format!("build {options}"))?;
            shell::run(ferofs().args(["check", "--deep"]).arg(&image))?;
            shell::run(ferofs().args(["diff", "-q"]).args([&self.tree, &image]))?;
        }
        shell::run(ferofs().arg("extract").args([&image, &extracted]))?;
        shell::run(ferofs().args(["diff", "-q"]).args([&self.tree, &extracted]))?;
        fs::remove_dir_all(&extracted)?;
        let patched = self.images.get(PATCHED).context("there is no image for the patch")?;
        let patch = self.dir.join("other.patch");
        shell::run(create(&mut ferofs(), patched, &self.changed, &patch))?;
        same(&self.patch, &patch).context("patch create")?;
        fs::copy(patched, &image)?;
        shell::run(ferofs().args(["patch", "apply"]).args([&image, &patch]))?;
        fs::remove_file(&patch)?;
        shell::run(ferofs().args(["diff", "-q"]).args([&self.changed, &image]))?;
        let delta = self.dir.join("other.delta");
        shell::run(
            ferofs().args(["delta", "create"]).args([patched, &self.new]).arg("-o").arg(&delta),
        )?;
        same(&self.delta, &delta).context("delta create")?;
        shell::run(ferofs().args(["delta", "apply", "--force"]).args([patched, &delta, &image]))?;
        fs::remove_file(&delta)?;
        same(&self.new, &image).context("delta apply")
    }
}

/// `ferofs build` with one time and UUID, so that it makes the same bytes each time.
pub(super) fn build<'a>(
    ferofs: &'a mut Command,
    options: &str,
    tree: &Path,
    image: &Path,
) -> &'a mut Command {
    ferofs.args([
        "build",
        "--quiet",
        "--force",
        "-T",
        "1",
        "-U",
        "00112233-4455-6677-8899-aabbccddeeff",
    ]);
    ferofs.args(options.split(' ')).args([tree, image])
}

fn create<'a>(ferofs: &'a mut Command, image: &Path, tree: &Path, patch: &Path) -> &'a mut Command {
    ferofs.args(["patch", "create", "-T", "2"]).args([image, tree]).arg("--output").arg(patch)
}

fn target_dir() -> PathBuf {
    scratch::target_dir().join("processors")
}

/// The number of tests that passed, in a line of the form `test result: ok. 12 passed; ...`.
fn passed_in(line: &str) -> Option<u64> {
    line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
}

fn same(expected: &Path, image: &Path) -> Result<()> {
    let (expected, image) = (fs::read(expected)?, fs::read(image)?);
    if expected != image {
        let at = expected.iter().zip(&image).position(|(one, other)| one != other);
        bail!(
            "the bytes differ from those of this machine: {} and {} bytes, at {at:?}",
            expected.len(),
            image.len()
        );
    }
    Ok(())
}
