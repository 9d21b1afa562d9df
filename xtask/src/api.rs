//! `cargo xtask api`: writes the public items of each library to `docs/api`, one a line. `cargo
//! xtask test` compares them, so that no change of the public API goes unseen: its author writes
//! the lists anew, and the review shows what changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;
use ferofs_tests::{need, scratch};

/// The Rust whose rustdoc describes the items. Its JSON changes between versions, and `public-api`
/// in Cargo.toml reads that of this one only. Raise both together.
const RUST: &str = "1.95.0";

/// The libraries, by package.
const LIBRARIES: [&str; 11] = [
    "ferofs-format",
    "ferofs-codec",
    "ferofs-threads",
    "ferofs-read",
    "ferofs-host",
    "ferofs-write",
    "ferofs-verity",
    "ferofs-update",
    "ferofs",
    "ferofs-fuse",
    "ferofs-serve",
];

/// Lines of a difference that are printed.
const SHOWN: usize = 40;

fn folder() -> PathBuf {
    shell::repository().join("docs/api")
}

/// Writes the lists.
pub(crate) fn write() -> Result<()> {
    install_rust().context("the lists need this version of Rust, from rustup")?;
    for library in LIBRARIES {
        let path = folder().join(library).with_extension("txt");
        fs::write(&path, items(library)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Fails if the libraries changed since `revision`, for example the tag of the last release, in a
/// way that the version number does not allow.
pub(crate) fn compare(revision: &str) -> Result<()> {
    let mut check = Command::new("cargo");
    check.args(["semver-checks", "--baseline-rev", revision]);
    check.args(LIBRARIES.iter().flat_map(|library| ["--package", library]));
    shell::run(&mut check).context("`cargo install cargo-semver-checks` installs the program")
}

/// Fails if a list differs from the items that the library has.
pub(crate) fn check() -> Result<()> {
    if let Err(error) = install_rust() {
        if std::env::var_os("CI").is_some() {
            return Err(error);
        }
        eprintln!(
            "left out: the comparison of the public API, because rustup cannot install Rust {RUST}"
        );
        return Ok(());
    }
    let mut differences = String::new();
    for library in LIBRARIES {
        let path = folder().join(library).with_extension("txt");
        let listed = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        differences.push_str(&difference(&listed, &items(library)?));
    }
    if !differences.is_empty() {
        let lines: Vec<&str> = differences.lines().take(SHOWN).collect();
        bail!(
            "the public API changed; if that is intended, run `cargo xtask api`:\n{}",
            lines.join("\n")
        );
    }
    Ok(())
}

/// The lines of only one of both lists, with a sign before each.
fn difference(old: &str, new: &str) -> String {
    let only = |of: &str, other: &str, sign: char| -> String {
        let other: std::collections::HashSet<&str> = other.lines().collect();
        of.lines()
            .filter(|line| !other.contains(line))
            .map(|line| format!("{sign} {line}\n"))
            .collect()
    };
    only(old, new, '-') + &only(new, old, '+')
}

/// Installs this version of Rust if it is not there. One that is there stays as it is: other builds
/// may be using it, and to install it again removes its files for a while.
fn install_rust() -> Result<()> {
    let program = need::find_tool("rustup").context("rustup is not there")?;
    let present = Command::new(&program).args(["run", RUST, "rustc", "--version"]).output()?;
    if present.status.success() {
        return Ok(());
    }
    shell::run_quietly(Command::new(program).args([
        "toolchain",
        "install",
        RUST,
        "--profile",
        "minimal",
    ]))
}

/// The public items of a library with all its features.
fn items(library: &str) -> Result<String> {
    let target = scratch::target_dir().join("api");
    let mut rustdoc = Command::new("rustup");
    rustdoc
        .args([
            "run",
            RUST,
            "cargo",
            "rustdoc",
            "--quiet",
            "--lib",
            "--all-features",
            "--package",
            library,
        ])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        // The JSON is not stable yet: the constant above says for which version it is read.
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTDOCFLAGS")
        .current_dir(shell::repository());
    shell::run_quietly(&mut rustdoc)?;
    read(&target.join("doc").join(library.replace('-', "_")).with_extension("json"))
}

/// The items in a file of rustdoc, without those that follow from others: blanket implementations,
/// `Send`, derived traits.
fn read(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| json.display().to_string())?;
    Ok(api.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), "");
        assert_eq!(
            difference("pub fn a()\nb\n", "b\npub fn a(u8)\n"),
            "- pub fn a()\n+ pub fn a(u8)\n"
        );
    }
}
