//! `cargo xtask fuzz mutants [PART]... [--shard K/N]`: changes the code in many small ways, one at a time, and lists the changes that no
//! unit test of the crate notices. cargo-mutants does it in a copy of the repository; the command needs it, and does not install it.

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_tests::scratch;

/// The parts of the code that decide what an image contains or what is accepted: name, crate, files.
const PARTS: [(&str, &str, &[&str]); 9] = [
    ("format", "ferofs-format", &["crates/format/src/**"]),
    ("verity", "ferofs-verity", &["crates/verity/src/**"]),
    ("metadata", "ferofs-read", &["crates/read/src/metadata/**"]),
    ("output", "ferofs-build", &["crates/build/src/output.rs", "crates/build/src/output/**"]),
    (
        "dedupe",
        "ferofs-build",
        &["crates/build/src/data/encode/dedupe.rs", "crates/build/src/data/encode/dedupe/**"],
    ),
    ("image", "ferofs-patch", &["crates/patch/src/image.rs", "crates/patch/src/image/**"]),
    ("apply", "ferofs-patch", &["crates/patch/src/apply.rs", "crates/patch/src/apply/**"]),
    ("target", "ferofs", &["crates/ferofs/src/extract/target.rs"]),
    ("check", "ferofs", &["crates/ferofs/src/check.rs", "crates/ferofs/src/check/**"]),
];

/// Runs the parts, all without a name. A shard is every N-th change, beginning with the K-th, so that it has some of each file.
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
    if !shell::cargo().args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success()) {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let target = scratch::target_dir();
    let mut survivors = Vec::new();
    for (name, package, files) in PARTS.iter().filter(|(name, ..)| names.is_empty() || names.contains(name)) {
        let output = target.join("mutants").join(name);
        std::fs::create_dir_all(&output)?;
        let mut cargo = shell::cargo();
        cargo
            .args(["mutants", "--package", package, "--minimum-test-timeout", "20", "--output"])
            .arg(&output);
        // A warning about code that a change made unused is no test's success.
        cargo.args(["--cap-lints", "true", "--jobs", "1"]);
        for file in *files {
            cargo.args(["--file", file]);
        }
        if let Some(shard) = shard {
            cargo.args(["--sharding", "round-robin", "--shard", shard]);
        }
        // No examples of the documentation, which are compiled one by one; the tests of `ferofs` beside the library run its programs.
        cargo.args(["--", if *package == "ferofs" { "--lib" } else { "--tests" }]);
        // Kept between runs: only the changed crate is compiled again, without the debug information that nobody reads.
        cargo.env("CARGO_TARGET_DIR", target.join("mutants/target")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        if shell::run(&mut cargo).is_err() {
            survivors.push(output.join("mutants.out/missed.txt").display().to_string());
        }
    }
    match survivors.is_empty() {
        true => Ok(()),
        false => bail!("no test notices the changes in {}", survivors.join(", ")),
    }
}
