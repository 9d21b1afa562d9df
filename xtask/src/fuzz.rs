//! `cargo xtask fuzz [TARGET] [--seconds N]`: coverage-guided fuzzing with libFuzzer and
//! AddressSanitizer, on the nightly toolchain. Without a target it runs all of them, one after the
//! other. The seeds are images that `cargo xtask fuzz hostile` made, and parts of them.
//!
//! `cargo xtask fuzz mutants [PART]... [--shard K/N]`: changes the code in many small ways, one at
//! a time, and lists the changes that no unit test of the crate notices. cargo-mutants does it in a
//! copy of the repository; the command needs it, and does not install it.
//!
//! `cargo xtask fuzz options|faults|hostile`: builds ferofs and the campaigns, and starts one of
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, EROFS_UTILS, FUSE, MOUNT};
use ferofs_devtools::{peers, shell};
use ferofs_tests::scratch;

use crate::test::{ARM64_MACHINE_TOOLS, install_machine_tools, processors};

const TARGETS: [&str; 10] = [
    "superblock",
    "inode",
    "directory",
    "xattr",
    "map",
    "codec_decode",
    "codec_round_trip",
    "image",
    "tar",
    "patch",
];

/// The flags that cargo-fuzz passes, too: edge counters and comparisons for libFuzzer.
const FLAGS: &str = "-Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn fuzz(options: &[&str]) -> Result<()> {
    let (mut targets, mut seconds, mut options) = (Vec::new(), "60", options.iter());
    while let Some(option) = options.next() {
        match *option {
            "--seconds" => seconds = options.next().context("--seconds needs a number")?,
            target if TARGETS.contains(&target) => targets.push(target),
            unknown => bail!("no target {unknown}: {}", TARGETS.join(", ")),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    let fuzz = shell::repository().join("fuzz");
    let mut cargo = Command::new("cargo");
    // The C libraries are instrumented too: the cc crate takes the sanitizer from these flags.
    cargo.env("RUSTFLAGS", FLAGS).env_remove("CARGO").current_dir(&fuzz);
    // AddressSanitizer once reported a use after scope in ZSTD_compressBlock_opt0 at level 11, for
    // `CwsKCgoKCwA=` (base64; kept in fuzz/seeds/codec_round_trip). It does not come back with this
    // input, nor with libzstd 1.5.7 alone, built by gcc 12 and clang 14: gcc instruments the C
    // code, but the runtime library is that of Rust's LLVM. With this check, the target that makes
    // patches stops.
    cargo.env("CFLAGS", "-fno-sanitize-address-use-after-scope");
    shell::run(cargo.args(["+nightly", "build", "--release", "--target", TRIPLE]))?;
    for target in targets {
        let corpus = fuzz.join("corpus").join(target);
        fs::create_dir_all(&corpus)?;
        write_seeds(target, &corpus)?;
        let artifacts = fuzz.join("artifacts").join(target);
        fs::create_dir_all(&artifacts)?;
        let mut run = Command::new(fuzz.join("target").join(TRIPLE).join("release").join(target));
        run.arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()));
        run.args(["-rss_limit_mb=1024", "-timeout=20", "-print_final_stats=1"]);
        if target == "image" {
            run.arg("-max_len=131072");
        }
        if ["image", "tar", "patch"].contains(&target) {
            // LeakSanitizer reports the memory of threads that are ending.
            run.arg("-detect_leaks=0");
        }
        // Some C libraries define several variants of one function, which AddressSanitizer reports
        // as a violation.
        run.env("ASAN_OPTIONS", "detect_odr_violation=0");
        let saved_seeds = fuzz.join("seeds").join(target);
        shell::run(run.arg(corpus).args(saved_seeds.is_dir().then_some(saved_seeds)))?;
    }
    Ok(())
}

/// Writes seeds for a target to its corpus: images that `cargo xtask fuzz hostile` made, or parts
/// of them.
fn write_seeds(target: &str, corpus: &Path) -> Result<()> {
    match target {
        "tar" => return write_archive_seeds(corpus),
        // This target builds its own images.
        "patch" => return Ok(()),
        _ => {}
    }
    let images = scratch::target_dir().join("hostile");
    let Ok(images) = fs::read_dir(&images) else {
        eprintln!("no seeds: run `cargo xtask fuzz hostile --images 1` first");
        return Ok(());
    };
    for path in images
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "erofs"))
    {
        let name =
            path.file_stem().context("an image without a name")?.to_string_lossy().into_owned();
        let image = fs::read(&path)?;
        match target {
            "image" => fs::write(corpus.join(name), image)?,
            "superblock" => {
                fs::write(corpus.join(name), image.get(1024..1400).unwrap_or_default())?
            }
            "directory" | "codec_decode" => {
                // The first 40 blocks, whatever they contain: the fuzzer keeps those that increase
                // coverage.
                for (n, block) in image.chunks(4096).enumerate().take(40) {
                    fs::write(
                        corpus.join(format!("{name}-{n}")),
                        [&[3, 0, 16][..], block].concat(),
                    )?;
                }
            }
            // Slots of the inode table, each with the 128 bytes after it: xattrs and compression
            // indexes.
            "inode" | "xattr" | "map" => {
                for (n, slot) in image.chunks(32).enumerate().skip(36).take(60) {
                    let rest = image.get(n * 32..image.len().min(n * 32 + 160)).unwrap_or(slot);
                    fs::write(corpus.join(format!("{name}-{n}")), [&[0xFF][..], rest].concat())?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes small archives in all formats of tar, each after the byte that selects what the target
/// does with it.
fn write_archive_seeds(corpus: &Path) -> Result<()> {
    let work_dir = tempfile::tempdir()?;
    let source = work_dir.path().join("source");
    let long = "a-long-name".repeat(20);
    fs::create_dir_all(source.join("dir"))?;
    for name in ["file", "dir/other", "dir/.wh.gone", long.as_str()] {
        fs::write(source.join(name), name.repeat(40))?;
    }
    fs::hard_link(source.join("file"), source.join("dir/link"))?;
    std::os::unix::fs::symlink("../file", source.join("dir/symlink"))?;
    fs::File::create(source.join("holes"))?.set_len(100_000)?;
    for (number, format) in ["v7", "oldgnu", "gnu", "ustar", "posix"].iter().enumerate() {
        let tar = work_dir.path().join(format);
        let mut command = Command::new("tar");
        command.args(["--format", format, "-cf"]).arg(&tar).arg("-C").arg(&source);
        // These formats support neither long names nor sparse files.
        if matches!(*format, "v7" | "ustar") {
            command.arg("--exclude=a-long*");
        } else {
            command.arg("--sparse");
        }
        shell::run(command.arg("."))?;
        fs::write(corpus.join(format), [vec![number as u8], fs::read(&tar)?].concat())?;
    }
    Ok(())
}

/// The parts of the code that decide what an image contains or what is accepted: name, crate,
/// files.
const PARTS: [(&str, &str, &[&str]); 9] = [
    ("format", "ferofs-format", &["crates/format/src/**"]),
    ("verity", "ferofs-verity", &["crates/verity/src/**"]),
    ("metadata", "ferofs-read", &["crates/read/src/metadata/**"]),
    ("output", "ferofs-write", &["crates/write/src/output.rs", "crates/write/src/output/**"]),
    (
        "dedupe",
        "ferofs-write",
        &["crates/write/src/data/encode/dedupe.rs", "crates/write/src/data/encode/dedupe/**"],
    ),
    ("image", "ferofs-update", &["crates/update/src/image.rs", "crates/update/src/image/**"]),
    ("apply", "ferofs-update", &["crates/update/src/apply.rs", "crates/update/src/apply/**"]),
    ("target", "ferofs", &["crates/ferofs/src/extract/target.rs"]),
    ("check", "ferofs", &["crates/ferofs/src/check.rs", "crates/ferofs/src/check/**"]),
];

/// Runs the parts, all without a name. A shard is every N-th change, beginning with the K-th, so
/// that it has some of each file.
pub(crate) fn mutants(options: &[&str]) -> Result<()> {
    let all = PARTS.map(|(name, ..)| name);
    let (mut names, mut shard, mut options) = (Vec::new(), None, options.iter());
    while let Some(option) = options.next() {
        match *option {
            "--shard" => shard = Some(options.next().context("--shard needs K/N")?),
            name if all.contains(&name) => names.push(name),
            unknown => bail!("no part {unknown}: {}", all.join(", ")),
        }
    }
    if !shell::cargo()
        .args(["mutants", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let target = scratch::target_dir();
    let mut survivors = Vec::new();
    for (name, package, files) in
        PARTS.iter().filter(|(name, ..)| names.is_empty() || names.contains(name))
    {
        let output = target.join("mutants").join(name);
        std::fs::create_dir_all(&output)?;
        let mut cargo = shell::cargo();
        cargo
            .args(["mutants", "--package", package, "--minimum-test-timeout", "20", "--output"])
            .arg(&output);
        // A warning about code that a change made unused is not a test's success.
        cargo.args(["--cap-lints", "true", "--jobs", "1"]);
        for file in *files {
            cargo.args(["--file", file]);
        }
        if let Some(shard) = shard {
            cargo.args(["--sharding", "round-robin", "--shard", shard]);
        }
        // No examples of the documentation, which are compiled one by one; the tests of `ferofs`
        // beside the library run its programs.
        cargo.args(["--", if *package == "ferofs" { "--lib" } else { "--tests" }]);
        // Kept between runs: only the changed crate is compiled again, without the debug
        // information that nobody reads.
        cargo
            .env("CARGO_TARGET_DIR", target.join("mutants/target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        if shell::run(&mut cargo).is_err() {
            survivors.push(output.join("mutants.out/missed.txt").display().to_string());
        }
    }
    match survivors.is_empty() {
        true => Ok(()),
        false => bail!("no test notices the changes in {}", survivors.join(", ")),
    }
}

/// `cargo xtask fuzz NAME OPTIONS`: builds both programs and runs the campaign.
pub(crate) fn campaign(name: &str, options: &[&str]) -> Result<()> {
    install::install(&[FUSE, MOUNT, EROFS_UTILS])?;
    if options.iter().any(|option| option.starts_with("--linux")) {
        install_machine_tools()?;
    }
    shell::run(&mut build_command())?;
    run_campaign(name, options, &ferofs())
}

/// Options of `cargo xtask test --kernels`, and kernels of `--only`, for which no program for ARM
/// is compiled.
const WITHOUT_ARM: [&str; 4] = ["--few", "--help", "-h", "cloud-amd64"];

/// `cargo xtask test --kernels OPTIONS`: releases of Linux read images in virtual machines.
pub(crate) fn kernels(options: &[&str]) -> Result<()> {
    install_machine_tools()?;
    shell::run(&mut build_command())?;
    if !options.iter().any(|option| WITHOUT_ARM.contains(option)) {
        install::install(ARM64_MACHINE_TOOLS)?;
        processors::build_guest()?;
    }
    run_campaign("kernels", options, &ferofs())
}

/// Builds ferofs, with overflow checks, and the program of the campaigns. One command for both: two
/// would select different features of shared dependencies, and compile them twice.
pub(crate) fn build_command() -> Command {
    let mut cargo = shell::cargo();
    // Not the whole workspace: benchmarks turn on features that the published programs do not have.
    cargo.args([
        "build",
        "--profile",
        "checked",
        "-p",
        "ferofs-cli",
        "-p",
        "ferofs-device",
        "-p",
        "ferofs-campaigns",
    ]);
    cargo
}

/// The ferofs that [`build_command`] builds.
pub(crate) fn ferofs() -> PathBuf {
    scratch::target_dir().join("checked/ferofs")
}

/// Runs a campaign that is built already.
pub(crate) fn run_campaign(name: &str, options: &[&str], ferofs: &Path) -> Result<()> {
    let target = scratch::target_dir();
    let mut run = Command::new(target.join("checked/ferofs-campaigns"));
    run.arg(name).args(options).env("FEROFS_BIN", ferofs);
    if let Some(bin) = peers::installed(&target) {
        run.env("FEROFS_PEERS", bin);
    }
    // Without a mirror, a campaign with virtual machines says so.
    if let Ok(mirror) = peers::debian_mirror() {
        run.env("DEBIAN_MIRROR", mirror);
    }
    shell::run(&mut run)
}
