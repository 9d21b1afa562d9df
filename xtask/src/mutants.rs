//! `cargo xtask fuzz mutants [PART]...`: changes the code in many small ways, one at a time, and lists the changes that no unit test of the
//! crate notices. cargo-mutants does it in a copy of the repository; the command needs it, and does not install it.

use anyhow::{Result, bail};
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

/// Runs the parts, all without a name.
pub(crate) fn mutants(names: &[&str]) -> Result<()> {
    let all = PARTS.map(|(name, ..)| name);
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        bail!("no part {unknown}: {}", all.join(", "));
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
            .args(["mutants", "--package", package, "--minimum-test-timeout", "60", "--output"])
            .arg(&output);
        for file in *files {
            cargo.args(["--file", file]);
        }
        // Kept between runs: only the changed crate is compiled again.
        cargo.env("CARGO_TARGET_DIR", target.join("mutants/target"));
        if shell::run(&mut cargo).is_err() {
            survivors.push(output.join("mutants.out/missed.txt").display().to_string());
        }
    }
    match survivors.is_empty() {
        true => Ok(()),
        false => bail!("no test notices the changes in {}", survivors.join(", ")),
    }
}
