//! `cargo xtask test --processors [NAME]...`: the unit tests and the command on other processors, whose instructions QEMU translates.
//!
//! For each processor the command is compiled without a warning, the unit tests of the libraries run, and images and patches are made that must
//! have the same bytes as those that this machine makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{install, shell};
use ferofs_tests::tools::Tool;
use ferofs_tests::{need, scratch};

/// A processor, with the names that Rust and Debian give to it.
struct Processor {
    name: &'static str,
    /// The target of rustc.
    target: &'static str,
    /// The prefix of Debian's compiler, and the directory of its C library below /usr.
    tools: &'static str,
    /// Debian's compiler, and its C library.
    compiler: Tool,
    library: &'static str,
    emulator: Tool,
}

macro_rules! processor {
    ($name:literal, $target:literal, $tools:literal, $library:literal, $emulator:literal) => {
        Processor {
            name: $name,
            target: $target,
            tools: $tools,
            compiler: Tool { program: concat!($tools, "-gcc"), package: concat!("gcc-", $tools) },
            library: $library,
            emulator: Tool { program: concat!("qemu-", $emulator, "-static"), package: "qemu-user-static" },
        }
    };
}

/// With 32 bits: armv7 and i686. Big-endian: s390x.
#[rustfmt::skip]
const PROCESSORS: [Processor; 6] = [
    processor!("aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "libc6-dev-arm64-cross", "aarch64"),
    processor!("armv7", "armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf", "libc6-dev-armhf-cross", "arm"),
    processor!("riscv64", "riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu", "libc6-dev-riscv64-cross", "riscv64"),
    processor!("i686", "i686-unknown-linux-gnu", "i686-linux-gnu", "libc6-dev-i386-cross", "i386"),
    processor!("powerpc64le", "powerpc64le-unknown-linux-gnu", "powerpc64le-linux-gnu", "libc6-dev-ppc64el-cross", "ppc64le"),
    processor!("s390x", "s390x-unknown-linux-gnu", "s390x-linux-gnu", "libc6-dev-s390x-cross", "s390x"),
];

/// The crates whose unit tests need the system more than the processor.
const FOR_THE_SYSTEM: [&str; 3] = ["ferofs-fuse", "ferofs-remote", "ferofs-cli"];

/// Options of images that must have the same bytes: each algorithm, and each way to place data.
const IMAGES: [&str; 12] = [
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

/// Tests the processors of these names, or all.
pub(crate) fn run(names: &[&str]) -> Result<()> {
    let known = PROCESSORS.map(|processor| processor.name);
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no processor {name}; there are {}", known.join(", "));
    }
    if need::find_tool("rustup").is_none() {
        bail!("rustup is missing, which installs the standard library for other processors");
    }
    let own = shell::build_ferofs("checked")?;
    let scratch = scratch::scratch();
    let inputs = Inputs::make(&own, scratch.path())?;
    let mut rows = Vec::new();
    for processor in PROCESSORS.iter().filter(|it| names.is_empty() || names.contains(&it.name)) {
        println!("{}", shell::bold(&format!("== {}", processor.name)));
        rows.push(processor.test(&inputs, scratch.path()).with_context(|| processor.name)?);
    }
    println!("{:<14}{:>12}{:>14}", "processor", "unit tests", "same images");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Builds the program of the campaigns for virtual machines with ARM processors. It is static, because they have no libraries.
pub(crate) fn build_guest() -> Result<()> {
    let [aarch64, ..] = &PROCESSORS;
    aarch64.install()?;
    let mut cargo = aarch64.cargo("build");
    cargo.env("RUSTFLAGS", "-D warnings -C target-feature=+crt-static -C strip=symbols");
    shell::run(cargo.args(["--package", "ferofs-campaigns"]))
}

/// Trees, and what this machine makes of them.
struct Inputs {
    /// Files of this repository, and a file with holes that is larger than 4 GiB.
    tree: PathBuf,
    /// The same with changes.
    changed: PathBuf,
    /// The image of each of [`IMAGES`].
    images: Vec<PathBuf>,
    /// From one of the images to `changed`.
    patch: PathBuf,
}

/// The image that the patch is for.
const PATCHED: usize = 4;

impl Inputs {
    fn make(ferofs: &Path, dir: &Path) -> Result<Self> {
        let (tree, changed) = (dir.join("tree"), dir.join("changed"));
        for to in [&tree, &changed] {
            fs::create_dir(to)?;
            for name in ["docs", "crates/format", "crates/codec"] {
                shell::run(Command::new("cp").arg("-r").arg(shell::repository().join(name)).arg(to))?;
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
        Ok(Self { tree, changed, images, patch })
    }
}

/// `ferofs build` with one time and UUID, so that it makes the same bytes each time.
fn build<'a>(ferofs: &'a mut Command, options: &str, tree: &Path, image: &Path) -> &'a mut Command {
    ferofs.args(["build", "--quiet", "--force", "-T", "1", "-U", "00112233-4455-6677-8899-aabbccddeeff"]);
    ferofs.args(options.split(' ')).args([tree, image])
}

fn create<'a>(ferofs: &'a mut Command, image: &Path, tree: &Path, patch: &Path) -> &'a mut Command {
    ferofs.args(["patch", "create", "-T", "2"]).args([image, tree]).arg("--output").arg(patch)
}

impl Processor {
    fn test(&self, inputs: &Inputs, dir: &Path) -> Result<String> {
        self.install()?;
        let mut build_command = self.cargo("build");
        shell::run(build_command.args(["--package", "ferofs-cli"]))?;
        let mut tests = self.cargo("test");
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
        let image = dir.join(self.name);
        for (options, expected) in IMAGES.iter().zip(&inputs.images) {
            shell::run(build(&mut self.ferofs(), options, &inputs.tree, &image))?;
            same(expected, &image).with_context(|| format!("build {options}"))?;
            shell::run(self.ferofs().args(["check", "--deep"]).arg(&image))?;
            shell::run(self.ferofs().args(["diff", "-q"]).args([&inputs.tree, &image]))?;
        }
        let patched = inputs.images.get(PATCHED).context("there is no image for the patch")?;
        let patch = dir.join(format!("{}.patch", self.name));
        shell::run(create(&mut self.ferofs(), patched, &inputs.changed, &patch))?;
        same(&inputs.patch, &patch).context("patch create")?;
        fs::copy(patched, &image)?;
        shell::run(self.ferofs().args(["patch", "apply"]).args([&image, &patch]))?;
        shell::run(self.ferofs().args(["diff", "-q"]).args([&inputs.changed, &image]))?;
        Ok(format!("{:<14}{passed:>12}{:>14}", self.name, IMAGES.len()))
    }

    fn install(&self) -> Result<()> {
        let library = Path::new("/usr").join(self.tools).join("include");
        let mut tools = vec![self.compiler, self.emulator];
        if !library.exists() {
            // A library has no program.
            tools.push(Tool { program: self.library, package: self.library });
        }
        install::install(&tools)?;
        shell::run(Command::new("rustup").args(["target", "add", self.target]))
    }

    /// Cargo for this processor. A warning is an error.
    fn cargo(&self, command: &str) -> Command {
        let mut cargo = shell::cargo();
        let variable = self.target.replace('-', "_").to_uppercase();
        cargo
            .args([command, "--target", self.target])
            .arg("--target-dir")
            .arg(target_dir())
            .env(format!("CARGO_TARGET_{variable}_LINKER"), self.compiler.program)
            .env(format!("CARGO_TARGET_{variable}_RUNNER"), self.emulated().join(" "))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("RUSTFLAGS", "-D warnings");
        cargo
    }

    /// The emulator with its arguments.
    fn emulated(&self) -> [String; 3] {
        [self.emulator.program.into(), "-L".into(), format!("/usr/{}", self.tools)]
    }

    /// The command that was built for this processor.
    fn ferofs(&self) -> Command {
        let [emulator, arguments @ ..] = self.emulated();
        let mut command = Command::new(emulator);
        command.args(arguments).arg(target_dir().join(self.target).join("debug/ferofs"));
        command
    }
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
